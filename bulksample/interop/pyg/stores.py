"""Read graphs that lie in a `(FeatureStore, GraphStore)` pair of torch_geometric.

The edges are copied from the graph store when a loader is made; features stay where they are, and each batch asks for its own rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import FeatureStore, GraphStore

from ...errors import UsageError


def is_pair(data: Any) -> bool:
    """Return True for a `(FeatureStore, GraphStore)` pair."""
    return isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[0], FeatureStore) and isinstance(data[1], GraphStore)


def check_pair(data: Any, weight_attr: str | None = None) -> None:
    """Raise `UsageError` unless the graph store holds one untyped set of edges, or if `weight_attr` is given: stores have no weights."""
    types = {attr.edge_type for attr in data[1].get_all_edge_attrs()}
    if types != {None}:
        found = ", ".join(sorted(map(str, types))) or "none"
        raise UsageError(
            f"heterogeneous stores are not supported: the graph store needs one set of edges, of edge_type None; it has {found}"
        )
    if weight_attr is not None:
        raise UsageError(f"weight_attr: got {weight_attr!r}, but a graph store has no weights; use a Data")


def stored_edges(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sources and destinations, int64 of shape (m,) each. Edge i is the i-th edge of the store."""
    source, destination, _ = data[1].coo()
    return source.long(), destination.long()


def stored_nodes(data: Any) -> int:
    """Return the number of vertices: the larger side of the edges' size or, where no size was put, the length of the features."""
    features, graph = data
    sizes = [max(attr.size) for attr in graph.get_all_edge_attrs() if attr.size is not None and None not in attr.size]
    if not sizes:
        sizes = [features.get_tensor_size(attr)[0] for attr in features.get_all_tensor_attrs()]
    if not sizes:
        raise UsageError("the stores do not say how many vertices there are; give put_edge_index a size=(n, n)")
    return int(max(sizes))
