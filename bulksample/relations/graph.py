"""Heterogeneous graphs: vertices of several types, and relations between types, each with an adjacency of its own.

    A_r, |D| x |S|, for a relation r = (S, name, D);    row v of A_r lists the vertices of S that v of D aggregates from

The graph is the block matrix of its relations. A time of a vertex or an edge is an int64 of any unit, the same in the whole graph. Vertices
of all types also share one numbering: type T holds ``offsets[T] .. offsets[T + 1] - 1``. Mini-batches name vertices within their type.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..errors import DataError, UsageError
from ..graph import Graph, write
from ..pickled import Rebuilt
from ..sparse import CSR, MAX_VERTICES, row_pointers
from ..vertex_table import VertexTable, check_adjacency, check_adjacency_once, check_edge_features
from .times import as_times

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
        See `bulksample.labels`.
    num_classes : int
        Outputs of a model.
    masks : dict of bool arrays of shape (n,)
        Any of ``train``, ``val``, ``test``; disjoint.
    times : int64, shape (n,), optional
        When each vertex came to be; without them the vertices have always been there.
    extra : dict of arrays of shape (n, ...)
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


@dataclass(frozen=True, eq=False)
class Relation(Rebuilt):
    """The edges of one relation, from vertices of type `source` to vertices of type `destination`.

    Parameters
    ----------
    source, name, destination : str
    adjacency : CSR, shape (destinations, sources)
        Columns ascend within a row and may repeat: parallel edges are entries of their own. Ones, or int64 fixed-point weights.
    weight_unit : float
        The real weight that the integer 1 stands for.
    edge_ids : int64, shape (m,), optional
        The position of each entry in the user's list of edges; None stands for 0 .. m - 1. Ids of parallel edges ascend.
    times : int64, shape (m,), optional
        The time of each entry of the adjacency.
    features : float32 or float16, shape (m, d), optional
        Row i belongs to entry i of the adjacency.
    """

    source: str
    name: str
    destination: str
    adjacency: CSR
    weight_unit: float = 1.0
    edge_ids: np.ndarray | None = None
    times: np.ndarray | None = None
    features: np.ndarray | None = None

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

    def __str__(self) -> str:
        return f"relation {spelled(self.key)}"


@dataclass(frozen=True, eq=False)
class HeteroGraph(Rebuilt):
    """A graph of vertex types and relations.

    The place of a relation among `relations` names its random numbers, and the place of a type those of LABOR. So a type or a relation
    that is appended changes no draw of the others.

    Parameters
    ----------
    types : tuple of VertexType
    relations : tuple of Relation
    name : str
    """

    types: tuple[VertexType, ...]
    relations: tuple[Relation, ...] = ()
    name: str = "graph"

    @cached_property
    def offsets(self) -> np.ndarray:
        """The first vertex of each type in the numbering of all vertices, and n: int64, shape (types + 1,)."""
        return row_pointers([kind.count for kind in self.types])

    @property
    def n(self) -> int:
        """Number of vertices of all types."""
        return int(self.offsets[-1])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {kind.name: place for place, kind in enumerate(self.types)}

    def place(self, type_name: str) -> int:
        """Return the place of a type among `types`; raises `UsageError` for an unknown name."""
        if type_name not in self._places:
            raise UsageError(f"graph {self.name!r} has no type {type_name!r}; use {', '.join(self._places)}")
        return self._places[type_name]

    def type(self, name: str) -> VertexType:
        """Return the type of that name; raises `UsageError` for an unknown name."""
        return self.types[self.place(name)]

    def ordinal(self, key: Key | str) -> int:
        """Return the place of a relation among `relations`.

        Parameters
        ----------
        key : (source, name, destination), the same as ``"source:name:destination"``, or a name that one relation alone has

        Raises
        ------
        UsageError
            If there is no such relation, or a name stands for several.
        """
        words = [spelled(relation.key) for relation in self.relations]
        if isinstance(key, str):
            found = [i for i, relation in enumerate(self.relations) if key in (relation.name, words[i])]
        else:
            wanted = tuple(key) if isinstance(key, list) else key
            found = [i for i, relation in enumerate(self.relations) if wanted == relation.key]
        if len(found) != 1:
            asked = ":".join(map(str, key)) if isinstance(key, tuple | list) else key
            known = ", ".join(words) or "none"
            raise UsageError(f"graph {self.name!r} has {len(found) or 'no'} relation(s) {asked!r}; use one of {known}")
        return found[0]

    def relation(self, key: Key | str) -> Relation:
        """Return a relation; see `ordinal`."""
        return self.relations[self.ordinal(key)]

    def validate(self) -> HeteroGraph:
        """Check everything the classes promise and return self; raises `DataError` naming the type or relation, the array and the row."""
        self.check_columns()
        for relation in self.relations:
            _check(str(relation), self._check_relation, relation, check_adjacency)
            if relation.features is not None:
                _check(str(relation), check_edge_features, relation.adjacency, relation.features)
        return self

    def check_columns(self, mapped: bool = True) -> None:
        """Raise `DataError` for a name given twice, too many vertices, or a malformed column of a type; see `VertexTable.check_columns`."""
        for noun, names in (("type", [t.name for t in self.types]), ("relation", [spelled(r.key) for r in self.relations])):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise DataError(f"graph {self.name!r} has two {noun}s {twice[0]!r}; give each a name of its own")
        if joined := [kind.name for kind in self.types if ":" in kind.name]:
            raise DataError(f"type {joined[0]!r}: relations are named source:name:destination; use a name without a colon")
        total = sum(kind.count for kind in self.types)
        if total > MAX_VERTICES:
            raise DataError(f"{total} vertices of {len(self.types)} types do not fit int32; use at most {MAX_VERTICES}")
        for kind in self.types:
            _check(f"type {kind.name!r}", _check_type, kind, mapped)

    def check_structure(self) -> None:
        """Raise `DataError` unless kernels can read the columns of the types and the relations; each adjacency is read once."""
        for kind in self.types:
            _check(f"type {kind.name!r}", kind.check_rows)
            _check(f"type {kind.name!r}", _check_times, kind)
        for relation in self.relations:
            _check(str(relation), self._check_relation, relation, check_adjacency_once)

    def _check_relation(self, relation: Relation, check: Callable[[CSR, float, bool], None]) -> None:
        counts = []
        for end in (relation.destination, relation.source):
            if end not in self._places:
                raise DataError(f"there is no type {end!r}; use {', '.join(self._places)}")
            counts.append(self.type(end).count)
        matrix = relation.adjacency
        if matrix.shape != tuple(counts):
            raise DataError(f"the adjacency must have shape {tuple(counts)}, destinations x sources; it has {matrix.shape}")
        check(matrix, relation.weight_unit, True)
        for name, column in (("times", relation.times), ("edge_ids", relation.edge_ids)):
            if column is not None:
                _check_integers(name, column, matrix.nnz)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the graph as a store, a folder that `bulksample.load` opens; see `bulksample.data.store.save`."""
        write(self, path, overwrite)

    @staticmethod
    def from_homogeneous(graph: Graph, times: Any = None, type_name: str = "node", relation_name: str = "to") -> HeteroGraph:
        """Return the graph of one type and one relation; it draws what the homogeneous graph draws.

        Parameters
        ----------
        graph : Graph
        times : integers or datetime64, shape (n,), optional
            Times of the vertices; a column of `graph.extra`, as a rule.
        """
        stamps = None if times is None else as_times(f"times of type {type_name!r}", times, graph.n)
        kind = VertexType(type_name, graph.n, graph.features, graph.labels, graph.num_classes, graph.masks, stamps, graph.extra)
        edges = Relation(type_name, relation_name, type_name, graph.adjacency, graph.weight_unit, features=graph.edge_features)
        return HeteroGraph((kind,), (edges,), graph.name)


def _check(what: str, check: Callable[..., None], *parts: Any) -> None:
    """Call a check; its `DataError` begins with what it is about."""
    try:
        check(*parts)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


def _check_type(kind: VertexType, mapped: bool) -> None:
    if not 0 <= kind.count <= MAX_VERTICES:
        raise DataError(f"count is {kind.count}; use 0 to {MAX_VERTICES} vertices")
    kind.check_columns(mapped)
    _check_times(kind)


def _check_times(kind: VertexType) -> None:
    if kind.times is not None:
        _check_integers("times", kind.times, kind.count)


def _check_integers(name: str, column: np.ndarray, count: int) -> None:
    if column.dtype != np.int64 or column.shape != (count,):
        raise DataError(f"{name} must be int64 of shape ({count},); got {column.dtype} of shape {column.shape}")
