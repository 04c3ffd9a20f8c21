"""Make the parts of a run from its configuration: the sampler, and the graph as this rank sees it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .. import samplers
from ..config.train import TrainOptions
from ..data import store
from ..data.files import folder_of
from ..data.link_split import LinkGraph
from ..data.parts_manifest import graph_manifest
from ..distributed.comm.agree import together
from ..distributed.matrix.graph_block import load_feature_rows
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.layout import Layout
from ..distributed.matrix.open_graph import OpenBlock, open_block, open_layout, part_places
from ..distributed.matrix.relation_links import PartitionedLinks, PlainRows
from ..errors import UsageError
from ..evaluation.by_batches import BatchScoring
from ..evaluation.metrics import check_two_classes
from ..graph import Graph
from ..labels import has_label
from ..samplers import Sage, Sampler
from ..sparse import CSR
from ..views.feature_blocks import FeatureBlockView
from ..views.features import Features, StoredFeatures, checked_features
from ..views.partitioned import BlockView, OtherFeatures, fetched_rows, stored_rows
from ..views.remote_features import RemoteFeatures
from ..views.view import View, as_weighed
from ..views.whole import WholeView
from .cached_rows import CachedRows, Share, check_cache, rows_by_frequency, rows_by_inclusion
from .link_loss import without_labels
from .relational_setup import relational_link_view, relational_view
from .source import Source, ViewRequest, load_graph

_EVALUATED = 20  # neighbors that sampled scores draw in each hop, as the published runs of 1.5D sampling do
_SCORING_SEED = 0xA0761D6478BD642F  # added to the seed of the run: scores draw apart from training


def make_sampler(config: TrainOptions) -> Sampler:
    """Return the sampler that a configuration describes; raises `UsageError` if there is none."""
    options = dict(config.sampler_options)
    if config.sampler == "shadow":
        options.setdefault("layers", config.layers)
    return samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **options)


def open_view(config: TrainOptions, request: ViewRequest) -> View:
    """Open the graph as this rank sees it: topology and features each whole, or in block rows over the ranks; collective.

    Raises
    ------
    UsageError
        On every rank, if this graph cannot be trained on in the way that the configuration asks for, or no vertex is a seed.
    """
    _check_options(config, request)
    if config.is_relational:
        assert isinstance(request.source, Graph)
        if config.task == "links" and isinstance(request.source, LinkGraph):
            return relational_link_view(config, request.source, request)
        own = relational_view(config, request.source, request)
        check_labels(own.kind.name, own.kind.labels, own.num_classes)
        check_seeds(own.kind.name, own.seeds, own.labels)
        return own
    view = _block_view(config, request) if request.placement.partitioned else _whole_view(config, request)
    check_seeds(view.name, view.seeds, None if config.task == "links" else view.labels)
    return view


def _check_options(config: TrainOptions, request: ViewRequest) -> None:
    """Raise `UsageError` for options of features that other ranks hold, or of whole ones, if they are placed otherwise."""
    placement, features = request.placement, request.placement.features
    if placement.shards_features and config.feature_storage != "given":
        raise UsageError(
            f"feature_storage is for features that a rank or its machine holds whole; got {config.feature_storage} and features in block "
            "rows: use features replicated or host, or feature_codec"
        )
    if not placement.shards_features and (config.feature_codec != "fp32" or config.cache_bytes or config.fetch_together > 1):
        raise UsageError(
            f"feature_codec, cache_bytes and fetch_together are for features that other ranks hold; got features {features}: "
            "use graph partitioned, or features partitioned"
        )
    check_cache(config, placement, request.sampler)


def _whole_view(config: TrainOptions, request: ViewRequest) -> View:
    """Open the whole topology on this rank, and its features where the placement says."""
    comm, placement, mark = request.comm, request.placement, request.fingerprint
    if placement.shards_features:
        return _feature_block_view(config, request)
    graph = load_graph(request.source, config.label, config.target)
    shared_by = None if placement.features == "replicated" else comm
    options = (config.feature_norm, request.weighted, config.feature_storage, request.gather_threads, shared_by)
    if config.task == "links":
        return WholeView(without_labels(graph), comm, request.backend, mark, "all", *options)
    check_labels(graph.name, graph.labels, graph.num_classes)
    places = None if isinstance(request.source, Graph) else part_places(request.source)
    return WholeView(graph, comm, request.backend, mark, config.seeds, *options, places)


def _feature_block_view(config: TrainOptions, request: ViewRequest) -> FeatureBlockView:
    """Open the whole topology on this rank, and its block row of the features."""
    graph = as_weighed(load_graph(request.source, config.label, config.target, features=False), request.weighted)
    if config.task == "links":
        view = FeatureBlockView(without_labels(graph), request.backend, request.fingerprint, "all")
    else:
        check_labels(graph.name, graph.labels, graph.num_classes)
        view = FeatureBlockView(graph, request.backend, request.fingerprint, config.seeds)
    grid, layout = _feature_grid(config, request)
    cached, share = CachedRows(), _share(config, request, layout)
    if config.cache_bytes and config.cache_by == "degree":
        cached = CachedRows(np.bincount(graph.adjacency.indices, minlength=graph.n)[layout.members(grid.row)])
    elif config.cache_bytes and config.cache_by == "inclusion":
        cached = rows_by_inclusion(share, graph.adjacency, view.seeds)
    elif config.cache_bytes:
        cached = rows_by_frequency(share, view.adjacency, view.seeds, grid.column_comm)
    view.take_features(grid, _remote_features(config, request, grid, layout, cached), request.weighted)
    return view


def _block_view(config: TrainOptions, request: ViewRequest) -> BlockView:
    """Open this rank's block row of the topology, and its features where the placement says."""
    source, comm, backend, placement = _directory(request.source), request.comm, request.backend, request.placement
    same = placement.same_rows(comm)
    opened = open_block(source, placement, comm.duplicate(), config.seed, same, config.label, config.target)
    opened, links = replace(opened, block=as_weighed(opened.block, request.weighted)), config.task == "links"
    if links:
        none = np.full(len(opened.block.vertices), -1, np.int64)
        opened = replace(opened, block=replace(opened.block, labels=none, num_classes=0, masks={}))
    else:
        check_labels(opened.block.name, opened.block.labels, opened.block.num_classes)
    cached, other = CachedRows(), None
    if same and config.cache_bytes:
        cached = _cached(config, request, opened)
    elif not same:
        other = _other_features(config, request, opened)
    view = BlockView(
        opened, placement.topology_grid(comm), backend, request.fingerprint, "all" if links else config.seeds, config.feature_norm,
        request.weighted, config.feature_codec, config.cache_bytes, cached.access_count, config.model in ("gcn", "gat"), other,
        cached.wanted,
    )  # fmt: skip
    if links:
        rows = PlainRows(opened)
        view.links = PartitionedLinks(rows, rows.graph.relations[0], timed=False)
    return view


