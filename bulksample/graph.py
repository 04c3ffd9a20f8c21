"""A graph with everything that training needs: structure, features, labels, splits.

Features are optional, so a graph can be sampled without loading them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from .errors import DataError
from .pickled import Rebuilt
from .sparse import CSR
from .vertex_table import VertexTable, check_adjacency, check_edge_features


@dataclass(frozen=True, eq=False)
class Graph(Rebuilt, VertexTable):
    """A directed graph; row v of the adjacency lists the in-neighbors that v aggregates from.

    Parameters
    ----------
    adjacency : CSR, shape (n, n)
        Ones, or int64 fixed-point weights (`bulksample.sparse.fixed_point`).
    weight_unit : float
        The real weight that the integer 1 stands for.
    features : float32 or float16 of shape (n, f), or a float32 CSR of that shape, optional
    labels : int64 of shape (n,), or int8 or float32 of shape (n, t), optional
        Classes 0 .. num_classes - 1, with -1 for a vertex without a label; or several classes at once, or numbers; see
        `bulksample.labels`.
    edge_features : float32 or float16, shape (m, d), optional
        Row i belongs to entry i of the adjacency.
    num_classes : int
        Number of classes, or t, the columns of the labels: the outputs of a model.
    masks : dict of bool arrays of shape (n,)
        Any of ``train``, ``val``, ``test``; disjoint, and only on vertices that have a class, if the labels are classes.
    extra : dict of arrays of shape (n, ...)
        Further columns of the data set, such as other labels.
    name : str
    """

    kind: ClassVar[str] = "graph"
    adjacency: CSR
    weight_unit: float = 1.0
    features: np.ndarray | CSR | None = None
    labels: np.ndarray | None = None
    num_classes: int = 0
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    name: str = "graph"
    edge_features: np.ndarray | None = None

    @property
    def n(self) -> int:
        """Number of vertices."""
        return self.adjacency.shape[0]

    @property
    def num_edge_features(self) -> int:
        return 0 if self.edge_features is None else int(self.edge_features.shape[1])

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the graph as a store, a folder that `bulksample.load` opens; see `bulksample.data.store.save`."""
        write(self, path, overwrite)

    def validate(self) -> Graph:
        """Check everything the class promises and return self; raises `DataError` naming the array and the row."""
        if self.adjacency.shape[0] != self.adjacency.shape[1]:
            raise DataError(f"the adjacency must be square; its shape is {self.adjacency.shape}")
        check_adjacency(self.adjacency, self.weight_unit)
        if self.edge_features is not None:
            check_edge_features(self.adjacency, self.edge_features)
        self.check_columns()
        return self


_writer: Callable[[Any, str | os.PathLike[str], bool], None] | None = None


def write(graph: Any, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a graph of any kind as a store, with the function that `set_writer` was given."""
    assert _writer is not None
    _writer(graph, path, overwrite)


def set_writer(writer: Callable[[Any, str | os.PathLike[str], bool], None]) -> None:
    """Set the function that `Graph.save` calls; the store imports this module, so this module cannot import the store."""
    global _writer
    _writer = writer
