"""The view that loaders use of a graph shared by several ranks: adjacency, features and labels of the seeds."""

from __future__ import annotations

import numpy as np

from ..backends.base import Backend
from ..distributed.matrix.rank_graph import RankGraph
from .edges import open_edges
from .features import Features, FeatureSource, NoFeatures
from .remote_features import RemoteFeatures
from .view import View


class LoadingView(View):
    """A view for loaders: mini-batches are sampled and their rows fetched, but nothing is inferred, so it has no `share`.

    Parameters
    ----------
    graph : RankGraph
    backend : Backend
    seeds : integers, shape (m,)
        The same on every rank; they may repeat.
    edge_ids : bool
        Fetch the numbers of sampled edges, even if the graph has no edge features.

    Notes
    -----
    Collective. It has communicators to itself, which the graph lends: one for a thread that samples, one for fetches. If the topology is
    partitioned, the owners send each rank 4 bytes and the label for each distinct seed (kind "topology"): 12 bytes if labels are classes,
    nothing without labels.
    """

    def __init__(self, graph: RankGraph, backend: Backend, seeds: np.ndarray, edge_ids: bool = False) -> None:
        self.name, self.fingerprint = graph.name, graph.fingerprint
        self.num_features, self.num_classes = graph.num_features, graph.num_classes
        self.adjacency, self.sampling = graph.open_adjacency(backend)
        self.seeds = np.unique(seeds)
        self.labels = graph.labels_of(self.seeds) if graph.has_labels else np.full(len(self.seeds), -1, np.int64)
        self.features = _features(graph)
        self.edges = open_edges(graph, edge_ids)
        self.all_degrees = None


def _features(graph: RankGraph) -> FeatureSource:
    if graph.features is None:
        return NoFeatures()
    if graph.layout is None:
        return Features(graph)
    layout, x = graph.layout, graph.features
    return graph.columns.lend(lambda column: RemoteFeatures(column, layout, x))
