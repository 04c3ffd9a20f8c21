"""The distribution of a matrix's rows over block rows: the block row of each vertex, and its place in it.

Vertices keep their ids in columns, in mini-batches and in the counters of random numbers, so a layout never changes a draw.
A place is a row number in block order: block row i holds the places ``bounds[i]:bounds[i + 1]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import UsageError
from ...sparse import MAX_VERTICES, frozen
from .partition import Partition, block_bounds


@dataclass(frozen=True, eq=False)
class Layout:
    """The order of n vertices in block rows.

    Parameters
    ----------
    bounds : int64, shape (blocks + 1,)
        Ascending from 0 to n; some blocks may be empty.
    order, position : int32, shape (n,), optional
        The vertex at each place, and the place of each vertex. Vertices ascend within a block. Without them, places equal
        vertices and the layout takes no memory.
    part_places : int32, shape (n,), optional
        The place of each vertex among parts of which several make a block row; by default `position`.

    Raises
    ------
    UsageError
        If the bounds do not ascend from 0.
    """

    bounds: np.ndarray
    order: np.ndarray | None = None
    position: np.ndarray | None = None
    part_places: np.ndarray | None = None

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
        return Layout(partition.bounds, partition.order, partition.position)

    @staticmethod
    def of_parts(assignment: np.ndarray, parts: int, blocks: int) -> Layout:
        """Return the layout whose block rows hold equally many consecutive parts each.

        Parameters
        ----------
        assignment : int32, shape (n,)
            The part of each vertex.
        parts, blocks : int
            `blocks` divides `parts`.
        """
        if parts == blocks:
            return Layout.of(Partition(parts, assignment))
        made = Layout.of(Partition(blocks, assignment // (parts // blocks)))
        return Layout(made.bounds, made.order, made.position, Partition(parts, assignment).position)

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
