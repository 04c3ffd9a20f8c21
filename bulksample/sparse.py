"""Sparse matrices in compressed rows: the one matrix format of the package.

A `CSR` is frozen and canonical, so equal matrices have equal arrays, and a digest of the arrays is a digest of the matrix.
`fixed_point` turns real weights into integers. Every sum of products is then exact, so any device or rank may add in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DataError
from .pickled import Rebuilt

if TYPE_CHECKING:
    import scipy.sparse

MAX_VERTICES = 2**31 - 1  # columns are int32
_PIECE = 2**22  # elements that are checked at once; the arrays may be files larger than memory
_FINGERPRINT = 2**16  # elements of an array that are hashed, or up to twice as many
_VALUE_TYPES = (np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.float64))


def frozen(array: Any, dtype: Any = None) -> np.ndarray:
    """Return a read-only C-contiguous view of `array`, converted to `dtype` if it has another one."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, eq=False)
class CSR(Rebuilt):
    """A sparse m x n matrix in canonical compressed rows.

    Parameters
    ----------
    indptr : int64, shape (m + 1,)
        Row pointers; row i is the slice ``indptr[i]:indptr[i + 1]``.
    indices : int32, shape (nnz,)
        Columns; they ascend strictly within a row.
    values : int64, float32 or float64, shape (nnz,), optional
        Entries; ``None`` stands for ones.
    shape : (m, n)

    Raises
    ------
    DataError
        If lengths or dtypes do not fit. `validate` checks what needs O(nnz) work.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray | None
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        m, n = (int(side) for side in self.shape)
        if not (0 <= m <= MAX_VERTICES and 0 <= n <= MAX_VERTICES):
            raise DataError(f"a side of the matrix does not fit int32: shape is ({m}, {n}), use at most {MAX_VERTICES}")
        object.__setattr__(self, "shape", (m, n))
        for name, expected in (("indptr", np.int64), ("indices", np.int32)):
            array = np.asarray(getattr(self, name))
            if array.ndim != 1 or array.dtype != expected:
                raise DataError(f"{name} must be one-dimensional {np.dtype(expected)}; got {array.dtype} of shape {array.shape}")
            object.__setattr__(self, name, frozen(array))
        if len(self.indptr) != m + 1:
            raise DataError(f"indptr must have {m + 1} entries for {m} rows; it has {len(self.indptr)}")
        if self.indptr[0] != 0 or self.indptr[-1] != len(self.indices):
            raise DataError(
                f"indptr must run from 0 to the number of entries, {len(self.indices)}; it runs from {self.indptr[0]} to {self.indptr[-1]}"
            )
        if self.values is not None:
            values = np.asarray(self.values)
            if values.dtype not in _VALUE_TYPES or values.shape != self.indices.shape:
                raise DataError(
                    f"values must be int64, float32 or float64 of shape {self.indices.shape}; got {values.dtype} of shape {values.shape}"
                )
            object.__setattr__(self, "values", frozen(values))

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.indices)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Entries per row, int64 of shape (m,)."""
        return frozen(np.diff(self.indptr))

    @cached_property
    def value_bound(self) -> int:
        """The largest absolute value of an integer matrix: 1 if entries are ones, 0 if there are no entries."""
        if self.values is None or not len(self.values):
            return int(self.nnz > 0)
        return max(abs(int(self.values.min())), abs(int(self.values.max())))

    @cached_property
    def stores_zeros(self) -> bool:
        """True if an entry is 0, as an edge of weight 0 is: one pass over the values."""
        return self.values is not None and not self.values.all()

    @property
    def positive(self) -> CSR:
        """The matrix without its zeros, of values that are not negative: itself if it stores none. It is made once, and kept."""
        return self._without_zeros if self.stores_zeros else self

    @cached_property
    def _without_zeros(self) -> CSR:
        return self.keep(self.entries() > 0)

    @cached_property
    def row_sums(self) -> np.ndarray:
        """Exact sums of the rows of a matrix of ones, or of integers that are not negative and add up to at most 2**62: float64, (m,)."""
        if self.values is None:
            return self.degrees.astype(np.float64)
        running = np.zeros(self.nnz + 1, np.uint64)
        np.cumsum(self.values.astype(np.uint64), out=running[1:])  # exact modulo 2**64, and a row sum is below that
        sums: np.ndarray = running[self.indptr[1:]] - running[self.indptr[:-1]]
        return frozen(sums.astype(np.float64))

    @cached_property
    def longest_column(self) -> int:
        """The largest number of entries in a column."""
        return int(np.bincount(self.indices, minlength=1).max(initial=0))

    @cached_property
    def top_degrees(self) -> np.ndarray:
        """The sums of the largest degrees: entry r is that of the r largest, which no r rows exceed; int64, shape (m + 1,)."""
        return frozen(row_pointers(np.sort(self.degrees)[::-1]))

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of the shape, the number of entries, and evenly spaced elements of each array, fewer than 2**17.

        It tells graphs apart in milliseconds: an entry more or less moves all row pointers behind it. It is no proof of equality.
        """
        made = hashlib.sha256(f"{self.shape} {self.nnz}".encode())
        for array in (self.indptr, self.indices, self.values):
            if array is not None:
                made.update(spaced(array))
        return made.hexdigest()

    def entries(self) -> np.ndarray:
        """Return the values, or int64 ones where there are none: shape (nnz,)."""
        return np.ones(self.nnz, np.int64) if self.values is None else self.values

    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return self.indptr.nbytes + self.indices.nbytes + (0 if self.values is None else self.values.nbytes)

    def row_of_entry(self) -> np.ndarray:
        """Return the row of each entry: int64, shape (nnz,)."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int64), self.degrees)

    def with_values(self, values: np.ndarray | None) -> CSR:
        """Return the same pattern with other values."""
        return CSR(self.indptr, self.indices, values, self.shape)

    def validate(self, what: str = "matrix", repeats: bool = False) -> CSR:
        """Check every promise of the format and return self.

        With `repeats`, columns may repeat within a row, as for parallel edges. Raises `DataError`, naming `what` and the first row where
        row pointers fall, a column is out of range, columns do not ascend strictly, or a value is not finite.
        """
        for first in range(0, self.shape[0], _PIECE):
            pointers = self.indptr[first : first + _PIECE + 1]
            falling = np.flatnonzero(pointers[1:] < pointers[:-1])
            if len(falling):
                i = first + int(falling[0])
                raise DataError(f"{what}: row pointers must not fall: row {i} runs from {self.indptr[i]} to {self.indptr[i + 1]}")
        for first in range(0, self.nnz, _PIECE):
            columns = self.indices[first : first + _PIECE]
            bad = np.flatnonzero((columns < 0) | (columns >= self.shape[1]))
            if len(bad):
                row, column = self.row_at(first + bad[0]), columns[bad[0]]
                raise DataError(f"{what}: row {row} names column {column}; columns run from 0 to {self.shape[1] - 1}")
        for first in range(0, self.nnz, _PIECE):  # each column against the next, which may be the first of the next piece
            columns = self.indices[first : first + _PIECE + 1]
            falls = columns[1:] < columns[:-1] if repeats else columns[1:] <= columns[:-1]
            low, high = np.searchsorted(self.indptr, [first + 1, first + len(columns)])
            falls[self.indptr[low:high] - first - 1] = False  # a new row may start lower
            bad = np.flatnonzero(falls)
            if len(bad):
                at = first + int(bad[0])
                word = "repeats" if self.indices[at + 1] == self.indices[at] else "does not ascend"
                raise DataError(f"{what}: row {self.row_at(at)} {word}: column {self.indices[at]} is followed by {self.indices[at + 1]}")
        if self.values is not None and self.values.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(self.values))
            if len(bad):
                raise DataError(f"{what}: row {self.row_at(bad[0])} holds {self.values[bad[0]]}; values must be finite")
        return self

    def take(self, rows: np.ndarray) -> CSR:
        """Return the given rows in the given order; they may repeat."""
        counts = self.degrees[rows]
        entry = runs(self.indptr[rows], counts)
        values = None if self.values is None else self.values[entry]
        return CSR(row_pointers(counts), self.indices[entry], values, (len(counts), self.shape[1]))

    def keep(self, entries: np.ndarray) -> CSR:
        """Return the matrix of the entries where a mask, bool of shape (nnz,), is True."""
        values = None if self.values is None else self.values[entries]
        return CSR(row_pointers(entries)[self.indptr], self.indices[entries], values, self.shape)

    def row_at(self, entry: int) -> int:
        """Return the row that holds an entry."""
        return int(np.searchsorted(self.indptr, entry, side="right")) - 1

    def find(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the positions of entries among all entries, -1 where the matrix has none: int64, shape (m,).

        Of parallel edges it is the first. A binary search in each row, all rows at once: about log2 of the longest row passes over the
        m pairs.
        """
        low, end, last = self._bisect(rows, columns), self.indptr[np.asarray(rows) + 1], max(self.nnz - 1, 0)
        if not self.nnz:
            return np.full(len(low), -1, np.int64)
        there: np.ndarray = (low < end) & (self.indices[np.minimum(low, last)] == columns)
        return np.where(there, low, -1)

    def find_end(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the position behind the last entry at each place, or where it would stand: int64, shape (m,)."""
        return self._bisect(rows, np.asarray(columns, np.int64) + 1)

    def _bisect(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the position of the first entry of each row whose column is not below the wanted one."""
        low: np.ndarray = self.indptr[rows]
        high, last = self.indptr[np.asarray(rows) + 1], max(self.nnz - 1, 0)
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            beyond = (middle < high) & (self.indices[np.minimum(middle, last)] < columns)
            low, high = np.where(beyond, middle + 1, low), np.where(beyond, high, middle)
        return low

    def transpose(self) -> CSR:
        """Return the transposed matrix, canonical."""
        order = np.argsort(self.indices, kind="stable")  # rows ascend already, so a stable sort keeps them ascending
        indptr = row_pointers(np.bincount(self.indices, minlength=self.shape[1]))
        values = None if self.values is None else self.values[order]
        return CSR(indptr, self.row_of_entry()[order].astype(np.int32), values, self.shape[::-1])

    def to_scipy(self) -> scipy.sparse.csr_array:
        """Return the matrix as a `scipy.sparse.csr_array`; ones become int64."""
        import scipy.sparse

        return scipy.sparse.csr_array((self.entries(), self.indices, self.indptr), shape=self.shape)

    @staticmethod
    def from_scipy(matrix: Any) -> CSR:
        """Copy a scipy sparse matrix into canonical form: sorted, duplicates summed, zeros dropped."""
        import scipy.sparse

        matrix = scipy.sparse.csr_array(matrix)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return CSR(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, matrix.shape)

    @staticmethod
    def from_edges(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int], values: np.ndarray | None = None) -> CSR:
        """Build a canonical matrix from entries in any order.

        Parameters
        ----------
        rows, columns : integer, shape (e,)
        values : shape (e,), optional
            Entries at the same place are summed; without values one is kept.

        Raises
        ------
        DataError
            If an entry lies outside the shape; the message names its position.
        """
        rows, columns = np.asarray(rows), np.asarray(columns)
        for name, array, size in (("row", rows, shape[0]), ("column", columns, shape[1])):
            bad = np.flatnonzero((array < 0) | (array >= size))
            if len(bad):
                raise DataError(f"entry {bad[0]} names {name} {array[bad[0]]}; {name}s run from 0 to {size - 1}")
        place = rows.astype(np.int64) * shape[1] + columns
        if values is None:
            place = np.unique(place)
        else:
            order = np.argsort(place, kind="stable")
            place, values = place[order], np.asarray(values)[order]
            first = np.flatnonzero(np.diff(place, prepend=-1))
            if len(first) < len(place):
                place, values = place[first], np.add.reduceat(values, first)
        indptr = row_pointers(np.bincount(place // max(shape[1], 1), minlength=shape[0]))
        return CSR(indptr, (place % max(shape[1], 1)).astype(np.int32), values, shape)


def spaced(array: np.ndarray) -> bytes:
    """Return evenly spaced elements of an array, fewer than 2**17: what fingerprints hash."""
    return np.ascontiguousarray(array[:: max(1, len(array) // _FINGERPRINT)]).tobytes()


def row_pointers(counts: Any) -> np.ndarray:
    """Return the row pointers of rows with these numbers of entries, 0, c_0, c_0 + c_1, ...: int64, shape (m + 1,)."""
    pointers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, dtype=np.int64, out=pointers[1:])
    return pointers


def row_pieces(indptr: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of consecutive rows, each range of at most `most` entries and rows, or of one longer row."""
    first, n = 0, len(indptr) - 1
    while first < n:
        last = int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1
        last = min(max(last, first + 1), first + most, n)
        yield first, last
        first = last


def runs(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return start, start + 1, ... for each run, one run after the other: int64, shape (sum of counts,)."""
    ends = row_pointers(counts)
    shifts: np.ndarray = np.repeat(np.asarray(starts, np.int64) - ends[:-1], counts)
    return shifts + np.arange(ends[-1])


def fixed_point(weights: np.ndarray, most_summed: int) -> tuple[np.ndarray, float]:
    """Convert real weights to fixed point: w is close to ``integer * unit``.

    Parameters
    ----------
    weights : float, shape (m,)
        Finite and not negative.
    most_summed : int
        The largest number of weights in one sum (the longest row or column of the matrix).

    Returns
    -------
    integers : int64, shape (m,)
        Zero exactly where the weight is zero. Any `most_summed` of them sum to at most 2**62, so no sum overflows.
    unit : float
        A power of two times the largest weight; at most 2**-40 of the largest weight if `most_summed` is at most 2**22.

    Raises
    ------
    DataError
        If a weight is negative, infinite or not a number; the message names its position. If all weights are so small, about 1e-292, that
        the unit would be 0 or inexact.
    """
    weights = np.asarray(weights, np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise DataError(f"weight {bad[0]} is {weights[bad[0]]}; weights must be finite and not negative")
    bits = min(52, 62 - max(int(most_summed) - 1, 0).bit_length())
    largest = float(weights.max(initial=0.0)) or 1.0
    unit = float(np.ldexp(largest, -bits))
    if unit < np.finfo(np.float64).tiny:
        raise DataError(f"the largest weight is {largest}, of which no float64 holds {bits} bits; multiply all weights by a number")
    integers = np.rint(np.ldexp(weights / largest, bits)).astype(np.int64)
    np.maximum(integers, weights > 0, out=integers)  # a positive weight stays drawable
    return integers, unit
