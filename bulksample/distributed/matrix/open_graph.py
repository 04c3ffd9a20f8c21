"""Open a stored graph on all ranks: the whole graph on every rank, or a block row on each.

In both cases every rank gets an `Adjacency` and all seeds of the split. Mini-batches do not depend on the choice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...adjacency import Adjacency
from ...backends.base import Backend
from ...data import store
from ...data.parts_manifest import graph_manifest, is_parts, load_parts
from ...data.store_files import open_array
from ...errors import UsageError
from ...graph import NODE, Graph
from ...graph.vertex_table import default_split
from ...local_adjacency import LocalAdjacency
from ..comm.agree import agree
from ..comm.base import Comm
from .block_rows import BlockRowAdjacency, count_references
from .graph_block import GraphBlock, load_block
from .grid import ProcessGrid, divisors
from .layout import Layout, TypeLayouts
from .owner import OwnerAdjacency, OwnerRelations
from .partition import PARTITIONERS, Partition
from .placement import Placement
from .relation_blocks import PartitionedRelations, RelationBlock
from .spgemm15d import RowsAdjacency, RowsRelations


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

        `training` is that of `default_split`. Collective in the process column: each rank sends 4 bytes for each of its seeds to each other
        member. Raises `UsageError` on every rank if the graph has no such split, or the default split is empty.
        """
        mask = self.own_seeds(split, training)
        return np.arange(self.block.n, dtype=np.int32) if mask is None else np.sort(self.gather(self.block.vertices[mask]))

    def labels(self, split: str | None) -> np.ndarray:
        """Return the labels of `seeds(split)`; collective: each member of the column sends labels and 4 bytes per seed to each other."""
        mask = self.own_seeds(split)
        return self._labels(slice(None) if mask is None else mask)

    def labels_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the labels of distinct vertices, by ascending vertex; collective, and moves as much as `labels`."""
        return self._labels(np.isin(self.block.vertices, vertices, assume_unique=True))

    def _labels(self, rows: np.ndarray | slice) -> np.ndarray:
        assert self.block.labels is not None
        return self.gather(self.block.labels[rows])[np.argsort(self.gather(self.block.vertices[rows]))]

    def own_seeds(self, split: str | None, training: bool = False) -> np.ndarray | None:
        """Return a mask of the rows of this block that are seeds; None if all are. Collective in the process column."""
        block = self.block
        if split not in (None, "all", *block.masks):
            raise UsageError(f"graph {block.name!r} has no {split!r} split; it has {', '.join([*block.masks, 'all'])}")
        if split is None:
            masks = dict.fromkeys(block.masks, True)
            if "train" in masks:  # False without a vertex in any block
                masks["train"] = bool(self.grid.column_comm.allgather(np.array([block.masks["train"].any()]), "topology").any())
            split = default_split(f"graph {block.name!r}", masks, training)
        return None if split == "all" else block.masks[split]

    def column_counts(self) -> np.ndarray:
        """Return the number of entries of A in the column of each own vertex: int64, shape (m,); see `count_references`."""
        return count_references(self.grid.column_comm, self.layout, self.block.adjacency.indices)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Concatenate the arrays of all block rows on every rank; collective in the process column (kind "topology")."""
        column = self.grid.column_comm
        counts = column.allgather(np.array([len(rows)]), "topology")[:, 0]
        return column.allgather_rows(np.ascontiguousarray(rows), counts, "topology")


def open_relations(
    placement: Placement, graph: Graph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock]
) -> PartitionedRelations:  # fmt: skip
    """Return relations in block rows by the policy of a placement, for samplers; collective. See `PartitionedRelations`."""
    if placement.exchange == "owner":
        return OwnerRelations(graph, backend, blocks, held)
    return RowsRelations(graph, backend, blocks, held, placement.oblivious)


