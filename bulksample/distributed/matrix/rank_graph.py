"""A stored graph as one of several ranks holds it: topology and features each whole, or in block rows over the ranks.

The two choices are independent. The published main placement is the topology on every rank and features in block rows: sampling then
sends nothing, and features are fetched from their owners.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...adjacency import Adjacency, LocalAdjacency
from ...backends.base import Backend
from ...data import store
from ...data.files import folder_of
from ...data.manifest import Manifest, load_manifest
from ...errors import UsageError, instead_of
from ...graph import Graph
from ...sparse import CSR
from ...version import __version__
from ..comm.agree import agree, together
from ..comm.base import Comm
from .comm_pool import CommPool
from .graph_block import GraphBlock, load_block, load_edge_rows, load_feature_rows
from .grid import ProcessGrid
from .layout import Layout
from .open_graph import PLACEMENTS, OpenBlock, Placement, open_layout
from .verify import verify_together


class BlockEdges(NamedTuple):
    """The edges of a block row, as `EdgeExchange` takes them."""

    layout: Layout
    block: CSR
    first_entries: np.ndarray
    features: np.ndarray | None


@dataclass(frozen=True, eq=False)
class RankGraph:
    """A stored graph as one rank holds it; `bulksample.load` with a `world` returns one.

    Attributes
    ----------
    comm : Comm
        The ranks that share the graph.
    manifest : Manifest
        Of the store.
    held : Graph or OpenBlock
        The adjacency, the labels and the masks: of all vertices, or those of this rank's block row.
    features : float32 or float16 of shape (m, f), or a float32 CSR of that shape, optional
        Of all vertices, mapped from the store; or those of this rank's block row.
    layout : Layout, optional
        The vertices of each block row of the features; None if they are replicated.
    replication : int
        c, the number of ranks that hold each block row.
    edges : BlockEdges, optional
        What this rank knows of the edges of its block row; None if both topology and features are replicated.
    edge_features : float32 or float16, shape (m, d), optional
        Of all edges, mapped from the store, if features are replicated.
    grids : CommPool of ProcessGrid
        For threads that sample; each has a tally of its own.
    columns : CommPool of Comm
        Process columns, for fetches of rows.
    """

    comm: Comm
    manifest: Manifest
    held: Graph | OpenBlock
    features: np.ndarray | CSR | None
    layout: Layout | None
    replication: int
    edges: BlockEdges | None = None
    edge_features: np.ndarray | None = None
    grids: CommPool[ProcessGrid] = field(init=False, repr=False)
    columns: CommPool[Comm] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        comm, c = self.comm, self.replication
        object.__setattr__(self, "grids", CommPool(comm, lambda: ProcessGrid(comm.duplicate(), c)))
        object.__setattr__(self, "columns", CommPool(comm, lambda: ProcessGrid(comm, c).column_comm))

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def n(self) -> int:
        """Number of vertices of the whole graph."""
        return self.manifest.vertices

    @property
    def num_features(self) -> int:
        return self.manifest.num_features

    @property
    def num_edge_features(self) -> int:
        return self.manifest.num_edge_features

    @property
    def num_classes(self) -> int:
        return self._part.num_classes

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that identify the graph; the same on every rank."""
        return self.manifest.digest[:16]

    @property
    def has_labels(self) -> bool:
        return self._part.labels is not None

    @property
    def _part(self) -> Graph | GraphBlock:
        return self.held if isinstance(self.held, Graph) else self.held.block

    def seeds(self, split: str) -> np.ndarray:
        """Return the vertices of a split, ascending: int32, the same on every rank. Collective if the topology is partitioned."""
        return self.held.seeds(split)

    def default_seeds(self) -> np.ndarray:
        """Return the training split, or all vertices of a graph without masks; collective as `seeds`."""
        return self.held.default_seeds() if isinstance(self.held, Graph) else self.held.seeds(None)

    def labels_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the labels of distinct vertices, ascending, on every rank; collective as `seeds`. The graph must have labels."""
        if isinstance(self.held, OpenBlock):
            return self.held.labels_of(vertices)
        assert self.held.labels is not None
        return np.asarray(self.held.labels[vertices])

    def open_adjacency(self, backend: Backend) -> tuple[Adjacency, Comm | None]:
        """Return the adjacency, and its communicator if its methods are collective; collective.

        No two adjacencies in use have the same communicators, so several loaders may sample at once, each on its thread.
        """
        held = self.held
        if isinstance(held, Graph):
            return LocalAdjacency(held.adjacency, backend), None
        adjacency = self.grids.lend(lambda grid: replace(held, grid=grid).adjacency(backend))
        return adjacency, adjacency.grid.comm

    def held_bytes(self) -> dict[str, int]:
        """Return the bytes of the arrays that this rank holds, in memory or mapped from the store."""
        x, of_edges = self.features, self.edge_features if self.edges is None else self.edges.features
        return {
            "adjacency": self._part.adjacency.nbytes(),
            "features": x.nbytes() if isinstance(x, CSR) else 0 if x is None else x.nbytes,
            "edge_features": 0 if of_edges is None else of_edges.nbytes,
        }


def open_rank_graph(
    directory: str | os.PathLike[str],
    comm: Comm,
    *,
    topology: str = "partitioned",
    features: str = "partitioned",
    replication: int = 1,
    exchange: str = "owner",
    partition: str = "block",
    seed: int = 0,
    label: str | None = None,
    check: str = "auto",
) -> RankGraph:
    """Read this rank's share of a stored graph; collective.

    Parameters
    ----------
    topology, features : {"replicated", "partitioned"}
        Replicated arrays are mapped from the store. Of partitioned ones a rank reads its own rows into memory, and no others.
    replication, exchange, partition, seed
        Of what is partitioned; see `open_graph.Placement`.
    label : str, optional
        Another column of the store to use as the label.
    check : {"auto", "full", "none"}
        Hashes to check; see `verify_together`.

    Raises
    ------
    UsageError
        On every rank, if an argument is unknown or does not fit the others, or the ranks were given different arguments or graphs.
    DataError
        On every rank, if the store is missing or damaged for one of them.
    """
    asked: dict[str, Any] = {"topology": topology, "features": features, "replication": replication, "exchange": exchange}
    asked |= {"partition": str(partition), "seed": seed, "label": label}
    manifest = together(comm, lambda: _checked(directory, **asked))
    agree(comm, {"version": __version__, "graph": manifest.digest, **asked, "check": check})
    verify_together(directory, comm, check)
    if "partitioned" not in (topology, features):
        graph = together(comm, lambda: _whole(directory, label, True))
        return RankGraph(comm, manifest, graph, graph.features, None, 1, None, graph.edge_features)
    grid = ProcessGrid(comm, replication)
    layout = open_layout(directory, str(partition), grid, seed)
    members, shared = layout.members(grid.row), features == "replicated"
    if topology == "replicated":
        whole = together(comm, lambda: _whole(directory, label, False))
        x = together(comm, lambda: load_feature_rows(directory, members))
        made = RankGraph(comm, manifest, whole, x, layout, replication)
        if not manifest.num_edge_features:
            return made
        edges = BlockEdges(layout, whole.adjacency.take(members), *together(comm, lambda: load_edge_rows(directory, members, True)))
        return replace(made, edges=edges)
    block = together(comm, lambda: load_block(directory, members, not shared, label))
    edges = BlockEdges(layout, block.adjacency, *together(comm, lambda: load_edge_rows(directory, members, not shared)))
    opened = OpenBlock(grid, layout, block, Placement("partitioned", replication, exchange, str(partition)))
    if not shared:
        return RankGraph(comm, manifest, opened, block.features, layout, replication, edges)
    x, of_edges = together(comm, lambda: (store.load_features(directory), store.load_edge_features(directory)))
    return RankGraph(comm, manifest, opened, x, None, replication, edges, of_edges)


def _checked(
    directory: Any, topology: str, features: str, replication: int, exchange: str, partition: str, **_: Any
) -> Manifest:  # fmt: skip
    """Return the manifest of the store; raise `UsageError` if the arguments do not fit each other."""
    for argument, name in (("topology", topology), ("features", features)):
        if name not in PLACEMENTS:
            raise UsageError(f"{argument}: got {name!r}; {instead_of(str(name), PLACEMENTS)}")
    if "partitioned" not in (topology, features) and (replication, partition) != (1, "block"):
        raise UsageError(
            f"replication and partition describe block rows; got c = {replication} and {partition} with topology and features replicated"
        )
    Placement("partitioned", replication, exchange, partition)
    return load_manifest(folder_of(directory, "a store"))


def _whole(directory: str | os.PathLike[str], label: str | None, features: bool) -> Graph:
    graph = store.load(directory, features, check="none")
    return graph.with_label(label) if label else graph
