"""Open a stored graph on all ranks: the whole graph on every rank, or a block row on each.

In both cases every rank gets an `Adjacency` and all seeds of the split. Mini-batches do not depend on the choice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...adjacency import Adjacency, LocalAdjacency
from ...backends.base import Backend
from ...data import store
from ...data.manifest import load_manifest
from ...errors import BackendUnavailable, DataError, UsageError
from ...graph import default_split
from ..comm.base import Comm
from . import partition as partitions
from .block_rows import BlockRowAdjacency
from .graph_block import GraphBlock, load_block
from .grid import ProcessGrid
from .layout import Layout
from .owner import OwnerAdjacency
from .partition import Partition
from .spgemm15d import RowsAdjacency

PLACEMENTS = ("replicated", "partitioned")
EXCHANGES = ("owner", "rows", "rows-oblivious")


@dataclass(frozen=True)
class Placement:
    """The distribution of the graph over ranks, and the policy of its products.

    Parameters
    ----------
    graph : {"replicated", "partitioned"}
        If partitioned, rank (i, j) of the process grid reads only block row i of p / c.
    replication : int
        c, the number of ranks that hold each block row; 1 if the graph is replicated.
    exchange : {"owner", "rows", "rows-oblivious"}
    partition : str
        How vertices are assigned to block rows: ``block``, ``random``, ``metis`` or ``super`` (see `distributed.matrix.partition`), or
        the file of a `Partition` of p / c parts.

    Raises
    ------
    UsageError
        If a name is unknown, or `replication` or `exchange` is set although the graph is replicated.
    """

    graph: str = "replicated"
    replication: int = 1
    exchange: str = "owner"
    partition: str = "block"

    def __post_init__(self) -> None:
        if self.graph not in PLACEMENTS:
            raise UsageError(f"graph must be one of {', '.join(PLACEMENTS)}; got {self.graph!r}")
        if self.exchange not in EXCHANGES:
            raise UsageError(f"exchange must be one of {', '.join(EXCHANGES)}; got {self.exchange!r}")
        if not self.partitioned and (self.replication, self.exchange) != (1, "owner"):
            raise UsageError(
                f"replication and exchange apply to a graph in block rows; got c = {self.replication} and {self.exchange} with the graph "
                "replicated; use graph partitioned"
            )
        if self.partition not in partitions.PARTITIONERS and not Path(self.partition).is_file():
            raise UsageError(f"partition must be one of {', '.join(partitions.PARTITIONERS)} or a file; got {self.partition!r}")

    @property
    def partitioned(self) -> bool:
        return self.graph == "partitioned"

    @property
    def oblivious(self) -> bool:
        return self.exchange == "rows-oblivious"


@dataclass(frozen=True, eq=False)
class OpenBlock:
    """A graph in block rows, as opened on one rank."""

    grid: ProcessGrid
    layout: Layout
    block: GraphBlock
    placement: Placement

    def adjacency(self, backend: Backend) -> BlockRowAdjacency:
        """Return the adjacency A for samplers; its methods are collective over the grid."""
        if self.placement.exchange == "owner":
            return OwnerAdjacency(self.grid, self.block.adjacency, backend, self.layout)
        return RowsAdjacency(self.grid, self.block.adjacency, backend, self.layout, self.placement.oblivious)

    def seeds(self, split: str | None, training: bool = False) -> np.ndarray:
        """Return the vertices of a split of the whole graph, or the default seeds: int32, ascending, the same on every rank.

        `training` is that of `default_split`.

        Collective in the process column: each rank sends 4 bytes for each of its seeds to each other member.

        Raises
        ------
        UsageError
            On every rank, if the graph has no such split, or the default split is empty.
        """
        mask = self.own_seeds(split, training)
        return np.arange(self.block.n, dtype=np.int32) if mask is None else np.sort(self.gather(self.block.vertices[mask]))

    def labels(self, split: str | None) -> np.ndarray:
        """Return the labels of `seeds(split)`, as the block holds them.

        Collective in the process column: each member sends its labels and 4 bytes per seed to every other member.
        """
        assert self.block.labels is not None
        mask = self.own_seeds(split)
        own = slice(None) if mask is None else mask
        return self.gather(self.block.labels[own])[np.argsort(self.gather(self.block.vertices[own]))]

    def labels_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the labels of distinct vertices, in ascending order of the vertices.

        Collective in the process column: each member sends its labels and 4 bytes per vertex to every other member.
        """
        assert self.block.labels is not None
        own = np.isin(self.block.vertices, vertices, assume_unique=True)
        return self.gather(self.block.labels[own])[np.argsort(self.gather(self.block.vertices[own]))]

    def own_seeds(self, split: str | None, training: bool = False) -> np.ndarray | None:
        """Return a mask of the rows of this block that are seeds; None if all are. Collective in the process column."""
        block = self.block
        if split not in (None, "all", *block.masks):
            raise UsageError(f"graph {block.name!r} has no {split!r} split; it has {', '.join([*block.masks, 'all'])}")
        if split is None:
            split = default_split(block.name, self._masks(), training)
        return None if split == "all" else block.masks[split]

    def _masks(self) -> dict[str, bool]:
        """Return the masks of the graph; False for a training mask without a vertex in any block, which ranks of the process column ask."""
        masks = dict.fromkeys(self.block.masks, True)
        if "train" in masks:
            masks["train"] = bool(self.grid.column_comm.allgather(np.array([self.block.masks["train"].any()]), "topology").any())
        return masks

    def column_counts(self) -> np.ndarray:
        """Return the number of entries of A in the column of each own vertex: int64, shape (m,); see `count_references`."""
        return self.count_references(self.block.adjacency.indices)

    def count_references(self, vertices: np.ndarray) -> np.ndarray:
        """Count how often each own vertex occurs in `vertices` on all ranks of the process column: int64, shape (m,).

        Collective in the process column: each rank sends 8 n bytes of counts to their owners.
        """
        counts = np.bincount(self.layout.places(vertices), minlength=self.block.n)
        return np.asarray(np.sum(self.grid.column_comm.alltoall(np.split(counts, self.layout.bounds[1:-1]), "topology"), axis=0))

    def gather(self, own: np.ndarray) -> np.ndarray:
        """Concatenate the arrays of all block rows on every rank; collective in the process column (kind "topology")."""
        column = self.grid.column_comm
        counts = column.allgather(np.array([len(own)]), "topology")[:, 0]
        return column.allgather_rows(np.ascontiguousarray(own), counts, "topology")


