"""Open the features of a run where its placement says, and choose the rows that a rank caches.

Rows are cached by degree, by counts of the first mini-batches, or by the probability of inclusion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..adjacency import Adjacency
from ..config.train import TrainOptions
from ..data import store
from ..data.atomic import folder_of
from ..data.parts_manifest import graph_manifest
from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..distributed.matrix.block_rows import count_references
from ..distributed.matrix.graph_block import load_feature_rows
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.layout import Layout, TypeLayouts
from ..distributed.matrix.open_graph import OpenBlock, open_layouts
from ..distributed.matrix.placement import Placement
from ..distributed.matrix.relation_blocks import PartitionedRelations
from ..errors import UsageError
from ..graph import NODE
from ..loading.division import EpochShare, SeedGroups
from ..loading.loader import BulkLoader
from ..local_adjacency import LocalAdjacency
from ..nn.layers import Input
from ..samplers import Sampler
from ..samplers.inclusion import check_inclusion, inclusion_probability
from ..sparse import CSR
from ..views.features import Features, StoredFeatures, checked_features, normalized
from ..views.plain_view import BlockFeatures, features_of_block
from ..views.type_features import RemoteFeatures, TypeFeatures, as_input, block_features, whole_features
from ..views.type_view import TypeTargets
from .source import ViewRequest, directory_of

COUNTED = 8  # mini-batches that each rank samples to count accesses of features


class CacheChoice(NamedTuple):
    """The choice of cached rows, as `RowExchange` takes it: the same on all ranks by their counts, or the places that this rank wants."""

    access_count: np.ndarray | None = None
    wanted: np.ndarray | None = None


def choose_cached(
    config: TrainOptions, request: ViewRequest, layout: Layout, column: Comm, references: Callable[[], np.ndarray],
    draws: Callable[[], tuple[Adjacency, np.ndarray]],
) -> CacheChoice:  # fmt: skip
    """Choose the rows that a rank caches, of features in this layout over a process column, as the options say; collective.

    By degree these are the rows in which most edges begin, of `references`; else those of mini-batches of the adjacency and the seeds that
    `draws` returns: by the probability to be in one of this rank, which sends nothing, or by counts of its first ones. Without groups of
    seeds all ranks cache the same rows by counts: each sends 8 n bytes of them to the owners in the process column.
    """
    if not config.cache_bytes:
        return CacheChoice()
    if config.cache_by == "degree":
        return CacheChoice(references())
    (adjacency, seeds), comm, count = draws(), request.comm, config.seed_locality
    groups = SeedGroups(count, layout.part_order(seeds)) if count else None
    place = request.placement.place(comm) if count else comm.rank  # of this rank among those that share the mini-batches
    if config.cache_by == "inclusion":
        assert adjacency.whole_matrix is not None  # see `check_cache`
        if groups is not None:
            share = EpochShare(0, place, comm.size, virtual=request.virtual_ranks, groups=groups.count)
            seeds = seeds[groups.members(share.own_groups)]
        score = inclusion_probability(adjacency.whole_matrix, request.sampler, seeds, config.batch_size)
        return CacheChoice(wanted=layout.places(_by_score(score)))
    loader = BulkLoader(
        adjacency, request.sampler, seeds, batch_size=config.batch_size, bulk_size=COUNTED, seed=config.seed, rank=place,
        ranks=comm.size, virtual_ranks=request.virtual_ranks if groups else None, groups=groups, prefetch=False,
    )  # fmt: skip
    drawn = np.concatenate([np.empty(0, np.int32), *_first(loader)])
    if groups is None:
        return CacheChoice(count_references(column, layout, drawn))
    places, counts = np.unique(layout.places(drawn), return_counts=True)
    return CacheChoice(wanted=places[_by_score(counts)])


def check_cache(config: TrainOptions, placement: Placement, sampler: Sampler) -> None:
    """Raise `UsageError` if the rows of a cache cannot be chosen as asked."""
    if config.cache_bytes and config.task != "nodes" and config.cache_by != "degree":
        raise UsageError(f"cache_by {config.cache_by} counts mini-batches of seeds; got task {config.task}: use cache_by degree")
    if config.cache_bytes and config.cache_by == "inclusion":
        check_inclusion(sampler)
        if placement.partitioned:
            fits = "use topology replicated with features partitioned, or cache_by frequency"
            raise UsageError(f"cache_by inclusion multiplies with the whole adjacency; got topology partitioned: {fits}")


def _first(loader: BulkLoader) -> list[Any]:
    """Return the vertices of the first mini-batches."""
    return [minibatch.vertices for minibatch in islice(loader, COUNTED) if minibatch is not None]


# ---- of one type


def features_by_block(config: TrainOptions, request: ViewRequest, opened: OpenBlock, grid: ProcessGrid) -> BlockFeatures:
    """Open features for a topology in block rows: in the same block rows, whole, in the memory of the machine, or in other block rows."""
    source, comm, placement, vertices = directory_of(request.source), request.comm, request.placement, opened.block.vertices

    def draws() -> tuple[Adjacency, np.ndarray]:
        return opened.adjacency(request.backend), opened.seeds(config.seeds)

    if placement.same_rows(comm):
        cached = choose_cached(config, request, opened.layout, opened.grid.column_comm, opened.column_counts, draws)
        return features_of_block(opened, grid, config.feature_norm, config.feature_codec, config.cache_bytes, *cached)
    manifest = graph_manifest(folder_of(source, "a store"))
    if not placement.shards_features:
        x = StoredFeatures(manifest.name, manifest.num_features, together(comm, lambda: store.load_features(source)))
        whole = Features(x, config.feature_norm, config.feature_storage, request.gather_threads, request.shared_by)
        return BlockFeatures(whole, lambda a, b: whole.now(vertices[a:b]))

    def references(members: np.ndarray) -> np.ndarray:
        counts = np.bincount(opened.block.adjacency.indices, minlength=manifest.vertices)
        return np.asarray(comm.allreduce(counts, "topology")[members])

    def own_rows(first: int, last: int) -> Input:
        x = load_feature_rows(source, vertices[first:last])
        assert x is not None
        return as_input(normalized(x, config.feature_norm))

    return BlockFeatures(remote_features(config, request, references, draws)[1], own_rows)


def remote_features(
    config: TrainOptions, request: ViewRequest, references: Callable[[np.ndarray], np.ndarray],
    draws: Callable[[], tuple[Adjacency, np.ndarray]],
) -> tuple[ProcessGrid, RemoteFeatures]:  # fmt: skip
    """Read this rank's block row of the features, whose vertices `references` takes, on a grid of their own; collective."""

    source, grid = directory_of(request.source), request.placement.feature_grid(request.comm)
    layouts = open_layouts(source, request.placement, grid, config.seed)
    layout, members = layouts.of[NODE], layouts.members(NODE)
    cached = choose_cached(config, request, layout, grid.column_comm, lambda: references(members), draws)
    x: np.ndarray | CSR | None = together(request.comm, lambda: load_feature_rows(source, members))
    rows = checked_features(x, config.feature_norm, graph_manifest(folder_of(source, "a store")).name)
    options = config.feature_norm, config.feature_codec, config.cache_bytes
    return grid, RemoteFeatures(grid.column_comm, layout, rows, *options, *cached)


