"""Make the parts of a run from its configuration: the sampler, and the graph as this rank sees it."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np

from .. import samplers
from ..backends.base import Backend
from ..config.train import TrainOptions
from ..distributed.comm.base import Comm
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.open_graph import OpenBlock, Placement, open_block
from ..errors import UsageError
from ..graph import Graph
from ..loader import BulkLoader
from ..samplers import Labor, LayerWise, Sampler
from ..views.partitioned import BlockView
from ..views.view import View
from ..views.whole import WholeView
from .link_loss import without_labels
from .source import Source, load_graph

_COUNTED = 8  # mini-batches that each rank samples to count accesses of features


class ViewRequest(NamedTuple):
    """The graph of a run, and what a rank needs to open it as a view."""

    source: Source
    fingerprint: str
    placement: str  # "replicated" or "partitioned"
    backend: Backend
    sampler: Sampler
    comm: Comm
    gather_threads: int = 0  # threads that gather features ahead; 0: none

    @property
    def weighted(self) -> bool:
        """True if exact inference must take means by edge weight."""
        return estimates_weighted_means(self.sampler)


def make_sampler(config: TrainOptions) -> Sampler:
    """Return the sampler that a configuration describes; raises `UsageError` if there is none."""
    options = dict(config.sampler_options)
    if config.sampler == "shadow":
        options.setdefault("layers", config.layers)
    return samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **options)


def open_view(config: TrainOptions, request: ViewRequest) -> View:
    """Open the graph as this rank sees it: whole, or in block rows over the ranks; collective.

    Raises
    ------
    UsageError
        On every rank, if this graph cannot be trained on in the way that the configuration asks for, or no vertex is a seed.
    """
    view = _view(config, request)
    check_seeds(view.name, view.seeds)
    return view


def _view(config: TrainOptions, request: ViewRequest) -> View:
    """Open the graph whole or in block rows."""
    placement = Placement(request.placement, config.replication, config.exchange, config.partition)
    if placement.partitioned:
        if config.feature_storage != "given":
            raise UsageError(
                f"feature_storage is for features that every rank holds whole; got {config.feature_storage} and a partitioned graph: "
                "use graph replicated, or feature_codec"
            )
        return _block_view(config, request, placement)
    if config.feature_codec != "fp32" or config.cache_bytes or config.fetch_together > 1:
        raise UsageError(
            "feature_codec, cache_bytes and fetch_together are for features that other ranks hold; got a replicated graph: "
            "use graph partitioned"
        )
    graph, comm, mark = load_graph(request.source, config.label, config.target), request.comm, request.fingerprint
    if config.task == "links":
        return WholeView(without_labels(graph), comm, request.backend, mark, "all", config.feature_norm, request.weighted)
    check_labels(graph.name, graph.labels, graph.num_classes)
    return WholeView(
        graph, comm, request.backend, mark, config.seeds, config.feature_norm, request.weighted, config.feature_storage,
        request.gather_threads,
    )  # fmt: skip


def _block_view(config: TrainOptions, request: ViewRequest, placement: Placement) -> BlockView:
    """Open this rank's block row."""
    source, comm, backend = request.source, request.comm, request.backend
    if isinstance(source, Graph):
        raise UsageError(
            f"a partitioned graph is read from a store, block by block; got graph {source.name!r} in memory: use the directory of a store"
        )
    opened = open_block(source, placement, comm.duplicate(), config.seed, label=config.label, target=config.target)
    access_count = _access_count(config, opened, backend, request.sampler, comm) if config.cache_bytes else None
    check_labels(opened.block.name, opened.block.labels, opened.block.num_classes)
    return BlockView(
        opened, ProcessGrid(comm, config.replication), backend, request.fingerprint, config.seeds, config.feature_norm,
        request.weighted, config.feature_codec, config.cache_bytes, access_count, degrees=config.model in ("gcn", "gat"),
    )  # fmt: skip


def _access_count(config: TrainOptions, opened: OpenBlock, backend: Backend, sampler: Sampler, comm: Comm) -> np.ndarray:
    """Estimate how often each row of this rank's features is fetched: its degree, or its count in the first mini-batches."""
    if config.cache_by == "degree":
        return opened.column_counts()
    loader = BulkLoader(
        opened.adjacency(backend), sampler, opened.seeds(config.seeds), batch_size=config.batch_size, bulk_size=_COUNTED,
        seed=config.seed, rank=comm.rank, ranks=comm.size, prefetch=False,
    )  # fmt: skip
    first = [minibatch.vertices for minibatch in islice(loader, _COUNTED) if minibatch is not None]
    return opened.count_references(np.concatenate([np.empty(0, np.int32), *first]))


def check_seeds(name: str, seeds: np.ndarray) -> None:
    """Raise `UsageError` if there is no vertex to train on; a split that the user names may be empty."""
    if not len(seeds):
        raise UsageError(f"the seeds choose no vertex of graph {name!r} to train on; use seeds all, or a split that holds some")


def check_labels(name: str, labels: np.ndarray | None, num_classes: int) -> None:
    """Raise `UsageError` if a graph has no labels, or fewer than two classes; other labels need one output."""
    if labels is None or num_classes < (2 if labels.ndim == 1 else 1):
        raise UsageError(f"graph {name!r} has no labels to train on; it needs at least two classes")


def estimates_weighted_means(sampler: Sampler) -> bool:
    """Return True if blocks of a weighted graph estimate means by edge weight; exact inference must take the same means."""
    return isinstance(sampler, LayerWise | Labor) or bool(getattr(sampler, "weighted", False))
