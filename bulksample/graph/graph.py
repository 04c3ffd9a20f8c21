"""A graph with everything that training needs: structure, features, labels, splits and times.

A graph is the block matrix of its relations. Vertices of all types also share one numbering: type T holds
``offsets[T] .. offsets[T + 1] - 1``. Mini-batches name vertices within their type.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import DataError, UsageError, named
from ..pickled import Rebuilt
from ..printable import check_name
from ..sparse import CSR, MAX_VERTICES, row_pointers
from .types import Key, Relation, VertexType, spelled
from .vertex_table import VertexTable, check_adjacency, check_adjacency_once, check_edge_features

NODE, EDGE = "node", "to"  # the names of the type and of the relation of a plain graph
_KEPT: Any = object()  # the default of arguments: as it is, or none


class NoSuchColumn(UsageError, AttributeError):
    """A column of the only type or relation was read of a graph that has several: `hasattr` is False."""


@dataclass(frozen=True, eq=False, init=False)
class Graph(Rebuilt, VertexTable):
    """A graph of vertex types and relations; a plain graph is one of one type and one relation.

    ``Graph(adjacency, ...)`` makes a plain graph, whose row v lists the in-neighbors that v aggregates from. `Graph.of` makes the others.
    The place of a relation among `relations` names its random numbers, and the place of a type those of LABOR. So a type or a relation
    that is appended changes no draw of the others.

    Parameters
    ----------
    adjacency : CSR, shape (n, n)
        Ones, or int64 fixed-point weights (`bulksample.sparse.fixed_point`). No two edges join the same vertices.
    weight_unit : float
        The real weight that the integer 1 stands for.
    features : float32 or float16 of shape (n, f), or a float32 CSR of that shape, optional
    labels : int64 of shape (n,), or int8 or float32 of shape (n, t), optional
        See `VertexType`, also for the next three.
    num_classes : int
    masks : dict of bool arrays of shape (n,)
    extra : dict of arrays of shape (n, ...)
    name : str
    edge_features : float32 or float16, shape (m, d), optional
        Row i belongs to entry i of the adjacency.

    Attributes
    ----------
    types : tuple of VertexType
    relations : tuple of Relation
    adjacency, weight_unit, edge_features
        Those of the only relation; `UsageError` if there are several.
    features, labels, num_classes, masks, extra
        Those of the only type; `UsageError` if there are several.
    """

    kind: ClassVar[str] = "graph"
    writer: ClassVar[Callable[[Graph, str | os.PathLike[str], bool], None]]  # the package sets it: a graph knows no files
    types: tuple[VertexType, ...]
    relations: tuple[Relation, ...]
    name: str

    def __init__(
        self, adjacency: CSR = _KEPT, weight_unit: float = _KEPT, features: np.ndarray | CSR | None = _KEPT,
        labels: np.ndarray | None = _KEPT, num_classes: int = _KEPT, masks: dict[str, np.ndarray] = _KEPT,
        extra: dict[str, np.ndarray] = _KEPT, name: str = "graph", edge_features: np.ndarray | None = _KEPT, *,
        types: tuple[VertexType, ...] | None = None, relations: tuple[Relation, ...] = (),
    ) -> None:  # fmt: skip
        if types is None:
            if not isinstance(adjacency, CSR):
                got = "none" if adjacency is _KEPT else f"a {type(adjacency).__name__}"
                raise TypeError(f"a plain graph needs an adjacency, a CSR; got {got}; see Graph.of for the others")
            types, relations = (VertexType(NODE, 0),), (Relation(NODE, EDGE, NODE, adjacency, parallel=False),)
        of_type = {"features": features, "labels": labels, "num_classes": num_classes, "masks": masks, "extra": extra}
        if adjacency is not _KEPT:
            of_type["count"] = adjacency.shape[0] if isinstance(adjacency, CSR) else 0
        of_relation = {"adjacency": adjacency, "weight_unit": weight_unit, "features": edge_features}
        object.__setattr__(self, "types", _with("types", tuple(types), of_type))
        object.__setattr__(self, "relations", _with("relations", tuple(relations), of_relation))
        object.__setattr__(self, "name", name)

    @classmethod
    def of(cls, types: Iterable[VertexType], relations: Iterable[Relation] = (), name: str = "graph") -> Self:
        """Return the graph of some vertex types and the relations between them; `validate` checks them."""
        return cls(types=tuple(types), relations=tuple(relations), name=name)

    def replace(self, **columns: Any) -> Self:
        """Return the graph with other values of some arguments of the constructor, or of `types` and `relations`."""
        return replace(self, **columns)

    @cached_property
    def plain(self) -> bool:
        """True of what ``Graph(adjacency, ...)`` makes: one type and one relation of no names of their own, times or parallel edges."""
        if len(self.types) != 1 or [relation.key for relation in self.relations] != [(NODE, EDGE, NODE)]:
            return False
        edges = self.relations[0]
        return not edges.parallel and edges.times is None and edges.edge_ids is None and self.types[0].times is None

    @property
    def adjacency(self) -> CSR:
        return self._edges.adjacency

    @property
    def weight_unit(self) -> float:
        return self._edges.weight_unit

    @property
    def edge_features(self) -> np.ndarray | None:
        return self._edges.features

    @property
    def num_edge_features(self) -> int:
        return 0 if self.edge_features is None else int(self.edge_features.shape[1])

    @property
    def features(self) -> np.ndarray | CSR | None:  # type: ignore[override]  # a column of its type
        return self._vertices.features

    @property
    def labels(self) -> np.ndarray | None:  # type: ignore[override]
        return self._vertices.labels

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        return self._vertices.num_classes

    @property
    def masks(self) -> dict[str, np.ndarray]:  # type: ignore[override]
        return self._vertices.masks

    @property
    def extra(self) -> dict[str, np.ndarray]:  # type: ignore[override]
        return self._vertices.extra

    @property
    def _vertices(self) -> VertexType:
        if len(self.types) != 1:
            names = ", ".join(kind.name for kind in self.types) or "none"
            raise NoSuchColumn(f"graph {self.name!r} has {len(self.types)} vertex types ({names}); use graph.type(name) for one of them")
        return self.types[0]

    @property
    def _edges(self) -> Relation:
        if len(self.relations) != 1:
            names = ", ".join(spelled(relation.key) for relation in self.relations) or "none"
            raise NoSuchColumn(
                f"graph {self.name!r} has {len(self.relations)} relations ({names}); use graph.relation(name) for one of them"
            )
        return self.relations[0]

    @cached_property
    def offsets(self) -> np.ndarray:
        """The first vertex of each type in the numbering of all vertices, and n: int64, shape (types + 1,)."""
        return row_pointers([kind.count for kind in self.types])

    @property
    def n(self) -> int:
        """Number of vertices of all types."""
        return int(self.offsets[-1])

    @property
    def num_edges(self) -> int:
        """Number of edges of all relations."""
        return sum(relation.edges for relation in self.relations)

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
            matches = [i for i, relation in enumerate(self.relations) if key in (relation.name, words[i])]
        else:
            wanted = tuple(key) if isinstance(key, list) else key
            matches = [i for i, relation in enumerate(self.relations) if wanted == relation.key]
        if len(matches) != 1:
            name = ":".join(map(str, key)) if isinstance(key, tuple | list) else key
            known = ", ".join(words) or "none"
            raise UsageError(f"graph {self.name!r} has {len(matches) or 'no'} relation(s) {name!r}; use one of {known}")
        return matches[0]

    def relation(self, key: Key | str) -> Relation:
        """Return a relation; see `ordinal`."""
        return self.relations[self.ordinal(key)]

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the graph as a store, a folder that `bulksample.load` opens; see `bulksample.data.store.save`."""
        Graph.writer(self, path, overwrite)

    def validate(self) -> Self:
        """Check everything the classes promise and return self; raises `DataError` naming the type or relation, the array and the row."""
        self.check_columns()
        for relation in self.relations:
            self._check(relation, self._check_relation, relation, check_adjacency)
            if relation.features is not None:
                self._check(relation, check_edge_features, relation.adjacency, relation.features)
        return self

    def check_columns(self, mapped: bool = True) -> None:
        """Raise `DataError` for a name given twice, too many vertices, or a malformed column of a type; see `VertexTable.check_columns`."""
        for noun, names in (("type", [t.name for t in self.types]), ("relation", [spelled(r.key) for r in self.relations])):
            if twice := [name for name, times in Counter(names).items() if times > 1]:
                raise DataError(f"graph {self.name!r} has two {noun}s {twice[0]!r}; give each a name of its own")
        if joined := [kind.name for kind in self.types if ":" in kind.name]:
            raise DataError(f"type {joined[0]!r}: relations are named source:name:destination; use a name without a colon")
        for what, name in (("graph", self.name), *(("type", t.name) for t in self.types), *(("relation", r.name) for r in self.relations)):
            check_name(what, name)
        total = sum(kind.count for kind in self.types)
        if total > MAX_VERTICES:
            raise DataError(f"{total} vertices of {len(self.types)} types do not fit int32; use at most {MAX_VERTICES}")
        for kind in self.types:
            self._check(kind, kind.check_columns, mapped)

    def check_structure(self) -> None:
        """Raise `DataError` unless kernels can read the columns of the types and the relations; each adjacency is read once."""
        for kind in self.types:
            self._check(kind, kind.check_rows)
            self._check(kind, kind.check_times)
        for relation in self.relations:
            self._check(relation, self._check_relation, relation, check_adjacency_once)

    def _check_relation(self, relation: Relation, check: Callable[[CSR, float, bool], None]) -> None:
        counts = []
        for end in (relation.destination, relation.source):
            if end not in self._places:
                raise DataError(f"there is no type {end!r}; use {', '.join(self._places)}")
            counts.append(self.type(end).count)
        matrix = relation.adjacency
        if self.plain and matrix.shape != tuple(counts):
            raise DataError(f"the adjacency must be square; its shape is {matrix.shape}")
        if matrix.shape != tuple(counts):
            raise DataError(f"the adjacency must have shape {tuple(counts)}, destinations x sources; it has {matrix.shape}")
        check(matrix, relation.weight_unit, relation.parallel)
        relation.check_columns()

    def _check(self, part: VertexType | Relation, check: Callable[..., None], *arguments: Any) -> None:
        """Call a check; its `DataError` begins with the type or the relation that it is about, unless the graph is plain."""
        if self.plain:
            check(*arguments)
        else:
            named(f"type {part.name!r}" if isinstance(part, VertexType) else str(part), lambda: check(*arguments))


def _with(what: str, parts: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, ...]:
    """Return the only type or relation with the columns that were given; all of them as they are if none were."""
    columns = {name: value for name, value in arguments.items() if value is not _KEPT}
    if not columns:
        return parts
    if columns.get("adjacency", True) is None:
        raise UsageError("adjacency: got None; use a CSR")
    if len(parts) != 1:
        names = [name for name in columns if name != "count"] or ["adjacency"]
        raise UsageError(f"got {', '.join(names)} for a graph of {len(parts)} {what}; use Graph.of, or replace(graph, {what}=...)")
    return (replace(parts[0], **columns),)
