"""A sampled mini-batch of a heterogeneous graph with its features and labels, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..relations.adjacency import RelationAdjacency
from ..relations.graph import HeteroGraph, Key, Relation
from ..relations.minibatch import HeteroMiniBatch
from ..relations.seeds import SeedList
from .batch_rows import TableRows, TypeColumns


@dataclass(frozen=True, eq=False)
class HeteroBatch:
    """A sampled mini-batch of a heterogeneous graph as numpy arrays, by type and relation.

    A pickle or a copy holds all values, also those that were not read yet, and not the graph: processes may exchange batches.

    Parameters
    ----------
    minibatch : HeteroMiniBatch
        Vertices, seeds and blocks.
    graph : HeteroGraph, optional
        None in a pickle or a copy.
    type_rows : dict of TypeColumns
        Features and labels of each type: gathered when they are first read, or fetched from other ranks in advance.
    repeated : bool
        The mini-batch is one of the first of the epoch once more, so that all ranks make equally many steps: leave it out of counts.
    """

    minibatch: HeteroMiniBatch
    graph: HeteroGraph | None
    type_rows: Mapping[str, TypeColumns]
    repeated: bool = False

    def __getstate__(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("x_dict", "y_dict", "e_id_dict", "edge_attr_dict")}
        return {"minibatch": self.minibatch, "graph": None, "type_rows": {}, "repeated": self.repeated, **values}

    @cached_property
    def x_dict(self) -> dict[str, np.ndarray]:
        """Features of the vertices of each type that has features: float32, shape (N, f)."""
        return {name: self.type_rows[name].x(part) for name, part in self.minibatch.rows.items() if self.type_rows[name].has_features}

    @cached_property
    def y_dict(self) -> dict[str, np.ndarray]:
        """Labels of the seeds of each type that has seeds and labels; see `Batch.y`."""
        rows = {name: part for name, part in self.minibatch.rows.items() if len(part.seeds) and self.type_rows[name].has_labels}
        return {name: self.type_rows[name].y(part) for name, part in rows.items()}

    @cached_property
    def edge_index_dict(self) -> dict[Key, np.ndarray]:
        """The edges of the input layer by relation: int64, shape (2, E), sources above destinations."""
        return {key: self.minibatch.edge_index(key) for key in self.minibatch.blocks[0]}

    @cached_property
    def e_id_dict(self) -> dict[Key, np.ndarray]:
        """The position of each edge of `edge_index_dict` in the user's list of edges: int64, shape (E,)."""
        entries = self._entries
        return {relation.key: relation.ids_of(entries[relation.key]) for relation in self._relations}

    @cached_property
    def edge_attr_dict(self) -> dict[Key, np.ndarray]:
        """Features of the edges of each relation that has some: shape (E, d)."""
        entries = self._entries
        return {r.key: np.asarray(r.features[entries[r.key]]) for r in self._relations if r.features is not None}

    @property
    def _relations(self) -> tuple[Relation, ...]:
        assert self.graph is not None  # in a pickle or a copy, what comes from the graph is there
        return self.graph.relations

    @property
    def _entries(self) -> dict[Key, np.ndarray]:
        assert self.minibatch.entries is not None  # the loader asks for them
        return self.minibatch.entries[0]

    def digest(self) -> str:
        """Return the SHA-256 of the mini-batch; see `HeteroMiniBatch.digest`."""
        return self.minibatch.digest()


def rows_of_types(adjacency: RelationAdjacency, listed: SeedList, cores: int) -> dict[str, TableRows]:
    """Return the columns of each type in this process, for a loader of these seeds; `cores` threads gather dense features."""
    kinds, vertices = adjacency.split(listed.vertices)
    return {kind.name: TableRows(kind, cores, vertices[kinds == t]) for t, kind in enumerate(adjacency.graph.types)}
