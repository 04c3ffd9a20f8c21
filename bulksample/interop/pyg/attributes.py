"""Slice the attributes of a `Data`, and support `adj_t` as a torch CSR tensor, which torch_geometric cannot slice."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader.utils import index_select

from ..feature_gather import FeatureGather, can_gather
from .read_graph import compressed, edge_ends

_EDGES = ("edge_index", "adj_t", "num_nodes")


def attributes_of(data: Data, vertices: torch.Tensor, edges: torch.Tensor, gather: FeatureGather) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a subgraph: those of its vertices and edges sliced, all others whole; the edges themselves are left out.

    Parameters
    ----------
    vertices, edges : int64
        Ids of the vertices, and positions of the edges in the user's list.
    """
    for key, value in data:
        if key in _EDGES:
            continue
        ids = vertices if data.is_node_attr(key) else edges if data.is_edge_attr(key) else None
        if ids is None or not isinstance(value, torch.Tensor | np.ndarray):
            yield key, value
        elif ids is vertices and isinstance(value, torch.Tensor) and can_gather(value):
            yield key, gather(value, ids.numpy())
        else:
            on = ids.to(value.device) if isinstance(value, torch.Tensor) else ids
            yield key, index_select(value, on, dim=data.__cat_dim__(key, value))


def with_edge_index(data: Any) -> Any:
    """Return the graph with an `edge_index` instead of an `adj_t` that is a torch CSR tensor; others as they are."""
    if compressed(data) is None:
        return data
    plain = copy.copy(data)
    plain.num_nodes = data.num_nodes
    del plain.adj_t
    plain.edge_index = torch.stack([torch.from_numpy(ends) for ends in edge_ends(data)])
    return plain


def with_compressed_rows(batch: Data, values: torch.Tensor) -> Data:
    """Replace the `edge_index` of a batch by an `adj_t` of shape (N, N), rows are destinations. `values` has one value for each edge id."""
    source, destination = batch.edge_index
    n = int(batch.num_nodes or 0)
    order = torch.argsort(destination * n + source)
    rows = torch.cat([destination.new_zeros(1), torch.bincount(destination, minlength=n).cumsum(0)])
    batch.adj_t = torch.sparse_csr_tensor(rows, source[order], values[batch.e_id[order]], size=(n, n), check_invariants=False)
    del batch.edge_index
    return batch
