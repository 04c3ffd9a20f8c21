"""The views that loaders use of a graph shared by several ranks: what is sampled from, and the rows that are fetched.

Nothing is inferred, so these views have no share. They have communicators to themselves, which the graph lends: one for a thread that
samples, others for fetches.
"""

from __future__ import annotations

import numpy as np

from ..adjacency import Adjacency
from ..backends.base import Backend
from ..distributed.comm.base import Comm
from ..distributed.matrix.block_rows import InBlockRows
from ..distributed.matrix.edge_exchange import EdgeExchange
from ..distributed.matrix.rank_graph import RankGraph
from ..graph import Graph
from .edges import EdgeSource
from .features import Features, FeatureSource, NoFeatures
from .sync import SharedMeeting
from .type_features import RemoteFeatures, TypeFeatures, whole_features
from .view import Targets, View


def loading_view(graph: RankGraph, backend: Backend, seeds: np.ndarray, edge_ids: bool = False) -> View:
    """Return the view of a plain graph: adjacency, features, and labels of the seeds, which may repeat; collective.

    With `edge_ids`, the numbers of sampled edges are fetched even if the graph has no edge features. If the topology is partitioned, the
    owners send each rank 4 bytes and the label for each distinct seed (kind "topology"): 12 bytes if labels are classes, nothing without
    labels.
    """
    adjacency, sampling = graph.open_adjacency(backend)
    seeds = np.unique(seeds)
    labels = graph.labels_of(seeds) if graph.has_labels else np.full(len(seeds), -1, np.int64)
    features, edges = open_features(graph), open_edges(graph, edge_ids)
    meeting = _meeting(graph.comm, adjacency, [features.comm, None if edges is None else edges.comm])
    targets = Targets(seeds, labels, graph.num_classes)
    return View(graph.name, graph.fingerprint, adjacency, features, targets, sampling=sampling, edges=edges, meeting=meeting)


def relation_loading_view(graph: RankGraph, backend: Backend) -> View:
    """Return the view of any other graph: relations, and the features of every type that has some; collective."""
    relations, sampling = graph.open_adjacency(backend)
    features = open_type_features(graph)
    meeting = _meeting(graph.comm, relations, [source.comm for source in features.held.values()])
    return View(graph.name, graph.fingerprint, relations, features, sampling=sampling, meeting=meeting)


def _meeting(comm: Comm, adjacency: Adjacency, fetching: list[Comm | None]) -> SharedMeeting:
    sampled = adjacency.grid.column_comm if isinstance(adjacency, InBlockRows) else None
    return SharedMeeting(comm, sampled, [one for one in fetching if one is not None])


def open_features(graph: RankGraph) -> FeatureSource:
    """Return the source of the features of a graph that ranks share; collective, as are its fetches if they are in block rows."""
    if graph.features is None:
        return NoFeatures()
    if graph.layout is None:
        return Features(graph)
    layout, x = graph.layout, graph.features
    return graph.feature_grids.lend(lambda grid: RemoteFeatures(grid.column_comm, layout, x))


def open_type_features(graph: RankGraph) -> TypeFeatures:
    """Return the source of the features of all types that have some; collective, as are its fetches if they are in block rows."""
    kinds = [kind for kind in graph.graph.types if kind.num_features]
    names, width, blocks = [kind.name for kind in kinds], sum(kind.num_features for kind in kinds), graph.blocks
    if blocks is None:
        return whole_features(graph.graph, names)
    rows = graph.x
    return graph.feature_grids.lend(
        lambda grid: TypeFeatures(names, {name: RemoteFeatures(grid.column_comm, blocks.of[name], rows[name]) for name in names}, width)
    )


def open_edges(graph: RankGraph, numbers: bool) -> EdgeSource | None:
    """Return the source of the edges of a shared graph, or None if it has no edge features and `numbers` is false; collective."""
    if not graph.num_edge_features and not numbers:
        return None
    whole = graph.held.adjacency if isinstance(graph.held, Graph) else None
    if graph.edges is None:
        return EdgeSource(whole, graph.edge_features)
    edges = graph.edges
    exchange = graph.edge_grids.lend(lambda grid: EdgeExchange(grid.column_comm, *edges))
    return EdgeSource(whole, graph.edge_features, exchange, numbers or graph.edge_features is not None)
