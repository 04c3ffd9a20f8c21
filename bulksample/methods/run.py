"""Run the method that a configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..distributed.comm.base import Comm
from ..training.compute import ComputeContext
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


def train(graph: Source, comm: Comm | None = None, observers: Sequence[Observer] = (), **options: Any) -> dict[str, Any]:
    """Train a model on a graph and return the report.

    Parameters
    ----------
    graph : Graph, or the directory of a store
        With features and labels; the same on every rank. A partitioned graph must be a store.
    comm : Comm, optional
        A single rank by default.
    observers : sequence of Observer
        Called on rank 0.
    options
        Fields of `TrainConfig`, such as ``method="adaqp"`` or ``epochs=10``.

    Raises
    ------
    UsageError
        If an option is unknown or out of range, or the request has no meaning on this graph.
    """
    return make_trainer(TrainConfig.of(**options), graph, comm, observers).run()
