"""The distribution of the vertices of each type over block rows: the block row of each vertex, and its place in it.

Vertices keep their ids in columns, in mini-batches and in the counters of random numbers, so a layout never changes a draw.
A place is a row number in block order: block row i holds the places ``bounds[i]:bounds[i + 1]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ...data.parts_manifest import is_parts
from ...errors import UsageError
from ...graph import Graph
from ...local_adjacency import union_of
from ...sparse import CSR, MAX_VERTICES, frozen, row_pointers
from .grid import ProcessGrid
from .partition import PARTITIONERS, Partition, block_bounds, random, shared_assignment
from .placement import Placement


@dataclass(frozen=True, eq=False)
class Layout:
    """The order of n vertices in block rows. Raises `UsageError` if the bounds do not ascend from 0."""

    bounds: np.ndarray  # int64, shape (blocks + 1,): ascending from 0 to n; some blocks may be empty
    order: np.ndarray | None = None  # int32, shape (n,): the vertex at each place; vertices ascend within a block
    position: np.ndarray | None = None  # int32, shape (n,): the place of each vertex; without it places equal vertices, and take no memory
    part_places: np.ndarray | None = None  # int32, shape (n,): places among parts of which several make a block row; else `position`

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", frozen(checked_bounds(self.bounds)))

    @staticmethod
    def even(n: int, blocks: int) -> Layout:
        """Return the layout of consecutive vertices in blocks as even as possible."""
        return Layout(block_bounds(n, blocks))

    @staticmethod
    def of(partition: Partition) -> Layout:
        """Return the layout that makes each part of a partition a block row."""
        if (np.diff(partition.assignment) >= 0).all():
            return Layout(partition.bounds)
        order = frozen(np.argsort(partition.assignment, kind="stable"), np.int32)
        position = np.empty_like(order)
        position[order] = np.arange(len(order), dtype=np.int32)
        return Layout(partition.bounds, order, frozen(position))

    @staticmethod
    def of_parts(assignment: np.ndarray, parts: int, blocks: int) -> Layout:
        """Return the layout whose block rows hold equally many consecutive parts each; `assignment` is the part of each vertex, int32."""
        if parts == blocks:
            return Layout.of(Partition(parts, assignment))
        made = Layout.of(Partition(blocks, assignment // (parts // blocks)))
        return replace(made, part_places=Layout.of(Partition(parts, assignment)).position)

    @property
    def n(self) -> int:
        return int(self.bounds[-1])

    @property
    def blocks(self) -> int:
        return len(self.bounds) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the tables, which every rank holds; 0 where places equal vertices."""
        tables = {id(table): table.nbytes for table in (self.order, self.position, self.part_places) if table is not None}
        return sum(tables.values())

    def places(self, vertices: np.ndarray) -> np.ndarray:
        """Return the place of each vertex, in the dtype of the vertices or int32."""
        return vertices if self.position is None else self.position[vertices]

    def part_order(self, vertices: np.ndarray) -> np.ndarray:
        """Return the place of each vertex in the order of the parts, which may divide block rows further."""
        return self.places(vertices) if self.part_places is None else self.part_places[vertices]

    def vertices(self, places: np.ndarray) -> np.ndarray:
        """Return the vertex at each place, in the dtype of the places or int32."""
        return places if self.order is None else self.order[places]

    def members(self, block: int) -> np.ndarray:
        """Return the vertices of a block row, ascending: int32."""
        first, last = int(self.bounds[block]), int(self.bounds[block + 1])
        return np.arange(first, last, dtype=np.int32) if self.order is None else self.order[first:last]

    def blocks_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the block row of each vertex: int64."""
        return np.searchsorted(self.bounds, self.places(vertices), side="right") - 1


def checked_bounds(bounds: np.ndarray) -> np.ndarray:
    """Return the bounds of block rows as int64, or raise `UsageError`."""
    bounds = np.asarray(bounds)
    ascending = bounds.dtype.kind == "i" and bounds.ndim == 1 and len(bounds) > 1 and bounds[0] == 0 and (np.diff(bounds) >= 0).all()
    if not ascending or bounds[-1] > MAX_VERTICES:
        raise UsageError(f"bounds must be integers that ascend from 0 to at most {MAX_VERTICES}; got {bounds.tolist()}")
    return bounds.astype(np.int64)


class TypeLayouts:
    """A layout of each vertex type in p / c block rows, by name, in the order of the types."""

    def __init__(self, grid: ProcessGrid, of: dict[str, Layout]) -> None:
        self.grid, self.of = grid, of

    @staticmethod
    def open(graph: Graph, placement: Placement, grid: ProcessGrid, seed: int = 0) -> TypeLayouts:
        """Divide the vertices of each type of a graph by the partition of a placement; see `divide`."""
        return TypeLayouts.divide({kind.name: kind.count for kind in graph.types}, placement, grid, seed, lambda: graph)

    @staticmethod
    def divide(
        counts: Mapping[str, int], placement: Placement, grid: ProcessGrid, seed: int, whole: Callable[[], Graph]
    ) -> TypeLayouts:  # fmt: skip
        """Divide the vertices of each type by the partition of a placement, given how many there are.

        ``block`` puts consecutive vertices of a type in each block row, and ``random`` random ones, each type apart; both need no
        communication. The others, and a file, divide the union of all relations, in the numbering of all types: collective, see
        `shared_assignment`. With `seed_locality` G, a partitioner that is named makes G parts. `whole` returns the graph. Raises
        `UsageError` on every rank if the partition is a folder of parts, or `seed_locality` parts do not fit the block rows.
        """
        how = placement.partition
        if how == "block":
            return TypeLayouts(grid, {name: Layout.even(count, grid.rows) for name, count in counts.items()})
        if how not in PARTITIONERS and is_parts(how):
            raise UsageError(f"a folder of parts holds a plain graph; got partition {how} with several vertex types: use a partitioner")
        parts = placement.parts(grid)
        if how == "random":
            assignments = [random(count, parts, seed, place).assignment for place, count in enumerate(counts.values())]
        else:
            of_all = shared_assignment(grid.comm, how, sum(counts.values()), parts, seed, lambda: _edges(whole()))
            assignments = np.split(of_all, list(accumulate(counts.values()))[:-1])
        pairs = zip(counts, assignments, strict=True)
        return TypeLayouts(grid, {name: Layout.of_parts(part_of_each, parts, grid.rows) for name, part_of_each in pairs})

    def members(self, name: str) -> np.ndarray:
        """Return the vertices of a type in the block row of this rank, ascending: int32."""
        return self.of[name].members(self.grid.row)

    def take(self, name: str, x: np.ndarray | CSR) -> np.ndarray | CSR:
        """Copy the rows of this rank's members from an array over the vertices of a type, which may be mapped from a file."""
        members = self.members(name)
        return x.take(members) if isinstance(x, CSR) else np.ascontiguousarray(x[members])

    def on(self, grid: ProcessGrid) -> TypeLayouts:
        """Return the same block rows on another grid of the same shape."""
        if grid.rows != self.grid.rows:
            raise UsageError(f"the block rows of {self.grid.rows} process rows do not fit a grid of {grid.rows}")
        made = copy(self)
        made.grid = grid
        return made

    def nbytes(self) -> int:
        """Return the bytes of the tables of places, which every rank holds; 0 for ``block``."""
        return sum(layout.nbytes for layout in self.of.values())


