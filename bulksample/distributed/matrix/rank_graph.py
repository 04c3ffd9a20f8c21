"""A stored graph as one of several ranks holds it: topology and features each whole, or in block rows over the ranks.

The two choices are independent. The published main placement is the topology on every rank and features in block rows: sampling then
sends nothing, and features are fetched from their owners. Whole arrays are mapped from the store, so the ranks of a machine share one
copy: its page cache.

The labels, the masks and the edges of a plain graph lie with its topology. Those of others, and their times, are not divided: they are
mapped from the store, and read where a mini-batch asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...adjacency import Adjacency
from ...backends.base import Backend
from ...data import store
from ...data.manifest import Manifest
from ...errors import UsageError, is_whole
from ...graph import NODE, Graph
from ...local_adjacency import LocalAdjacency
from ...pickled import Unpicklable
from ...sparse import CSR
from ...version import __version__
from ..comm.agree import agree, together
from ..comm.base import Comm
from .block_rows import InBlockRows
from .graph_block import GraphBlock, load_block, load_edge_rows, load_feature_rows
from .grid import CommPool, Lease, Order, ProcessGrid, choose_order, grids
from .layout import Layout, TypeLayouts
from .open_graph import OpenBlock, open_layouts, open_relations, part_places
from .partition import SEEDED
from .placement import Placement
from .relation_blocks import RelationBlock, read_blocks
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
    """The share of one rank of a stored graph; `bulksample.load` with a `world` returns one.

    Attributes
    ----------
    comm : Comm
        The ranks that share the graph.
    manifest : Manifest
        Of the store.
    placement : Placement
    features : float32 or float16 of shape (m, f), or a float32 CSR of that shape, optional
        Of all vertices, mapped from the store; or those of this rank's block row. A dict of such by type, unless the graph is plain.
    edge_features : float32 or float16, shape (m, d), optional
        Of all edges of a plain graph, mapped from the store, if features are whole.
    opened : OpenedAs
    sampling_grids, edge_grids, feature_grids : CommPool of ProcessGrid
        Grids of the topology for threads that sample, each with a tally of its own; for fetches of edges, and of features. All graphs of
        `comm` share them.
    """

    stays = "ranks share it; call bulksample.load(path, world=...) on every rank"
    comm: Comm
    manifest: Manifest
    placement: Placement
    held: Graph | OpenBlock  # the whole graph, mapped; of a plain graph in block rows, this rank's rows, labels and masks
    x: Mapping[str, np.ndarray | CSR] = field(default_factory=dict, repr=False)  # the features by type
    rows: TypeLayouts | None = None  # the vertices of each type in the block rows of the topology; None if it is whole
    blocks: TypeLayouts | None = None  # and in those of the features
    relations: list[RelationBlock] | None = None  # this rank's rows, if the topology is in block rows and the graph is not plain
    edges: BlockEdges | None = None  # of a plain graph, in the block rows of the topology if there are any, else of the features
    edge_features: np.ndarray | None = None
    part_places: np.ndarray | None = field(default=None, repr=False)  # in a folder of parts, if nothing is in block rows: int32, shape (n,)
    lease: Lease[ProcessGrid] | None = field(default=None, repr=False)  # the grid of `held`
    opened: OpenedAs = field(default_factory=lambda: OpenedAs(""))

    @property
    def plain(self) -> bool:
        """True of one type and one relation that have no names of their own; see `Graph.plain`."""
        return self.manifest.plain

    @property
    def graph(self) -> Graph:
        """The whole graph, mapped from the store; raises `UsageError` if this rank has a block row alone."""
        if isinstance(self.held, OpenBlock):
            raise UsageError(f"graph {self.name!r} is in block rows, and no rank has the whole; use topology='replicated'")
        return self.held

    @property
    def features(self) -> Any:
        return self.x.get(NODE) if self.plain else self.x

    @property
    def layout(self) -> Layout | None:
        """The vertices of a plain graph in the block rows of the features; None if they are whole."""
        return None if self.blocks is None else self.blocks.of[NODE]

    @property
    def sampling_grids(self) -> CommPool[ProcessGrid]:
        return grids(self.comm, *self.placement.topology_shape(self.comm), own_tally=True)

    @property
    def edge_grids(self) -> CommPool[ProcessGrid]:
        if not self.placement.partitioned:
            return self.feature_grids
        return grids(self.comm, *self.placement.topology_shape(self.comm), own_tally=False)

    @property
    def feature_grids(self) -> CommPool[ProcessGrid]:
        return grids(self.comm, *self.placement.feature_shape(self.comm), own_tally=False)

    def part_order(self, vertices: np.ndarray, kind: str = NODE) -> np.ndarray:
        """Return the places of vertices of a type in the block rows (of features, if partitioned) or the folder of parts, or the ids."""
        blocks = self.blocks or self.rows
        if blocks is not None:
            return blocks.of[kind].part_order(vertices)
        return vertices if self.part_places is None else self.part_places[vertices]

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def n(self) -> int:
        """Number of vertices of the whole graph, of all types."""
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
        """Return the vertices of a split, ascending: int32, the same on every rank. Collective if labels and masks are in block rows."""
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

        No two adjacencies in use have the same communicators, so several loaders may sample at once, each on its thread. If relations are
        in block rows, each rank sends the others of its process column 16 bytes for each relation.
        """
        if isinstance(self.held, Graph) and not self.placement.partitioned:
            return LocalAdjacency(self.held.adjacency, backend) if self.plain else LocalAdjacency(self.held, backend, by_type=True), None

        def in_block_rows(grid: ProcessGrid) -> InBlockRows:
            if isinstance(self.held, OpenBlock):
                return replace(self.held, grid=grid).adjacency(backend)
            assert self.rows is not None
            assert self.relations is not None
            return open_relations(self.placement, self.held, backend, self.rows.on(grid), self.relations)

        adjacency = self.sampling_grids.lend(in_block_rows)
        return adjacency, adjacency.grid.comm

    @property
    def read_bytes(self) -> int:
        """Bytes of the topology that this rank read into memory; 0 of one that is mapped whole."""
        if isinstance(self.held, OpenBlock):
            return self.held.block.read_bytes
        return sum(block.nbytes for block in self.relations or ())

    def held_bytes(self) -> dict[str, int]:
        """Return the bytes of the arrays that this rank holds, in memory or mapped from the store."""
        if isinstance(self.held, OpenBlock):
            topology = self.held.block.adjacency.nbytes()
        elif self.relations is not None:
            topology = self.read_bytes
        else:
            topology = sum(relation.adjacency.nbytes() for relation in self.held.relations)
        of_edges = [self.edge_features if self.edges is None else self.edges.features]
        if isinstance(self.held, Graph) and not self.plain:
            of_edges = [relation.features for relation in self.held.relations]
        return {
            "adjacency": topology,
            "features": sum(x.nbytes() if isinstance(x, CSR) else x.nbytes for x in self.x.values()),
            "edge_features": sum(x.nbytes for x in of_edges if x is not None),
        }


