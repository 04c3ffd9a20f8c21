"""From a configuration to the parts of a run: the sampler, and the graph as this rank sees it."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import numpy as np

from .. import samplers
from ..backends.base import Backend
from ..config.train import TrainConfig
from ..data import store
from ..data.manifest import load_manifest
from ..distributed.comm.agree import agree, fingerprint
from ..distributed.comm.base import Comm
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.open_graph import OpenBlock, Placement, open_block
from ..errors import UsageError
from ..graph import Graph
from ..loader import BulkLoader
from ..methods import Method
from ..samplers import Labor, LayerWise, Sampler
from ..views.partitioned import BlockView
from ..views.view import View
from ..views.whole import WholeView
from .link_loss import without_labels

_COUNTED = 8  # minibatches of each rank, to measure which rows are hot
Source = Graph | str | os.PathLike[str]


def make_sampler(config: TrainConfig) -> Sampler:
    """The sampler that a configuration describes; raises `UsageError` where there is none."""
    options = dict(config.sampler_options)
    if config.sampler == "shadow":
        options.setdefault("layers", config.layers)
    return samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **options)


def sizes_of(source: Source) -> dict[str, str | int]:
    """The name of a graph, its vertices and its edges, from memory or from the manifest of a store."""
    if isinstance(source, Graph):
        return {"name": source.name, "vertices": source.n, "edges": source.adjacency.nnz}
    manifest = load_manifest(Path(source))
    return {"name": manifest.name, "vertices": manifest.vertices, "edges": manifest.edges}


def open_view(
    config: TrainConfig, placement: str, source: Source, backend: Backend, sampler: Sampler, method: Method, comm: Comm, gathering: int = 0
) -> View:
    """The graph as this rank sees it; collective.

    Parameters
    ----------
    lies : {"replicated", "partitioned"}
    source : Graph, or the directory of a store
        A graph in memory can only be replicated.

    Raises
    ------
    UsageError
        On every rank, if the ranks were given different graphs, or one that cannot be trained on as it was asked.
    """
    placement = Placement(placement, config.replication, config.exchange, config.partition)
    mark = fingerprint(source) if isinstance(source, Graph) else load_manifest(Path(source)).digest[:16]
    agree(comm, {"graph": mark})
    weighted = estimates_weighted_means(sampler)
    opened = method.open(source, backend, mark, weighted, comm)
    if opened is not None:
        return opened
    if placement.partitioned:
        if config.feature_storage != "given":
            raise UsageError("feature_storage is of features that every rank holds whole; graph replicated, or feature_codec, would fit")
        return _block_view(config, source, placement, backend, sampler, mark, weighted, comm)
    if config.feature_codec != "fp32" or config.cache_bytes or config.fetch_together > 1:
        raise UsageError("feature_codec, cache_bytes and fetch_together are of features that travel; graph partitioned would fit")
    graph = source if isinstance(source, Graph) else store.load(source)
    graph = graph.with_label(config.label) if config.label else graph
    if config.task == "links":
        return WholeView(without_labels(graph), comm, backend, mark, "all", config.feature_norm, weighted)
    check_labels(graph.name, graph.labels, graph.num_classes)
    storage = config.feature_storage
    return WholeView(graph, comm, backend, mark, config.seeds, config.feature_norm, weighted, storage, gathering)


def _block_view(
    config: TrainConfig, source: Source, placement: Placement, backend: Backend, sampler: Sampler, mark: str, weighted: bool, comm: Comm
) -> BlockView:
    if isinstance(source, Graph):
        raise UsageError("a partitioned graph is read from a store, block by block; a directory would fit")
    opened = open_block(source, placement, comm.duplicate(), config.seed, label=config.label)
    access_count = _access_count(config, opened, backend, sampler, comm) if config.cache_bytes else None
    check_labels(opened.block.name, opened.block.labels, opened.block.num_classes)
    grid = ProcessGrid(comm, config.replication)
    return BlockView(
        opened, grid, backend, mark, config.seeds, config.feature_norm, weighted, config.feature_codec, config.cache_bytes,
        access_count, degrees=not config.model.startswith("sage"),
    )  # fmt: skip


def _access_count(config: TrainConfig, opened: OpenBlock, backend: Backend, sampler: Sampler, comm: Comm) -> np.ndarray:
    """How often each own row is expected to be fetched: by how many rows name it, or how many of the first minibatches hold it."""
    if config.cache_by == "degree":
        return opened.column_counts()
    loader = BulkLoader(
        opened.adjacency(backend), sampler, opened.seeds(config.seeds), batch_size=config.batch_size, bulk_size=_COUNTED,
        seed=config.seed, rank=comm.rank, ranks=comm.size, prefetch=False,
    )  # fmt: skip
    first = [minibatch.vertices for minibatch in islice(loader, _COUNTED) if minibatch is not None]
    return opened.count_references(np.concatenate([np.empty(0, np.int32), *first]))


def check_labels(name: str, labels: np.ndarray | None, num_classes: int) -> None:
    """Raise `UsageError` where there is nothing to train on."""
    if labels is None or num_classes < 2:
        raise UsageError(f"graph {name!r} has no labels to train on; it needs at least two classes")


def estimates_weighted_means(sampler: Sampler) -> bool:
    """Whether the blocks of a weighted graph estimate means by edge weight, so that exact inference must take those."""
    return isinstance(sampler, LayerWise | Labor) or bool(getattr(sampler, "weighted", False))
