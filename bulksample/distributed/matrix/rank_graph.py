"""A stored graph as one of several ranks holds it: topology and features each whole, or in block rows over the ranks.

The two choices are independent. The published main placement is the topology on every rank and features in block rows: sampling then
sends nothing, and features are fetched from their owners. Whole arrays are mapped from the store, so the ranks of a machine share one
copy: its page cache.
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
from ...data.manifest import Manifest
from ...data.parts_manifest import graph_manifest
from ...errors import UsageError, is_whole
from ...graph import Graph
from ...pickled import Unpicklable
from ...sparse import CSR
from ...version import __version__
from ..comm.agree import agree, together
from ..comm.base import Comm
from .comm_pool import CommPool, Lease, grids
from .graph_block import GraphBlock, load_block, load_edge_rows, load_feature_rows
from .grid import Order, ProcessGrid, choose_order
from .layout import Layout
from .open_graph import OpenBlock, open_layout, part_places
from .partition import SEEDED
from .placement import Placement
from .verify import verify_together


class OpenedAs(NamedTuple):
    """The folder of the store that ranks opened, the seed of its partition, and the column that is the label, with its target."""

    directory: str
    seed: int = 0
    label: str | None = None
    target: str | None = None

    def run_options(self, placement: Placement) -> dict[str, Any]:
        """Return the options of a run on this graph, apart from the folder; the seed if the partition depends on it."""
        seed = self.seed if placement.partition in SEEDED else None
        others = {"seed": seed, "label": self.label, "target": self.target}
        return {**placement.options(), **{name: value for name, value in others.items() if value is not None}}


class BlockEdges(NamedTuple):
    """The edges of a block row, as `EdgeExchange` takes them."""

    layout: Layout
    block: CSR
    first_entries: np.ndarray
    features: np.ndarray | None


@dataclass(frozen=True, eq=False)
class RankGraph(Unpicklable):
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
        The vertices of each block row of the features; None if they are whole.
    placement : Placement
    edges : BlockEdges, optional
        What this rank knows of the edges of its block row, of the topology if that is partitioned; None if nothing is in block rows.
    edge_features : float32 or float16, shape (m, d), optional
        Of all edges, mapped from the store, if features are whole.
    lease : Lease, optional
        The grid of `held`.
    part_places : int32, shape (n,), optional
        The place of each vertex in a folder of parts, if nothing is in block rows.
    opened : OpenedAs
    sampling_grids, edge_grids, feature_grids : CommPool of ProcessGrid
        Grids of the topology for threads that sample, each with a tally of its own; for fetches of edges, and of features. All graphs of
        `comm` share them.
    """

    stays = "ranks share it; call bulksample.load(path, world=...) on every rank"
    comm: Comm
    manifest: Manifest
    held: Graph | OpenBlock
    features: np.ndarray | CSR | None
    layout: Layout | None
    placement: Placement
    edges: BlockEdges | None = None
    edge_features: np.ndarray | None = None
    lease: Lease[ProcessGrid] | None = field(default=None, repr=False)
    part_places: np.ndarray | None = field(default=None, repr=False)
    opened: OpenedAs = field(default_factory=lambda: OpenedAs(""))

    @property
    def sampling_grids(self) -> CommPool[ProcessGrid]:
        return grids(self.comm, *self.placement.topology_shape(self.comm), own_tally=True)

    @property
    def edge_grids(self) -> CommPool[ProcessGrid]:
        if not self.placement.partitioned:
            return self.feature_grids
        return grids(self.comm, *self.placement.topology_shape(self.comm), own_tally=False)

    def part_order(self, vertices: np.ndarray) -> np.ndarray:
        """Return the place of each vertex in the order of the block rows, of the features if these are partitioned.

        If nothing is in block rows: in the order of the folder of parts that was opened, or else the id.
        """
        if self.layout is not None:
            return self.layout.part_order(vertices)
        if isinstance(self.held, OpenBlock):
            return self.held.layout.part_order(vertices)
        return vertices if self.part_places is None else self.part_places[vertices]

    @property
    def feature_grids(self) -> CommPool[ProcessGrid]:
        return grids(self.comm, *self.placement.feature_shape(self.comm), own_tally=False)

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
        adjacency = self.sampling_grids.lend(lambda grid: replace(held, grid=grid).adjacency(backend))
        return adjacency, adjacency.grid.comm

    @property
    def read_bytes(self) -> int:
        """Bytes of the block row that this rank read into memory; 0 of a topology that is mapped whole."""
        return 0 if isinstance(self.held, Graph) else self.held.block.read_bytes

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
    feature_replication: int | None = None,
    grid_order: str = "auto",
    exchange: str = "owner",
    partition: str = "block",
    seed_locality: int | None = None,
    seed: int = 0,
    label: str | None = None,
    target: str | None = None,
    check: str = "auto",
) -> RankGraph:
    """Read this rank's share of a stored graph; collective.

    Parameters
    ----------
    topology, features
        See `placement.Placement`. Whole arrays are mapped from the store. Of partitioned ones a rank reads its own rows into memory, and
        no others.
    replication, feature_replication, grid_order, exchange, partition, seed_locality, seed
        Of what is partitioned; see `placement.Placement`.
    label : str, optional
        Another column of the store to use as the label.
    target : str, optional
        The target that the label shall be; see `Graph.with_label`.
    check : {"auto", "full", "none"}
        Hashes to check; see `verify_together`.

    Raises
    ------
    UsageError
        On every rank, if an argument is unknown or does not fit the others, or the ranks were given different arguments or graphs.
    DataError
        On every rank, if the store is missing or damaged for one of them.
    """
    asked: dict[str, Any] = {
        "topology": topology, "features": features, "replication": replication, "feature_replication": feature_replication,
        "grid_order": grid_order, "exchange": exchange, "partition": str(partition), "seed_locality": seed_locality,
    }  # fmt: skip
    placement, manifest = together(comm, lambda: _checked(comm, directory, asked, seed))
    how = OpenedAs(os.fspath(directory), seed, label, target)
    alike = {"version": __version__, **asked, "seed": seed, "label": label, "target": target, "check": check}
    agree(comm, alike, {"graph": manifest.digest})
    verify_together(directory, comm, check)
    if not placement.divided:
        graph = together(comm, lambda: _whole(directory, label, target, True))
        made = RankGraph(comm, manifest, graph, graph.features, None, placement, None, graph.edge_features, opened=how)
        return replace(made, part_places=part_places(directory))
    sharded, same = placement.shards_features, placement.same_rows(comm)
    if not placement.partitioned:
        _, layout, members = _rows_of(comm, directory, placement, seed, placement.feature_shape(comm))
        whole = together(comm, lambda: _whole(directory, label, target, False))
        x = together(comm, lambda: load_feature_rows(directory, members))
        made = RankGraph(comm, manifest, whole, x, layout, placement, opened=how)
        if not manifest.num_edge_features:
            return made
        edges = BlockEdges(layout, whole.adjacency.take(members), *together(comm, lambda: load_edge_rows(directory, members, True)))
        return replace(made, edges=edges)
    lease, layout, members = _rows_of(comm, directory, placement, seed, placement.topology_shape(comm))
    block = together(comm, lambda: load_block(directory, members, same, label, target))
    edges = BlockEdges(layout, block.adjacency, *together(comm, lambda: load_edge_rows(directory, members, sharded)))
    opened = OpenBlock(lease.lent, layout, block, placement)
    if same:
        return RankGraph(comm, manifest, opened, block.features, layout, placement, edges, None, lease, opened=how)
    if sharded:
        _, others, held = _rows_of(comm, directory, placement, seed, placement.feature_shape(comm))
        x = together(comm, lambda: load_feature_rows(directory, held))
        return RankGraph(comm, manifest, opened, x, others, placement, edges, None, lease, opened=how)
    x, of_edges = together(comm, lambda: (store.load_features(directory), store.load_edge_features(directory)))
    return RankGraph(comm, manifest, opened, x, None, placement, edges, of_edges, lease, opened=how)


