"""Trainers that join a server: a free port for it to listen on, a token, and the configuration it sends them."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from waiting import PATIENCE, until

from bulksample.errors import PeerLost
from bulksample.methods.averaging.frames import Frame, header
from bulksample.methods.averaging.remote_trainer import invited_config
from bulksample.methods.config import TrainConfig

RUN_TOKEN = "0123456789abcdef" * 4


def packed(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    return header(frame) + frame.payload


_reserved: list[socket.socket] = []


def free_port() -> int:
    """Return a port that nothing listens at, and that this process keeps for whoever is to listen there.

    The bound socket stays open: the system then gives the port to nobody who asks for any port, be it to listen or to connect. A
    server with SO_REUSEADDR, as all here are, may still listen at it.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    _reserved.append(made)
    return int(made.getsockname()[1])


def invited_once_it_listens(address: str) -> TrainConfig:
    def asked() -> TrainConfig | None:
        try:
            return invited_config(address, PATIENCE)
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