def _other_features(config: TrainOptions, request: ViewRequest, opened: OpenBlock) -> OtherFeatures:
    """Open features that do not lie in the block rows of the topology: whole, in the memory of the machine, or in other block rows."""
    source, comm = _directory(request.source), request.comm
    manifest, vertices = graph_manifest(folder_of(source, "a store")), opened.block.vertices
    if not request.placement.shards_features:
        x = StoredFeatures(manifest.name, manifest.num_features, together(comm, lambda: store.load_features(source)))
        shared_by = None if request.placement.features == "replicated" else comm
        whole = Features(x, config.feature_norm, config.feature_storage, request.gather_threads, shared_by)
        return OtherFeatures(whole, fetched_rows(whole, vertices))
    grid, layout = _feature_grid(config, request)
    cached = CachedRows()
    if config.cache_bytes and config.cache_by == "degree":
        everywhere = comm.allreduce(np.bincount(opened.block.adjacency.indices, minlength=manifest.vertices), "topology")
        cached = CachedRows(everywhere[layout.members(grid.row)])
    elif config.cache_bytes:
        adjacency, share = opened.adjacency(request.backend), _share(config, request, layout)
        cached = rows_by_frequency(share, adjacency, opened.seeds(config.seeds), grid.column_comm)
    remote = _remote_features(config, request, grid, layout, cached)
    return OtherFeatures(remote, stored_rows(source, vertices, config.feature_norm))


