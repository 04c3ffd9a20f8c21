"""A graph of a list of edges with weights, times and features: what the importers of files and `bulksample.from_edges` build.

Without times it is a plain graph, in which an edge that repeats is merged. With times it has one vertex type and one relation, whose
parallel edges stay apart, each with its time.
"""

from __future__ import annotations

import numpy as np

from ..errors import DataError, UsageError
from ..graph import EDGE, NODE, Graph, VertexType
from ..graph.types import relation_from_edges
from .columns import Array, dense_features
from .edge_rows import edge_rows
from .edges import SELF_LOOPS, EdgeTally, adjacency, check_edges

TIMED_DUPLICATES = ("keep", "error")
_VERTICES_PER_BYTE = 2**10  # of a file; a legal one may have vertices without an edge, but not nearly so many
_FEW_VERTICES = 2**24  # whose row pointers any machine can hold


def listed_graph(
    ends: tuple[Array, Array], n: int, weights: Array | None = None, times: Array | None = None, features: Array | None = None, *,
    undirected: bool = False, self_loops: str = "keep", duplicates: str | None = None, ids: Array | None = None,
    tally: EdgeTally | None = None,
) -> Graph:  # fmt: skip
    """Return the graph of the edges u -> v, from vertices ``ends[0]`` to vertices ``ends[1]``; row v of the adjacency holds u.

    Parameters
    ----------
    ends : two arrays of integers, shape (e,)
    n : int
        Number of vertices.
    weights : numbers, shape (e,), optional
        Finite and not negative.
    times : int64, shape (e,), optional
    features : numbers, shape (e, d), optional
    undirected : bool
        Add v -> u for every u -> v, with its weight, time and features. Of edges with times, the reversed ones follow the list: their
        `Relation.edge_ids` begin at e, or at what is left of the list without self loops.
    self_loops : {"keep", "drop", "error"}
    duplicates : {"sum", "max", "error"} without times, {"keep", "error"} with times
        Edges that are listed more than once; by default "sum", or "keep" with times. With times, edges repeat if their times are equal too.
    ids : shape (n,), optional
        The user's names of the vertices, for messages.
    tally : EdgeTally, optional
        Receives the number of edges, self loops and repetitions.

    Raises
    ------
    DataError
        If an edge names no vertex, arrays differ in length, a weight is negative or not finite, or "error" finds an edge.
    """
    if times is not None:
        return _timed(ends, n, weights, times, features, undirected, self_loops, duplicates or "keep", ids, tally)
    duplicates = duplicates or "sum"
    matrix, unit = adjacency(
        *ends, n, weights, undirected=undirected, self_loops=self_loops, duplicates=duplicates, ids=ids, tally=tally
    )  # fmt: skip
    rows = None if features is None else edge_rows(matrix, *ends, features, undirected=undirected, duplicates=duplicates)
    return Graph(matrix, unit, edge_features=rows)


def _timed(
    ends: tuple[Array, Array], n: int, weights: Array | None, times: Array, features: Array | None, undirected: bool, self_loops: str,
    duplicates: str, ids: Array | None, tally: EdgeTally | None,
) -> Graph:  # fmt: skip
    """Return the graph of edges that have times, which has parallel edges."""
    for name, choice, known in (("self_loops", self_loops, SELF_LOOPS), ("duplicates", duplicates, TIMED_DUPLICATES)):
        if choice not in known:
            raise UsageError(f"{name} was {choice!r} for edges with times, which stay apart; use {', '.join(known)}")
    u, v = ends
    check_edges(u, v, n, weights)
    for name, column in (("times", times), ("edge_attr", features)):
        if column is not None and (column.ndim == 0 or len(column) != len(u)):
            raise DataError(f"{name}: got shape {column.shape}; use one row for each of the {len(u)} edges")
    names = np.arange(n) if ids is None else ids
    loops, repeats = u == v, _repeats(u, v, times, undirected)
    if tally is not None:
        tally.edges_read += len(u)
        tally.self_loops += int(loops.sum())
        tally.duplicates += len(repeats)
    if loops.any() and self_loops == "error":
        at = int(loops.argmax())
        raise DataError(f"edge {at} joins {names[u[at]]} with itself")
    if len(repeats) and duplicates == "error":
        at = int(repeats[0])
        raise DataError(f"edge {at}, from {names[u[at]]} to {names[v[at]]} at time {times[at]}, was listed before")
    rows = None if features is None else dense_features("edge_attr", features[:, None] if features.ndim == 1 else features)
    if self_loops == "drop" and loops.any():
        u, v, times = u[~loops], v[~loops], times[~loops]
        weights, rows = (None if one is None else one[~loops] for one in (weights, rows))
    if undirected:
        there = np.flatnonzero(u != v)
        u, v, times = np.concatenate([u, v[there]]), np.concatenate([v, u[there]]), np.concatenate([times, times[there]])
        weights, rows = (None if one is None else np.concatenate([one, one[there]]) for one in (weights, rows))
    kind = VertexType(NODE, n)
    return Graph.of([kind], [relation_from_edges(kind, EDGE, kind, u, v, weights=weights, times=times, features=rows)])


def _repeats(u: Array, v: Array, times: Array, undirected: bool) -> Array:
    """Return the edges that an earlier one repeats in ends and time, ascending."""
    first, second = (np.minimum(u, v), np.maximum(u, v)) if undirected else (u, v)
    order = np.lexsort((times, second, first))
    a, b, t = first[order], second[order], times[order]
    return np.sort(order[1:][(a[1:] == a[:-1]) & (b[1:] == b[:-1]) & (t[1:] == t[:-1])])


def check_promise(n: int, file_bytes: int, where: str, ratio: int = 1) -> None:
    """Raise `DataError`, which begins with `where`, for more vertices than a file of so many bytes can mean.

    One byte of a compressed file stands for at most `ratio` bytes. Call it before memory is taken for the vertices; a damaged file may name
    any number.
    """
    if n > (most := max(_FEW_VERTICES, _VERTICES_PER_BYTE * file_bytes * ratio)):
        raise DataError(
            f"{where} promises {n} vertices; a file of {file_bytes} bytes may have at most {most} ({_VERTICES_PER_BYTE} for each byte of "
            "its text): use the number of vertices that there are"
        )


def direction(transpose: bool) -> str:
    """Return how an entry (i, j) of a matrix was read, for the result of an import."""
    return f"entry (i, j) is the edge {'i -> j' if transpose else 'j -> i'}"
