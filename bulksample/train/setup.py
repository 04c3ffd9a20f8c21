"""From a configuration to the parts of a run that need no torch: the sampler, the loader, what counts in the loss."""

from __future__ import annotations

import numpy as np

from .. import samplers
from ..adjacency import LocalAdjacency
from ..backends.base import Backend
from ..config import TrainConfig
from ..dist.base import Comm
from ..graph import Graph
from ..loader import BulkLoader
from ..samplers import Labor, LayerWise, Sampler


def make_sampler(config: TrainConfig) -> Sampler:
    """The sampler that a configuration describes; raises `UsageError` where there is none."""
    options = dict(config.sampler_options)
    if config.sampler == "shadow":
        options.setdefault("layers", config.layers)
    return samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **options)


def make_loader(config: TrainConfig, graph: Graph, backend: Backend, sampler: Sampler, comm: Comm) -> BulkLoader:
    """This rank's loader: of the minibatches of an epoch it gets those whose number is its rank modulo the ranks."""
    seeds = graph.seeds(config.seeds) if config.seeds else graph.default_seeds()
    return BulkLoader(
        LocalAdjacency(graph.adjacency, backend), sampler, seeds,
        batch_size=config.batch_size, bulk_size=config.bulk_size, seed=config.seed,
        rank=comm.rank, ranks=comm.size, memory_budget=config.memory_budget,
    )  # fmt: skip


def estimates_weighted_means(sampler: Sampler) -> bool:
    """Whether the blocks of a weighted graph estimate means by edge weight, so that exact inference must take those."""
    return isinstance(sampler, LayerWise | Labor) or bool(getattr(sampler, "weighted", False))


def truth(graph: Graph, split: str | None) -> np.ndarray:
    """The class of every vertex that counts in the loss, -1 elsewhere: int64, shape (n,).

    Those are the labelled vertices of the split that is trained on; a minibatch may hold others among its seeds.
    """
    assert graph.labels is not None
    counted = np.full(graph.n, -1, np.int64)
    seeds = graph.seeds(split) if split else graph.default_seeds()
    counted[seeds] = graph.labels[seeds]
    return counted
