"""A sampled mini-batch of a heterogeneous graph with its features and labels, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import Graph, Key, Relation
from ..minibatch import Block
from ..profiling import Profile
from ..relations.adjacency import RelationAdjacency
from ..relations.minibatch import HeteroMiniBatch
from ..relations.seeds import SeedList
from .batch_rows import TableRows, TypeColumns
from .tensor_batch import TensorHeteroBatch, device_of

if TYPE_CHECKING:
    import torch

    from .dialects import EdgeLayout


@dataclass(frozen=True, eq=False)
class HeteroBatch:
    """A sampled mini-batch of a heterogeneous graph as numpy arrays, by type and relation.

    A pickle or a copy holds all values, also those that were not read yet, and not the graph: processes may exchange batches.

    Parameters
    ----------
    minibatch : HeteroMiniBatch
        Vertices, seeds and blocks.
    graph : Graph, optional
        None in a pickle or a copy.
    type_rows : dict of TypeColumns
        Features and labels of each type: gathered when they are first read, or fetched from other ranks in advance.
    repeated : bool
        The mini-batch is one of the first of the epoch once more, so that all ranks make equally many steps: leave it out of counts.
    """

    minibatch: HeteroMiniBatch
    graph: Graph | None
    type_rows: Mapping[str, TypeColumns]
    repeated: bool = False

    def __getstate__(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("x_dict", "y_dict", "e_id", "edge_attr")}
        return {"minibatch": self.minibatch, "graph": None, "type_rows": {}, "repeated": self.repeated, **values}

    @property
    def id(self) -> int:
        """The number of the mini-batch within its epoch."""
        return self.minibatch.id

    @property
    def epoch(self) -> int:
        """The epoch the mini-batch belongs to."""
        return self.minibatch.epoch

    @property
    def vertices(self) -> dict[str, np.ndarray]:
        """The sampled vertices of each type, the distinct seeds first: int32, shape (N,)."""
        return self.minibatch.vertices

    @property
    def seeds(self) -> dict[str, np.ndarray]:
        """The seeds of each type that has some: int32, shape (b,)."""
        return self.minibatch.seeds

    @property
    def blocks(self) -> tuple[dict[Key, Block], ...]:
        """The sampled edges by relation, one dict a layer, from the input layer to the output layer."""
        return self.minibatch.blocks

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
    def e_id(self) -> tuple[dict[Key, np.ndarray], ...]:
        """The positions of the edges of each layer in the user's list of edges, by relation: int64, shape (E,)."""
        return self._by_layer({relation.key: relation.ids_of for relation in self._relations})

    @cached_property
    def edge_attr(self) -> tuple[dict[Key, np.ndarray], ...]:
        """Features of the edges of each layer, of the relations that have some: shape (E, d)."""
        columns = {relation.key: relation.features for relation in self._relations if relation.features is not None}
        return self._by_layer({key: column.__getitem__ for key, column in columns.items()})

    @property
    def e_id_dict(self) -> dict[Key, np.ndarray]:
        """`e_id` of the input layer, which holds the edges of `edge_index_dict`."""
        return self.e_id[0]

    @property
    def edge_attr_dict(self) -> dict[Key, np.ndarray]:
        """`edge_attr` of the input layer."""
        return self.edge_attr[0]

    def _by_layer(self, columns: Mapping[Key, Callable[[np.ndarray], np.ndarray]]) -> tuple[dict[Key, np.ndarray], ...]:
        """Return columns of the sampled edges, given what reads them by entry; nested layers are prefixes of the first."""
        entries = self.minibatch.entries
        assert entries is not None  # the loader asks for them
        layers = entries[:1] if self.minibatch.nested else entries
        read = [{key: np.asarray(column(layer[key])) for key, column in columns.items()} for layer in layers]
        if self.minibatch.nested:
            read = [{key: rows[: layer[key].num_edges] for key, rows in read[0].items()} for layer in self.blocks]
        return tuple(read)

    @property
    def _relations(self) -> tuple[Relation, ...]:
        assert self.graph is not None  # in a pickle or a copy, what comes from the graph is there
        return self.graph.relations

    def digest(self) -> str:
        """Return the SHA-256 of the mini-batch; see `HeteroMiniBatch.digest`."""
        return self.minibatch.digest()

    def to(self, device: Any = "cpu") -> TensorHeteroBatch:
        """Return the mini-batch as torch tensors on a device; see `Batch.to`."""
        return TensorHeteroBatch(self, device_of(device))

    def to_pyg(self, layout: EdgeLayout = "edge_index") -> Any:
        """Return the mini-batch as a `torch_geometric.data.HeteroData` on the CPU; ``batch.to(device).to_pyg()`` puts it on a device.

        Parameters
        ----------
        layout : {"edge_index", "EdgeIndex", "adj_t", "SparseTensor"}
            See `Batch.to_pyg`.

        Returns
        -------
        HeteroData
            Of each type ``n_id``, ``num_sampled_nodes`` and, where they are known, ``x`` and ``batch``, the tree of each vertex; of each
            type with seeds ``input_id``, ``batch_size``, ``y`` of the seeds and ``seed_time``. Of each relation ``num_sampled_edges``. With
            the frontier ``new`` each has one set of edges with ``e_id``, ``edge_attr`` and ``edge_weight``; else ``data.adjs`` lists for
            each layer, from the input on, a dict of ``(edges, e_id, size)`` by relation, and ``data.layer_edge_attr`` and
            ``data.layer_edge_weight`` list theirs. Of HGSampling there are no numbers by hop.

        Raises
        ------
        UsageError
            If there is no such layout.
        ImportError
            If torch_geometric, or torch-sparse for its layout, is missing.
        """
        return self.to().to_pyg(layout)

    def to_dgl(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[Any]]:
        """Return the mini-batch in the format of DGL: ``(input_nodes, output_nodes, blocks)`` of int32 by type, on the CPU.

        See `Batch.to_dgl`. Raises ImportError if DGL is missing.
        """
        return self.to().to_dgl()


def rows_of_types(adjacency: RelationAdjacency, listed: SeedList, cores: int, profile: Profile | None = None) -> dict[str, TableRows]:
    """Return the columns of each type in this process, for a loader of these seeds; `cores` threads gather dense features."""
    kinds, vertices = adjacency.split(listed.vertices)
    return {kind.name: TableRows(kind, cores, vertices[kinds == t], profile) for t, kind in enumerate(adjacency.graph.types)}
