"""Vertex types and relations, of which a graph is made.

    A_r, |D| x |S|, for a relation r = (S, name, D);    row v of A_r lists the vertices of S that v of D aggregates from

A time of a vertex or an edge is an int64 of any unit, the same in the whole graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..errors import DataError
from ..pickled import Rebuilt
from ..sparse import CSR, MAX_VERTICES
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
