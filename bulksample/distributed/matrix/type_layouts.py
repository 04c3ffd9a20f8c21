"""The vertices of each type of a heterogeneous graph in block rows: every type is cut into the block rows of one process grid."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from ...data.parts_manifest import is_parts
from ...errors import UsageError
from ...graph import Graph
from ...relations.adjacency import union_of
from ...sparse import CSR, frozen, row_pointers
from . import partition as partitions
from .grid import ProcessGrid
from .layout import Layout
from .placement import Placement


class TypeLayouts:
    """A layout of each vertex type in p / c block rows.

    Parameters
    ----------
    grid : ProcessGrid
    of : dict of Layout by type
        In the order of the types.
    """

    def __init__(self, grid: ProcessGrid, of: dict[str, Layout]) -> None:
        self.grid, self.of = grid, of

    @staticmethod
    def open(graph: Graph, placement: Placement, grid: ProcessGrid, seed: int = 0) -> TypeLayouts:
        """Divide the vertices of each type by the partition of a placement.

        ``block`` puts consecutive vertices of a type in each block row, and ``random`` random ones, each type apart; both need no
        communication. The others, and a file, divide the union of all relations, in the numbering of all types: collective, see
        `shared_assignment`.

        Raises
        ------
        UsageError
            On every rank, if the partition is a folder of parts, or `seed_locality` parts do not fit the block rows.
        """
        how, counts = placement.partition, [(kind.name, kind.count) for kind in graph.types]
        if how == "block":
            return TypeLayouts(grid, {name: Layout.even(count, grid.rows) for name, count in counts})
        if is_parts(how):
            raise UsageError(f"a folder of parts holds a plain graph; got partition {how} with several vertex types: use a partitioner")
        parts = placement.parts(grid)
        if how == "random":
            assignments = [partitions.random(count, parts, seed, place).assignment for place, (_, count) in enumerate(counts)]
        else:
            whole = partitions.shared_assignment(grid.comm, how, graph.n, parts, seed, lambda: (union_of(graph), _train(graph)))
            assignments = np.split(whole, graph.offsets[1:-1])
        pairs = zip(counts, assignments, strict=True)
        return TypeLayouts(grid, {name: Layout.of_parts(own, parts, grid.rows) for (name, _), own in pairs})

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


def _train(graph: Graph) -> np.ndarray:
    """Return the mask of the training vertices of all types: bool, shape (n,)."""
    return np.concatenate([np.zeros(0, bool), *(kind.masks.get("train", np.zeros(kind.count, bool)) for kind in graph.types)])


class StackedPlaces:
    """One numbering of the vertices of all types: block row by block row, and type by type within a block row.

    Parameters
    ----------
    layouts : sequence of Layout
        The block rows of each type.

    Attributes
    ----------
    bounds : int64, shape (blocks + 1,)
        Block row i holds the places ``bounds[i]:bounds[i + 1]``.
    """

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
