"""Build an adjacency from a list of edges: one 64-bit key per edge, sorted in place.

A key is ``row << 32 | column``, so sorted keys are the canonical matrix. The keys and the result take 12 bytes an entry for a graph
without weights, so 100 million edges fit in 8 GiB. Edges are read a piece at a time: the edges of a mapped file take no memory.
More of them are sorted on the disk, see `edge_keys`. `add_reverses` turns edges of relations around.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import DataError, UsageError
from ..graph import Graph, Relation
from ..mapped import pieces
from ..sparse import CSR, MAX_VERTICES, fixed_point, row_pointers
from . import edge_keys
from .edge_keys import STEP, diagonal, distinct, from_keys, put_keys

SELF_LOOPS = ("keep", "drop", "error")
DUPLICATES = ("sum", "max", "error")


@dataclass
class EdgeTally:
    """Counts of the edges that a reader read, with self loops and repetitions; the reader adds to them."""

    edges_read: int = 0
    self_loops: int = 0
    duplicates: int = 0
    ignored: str = ""
    derived: str = ""  # features that were made of others


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
        Sort edges without weights in files of this folder if there are more than `edge_keys.BUCKET`. The columns are then mapped.

    Raises
    ------
    DataError
        If the arrays differ in length or ids are no integers; an edge names a vertex outside 0 .. n - 1; a weight is negative or not
        finite; or a self loop or a repetition is found and its option is "error".
    """
    for name, choice, known in (("self_loops", self_loops, SELF_LOOPS), ("duplicates", duplicates, DUPLICATES)):
        if choice not in known:
            raise UsageError(f"{name} was {choice!r}; use {', '.join(known)}")
    _check_size(n)
    _check_edges(sources, targets, n, weights)
    tally = EdgeTally() if tally is None else tally
    tally.edges_read += len(sources)
    names = np.arange(n) if ids is None else ids

    loops = _loops(sources, targets)
    tally.self_loops += len(loops)
    if len(loops) and self_loops == "error":
        raise DataError(f"edge {loops[0]} joins {names[sources[loops[0]]]} with itself")
    kept, unit = len(loops) if self_loops == "keep" else 0, 1.0
    listed = len(sources) - len(loops) + kept
    total = len(sources) * (1 + undirected) - len(loops) * undirected
    on_disk = scratch is not None and weights is None and total > edge_keys.BUCKET
    if len(loops) and self_loops == "drop" and not on_disk:
        keep = sources != targets
        sources, targets = sources[keep], targets[keep]
        weights = None if weights is None else weights[keep]
    if scratch is not None and on_disk:
        matrix, entries = edge_keys.matrix_of(partial(_key_pieces, sources, targets, undirected, kept > 0), n, scratch)
    elif weights is not None:
        matrix, entries, unit = _weighted(sources, targets, n, weights, undirected, duplicates)
    else:
        keys = _both_ways(sources, targets, undirected)
        keys.sort()
        keys = distinct(keys)
        entries = diagonal(keys)  # before there is a matrix beside the keys
        matrix = from_keys(keys, n)
    if undirected:  # v -> u repeats u -> v; a self loop has one entry
        tally.duplicates += (listed - kept) - (matrix.nnz - entries) // 2 + (kept - entries)
    else:
        tally.duplicates += listed - matrix.nnz
    if tally.duplicates and duplicates == "error":
        _refuse_repeat(sources, targets, undirected, names)
    return matrix, unit


def _check_edges(sources: np.ndarray, targets: np.ndarray, n: int, weights: np.ndarray | None) -> None:
    """Raise `DataError` unless there is one source, target and weight for each edge, and all ends are vertices."""
    for name, ends in (("source", sources), ("target", targets)):
        if ends.ndim != 1 or ends.dtype.kind not in "iu" or not np.can_cast(ends.dtype, np.int64):
            raise DataError(f"{name}s: got {ends.dtype} of shape {ends.shape}; use int64 of shape (e,), one vertex for each edge")
        for start, part in pieces(ends, STEP):
            bad = np.flatnonzero((part < 0) | (part >= n))
            if len(bad):
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


def _both_ways(sources: np.ndarray, targets: np.ndarray, undirected: bool) -> np.ndarray:
    """Return the keys of all edges, then those of the reversed edges if `undirected`; a self loop is not reversed."""
    e = len(sources)
    keys = np.empty(e + (e - len(_loops(sources, targets)) if undirected else 0), np.int64)
    back = e
    for (start, u), (_, v) in zip(pieces(sources, STEP), pieces(targets, STEP), strict=True):
        put_keys(keys, start, v, u)
        if undirected:
            there = u != v
            back = put_keys(keys, back, u[there], v[there])
    return keys


def _loops(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the positions of the self loops."""
    both = zip(pieces(sources, STEP), pieces(targets, STEP), strict=True)
    return np.concatenate([np.empty(0, np.int64), *(start + np.flatnonzero(u == v) for (start, u), (_, v) in both)])


def _key_pieces(sources: np.ndarray, targets: np.ndarray, undirected: bool, loops: bool) -> Iterator[np.ndarray]:
    """Yield the keys of all edges and, if `undirected`, of the reversed ones, a piece at a time; without `loops` none of self loops."""
    for (_, u), (_, v) in zip(pieces(sources, STEP), pieces(targets, STEP), strict=True):
        u, v = u.astype(np.int64), v.astype(np.int64)
        there = u != v
        yield v << 32 | u if loops else (v << 32 | u)[there]
        if undirected:
            yield (u << 32 | v)[there]


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
    keys = _both_ways(sources, targets, undirected)
    if undirected:
        integers = np.concatenate([integers, integers[sources != targets]])
    order = np.argsort(keys, kind="stable")
    keys, integers = keys[order], integers[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if len(first) < len(keys):  # sums of integers are exact in any order
        merge = np.maximum if duplicates == "max" else np.add
        keys, integers = keys[first], merge.reduceat(integers, first)
    entries = diagonal(keys)  # before there is a matrix beside the keys
    return from_keys(keys, n, integers), entries, unit


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
