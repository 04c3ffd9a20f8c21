"""Read the edges of a `Data` object as arrays, and refuse unsupported graphs and numbers."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from ...errors import DataError, UsageError, is_whole
from ...selection import vertex_ids
from ..edge_graph import EdgeGraph, edge_graph
from .stores import check_pair, is_pair, stored_edges, stored_nodes

_ONLY = "heterogeneous and temporal graphs are not supported: use a torch_geometric.data.Data, or a pair of stores, without times"


def check_input(data: Any, weight_attr: str | None = None, **temporal: Any) -> None:
    """Raise `UsageError` for anything but a homogeneous graph whose edges are readable, and for options of temporal sampling.

    The graph is a `Data`, or a `(FeatureStore, GraphStore)` pair.
    """
    check_times(**temporal)
    if is_pair(data):
        check_pair(data, weight_attr)
        return
    if not isinstance(data, Data):
        parts = [type(part).__name__ for part in data] if isinstance(data, (tuple, list)) else []
        raise UsageError(f"{_ONLY}; got a {' of '.join([type(data).__name__, *[', '.join(parts)][: len(parts)]])}")
    adj_t = data.adj_t if "adj_t" in data else None
    if isinstance(adj_t, torch.Tensor) and adj_t.layout != torch.sparse_csr:
        layout = str(adj_t.layout).removeprefix("torch.")
        raise UsageError(f"adj_t: got a torch tensor of layout {layout}; use adj_t.to_sparse_csr(), or an edge_index")


def check_attributes(data: Any) -> None:
    """Raise `UsageError` for a list with an entry for each vertex or edge, which batches cannot slice."""
    for part in getattr(data, "stores", ()):
        for key, value in part.items():
            if isinstance(value, list | tuple) and (part.is_node_attr(key) or part.is_edge_attr(key)):
                found = f"got a {type(value).__name__} of {len(value)}, one for each vertex or edge"
                raise UsageError(f"{key}: {found}, and batches slice tensors; make it a tensor, or delete it from the graph")


def column(name: str, given: Any) -> torch.Tensor | None:
    """Return numbers of examples as a tensor, None as it is; raises `UsageError` for what is no list of numbers."""
    try:
        return None if given is None else torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(f"{name}: got a {type(given).__name__}; use a tensor") from None


def check_times(**temporal: Any) -> None:
    """Raise `UsageError` if an option of temporal sampling is set."""
    options = [name for name, value in temporal.items() if value is not None]
    if options:
        raise UsageError(f"{_ONLY}; got {', '.join(options)}")


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return a whole number of Python or numpy as int; raises `UsageError` for anything else, bools too, and outside its bounds."""
    if is_whole(value, least, inf if most is None else most):
        return int(value)
    bounds = f"of at least {least}" if most is None else f"in {least} .. {most}"
    raise UsageError(f"{name} must be a whole number {bounds}; got {value!r}")


def num_nodes_of(data: Any) -> int:
    """Return the number of vertices of a `Data` or of a pair of stores."""
    return stored_nodes(data) if is_pair(data) else int(data.num_nodes or 0)


def graph_of(data: Any, weight_attr: str | None = None) -> EdgeGraph:
    """Return the graph of a pair of stores, or of a `Data` object: its `edge_index`, or its `adj_t` (torch_sparse or torch CSR).

    Raises
    ------
    DataError, UsageError
        See `edge_graph`; `UsageError` also if there is no such weight.
    """
    weights = None
    if weight_attr is not None:
        if weight_attr not in data:
            raise UsageError(f"the graph has no weight {weight_attr!r}; it has {', '.join(sorted(data.keys()))}")
        weights = torch.as_tensor(data[weight_attr]).cpu().double().numpy()
    return edge_graph(*edge_ends(data), num_nodes_of(data), weights, weight_attr or "")


def edge_ends(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return sources and destinations of the edges in their order: int64, shape (m,) each; `DataError` if `edge_index` is none."""
    if is_pair(data):
        source, destination = _pairs("the graph store's edges", torch.stack(stored_edges(data)))
        return source.contiguous().numpy(), destination.contiguous().numpy()
    if (adj_t := compressed(data)) is not None:
        rows = np.diff(adj_t.crow_indices().cpu().numpy())
        return adj_t.col_indices().cpu().numpy().astype(np.int64), np.repeat(np.arange(len(rows)), rows)
    if "adj_t" in data:
        destination, source, _ = data.adj_t.coo()
        return source.cpu().numpy(), destination.cpu().numpy()
    if data.edge_index is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    source, destination = _pairs("edge_index", data.edge_index)
    return source.contiguous().numpy(), destination.contiguous().numpy()


def _pairs(name: str, given: Any) -> torch.Tensor:
    """Return edges as int64 of shape (2, m); raises `DataError` for anything but integers of that shape."""
    edges: torch.Tensor = torch.as_tensor(given).cpu()
    whole = not (edges.is_floating_point() or edges.is_complex() or edges.dtype == torch.bool) or not edges.numel()
    if edges.ndim != 2 or len(edges) != 2 or not whole:
        kind = str(edges.dtype).removeprefix("torch.")
        raise DataError(f"{name}: got {kind} of shape {tuple(edges.shape)}; use integers of shape (2, m)")
    return edges.long()


def vertex_pairs(name: str, pairs: Any, n: int | tuple[int, int]) -> torch.Tensor:
    """Return pairs of vertices as int64 of shape (2, m).

    Raises `DataError` for another shape or dtype, `UsageError` for ids beyond n, or beyond the numbers of sources and of destinations.
    """
    counts = n if isinstance(n, tuple) else (n, n)
    for end, ids, count in zip(("source", "destination"), checked := _pairs(name, pairs), counts, strict=True):
        vertex_ids(ids, count, f"{name}: {end}")
    return checked


def ids_or_mask(input_nodes: Any, n: int) -> torch.Tensor:
    """Return the user's input nodes as int64 ids, or as a bool mask of shape (n,) if they are one; see `vertex_ids`.

    torch_geometric itself would cut floats to integers, and take a numpy mask for the ids 0 and 1. It names the inputs of a mask
    by vertex, and ids by their position, so a mask stays one.
    """
    ids = torch.from_numpy(vertex_ids(input_nodes, n, "input_nodes"))
    if torch.as_tensor(input_nodes).dtype != torch.bool:
        return ids
    return torch.zeros(n, dtype=torch.bool).index_fill(0, ids, True)


def compressed(data: Any) -> torch.Tensor | None:
    """Return the `adj_t` of a graph if it is a torch CSR tensor, else None."""
    adj_t = data.adj_t if "adj_t" in data else None
    return adj_t if isinstance(adj_t, torch.Tensor) and adj_t.layout == torch.sparse_csr else None


def edge_values(data: Data) -> torch.Tensor | None:
    """Return the values of `adj_t` in the order of `edge_ends`; None where there are none, or all are one."""
    if "adj_t" not in data:
        return None
    adj_t = compressed(data)
    values = data.adj_t.coo()[2] if adj_t is None else adj_t.values()
    return None if values is None or bool((values == 1).all()) else values
