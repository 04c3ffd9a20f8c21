"""Vertex types and relations, of which a graph is made; a relation from a list of edges in any order.

    A_r, |D| x |S|, for a relation r = (S, name, D);    row v of A_r lists the vertices of S that v of D aggregates from

A time of a vertex or an edge is an int64 of any unit, the same in the whole graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..errors import DataError, named
from ..pickled import Rebuilt
from ..sparse import CSR, MAX_VERTICES, fixed_point, row_pointers
from .times import as_times
from .vertex_table import VertexTable

Key = tuple[str, str, str]  # source, name and destination of a relation


def spelled(key: Key) -> str:
    """Return a relation as options and messages name it: ``source:name:destination``."""
    return ":".join(key)


@dataclass(frozen=True, eq=False)
class VertexType(Rebuilt, VertexTable):
    """The vertices of one type, 0 .. count - 1, with their columns.

    Parameters
    ----------
    name : str
    count : int
        Number of vertices.
    features : float32 or float16 of shape (n, f), or a float32 CSR of that shape, optional
    labels : int64 of shape (n,), or int8 or float32 of shape (n, t), optional
        Classes 0 .. num_classes - 1, with -1 for a vertex without a label; or several classes at once, or numbers; see
        `bulksample.graph.labels`.
    num_classes : int
        Number of classes, or t, the columns of the labels: the outputs of a model.
    masks : dict of bool arrays of shape (n,)
        Any of ``train``, ``val``, ``test``; disjoint, and only on vertices that have a class, if the labels are classes.
    times : int64, shape (n,), optional
        When each vertex came to be; without them the vertices have always been there.
    extra : dict of arrays of shape (n, ...)
        Further columns of the data set, such as other labels.
    """

    kind: ClassVar[str] = "type"
    name: str
    count: int
    features: np.ndarray | CSR | None = None
    labels: np.ndarray | None = None
    num_classes: int = 0
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    times: np.ndarray | None = None
    extra: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return self.count

    def check_columns(self, mapped: bool = True) -> None:
        if not 0 <= self.count <= MAX_VERTICES:
            raise DataError(f"count is {self.count}; use 0 to {MAX_VERTICES} vertices")
        super().check_columns(mapped)
        self.check_times()

    def check_times(self) -> None:
        """Raise `DataError` unless there is an int64 for each vertex, or no time at all."""
        check_integers("times", self.times, self.count)


@dataclass(frozen=True, eq=False)
class Relation(Rebuilt):
    """The edges of one relation, from vertices of type `source` to vertices of type `destination`.

    Parameters
    ----------
    source, name, destination : str
    adjacency : CSR, shape (destinations, sources)
        Columns ascend within a row. Ones, or int64 fixed-point weights (`bulksample.sparse.fixed_point`).
    weight_unit : float
        The real weight that the integer 1 stands for.
    edge_ids : int64, shape (m,), optional
        The position of each entry in the user's list of edges; None stands for 0 .. m - 1. Ids of parallel edges ascend.
    times : int64, shape (m,), optional
        The time of each entry of the adjacency.
    features : float32 or float16, shape (m, d), optional
        Row i belongs to entry i of the adjacency.
    parallel : bool
        Columns may repeat within a row: parallel edges are entries of their own.
    """

    source: str
    name: str
    destination: str
    adjacency: CSR
    weight_unit: float = 1.0
    edge_ids: np.ndarray | None = None
    times: np.ndarray | None = None
    features: np.ndarray | None = None
    parallel: bool = True

    @property
    def key(self) -> Key:
        return self.source, self.name, self.destination

    @property
    def edges(self) -> int:
        """Number of edges."""
        return self.adjacency.nnz

    def ids_of(self, entries: np.ndarray) -> np.ndarray:
        """Return the positions of some entries in the user's list of edges: int64."""
        return entries if self.edge_ids is None else self.edge_ids[entries]

    def check_columns(self) -> None:
        """Raise `DataError` unless times and ids hold an int64 for each edge."""
        check_integers("times", self.times, self.edges)
        check_integers("edge_ids", self.edge_ids, self.edges)

    def __str__(self) -> str:
        return f"relation {spelled(self.key)}"