def open_block(
    directory: str | os.PathLike[str], placement: Placement, comm: Comm, seed: int = 0, features: bool = True, label: str | None = None,
    target: str | None = None,
) -> OpenBlock:  # fmt: skip
    """Read this rank's block row of a stored graph; collective. No hashes are checked here; see `verify_together`.

    `seed` is that of a random partition. `label` is another column of the store to use as the label, and `target` what it shall be. Raises
    `UsageError` on every rank if c does not divide p or the partition does not have p / c parts.
    """
    grid = placement.topology_grid(comm)
    layout = open_layouts(directory, placement, grid, seed).of[NODE]
    return OpenBlock(grid, layout, load_block(directory, layout.members(grid.row), features, label, target), placement)


class OpenForSampling(NamedTuple):
    """A graph for sampling, as `open_for_sampling` returns it."""

    adjacency: Adjacency
    seeds: np.ndarray  # of the split
    read_bytes: int  # of this rank; 0 of a graph that is mapped whole
    places: np.ndarray  # of the seeds in part order


def open_for_sampling(
    directory: str | os.PathLike[str], split: str | None, comm: Comm, backend: Backend, placement: Placement, seed: int = 0
) -> OpenForSampling:  # fmt: skip
    """Open the adjacency of a stored graph and the seeds of a split, without features; call `verify_together` first to compare hashes."""
    if not placement.partitioned:
        graph = store.load(directory, features=False, check="none")
        seeds = graph.seeds(split) if split else graph.default_seeds()
        table = part_places(directory)
        return OpenForSampling(LocalAdjacency(graph.adjacency, backend), seeds, 0, seeds if table is None else table[seeds])
    opened = open_block(directory, placement, comm, seed, features=False)
    seeds = opened.seeds(split)
    return OpenForSampling(opened.adjacency(backend), seeds, opened.block.read_bytes, opened.layout.part_order(seeds))


def part_places(directory: str | os.PathLike[str]) -> np.ndarray | None:
    """Return the place of each vertex in the order of a folder of parts: int32, shape (n,), mapped; None for a whole store."""
    if not is_parts(directory):
        return None
    return open_array(Path(directory), load_parts(Path(directory)).arrays["new_id"])


def open_layouts(directory: str | os.PathLike[str], placement: Placement, grid: ProcessGrid, seed: int) -> TypeLayouts:
    """Make or read the layout of each vertex type by a placement's partition; collective, see `TypeLayouts.divide`.

    METIS needs all edges: rank 0 reads them, partitions, and broadcasts the result, 4 n bytes. The layout of a folder of parts is mapped
    from its tables; no rank sends anything but a digest.
    """
    how, stored = placement.partition, graph_manifest(Path(directory), plain=False)
    if is_parts(directory) or (stored.plain and how not in PARTITIONERS and is_parts(how)):
        return TypeLayouts(grid, {NODE: _layout_of_parts(Path(directory), how, grid)})
    counts = {kind.name: kind.vertices for kind in stored.types}
    return TypeLayouts.divide(counts, placement, grid, seed, lambda: store.load(directory, features=False, check="none"))


def _layout_of_parts(directory: Path, how: str, grid: ProcessGrid) -> Layout:
    """Return the layout of a folder of parts: each block row holds one part, or equally many that follow each other."""
    if is_parts(directory) and how != "block":
        raise UsageError(f"{directory} is divided into parts already; got partition {how}: leave it out, or use the whole store")
    folder = directory if is_parts(directory) else Path(how)
    parts, q = load_parts(folder), grid.rows
    if parts.graph.digest != graph_manifest(directory).digest:
        raise UsageError(f"{folder} holds parts of another graph than {directory}; divide this one with `bulksample partition`")
    if len(parts.parts) % q:
        raise UsageError(
            f"{folder} has {len(parts.parts)} parts, which p / c = {q} block rows cannot share evenly; "
            f"use p / c in {{{', '.join(map(str, divisors(len(parts.parts))))}}}, or divide the graph again"
        )
    agree(grid.comm, {}, {"parts": parts.digest})
    new_id, old_id = (open_array(folder, parts.arrays[role]) for role in ("new_id", "old_id"))
    if len(parts.parts) == q:
        return Layout(parts.bounds, old_id, new_id)
    block = np.searchsorted(parts.bounds[1:], new_id, side="right") // (len(parts.parts) // q)
    return replace(Layout.of(Partition(q, block.astype(np.int32))), part_places=new_id)
