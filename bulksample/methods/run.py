"""Run the method that a configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..distributed.comm.agree import checked_on_rank_0
from ..distributed.comm.base import Comm
from ..distributed.comm.threads import SerialComm
from ..training.compute import ComputeContext
from ..training.kept import check_checkpoints
from ..training.loop import Trainer
from ..training.observers import Observer
from ..training.source import Source
from . import load
from .config import TrainConfig


def make_trainer(
    config: TrainConfig, graph: Source, comm: Comm | None = None, observers: Sequence[Observer] = (), compute: ComputeContext | None = None
) -> Trainer:
    """Return a trainer of the method that the configuration names; see `Trainer` for the parameters."""
    return Trainer(config, graph, comm, observers, compute, method=load(config.method))


def train(
    graph: Source, comm: Comm | None = None, observers: Sequence[Observer] = (), overwrite: bool = False, **options: Any
) -> dict[str, Any]:
    """Train with options given as keyword arguments, and return the report of `Trainer.run`.

    The options are fields of `TrainConfig`, such as ``method="adaqp"`` or ``epochs=10``; `Trainer` describes the other parameters.
    With `overwrite` the run replaces the checkpoints of another one in its folder ``checkpoint``.
    Raises `UsageError` if an option is unknown or out of range, or does not suit the graph.
    """
    config = TrainConfig.of(**options)
    checked_on_rank_0(comm or SerialComm(), lambda: check_checkpoints(config, overwrite))
    return make_trainer(config, graph, comm, observers).run()