def check_integers(name: str, column: np.ndarray | None, count: int) -> None:
    """Raise `DataError` unless a column, if there is one, is int64 of shape (count,)."""
    if column is not None and not hasattr(column, "shape"):
        raise DataError(f"{name}: got a {type(column).__name__}; use an array of numpy")
    if column is not None and (column.dtype != np.int64 or column.shape != (count,)):
        raise DataError(f"{name} must be int64 of shape ({count},); got {column.dtype} of shape {column.shape}")


def relation_from_edges(
    source: VertexType, name: str, destination: VertexType, sources: Any, destinations: Any, *, weights: Any = None, times: Any = None,
    features: np.ndarray | None = None,
) -> Relation:  # fmt: skip
    """Build a relation: edge i runs from vertex ``sources[i]`` of one type to vertex ``destinations[i]`` of another.

    Parameters
    ----------
    source, destination : VertexType
        They may be the same.
    name : str
    sources, destinations : integers, shape (m,)
    weights : numbers, shape (m,), optional
        Finite and not negative.
    times : integers or datetime64, shape (m,), optional
        See `as_times`.
    features : float32 or float16, shape (m, d), optional

    Returns
    -------
    Relation
        Entries are sorted by (destination, source, position in the list); ``relation.edge_ids`` holds the positions.

    Raises
    ------
    DataError
        Naming the relation and the row: an end is no vertex of its type, arrays differ in length or dtype, a weight is negative or not
        finite, or a time is missing.

    Notes
    -----
    Sorts m keys, unless they are sorted already.
    """
    what = f"relation {spelled((source.name, name, destination.name))}"
    u, v = _ends(what, "sources", sources, source), _ends(what, "destinations", destinations, destination)
    if len(u) != len(v):
        raise DataError(f"{what}: got {len(u)} sources and {len(v)} destinations; use one of each for every edge")
    keys = v * max(source.count, 1) + u
    order = None if (keys[1:] >= keys[:-1]).all() else np.argsort(keys, kind="stable")
    stamps = None if times is None else as_times(f"times of {what}", times, len(u))
    integers, unit = (None, 1.0) if weights is None else _fixed(what, weights, u, v)
    if features is not None and len(features) != len(u):
        raise DataError(f"{what}: got {len(features)} rows of features; use one for each of the {len(u)} edges")
    columns = [array if array is None or order is None else array[order] for array in (u, integers, stamps, features)]
    indptr = row_pointers(np.bincount(v, minlength=destination.count))
    assert columns[0] is not None
    matrix = CSR(indptr, columns[0].astype(np.int32), columns[1], (destination.count, source.count))
    return Relation(source.name, name, destination.name, matrix, unit, order, columns[2], columns[3])


def _ends(what: str, label: str, vertices: Any, kind: VertexType) -> np.ndarray:
    """Return one end of the edges as int64; raises `DataError` unless all are vertices of their type."""
    ends = np.asarray(vertices)
    if isinstance(vertices, list | tuple) and not vertices:  # numpy takes an empty list for floats
        ends = ends.astype(np.int64)
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        raise DataError(f"{what}: {label}: got {ends.dtype} of shape {ends.shape}; use integers of shape (m,)")
    if len(bad := np.flatnonzero((ends < 0) | (ends >= kind.count))):
        wrong = f"row {bad[0]} names vertex {ends[bad[0]]} of type {kind.name!r}"
        raise DataError(f"{what}: {label}: {wrong}; it has {kind.count} vertices: use 0 to {kind.count - 1}")
    return ends.astype(np.int64, copy=False)


def _fixed(what: str, weights: Any, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, float]:
    """Return fixed-point weights, whose sums over a row or a column stay within 2**62, and their unit."""
    real = np.asarray(weights)
    if real.shape != u.shape or real.dtype.kind not in "biuf":
        raise DataError(f"{what}: weights: got {real.dtype} of shape {real.shape}; use one number for each of the {len(u)} edges")
    most = max(int(np.bincount(ends, minlength=1).max()) for ends in (u, v))
    return named(what, lambda: fixed_point(real, most))
