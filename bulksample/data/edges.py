"""Build an adjacency from a list of edges: one 64-bit key per edge, sorted in place.

A key is ``row << 32 | column``, so sorted and distinct keys are the canonical matrix. The keys and the result take 12 bytes an entry for a
graph without weights, so 100 million edges fit in 8 GiB. Edges are read a piece at a time: the edges of a mapped file take no memory.
`add_reverses` turns edges of relations around.

More keys than memory holds are divided by rows into buckets of a file, and sorted one bucket at a time. They are made twice, once to count
and once to write them. The disk holds 8 bytes a key and then 4 bytes an entry, in unnamed files that end with the process; memory holds the
row pointers and a bucket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from ..errors import DataError, UsageError
from ..graph import Graph, Relation
from ..mapped import pieces
from ..sparse import CSR, MAX_VERTICES, fixed_point, row_pointers

STEP = 2**22  # keys processed at a time, which bounds temporary arrays
COLUMN = np.int64(2**32 - 1)
BUCKET = 2**25  # keys, 268 MB
_BIN_BITS = 16  # of the number of a bin of rows; a bucket consists of whole bins
SELF_LOOPS = ("keep", "drop", "error")
DUPLICATES = ("sum", "max", "error")
Pairs = Iterator[tuple[np.ndarray, np.ndarray]]  # rows and columns of entries, a piece at a time


@dataclass
class EdgeTally:
    """Counts of edges, self loops and repetitions, to which a reader adds, and words about how it took the file."""

    edges_read: int = 0
    self_loops: int = 0
    duplicates: int = 0
    ignored: str = ""
    derived: str = ""  # features that were made of others
    form: str = ""  # what the file was taken for, such as the keys of an archive or the columns of a list
    warnings: list[str] = field(default_factory=list)


def adjacency(
    sources: np.ndarray, targets: np.ndarray, n: int, weights: np.ndarray | None = None, *, undirected: bool = False,
    self_loops: str = "keep", duplicates: str = "sum", ids: np.ndarray | None = None, tally: EdgeTally | None = None,
    scratch: Path | None = None,
) -> tuple[CSR, float]:  # fmt: skip
    """Build the adjacency of the edges u -> v: row v holds column u. Return it with its unit, the weight that the integer 1 stands for.

    Sources and targets are integers of shape (e,). The adjacency is canonical, of ones or of int64, shape (n, n).

    Parameters
    ----------
    weights : float64, shape (e,), optional
        Finite and not negative.
    undirected, self_loops, duplicates, tally
        See `bulksample.data.edgelist.read`.
    ids : shape (n,), optional
        The user's names of the vertices, for messages.
    scratch : path, optional
        Sort edges without weights in files of this folder if there are more than `BUCKET`. The columns are then mapped.

    Raises
    ------
    DataError
        If the arrays differ in length or ids are no integers; an edge names a vertex outside 0 .. n - 1; a weight is negative or not
        finite; or a self loop or a repetition is found and its option is "error".
    """
    for name, choice, known in (("self_loops", self_loops, SELF_LOOPS), ("duplicates", duplicates, DUPLICATES)):
        if choice not in known:
            raise UsageError(f"{name} was {choice!r}; use {', '.join(known)}")
    check_edges(sources, targets, n, weights)
    tally = EdgeTally() if tally is None else tally
    tally.edges_read += len(sources)
    names = np.arange(n) if ids is None else ids

    both = zip(pieces(sources, STEP), pieces(targets, STEP), strict=True)
    loops = np.concatenate([np.empty(0, np.int64), *(start + np.flatnonzero(u == v) for (start, u), (_, v) in both)])
    tally.self_loops += len(loops)
    if len(loops) and self_loops == "error":
        raise DataError(f"edge {loops[0]} joins {names[sources[loops[0]]]} with itself")
    kept, unit = len(loops) if self_loops == "keep" else 0, 1.0
    listed = len(sources) - len(loops) + kept
    total = listed * (1 + undirected) - kept * undirected
    on_disk = scratch is not None and weights is None and total > BUCKET
    if len(loops) and self_loops == "drop" and not on_disk:
        keep = sources != targets
        sources, targets = sources[keep], targets[keep]
        weights = None if weights is None else weights[keep]
    if scratch is not None and on_disk:
        matrix, entries = matrix_of(partial(_pairs, sources, targets, undirected, kept > 0), n, scratch)
    elif weights is not None:
        matrix, entries, unit = _weighted(sources, targets, n, weights, undirected, duplicates)
    else:
        keys = sorted_keys(_pairs(sources, targets, undirected, True), total)
        entries = diagonal(keys)  # before there is a matrix beside the keys
        matrix = from_keys(keys, n)
    if undirected:  # v -> u repeats u -> v; a self loop has one entry
        tally.duplicates += (listed - kept) - (matrix.nnz - entries) // 2 + (kept - entries)
    else:
        tally.duplicates += listed - matrix.nnz
    if tally.duplicates and duplicates == "error":
        _refuse_repeat(sources, targets, undirected, names)
    return matrix, unit


def check_edges(sources: np.ndarray, targets: np.ndarray, n: int, weights: np.ndarray | None) -> None:
    """Raise `DataError` unless n vertices fit, there is one source, target and weight for each edge, and all ends are vertices."""
    _check_size(n)
    for name, ends in (("source", sources), ("target", targets)):
        if ends.ndim != 1 or ends.dtype.kind not in "iu" or not np.can_cast(ends.dtype, np.int64):
            raise DataError(f"{name}s: got {ends.dtype} of shape {ends.shape}; use int64 of shape (e,), one vertex for each edge")
        for start, part in pieces(ends, STEP):
            if len(bad := np.flatnonzero((part < 0) | (part >= n))):
                raise DataError(f"edge {start + bad[0]} names {name} {part[bad[0]]}; vertices run from 0 to {n - 1}")
    if len(sources) != len(targets):
        raise DataError(f"edges must have one source and one target each; got {len(sources)} sources and {len(targets)} targets")
    if weights is not None and weights.shape != sources.shape:
        raise DataError(f"weights: got shape {weights.shape}; use one number for each of the {len(sources)} edges")


def _check_size(n: int) -> None:
    """Raise `DataError` for more vertices than fit, before their row pointers are allocated; a damaged header may name any number."""
    if not 0 <= n <= MAX_VERTICES:
        raise DataError(f"{n} vertices do not fit int32; use at most {MAX_VERTICES}")
    if 8 * (n + 1) > (memory := _memory_bytes()):
        raise DataError(f"the row pointers of {n} vertices take {8 * (n + 1)} bytes; this machine has {memory}")


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # unknown on this system
        return 2**63


def _pairs(sources: np.ndarray, targets: np.ndarray, undirected: bool, loops: bool) -> Pairs:
    """Yield the rows and columns of all edges, a piece at a time, and of the reversed ones if `undirected`; self loops have none.

    Without `loops`, self loops are left out.
    """
    for (_, u), (_, v) in zip(pieces(sources, STEP), pieces(targets, STEP), strict=True):
        there = u != v
        yield (v, u) if loops else (v[there], u[there])
        if undirected:
            yield u[there], v[there]


def _refuse_repeat(sources: np.ndarray, targets: np.ndarray, undirected: bool, names: np.ndarray) -> None:
    u, v = (np.minimum(sources, targets), np.maximum(sources, targets)) if undirected else (sources, targets)
    keys = u.astype(np.int64) << 32 | v
    order = np.argsort(keys, kind="stable")
    again = order[1:][keys[order[1:]] == keys[order[:-1]]]
    at = int(again.min())
    raise DataError(f"edge {at}, from {names[sources[at]]} to {names[targets[at]]}, was listed before")


def _weighted(
    sources: np.ndarray, targets: np.ndarray, n: int, weights: np.ndarray, undirected: bool, duplicates: str
) -> tuple[CSR, int, float]:  # fmt: skip
    """Return the matrix of weighted edges, the number of its entries on the diagonal, and the weight that the integer 1 stands for."""
    ends = np.bincount(targets, minlength=n), np.bincount(sources, minlength=n)
    most = int((ends[0] + ends[1] if undirected else np.maximum(*ends)).max(initial=0))
    integers, unit = fixed_point(weights, most)
    keys = targets.astype(np.int64) << 32 | sources
    if undirected:
        there = sources != targets
        keys = np.concatenate([keys, sources[there].astype(np.int64) << 32 | targets[there]])
        integers = np.concatenate([integers, integers[there]])
    order = np.argsort(keys, kind="stable")
    keys, integers = keys[order], integers[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if len(first) < len(keys):  # sums of integers are exact in any order
        merge = np.maximum if duplicates == "max" else np.add
        keys, integers = keys[first], merge.reduceat(integers, first)
    entries = diagonal(keys)  # before there is a matrix beside the keys
    return from_keys(keys, n, integers), entries, unit


def sorted_keys(pairs: Pairs, most: int) -> np.ndarray:
    """Return the distinct keys of at most `most` edges in ascending order; their rows and columns come in pieces."""
    keys, filled = np.empty(most, np.int64), 0
    for rows, columns in pairs:
        part = keys[filled : filled + len(rows)]
        np.left_shift(rows, 32, out=part, dtype=np.int64)
        part |= columns
        filled += len(part)
    keys = keys[:filled]
    keys.sort()
    return distinct(keys)


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


def matrix_of(pairs: Callable[[], Pairs], n: int, folder: Path) -> tuple[CSR, int]:
    """Return the n x n matrix with an entry at each distinct pair, and the number of its entries on the diagonal.

    Its columns are mapped from an unnamed file in a folder. `pairs` is called twice, and both times yields the same rows and columns, in
    any order. Raises `UsageError` if the disk is full or the folder cannot be written.
    """
    counts, loops = np.zeros(n, np.int64), 0
    try:
        with TemporaryFile(dir=folder) as columns:
            for run in sorted_runs(pairs, n, folder):
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


def sorted_runs(pairs: Callable[[], Pairs], n: int, folder: Path) -> Iterator[np.ndarray]:
    """Yield the distinct keys in ascending order, in runs of at most about `BUCKET` keys. No row is in two runs."""
    shift = max(0, n.bit_length() - _BIN_BITS)  # of a row, to its bin
    counts = np.zeros(2**_BIN_BITS, np.int64)
    for rows, _ in pairs():
        counts += np.bincount(rows >> shift, minlength=len(counts))
    bucket_of = np.unique((np.cumsum(counts) - counts) // BUCKET, return_inverse=True)[1].astype(np.uint16)  # numpy sorts these by radix
    sizes = np.bincount(bucket_of, counts).astype(np.int64)
    with TemporaryFile(dir=folder) as file:
        ends = row_pointers(sizes)[:-1]  # the place of the next key of each bucket
        for rows, columns in pairs():
            buckets = bucket_of[rows >> shift]
            part = (rows.astype(np.int64) << 32 | columns)[np.argsort(buckets, kind="stable")]
            counts = np.bincount(buckets, minlength=len(ends))
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


def add_reverses(graph: Graph) -> Graph:
    """Return the graph with a relation ``(D, rev_NAME, S)`` after each relation (S, NAME, D), unless there is one of that key.

    Weights, times, features and edge ids go with the edges.
    """
    keys = {relation.key for relation in graph.relations}
    relations = []
    for one in graph.relations:
        relations.append(one)
        key, matrix = (one.destination, f"rev_{one.name}", one.source), one.adjacency
        if key in keys:
            continue
        order = np.argsort(matrix.indices, kind="stable")  # rows ascend already, and ids of parallel edges with them
        indptr = row_pointers(np.bincount(matrix.indices, minlength=matrix.shape[1]))
        values, times, features = (None if column is None else column[order] for column in (matrix.values, one.times, one.features))
        turned = CSR(indptr, matrix.row_of_entry()[order].astype(np.int32), values, matrix.shape[::-1])
        relations.append(Relation(*key, turned, one.weight_unit, one.ids_of(order), times, features, one.parallel))
    return Graph.of(graph.types, tuple(relations), graph.name)
