"""The views that loaders use of a graph shared by several ranks: what is sampled from, and the rows that are fetched."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import numpy as np

from ..adjacency import Adjacency
from ..backends.base import Backend
from ..distributed.comm.base import Comm
from ..distributed.matrix.block_rows import InBlockRows
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError
from .edges import open_edges
from .features import Features, FeatureSource, NoFeatures
from .remote_features import RemoteFeatures
from .type_features import TypeFeatures, whole_features
from .view import View


class LoadingView(View):
    """A view for loaders: mini-batches are sampled and their rows fetched, but nothing is inferred, so it has no `share`.

    It has communicators to itself, which the graph lends: one for a thread that samples, others for fetches.

    Parameters
    ----------
    comm : Comm
        The ranks that share the graph.
    adjacency : Adjacency
    sampling : Comm, optional
        Its communicator, if its methods are collective.
    fetching : sequence of Comm
        The communicators of fetches; none if nothing is fetched from other ranks.

    Attributes
    ----------
    meets : bool
        True if ranks meet at every bulk, to sample it or to ask for its rows.
    """

    all_degrees = None

    def __init__(self, comm: Comm, adjacency: Adjacency, sampling: Comm | None, fetching: list[Comm]) -> None:
        self.adjacency, self.sampling, self._rank, self._fetching = adjacency, sampling, comm.rank, fetching
        sampled = adjacency.grid.column_comm if isinstance(adjacency, InBlockRows) else None
        self._sampled, self._fetched = sampled, fetching[0] if fetching else sampled or comm
        self.meets = bool(fetching) or sampling is not None

    def at(self, step: dict[str, Any]) -> None:
        place = f"step {step['step'] - 1} of epoch {step['epoch']}"
        for comm in self._fetching:
            comm.at(f"{place} from {step['first']}", f"rank {self._rank} is at {place}")

    def begin(self, epoch: int, step: int, first: int, left: int | None, told: str, ahead: bool, samples: bool) -> None:
        """Compare the beginning of an iteration with all ranks, also with those that are still in the one before; collective.

        Parameters
        ----------
        epoch, step, first : int
            The position at which the iteration begins.
        left : int, optional
            The steps after which this rank left the iteration before; None if it took all.
        told : str
            How errors tell of that.
        ahead : bool
            Ranks sample on a thread, so those that go on meet this one as they ask for rows. Otherwise they meet it as they sample.
        samples : bool
            The threads of ranks that go on are sampling a bulk, and wait for this rank.

        Raises
        ------
        UsageError
            On every rank, if the ranks are at different places.
        """
        place = f"begin epoch {epoch} at step {step} from {first}, left {left}"
        told = f"rank {self._rank} begins epoch {epoch} at step {step}{told}"
        meeting = self._fetched if ahead or self._sampled is None else self._sampled
        try:
            _compare(meeting, place, told)
        except UsageError:
            if samples and self._sampled is not None and self._sampled is not meeting:
                with suppress(UsageError):
                    _compare(self._sampled, place, told)
            raise


def _compare(comm: Comm, place: str, told: str) -> None:
    comm.at(place, told)
    try:
        comm.exchange_counts([0] * comm.size, "control", "an iteration", 0)
    finally:
        comm.at("", "")


class GraphLoadingView(LoadingView):
    """The view of a graph of one vertex type: adjacency, features, and labels of the seeds.

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
    Collective. If the topology is partitioned, the owners send each rank 4 bytes and the label for each distinct seed (kind "topology"):
    12 bytes if labels are classes, nothing without labels.
    """

    def __init__(self, graph: RankGraph, backend: Backend, seeds: np.ndarray, edge_ids: bool = False) -> None:
        self.name, self.fingerprint = graph.name, graph.fingerprint
        self.num_features, self.num_classes = graph.num_features, graph.num_classes
        adjacency, sampling = graph.open_adjacency(backend)
        self.seeds = np.unique(seeds)
        self.labels = graph.labels_of(self.seeds) if graph.has_labels else np.full(len(self.seeds), -1, np.int64)
        self.features = open_features(graph)
        self.edges = open_edges(graph, edge_ids)
        fetching = [self.features.comm] if isinstance(self.features, RemoteFeatures) else []
        if self.edges is not None and self.edges.comm is not None:
            fetching.append(self.edges.comm)
        super().__init__(graph.comm, adjacency, sampling, fetching)


class RelationalLoadingView(LoadingView):
    """The view of a heterogeneous graph: relations, and the features of every type that has some.

    Parameters
    ----------
    graph : RankGraph
    backend : Backend

    Notes
    -----
    Collective; see `RankGraph.open_adjacency`.
    """

    def __init__(self, graph: RankGraph, backend: Backend) -> None:
        self.name, self.fingerprint = graph.name, graph.fingerprint
        adjacency, sampling = graph.open_adjacency(backend)
        features = open_type_features(graph)
        self.features = cast(Any, features)
        fetching = [source.comm for source in features.held.values() if isinstance(source, RemoteFeatures)]
        super().__init__(graph.comm, adjacency, sampling, fetching)


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