def _feature_grid(config: TrainOptions, request: ViewRequest) -> tuple[ProcessGrid, Layout]:
    grid = request.placement.feature_grid(request.comm)
    return grid, open_layout(_directory(request.source), request.placement, grid, config.seed)


def _remote_features(config: TrainOptions, request: ViewRequest, grid: ProcessGrid, layout: Layout, cached: CachedRows) -> RemoteFeatures:
    """Read this rank's block row of the features; collective."""
    source = _directory(request.source)
    x: np.ndarray | CSR | None = together(request.comm, lambda: load_feature_rows(source, layout.members(grid.row)))
    rows = checked_features(x, config.feature_norm, graph_manifest(folder_of(source, "a store")).name)
    return RemoteFeatures(
        grid.column_comm, layout, rows, config.feature_norm, config.feature_codec, config.cache_bytes, *cached
    )  # fmt: skip


def _directory(source: Source) -> str:
    assert not isinstance(source, Graph)  # see `source.readable`
    return str(source)


def _share(config: TrainOptions, request: ViewRequest, layout: Layout) -> Share:
    return Share(config, request.placement, request.comm, request.virtual_ranks, request.sampler, layout)


def _cached(config: TrainOptions, request: ViewRequest, opened: OpenBlock) -> CachedRows:
    """Choose the cached rows of features that lie with the topology: by degree, or by counts of the first mini-batches."""
    if config.cache_by == "degree":
        return CachedRows(opened.column_counts())
    adjacency, share = opened.adjacency(request.backend), _share(config, request, opened.layout)
    return rows_by_frequency(share, adjacency, opened.seeds(config.seeds), opened.grid.column_comm)


def sampled_scoring(config: TrainOptions, view: View) -> BatchScoring:
    """Return the mini-batches of sampled scores: `eval_fanouts` neighbors, by edge weight where exact inference weighs them."""
    fanouts = config.eval_fanouts or (_EVALUATED,) * config.layers
    weighted = make_sampler(config).estimates_weighted_means and view.all_rows().adjacency.weighted
    return BatchScoring(Sage(fanouts, weighted=weighted), config.batch_size, (config.seed + _SCORING_SEED) % 2**64, config.eval_seeds)


def check_scores(config: TrainOptions, view: View) -> None:
    """Raise `UsageError` if the graph lacks a split or the classes to score, or to stop by; held-out edges are no splits of the graph."""
    if config.metric == "rocauc" and config.target == "class":
        check_two_classes(view.num_classes)
    has = view.share.masks
    for split in config.eval_splits if config.task == "nodes" else ():
        if split not in has:
            raise UsageError(f"eval_splits: graph {view.name!r} has no {split} split; it has {', '.join(has) or 'none'}")
    if config.patience and config.task == "nodes" and "val" not in has:
        raise UsageError(f"patience {config.patience} counts scores of val, and graph {view.name!r} has no val split; use patience 0")


def check_seeds(name: str, seeds: np.ndarray, labels: np.ndarray | None) -> None:
    """Raise `UsageError` if there is no vertex to train on, or none of them has a label; a split that the user names may be empty."""
    if not len(seeds):
        raise UsageError(f"the seeds choose no vertex of graph {name!r} to train on; use seeds all, or a split that holds some")
    if labels is not None and not has_label(labels).any():
        raise UsageError(f"none of the {len(seeds)} seeds of graph {name!r} has a label to train on; use another label, or other seeds")


def check_labels(name: str, labels: np.ndarray | None, num_classes: int) -> None:
    """Raise `UsageError` if a graph has no labels, or fewer than two classes; other labels need one output."""
    if labels is None or num_classes < (2 if labels.ndim == 1 else 1):
        raise UsageError(f"graph {name!r} has no labels to train on; it needs at least two classes")
