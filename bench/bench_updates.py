"""Measure how far honest trainers move between two averages, beside the bound of `--max-update`.

Trains a server and two trainers that may fail, as threads of this process, with each learning rate and interval. A figure is the norm of
a trainer's update over the norm of the parameters it was given, or over 1 if that is smaller: the quantity that the server bounds.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
from typing import Annotated, Any

from harness import summary

from bulksample.errors import PeerLost
from bulksample.methods.averaging import trainer_server
from bulksample.methods.averaging.handshake import TOKEN
from bulksample.methods.averaging.remote_trainer import invited_config
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

RATES, INTERVALS, PORT = (0.001, 0.01, 0.1, 1.0), ("epoch", "20", "500"), 5017
SMALL = {"fanouts": (5, 5), "hidden": 64, "batch_size": 128, "threads": 1, "quiet": True}


def trained(graph: str, rounds: int, **options: Any) -> list[float]:
    """Train, and return the ratio of every answer."""
    ratios: list[float] = []
    whole = trainer_server.update_norms

    def noted(*vectors: Any) -> tuple[float, float]:
        update, norm = whole(*vectors)
        ratios.append(update / norm)
        return update, norm

    trainer_server.update_norms = noted
    asked = {**SMALL, **options, "method": "psgd-pa", "tolerate_failures": True, "trainers": 2, "epochs": rounds, "eval_every": rounds}
    threads = [threading.Thread(target=train, args=(graph,), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    make_trainer(TrainConfig.of(**asked, listen=f"127.0.0.1:{PORT}", timeout=120.0, grace=60.0, max_update=1e30), graph).run()
    for thread in threads:
        thread.join()
    trainer_server.update_norms = whole
    return ratios


def train(graph: str) -> None:
    """Be a trainer, once the server listens."""
    while True:
        try:
            config = invited_config(f"127.0.0.1:{PORT}", 60.0)
            break
        except PeerLost:
            time.sleep(0.05)
    make_trainer(config, graph).run()


def updates(graph: Annotated[str, "a graph in the store format"], rounds: int = 6) -> dict[str, Any]:
    os.environ[TOKEN] = secrets.token_hex(32)
    pairs = itertools.product(RATES, INTERVALS)
    return {"rows": [{"lr": lr, "interval": i, "update": summary(trained(graph, rounds, lr=lr, interval=i))} for lr, i in pairs]}
