"""Trainers that join a server: a free port for it to listen on, a token, and the configuration it sends them."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from waiting import until

from bulksample.errors import PeerLost
from bulksample.methods.averaging.frames import Frame, header
from bulksample.methods.averaging.remote_trainer import invited_config
from bulksample.methods.config import TrainConfig

RUN_TOKEN = "0123456789abcdef" * 4


def packed(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    return header(frame) + frame.payload


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


def meanwhile(turn: Callable[[], None], call: Callable[[], Any]) -> Any:
    """Return what a function returns, or raise what it raises, while a server takes turns."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(call)
        while not result.done():
            turn()
        return result.result()