def _rows_of(
    comm: Comm, directory: Any, placement: Placement, seed: int, shape: tuple[int, Order]
) -> tuple[Lease[ProcessGrid], Layout, np.ndarray]:  # fmt: skip
    """Return a process grid, the layout of its block rows, and the vertices of this rank's; collective."""
    lease = grids(comm, *shape, own_tally=False).lease()
    layout = open_layout(directory, placement, lease.lent, seed)
    return lease, layout, layout.members(lease.lent.row)


def _checked(comm: Comm, directory: Any, asked: dict[str, Any], seed: int) -> tuple[Placement, Manifest]:
    """Return the placement and the manifest of the store; raise `UsageError` if the arguments do not fit each other or the ranks."""
    check_numbers(asked, seed)
    placement = Placement(**asked)
    choose_order(comm, placement.grid_order)
    return placement, graph_manifest(folder_of(directory, "a store"))


def check_numbers(asked: dict[str, Any], seed: Any) -> None:
    """Raise `UsageError` if c of the topology or of the features, or the seed of a partition, is no whole number in range."""
    c = {name: asked[name] for name in ("replication", "feature_replication") if name == "replication" or asked[name] is not None}
    for argument, number, least in (*((name, given, 1) for name, given in c.items()), ("seed", seed, 0)):
        if not is_whole(number, least, 2**64 - 1):
            raise UsageError(f"{argument}: got {number!r}; use a whole number, {least} or more")


def _whole(directory: str | os.PathLike[str], label: str | None, target: str | None, features: bool) -> Graph:
    return store.load(directory, features, check="none").with_label(label, target)
