"""The view that loaders use of a graph shared by several ranks: adjacency, features and labels of the seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.base import Backend
from ..distributed.matrix.block_rows import BlockRowAdjacency
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
        self.features = open_features(graph)
        self.edges = open_edges(graph, edge_ids)
        self.all_degrees = None
        self._rank = graph.comm.rank
        self._fetching = [self.features.comm] if isinstance(self.features, RemoteFeatures) else []
        if self.edges is not None and self.edges.comm is not None:
            self._fetching.append(self.edges.comm)
        sampling = [self.adjacency.grid.column_comm] if isinstance(self.adjacency, BlockRowAdjacency) else []
        self._meeting = [*self._fetching, *sampling, graph.comm][0]

    def at(self, step: dict[str, Any]) -> None:
        place = f"step {step['step'] - 1} of epoch {step['epoch']}"
        for comm in self._fetching:
            comm.at(f"{place} from {step['first']}", f"rank {self._rank} is at {place}")

    def begin(self, epoch: int, step: int, first: int, told: str) -> None:
        """Compare the beginning of an iteration with all ranks, also with those that are still in the one before; collective.

        Raises
        ------
        UsageError
            On every rank, if the ranks are at different places.
        """
        self._meeting.at(f"begin epoch {epoch} at step {step} from {first}", f"rank {self._rank} begins epoch {epoch} at step {step}{told}")
        try:
            self._meeting.exchange_counts([0] * self._meeting.size, "control", "an iteration", 0)
        finally:
            self._meeting.at("", "")


def open_features(graph: RankGraph) -> FeatureSource:
    """Return the source of the features of a graph that ranks share; collective, as are its fetches if they are in block rows."""
    if graph.features is None:
        return NoFeatures()
    if graph.layout is None:
        return Features(graph)
    layout, x = graph.layout, graph.features
    return graph.feature_grids.lend(lambda grid: RemoteFeatures(grid.column_comm, layout, x))