def open_block(
    directory: str | os.PathLike[str], placement: Placement, comm: Comm, seed: int = 0, features: bool = True, label: str | None = None,
    target: str | None = None,
) -> OpenBlock:  # fmt: skip
    """Read this rank's block row of a stored graph; collective. No hashes are checked here; see `verify_together`.

    Parameters
    ----------
    seed : int
        Seed of a random partition.
    features : bool
        Read features as well.
    label : str, optional
        Another column of the store to use as the label.
    target : str, optional
        The target that the label shall be.

    Raises
    ------
    UsageError
        On every rank, if c does not divide p or the partition does not have p / c parts.
    """
    grid = ProcessGrid(comm, placement.replication)
    layout = open_layout(directory, placement.partition, grid, seed)
    return OpenBlock(grid, layout, load_block(directory, layout.members(grid.row), features, label, target), placement)


def open_for_sampling(
    directory: str | os.PathLike[str], split: str | None, comm: Comm, backend: Backend, placement: Placement, seed: int = 0
) -> tuple[Adjacency, np.ndarray]:  # fmt: skip
    """Return the adjacency of a stored graph and the seeds of a split, without reading features; see `OpenBlock.seeds`.

    Call `verify_together` first to compare the files with their hashes.
    """
    if not placement.partitioned:
        graph = store.load(directory, features=False, check="none")
        return LocalAdjacency(graph.adjacency, backend), graph.seeds(split) if split else graph.default_seeds()
    opened = open_block(directory, placement, comm, seed, features=False)
    return opened.adjacency(backend), opened.seeds(split)


def open_layout(directory: str | os.PathLike[str], how: str, grid: ProcessGrid, seed: int) -> Layout:
    """Make or read the layout of a partition; collective.

    METIS needs all edges: rank 0 reads them, partitions, and broadcasts the result, 4 n bytes.
    """
    n, parts = load_manifest(Path(directory)).vertices, grid.rows
    if how == "block":
        return Layout.even(n, parts)
    if how == "random":
        return Layout.of(partitions.random(n, parts, seed))
    made, fault = None, ["", ""]
    if grid.comm.rank == 0:
        try:
            made = _partition(directory, how, n, parts, seed)
        except (DataError, UsageError, BackendUnavailable) as error:
            fault = [type(error).__name__, str(error)]
    kind, text = grid.comm.gather_control(fault)[0]
    if kind:
        raise (DataError if kind == "DataError" else UsageError)(text)
    assignment = np.empty(n, np.int32) if made is None else made.assignment.copy()
    return Layout.of(Partition(parts, grid.comm.broadcast(assignment, "topology")))


def _partition(directory: str | os.PathLike[str], how: str, n: int, parts: int, seed: int) -> Partition:
    """Make a partition that needs all edges, or read one from a file."""
    if how in partitions.PARTITIONERS:
        return partitions.make(how, store.load(directory, features=False, check="none").adjacency, parts, seed)
    made = Partition.load(how)
    if (made.n, made.parts) != (n, parts):
        raise DataError(f"{how} has {made.parts} parts of {made.n} vertices; use one with p / c = {parts} parts of {n} vertices")
    return made