def _edges(graph: Graph) -> tuple[CSR, np.ndarray]:
    """Return the adjacency of all relations together, and the mask of the training vertices of all types."""
    train = [kind.masks.get("train", np.zeros(kind.count, bool)) for kind in graph.types]
    return graph.adjacency if graph.plain else union_of(graph), np.concatenate([np.zeros(0, bool), *train])


class StackedPlaces:
    """One numbering of all types' vertices, by block row and type within it: block row i holds the places ``bounds[i]:bounds[i + 1]``."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self._layouts, sizes = layouts, np.stack([np.diff(layout.bounds) for layout in layouts], axis=1)
        self._starts = row_pointers(sizes.reshape(-1))  # of each type in each block row
        self.bounds = frozen(self._starts[:: len(layouts)])

    def places(self, kind: int, vertices: np.ndarray) -> np.ndarray:
        """Return the place of each vertex of a type: int32."""
        layout = self._layouts[kind]
        block = layout.blocks_of(vertices)
        shift = self._starts[:-1].reshape(-1, len(self._layouts))[:, kind] - layout.bounds[:-1]
        return np.asarray(layout.places(vertices) + shift[block], np.int32)

    def located(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the type of each place, and its number among the vertices of this type in its block row: int64."""
        at = np.searchsorted(self._starts, places, side="right") - 1
        return at % len(self._layouts), places - self._starts[at]
