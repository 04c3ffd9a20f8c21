"""The vertices of each type of a heterogeneous graph in block rows: every type is cut into the block rows of one process grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from ...errors import UsageError
from ...sparse import CSR, frozen, row_pointers
from . import partition as partitions
from .grid import ProcessGrid
from .layout import Layout

TYPE_PARTITIONERS = ("block", "random")


class TypeLayouts:
    """A layout of each vertex type in p / c block rows; needs no communication.

    Parameters
    ----------
    grid : ProcessGrid
    counts : dict of int by type
        The vertices of each type, in the order of the types.
    how : {"block", "random"}
        Consecutive vertices of a type in each block row, or random ones.
    seed : int
        Seed of ``random``; each type draws apart.

    Attributes
    ----------
    of : dict of Layout by type

    Raises
    ------
    UsageError
        If `how` is another partition: those need the edges of a graph of one type.
    """

    def __init__(self, grid: ProcessGrid, counts: Mapping[str, int], how: str = "block", seed: int = 0) -> None:
        if how not in TYPE_PARTITIONERS:
            raise UsageError(f"types of vertices are divided by {' or '.join(TYPE_PARTITIONERS)}; got partition {how}")
        self.grid = grid
        self.of = {name: _layout(count, grid.rows, how, seed, place) for place, (name, count) in enumerate(counts.items())}

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


def _layout(count: int, rows: int, how: str, seed: int, place: int) -> Layout:
    return Layout.even(count, rows) if how == "block" else Layout.of(partitions.random(count, rows, seed, place))


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
