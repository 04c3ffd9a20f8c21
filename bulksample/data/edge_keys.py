"""Edges as 64-bit keys ``row << 32 | column``: sorted and distinct, they are the canonical matrix.

More keys than memory holds are divided by rows into buckets of a file, and sorted one bucket at a time. They are made twice, once to count
and once to write them. The disk holds 8 bytes a key and then 4 bytes an entry, in unnamed files that end with the process; memory holds the
row pointers and a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from ..errors import UsageError
from ..mapped import pieces
from ..sparse import CSR, row_pointers

STEP = 2**22  # keys processed at a time, which bounds temporary arrays
COLUMN = np.int64(2**32 - 1)
BUCKET = 2**25  # keys, 268 MB
_BIN_BITS = 16  # of the number of a bin of rows; a bucket consists of whole bins

Keys = Callable[[], Iterable[np.ndarray]]


def put_keys(keys: np.ndarray, filled: int, rows: np.ndarray, columns: np.ndarray) -> int:
    """Write the keys of some edges behind the `filled` ones of an array, without temporary arrays; return how many it then holds."""
    part = keys[filled : filled + len(rows)]
    np.left_shift(rows, 32, out=part, dtype=np.int64)
    part |= columns
    return filled + len(part)


def distinct(keys: np.ndarray) -> np.ndarray:
    """Move the distinct ones of sorted keys to the front of the array, and return that part as a view."""
    kept, last = 0, -1  # a key is never negative
    for start in range(0, len(keys), STEP):
        part = keys[start : start + STEP]
        new = np.empty(len(part), bool)
        new[0] = part[0] != last
        np.not_equal(part[1:], part[:-1], out=new[1:])
        last = part[-1]
        fresh = part[new]
        keys[kept : kept + len(fresh)] = fresh  # writes never overtake reads
        kept += len(fresh)
    return keys[:kept]


def from_keys(keys: np.ndarray, n: int, values: np.ndarray | None = None) -> CSR:
    """Return the n x n matrix with an entry at each of the sorted, distinct keys; `values`, if given, are in their order."""
    indptr = np.empty(n + 1, np.int64)
    for start in range(0, n + 1, STEP):
        rows = np.arange(start, min(start + STEP, n + 1), dtype=np.int64)
        indptr[start : start + STEP] = np.searchsorted(keys, rows << 32)
    indices = np.empty(len(keys), np.int32)
    for start in range(0, len(keys), STEP):
        np.bitwise_and(keys[start : start + STEP], COLUMN, out=indices[start : start + STEP], casting="unsafe")
    return CSR(indptr, indices, values, (n, n))


def diagonal(keys: np.ndarray) -> int:
    """Return the number of keys on the diagonal."""
    return sum(int(((part >> 32) == (part & COLUMN)).sum()) for _, part in pieces(keys, STEP))


def matrix_of(keys: Keys, n: int, folder: Path) -> tuple[CSR, int]:
    """Return the n x n matrix with an entry at each distinct key, and the number of its entries on the diagonal.

    Its columns are mapped from an unnamed file in a folder. `keys` is called twice, and both times yields the same int64 keys, in any
    order. Raises `UsageError` if the disk is full or the folder cannot be written.
    """
    counts, loops = np.zeros(n, np.int64), 0
    try:
        with TemporaryFile(dir=folder) as columns:
            for run in sorted_runs(keys, n, folder):
                loops += diagonal(run)
                for start in range(0, len(run), STEP):
                    rows = run[start : start + STEP] >> 32
                    counts[rows[0] : rows[-1] + 1] += np.bincount(rows - rows[0])
                    columns.write((run[start : start + STEP] & COLUMN).astype(np.int32).data)
            columns.flush()
            indices = np.memmap(columns, np.int32, "r") if columns.tell() else np.empty(0, np.int32)
    except OSError as error:
        raise UsageError(f"cannot sort edges in {folder}: {error.strerror or error}; use a folder on a larger disk") from error
    return CSR(row_pointers(counts), indices, None, (n, n)), loops


def sorted_runs(keys: Keys, n: int, folder: Path) -> Iterator[np.ndarray]:
    """Yield the distinct keys in ascending order, in runs of at most about `BUCKET` keys. No row is in two runs."""
    shift = 32 + max(0, n.bit_length() - _BIN_BITS)  # of a key, to the bin of its row
    counts = np.zeros(2**_BIN_BITS, np.int64)
    for part in keys():
        counts += np.bincount(part >> shift, minlength=len(counts))
    bucket_of = np.unique((np.cumsum(counts) - counts) // BUCKET, return_inverse=True)[1].astype(np.uint16)  # numpy sorts these by radix
    sizes = np.bincount(bucket_of, counts).astype(np.int64)
    with TemporaryFile(dir=folder) as file:
        ends = row_pointers(sizes)[:-1]  # the place of the next key of each bucket
        for part in keys():
            buckets = bucket_of[part >> shift]
            part, counts = part[np.argsort(buckets, kind="stable")], np.bincount(buckets, minlength=len(ends))
            for bucket, start in zip(np.flatnonzero(counts), row_pointers(counts)[:-1][counts > 0], strict=True):
                file.seek(8 * int(ends[bucket]))
                file.write(part[start : start + counts[bucket]].data)
            ends += counts
        file.seek(0)
        for size in sizes[sizes > 0]:
            run = np.empty(size, np.int64)
            file.readinto(run.data)
            run.sort()
            yield distinct(run)
