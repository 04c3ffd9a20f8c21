"""Slice the attributes of a `Data` for loaders that build their batches themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader.utils import index_select

from ..feature_gather import FeatureGather, can_gather

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