def open_rank_graph(
    directory: str | os.PathLike[str], comm: Comm, *, topology: str = "partitioned", features: str = "partitioned", replication: int = 1,
    feature_replication: int | None = None, grid_order: str = "auto", exchange: str = "owner", partition: str = "block",
    seed_locality: int | None = None, seed: int = 0, label: str | None = None, target: str | None = None, check: str = "auto",
) -> RankGraph:  # fmt: skip
    """Read this rank's share of a stored graph; collective. See `Placement` for what can be divided, and `verify_together` for `check`.

    Whole arrays are mapped from the store. Of partitioned ones a rank reads its own rows into memory, and no others. `label` is another
    column of the store to use as the label, and `target` what it shall be; see `Graph.with_label`. Raises `UsageError` on every rank if an
    argument is unknown or does not fit the others or the graph, as a folder of parts, `label` and `target` do not fit several vertex types,
    or if the ranks were given different arguments or graphs. Raises `DataError` on every rank if the store is missing or damaged for one of
    them.
    """
    arguments: dict[str, Any] = {
        "topology": topology, "features": features, "replication": replication, "feature_replication": feature_replication,
        "grid_order": grid_order, "exchange": exchange, "partition": str(partition), "seed_locality": seed_locality,
    }  # fmt: skip
    named = {"label": label, "target": target}

    def checked() -> tuple[Placement, Manifest]:
        """Raise `UsageError` if the arguments do not fit each other, the ranks or the store."""
        c = {"replication": replication} | ({} if feature_replication is None else {"feature_replication": feature_replication})
        for argument, number, least in (*((name, value, 1) for name, value in c.items()), ("seed", seed, 0)):
            if not is_whole(number, least, 2**64 - 1):
                raise UsageError(f"{argument}: got {number!r}; use a whole number, {least} or more")
        placement = Placement(**arguments)
        choose_order(comm, placement.grid_order)
        manifest = store.manifest(directory)
        if not manifest.plain and (others := [name for name, value in named.items() if value is not None]):
            raise UsageError(f"{', '.join(others)}: {directory} holds several vertex types; leave out what is for a graph of one type")
        return placement, manifest

    placement, manifest = together(comm, checked)
    agree(comm, {"version": __version__, **arguments, "seed": seed, **named, "check": check}, {"graph": manifest.digest})
    verify_together(directory, comm, check)

    def layouts(shape: tuple[int, Order]) -> tuple[Lease[ProcessGrid], TypeLayouts]:
        lease = grids(comm, *shape, own_tally=False).lease()
        return lease, open_layouts(directory, placement, lease.lent, seed)

    lease, rows = layouts(placement.topology_shape(comm)) if placement.partitioned else (None, None)
    blocks = None
    if placement.shards_features:
        blocks = rows if placement.same_rows(comm) else layouts(placement.feature_shape(comm))[1]

    def read() -> dict[str, Any]:
        return _plain(directory, placement, rows, blocks, label, target) if manifest.plain else _types(directory, rows, blocks)

    arrays = together(comm, read)
    how = OpenedAs(os.fspath(directory), seed, label, target)
    return RankGraph(comm, manifest, placement, rows=rows, blocks=blocks, lease=lease, opened=how, **arrays)


