"""A stored heterogeneous graph as one of several ranks holds it: relations and features each whole, or in block rows over the ranks.

The columns of types (labels, masks, times) and of edges (numbers, features) are not divided: they are mapped from the store, and read
where a mini-batch asks for them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...backends.base import Backend
from ...data import store
from ...errors import UsageError
from ...graph import Graph
from ...pickled import Unpicklable
from ...relations.adjacency import RelationAdjacency
from ...sparse import CSR
from ...version import __version__
from ..comm.agree import agree, together
from ..comm.base import Comm
from .comm_pool import CommPool, Lease, grids
from .grid import ProcessGrid, choose_order
from .open_relations import open_relations
from .placement import Placement
from .rank_graph import OpenedAs, check_numbers
from .relation_blocks import RelationBlock, read_blocks
from .type_layouts import TypeLayouts
from .verify import verify_together


@dataclass(frozen=True, eq=False)
class RankHeteroGraph(Unpicklable):
    """A stored heterogeneous graph as one rank holds it; `bulksample.load` with a `world` returns one of such a store.

    Attributes
    ----------
    comm : Comm
        The ranks that share the graph.
    graph : Graph
        All types and relations, mapped from the store. Of what is in block rows, this rank reads its own rows alone.
    fingerprint : str
        Sixteen hex digits that identify the graph; the same on every rank.
    placement : Placement
    relations : sequence of RelationBlock, optional
        The rows of this rank's vertices in each relation; None if the topology is replicated.
    rows : TypeLayouts, optional
        The block rows of the topology.
    features : dict by type of float32 or float16 arrays of shape (m, f), or of float32 CSR of that shape
        The rows of this rank's vertices, of each type that has features; empty if features are whole.
    blocks : TypeLayouts, optional
        The block rows of the features.
    opened : OpenedAs
    """

    stays = "ranks share it; call bulksample.load(path, world=...) on every rank"
    comm: Comm
    graph: Graph
    fingerprint: str
    placement: Placement
    relations: list[RelationBlock] | None
    rows: TypeLayouts | None
    features: dict[str, np.ndarray | CSR]
    blocks: TypeLayouts | None
    leases: tuple[Lease[ProcessGrid], ...] = field(default=(), repr=False)
    opened: OpenedAs = field(default_factory=lambda: OpenedAs(""))

    @property
    def sampling_grids(self) -> CommPool[ProcessGrid]:
        """Grids of the topology for threads that sample, each with a tally of its own."""
        return grids(self.comm, *self.placement.topology_shape(self.comm), own_tally=True)

    @property
    def feature_grids(self) -> CommPool[ProcessGrid]:
        """Grids for fetches of features."""
        return grids(self.comm, *self.placement.feature_shape(self.comm), own_tally=False)

    def open_relations(self, backend: Backend) -> tuple[RelationAdjacency, Comm | None]:
        """Return the relations, and their communicator if their methods are collective; collective.

        No two of them in use have the same communicators, so several loaders may sample at once, each on its thread. If the topology is
        in block rows, each rank sends the others of its process column 16 bytes for each relation.
        """
        held, rows = self.relations, self.rows
        if held is None or rows is None:
            return RelationAdjacency(self.graph, backend), None
        opened = self.sampling_grids.lend(lambda grid: open_relations(self.placement, self.graph, backend, rows.on(grid), held))
        return opened, opened.grid.comm

    def held_bytes(self) -> dict[str, int]:
        """Return the bytes of the adjacencies and features that this rank holds, in memory or mapped from the store."""
        of_relations = [r.adjacency for r in self.graph.relations] if self.relations is None else self.relations
        topology = sum(one.nbytes() if isinstance(one, CSR) else one.nbytes for one in of_relations)
        whole = [kind.features for kind in self.graph.types] if self.blocks is None else list(self.features.values())
        return {"adjacency": topology, "features": sum(x.nbytes() if isinstance(x, CSR) else x.nbytes for x in whole if x is not None)}


def open_rank_hetero_graph(
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
) -> RankHeteroGraph:
    """Read this rank's share of a stored heterogeneous graph; collective. See `open_rank_graph` for the arguments.

    Raises
    ------
    UsageError
        On every rank, if an argument is unknown, does not fit the others, or is for a plain graph: a folder of parts, `label`, `target`.
        If ranks were given different arguments or graphs.
    DataError
        On every rank, if the store is missing or damaged for one of them.
    """
    asked: dict[str, Any] = {
        "topology": topology, "features": features, "replication": replication, "feature_replication": feature_replication,
        "grid_order": grid_order, "exchange": exchange, "partition": str(partition), "seed_locality": seed_locality,
    }  # fmt: skip
    of_plain_graphs = {"label": label, "target": target}

    def checked() -> tuple[Placement, str]:
        if others := [name for name, given in of_plain_graphs.items() if given is not None]:
            raise UsageError(f"{', '.join(others)}: {directory} holds several vertex types; leave out what is for a graph of one type")
        check_numbers(asked, seed)
        placement = Placement(**asked)
        choose_order(comm, placement.grid_order)
        return placement, store.manifest(directory).digest

    placement, digest = together(comm, checked)
    agree(comm, {"version": __version__, **asked, "seed": seed, "check": check}, {"graph": digest})
    verify_together(directory, comm, check)
    graph = together(comm, lambda: store.load(Path(directory), check="none", structure=not placement.partitioned))
    leases, how = list[Lease[ProcessGrid]](), OpenedAs(os.fspath(directory), seed)

    def layouts(replicas: int, order: Any) -> TypeLayouts:
        leases.append(grids(comm, replicas, order, own_tally=False).lease())
        return TypeLayouts.open(graph, placement, leases[-1].lent, seed)

    rows = layouts(*placement.topology_shape(comm)) if placement.partitioned else None
    held = None if rows is None else together(comm, lambda: read_blocks(graph, rows))
    if not placement.shards_features:
        return RankHeteroGraph(comm, graph, digest[:16], placement, held, rows, {}, None, tuple(leases), how)
    blocks = layouts(*placement.feature_shape(comm))
    x = together(comm, lambda: read_features(graph, blocks))
    return RankHeteroGraph(comm, graph, digest[:16], placement, held, rows, x, blocks, tuple(leases), how)


def read_features(graph: Graph, blocks: TypeLayouts) -> dict[str, np.ndarray | CSR]:
    """Read this rank's rows of the features of each type that has some, and no others."""
    return {kind.name: blocks.take(kind.name, kind.features) for kind in graph.types if kind.features is not None}
