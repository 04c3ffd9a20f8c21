"""Rows of an adjacency in the order of time: a window of time is a range of positions.

    lo = first position with time >= start;   hi = first position with time > end (>= end if strict);   the window is [lo, hi)

Beside the adjacency, whose columns ascend, lie the entries of each row in the order of time, each with its time, the position in the row
that it came from, and its column: 16 bytes an edge, together, so that a window and what is drawn from it lie in neighboring cache lines.
Rows are ordered by (time, column, entry). So equal times leave a row as it is, and drawing from all of it draws what a graph without times
draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..sparse import CSR, frozen


@dataclass(frozen=True, eq=False)
class TimedRows:
    """The entries of a matrix in the order of time, row by row.

    Parameters
    ----------
    entries : int64, shape (m, 2)
        The time of an entry, which ascends within a row, and a word of two int32: its position in its row of A, and its column.
    """

    entries: np.ndarray

    @property
    def times(self) -> np.ndarray:
        """The times: int64, shape (m,)."""
        return self.entries[:, 0]

    @property
    def positions(self) -> np.ndarray:
        """The position in its row of A that each entry came from: int32, shape (m,)."""
        return self.entries.view(np.int32)[:, 2]

    @staticmethod
    def of(matrix: CSR, times: np.ndarray) -> TimedRows:
        """Sort each row by time; `times` holds that of each entry, int64 of shape (m,). Equal times keep the order of the row."""
        rows = matrix.row_of_entry()
        sorted_already = not ((times[1:] < times[:-1]) & (rows[1:] == rows[:-1])).any()
        entries = np.arange(matrix.nnz) if sorted_already else np.lexsort((times, rows))
        sorted_entries = np.empty((matrix.nnz, 2), np.int64)
        sorted_entries[:, 0] = times[entries]
        halves = sorted_entries.view(np.int32)
        halves[:, 2], halves[:, 3] = entries - matrix.indptr[rows], matrix.indices[entries]
        return TimedRows(frozen(sorted_entries, np.int64))

    def windows(
        self, matrix: CSR, rows: np.ndarray, starts: np.ndarray | None, ends: np.ndarray, strict: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the window [lo, hi) of each of R rows, as positions in the row: two int64 of shape (R,). hi is never below lo.

        Parameters
        ----------
        rows : integers, shape (R,)
        starts, ends : int64, shape (R,)
            The first and the last time of each window; without starts they begin at the beginning.
        strict : bool
            Leave out times that equal the end.
        """
        first, last = matrix.indptr[rows], matrix.indptr[rows + 1]
        high = self._bisect(first, last, ends, after_equal=not strict)
        low = first if starts is None else self._bisect(first, last, starts, after_equal=False)
        return low - first, np.maximum(high, low) - first

    def _bisect(self, low: np.ndarray, high: np.ndarray, wanted: np.ndarray, after_equal: bool) -> np.ndarray:
        """Return the first position of each range whose time is not below `wanted`, or above it, by bisection of all rows at once."""
        low, high = low.copy(), high.copy()
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) >> 1
            at, time = wanted[open_], self.times[middle]
            below = time <= at if after_equal else time < at
            low[open_[below]], high[open_[~below]] = middle[below] + 1, middle[~below]
        return low
