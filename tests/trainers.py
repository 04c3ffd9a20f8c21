"""Trainers that join a server: a free port for it to listen on, and the configuration it sends them."""

import socket

from waiting import until

from bulksample.errors import PeerLost
from bulksample.methods.averaging.remote_trainer import invited_config
from bulksample.methods.config import TrainConfig


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def invited_once_it_listens(address: str) -> TrainConfig:
    def asked() -> TrainConfig | None:
        try:
            return invited_config(address, 30.0)
        except PeerLost:
            return None

    return until(asked)