# ---- by type


def features_by_type(
    config: TrainOptions, request: ViewRequest, targets: TypeTargets, relations: LocalAdjacency | PartitionedRelations
) -> TypeFeatures:
    """Open the features of the types that the model reads, whole or in block rows; collective."""
    placement, comm, graph, schema = request.placement, request.comm, targets.graph, targets.schema
    needed, learned = schema.types_of_layers(config.layers)[0], config.featureless == "embedding"
    if not placement.shards_features:
        shared, norm, storage = request.shared_by, config.feature_norm, config.feature_storage
        take = partial(whole_features, graph, needed, norm, storage, request.gather_threads, shared)
        return take() if shared else together(comm, take)  # the ranks of a machine convert features together
    blocks = TypeLayouts.open(graph, placement, placement.feature_grid(comm), config.seed)
    counted: Callable[[str], np.ndarray] | None = relations.references if isinstance(relations, PartitionedRelations) else None
    if config.cache_bytes and config.cache_by == "frequency":
        counted = _counts_of_draws(config, request, targets, relations)
    featureless = [name for name in needed if not schema.widths[name]]
    if learned and featureless and config.fetch_together > 1:
        raise UsageError(
            f"types {', '.join(featureless)} have no features, and rows learned for them in block rows are looked up for one "
            f"mini-batch at a time; got fetch_together {config.fetch_together}: use 1, featureless constant or features replicated"
        )
    return block_features(graph, needed, blocks, config.feature_norm, config.feature_codec, config.cache_bytes, counted, learned)


def _counts_of_draws(
    config: TrainOptions, request: ViewRequest, targets: TypeTargets, relations: LocalAdjacency | PartitionedRelations
) -> Callable[[str], np.ndarray]:  # fmt: skip
    """Sample the first mini-batches of each rank, and return what counts the vertices of a type in those of all ranks; collective.

    Counting is an all-reduce of 8 bytes for each vertex of the type (kind "topology").
    """
    if config.seed_locality:
        raise UsageError("cache_by frequency counts the draws of all ranks, and seed_locality gives each its own: use cache_by degree")
    comm = request.comm
    loader = targets.loader(
        relations, request.sampler, targets.seeds, batch_size=config.batch_size, bulk_size=COUNTED, seed=config.seed, rank=comm.rank,
        ranks=comm.size, prefetch=False,
    )  # fmt: skip
    drawn: list[Mapping[str, np.ndarray]] = _first(loader)

    def counts(name: str) -> np.ndarray:
        vertices = np.concatenate([np.empty(0, np.int32), *(of_types[name] for of_types in drawn)])
        return comm.allreduce(np.bincount(vertices, minlength=targets.graph.type(name).count), "topology")

    return counts


def _by_score(score: np.ndarray) -> np.ndarray:
    """Return the rows with positive scores, the highest first; of equal ones the lower id first: int64."""
    order = np.argsort(-score, kind="stable")
    return order[: np.count_nonzero(score > 0)]