def _plain(
    directory: Any, placement: Placement, rows: TypeLayouts | None, blocks: TypeLayouts | None, label: str | None, target: str | None
) -> dict[str, Any]:  # fmt: skip
    """Read this rank's rows of what is in block rows of a plain graph, and map the rest from the store."""
    edges, more = None, dict[str, Any]()
    if rows is None:
        held: Any = store.load(directory, blocks is None, check="none").with_label(label, target)
        if blocks is None:
            x, more = held.features, {"edge_features": held.edge_features, "part_places": part_places(directory)}
        else:
            members = blocks.members(NODE)
            x = load_feature_rows(directory, members)
            if store.manifest(directory).num_edge_features:
                edges = BlockEdges(blocks.of[NODE], held.adjacency.take(members), *load_edge_rows(directory, members, True))
    else:
        members, layout = rows.members(NODE), rows.of[NODE]
        block = load_block(directory, members, blocks is rows, label, target)
        held = OpenBlock(rows.grid, layout, block, placement)
        edges = BlockEdges(layout, block.adjacency, *load_edge_rows(directory, members, blocks is not None))
        if blocks is None:
            x, role = store.load_features(directory), "edge_features"
            more = {role: store.load_column(directory, role) if role in store.manifest(directory).arrays else None}
        else:
            x = block.features if blocks is rows else load_feature_rows(directory, blocks.members(NODE))
    return {"held": held, "x": {} if x is None else {NODE: x}, "edges": edges, **more}


def _types(directory: Any, rows: TypeLayouts | None, blocks: TypeLayouts | None) -> dict[str, Any]:
    """Map a graph of several types from its store, and read this rank's rows, and no others, of what is in block rows."""
    graph = store.load(directory, check="none", structure=rows is None)
    x = {kind.name: kind.features for kind in graph.types if kind.features is not None}
    return {
        "held": graph,
        "x": x if blocks is None else {name: blocks.take(name, features) for name, features in x.items()},
        "relations": None if rows is None else read_blocks(graph, rows),
    }
