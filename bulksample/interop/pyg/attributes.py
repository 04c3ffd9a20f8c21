"""Check what users give to the drop-in loaders, and slice the attributes of a `Data`.

An `adj_t` may be a torch CSR tensor, which torch_geometric cannot slice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader.utils import index_select

from ...errors import UsageError, is_whole
from ...graph.selection import vertex_ids
from ..tensors import FeatureGather, can_gather
from .read_graph import compressed, edge_ends, int_pairs

_EDGES = ("edge_index", "adj_t", "num_nodes")


def attributes_of(data: Data, vertices: torch.Tensor, edges: torch.Tensor, gather: FeatureGather) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a subgraph: those of its vertices and edges sliced, all others whole; the edges themselves are left out.

    `vertices` are ids, and `edges` positions in the user's list: int64.
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


def check_attributes(data: Any) -> None:
    """Raise `UsageError` for a list with an entry for each vertex or edge, which batches cannot slice."""
    for part in getattr(data, "stores", ()):
        for key, value in part.items():
            if isinstance(value, list | tuple) and (part.is_node_attr(key) or part.is_edge_attr(key)):
                found = f"got a {type(value).__name__} of {len(value)}, one for each vertex or edge"
                raise UsageError(f"{key}: {found}, and batches slice tensors; make it a tensor, or delete it from the graph")


def column(name: str, values: Any) -> torch.Tensor | None:
    """Return numbers of examples as a tensor, None as it is; raises `UsageError` for what is no list of numbers."""
    try:
        return None if values is None else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(f"{name}: got a {type(values).__name__}; use a tensor") from None


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return a whole number of Python or numpy as int; raises `UsageError` for anything else, bools too, and outside its bounds."""
    if is_whole(value, least, inf if most is None else most):
        return int(value)
    bounds = f"of at least {least}" if most is None else f"in {least} .. {most}"
    raise UsageError(f"{name} must be a whole number {bounds}; got {value!r}")


def vertex_pairs(name: str, pairs: Any, n: int | tuple[int, int]) -> torch.Tensor:
    """Return pairs of vertices as int64 of shape (2, m).

    Raises `DataError` for another shape or dtype, `UsageError` for ids beyond n, or beyond the numbers of sources and of destinations.
    """
    counts = n if isinstance(n, tuple) else (n, n)
    for end, ids, count in zip(("source", "destination"), checked := int_pairs(name, pairs), counts, strict=True):
        vertex_ids(ids, count, f"{name}: {end}")
    return checked


def ids_or_mask(input_nodes: Any, n: int, name: str = "input_nodes") -> torch.Tensor:
    """Return the user's input nodes as int64 ids, or as a bool mask of shape (n,) if they are one; see `vertex_ids`.

    torch_geometric itself would cut floats to integers, and take a numpy mask for the ids 0 and 1. It names the inputs of a mask
    by vertex, and ids by their position, so a mask stays one.
    """
    ids = torch.from_numpy(vertex_ids(input_nodes, n, name))
    if torch.as_tensor(input_nodes).dtype != torch.bool:
        return ids
    return torch.zeros(n, dtype=torch.bool).index_fill(0, ids, True)
