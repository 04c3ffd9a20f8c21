"""Read a graph of torch_geometric as a `Graph`: its types, relations, weights and times, without features.

A `Data`, or a `(FeatureStore, GraphStore)` pair without types, becomes one type and one relation. Edges are copied when a loader is made;
features stay where they are, and each batch asks for its own rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.data.remote_backend_utils import size as stored_size

from ...errors import DataError, UsageError
from ...graph import EDGE, NODE, Graph, Key, Relation, VertexType
from ...graph.times import as_times
from ...graph.types import relation_from_edges
from ...sparse import MAX_VERTICES
from ..tensors import weights_of_edges

EDGES: Key = (NODE, EDGE, NODE)  # the relation of a graph without types
Ends = tuple[np.ndarray, np.ndarray]  # sources and destinations of edges
_KINDS = "data: use a Data or a HeteroData of torch_geometric, or a pair of a FeatureStore and a GraphStore"
_ONLY = "heterogeneous and temporal graphs are not supported: use a torch_geometric.data.Data, or a pair of stores, without times"


def is_pair(data: Any) -> bool:
    """Return True for a `(FeatureStore, GraphStore)` pair."""
    return isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[0], FeatureStore) and isinstance(data[1], GraphStore)


def has_types(data: Any) -> bool:
    """Return True for a `HeteroData`, and for a pair of stores whose edges have types."""
    if is_pair(data):
        types = {attr.edge_type for attr in data[1].get_all_edge_attrs()}
        return bool(types) and None not in types
    return isinstance(data, HeteroData)


def check_plain(data: Any, **temporal: Any) -> None:
    """Raise `UsageError` for anything but a graph without types whose edges are readable, and for options of temporal sampling.

    The graph is a `Data`, or a `(FeatureStore, GraphStore)` pair.
    """
    options = [name for name, value in temporal.items() if value is not None]
    if options:
        raise UsageError(f"{_ONLY}; got {', '.join(options)}")
    if is_pair(data):
        types = {attr.edge_type for attr in data[1].get_all_edge_attrs()}
        if types != {None}:
            edge_types = ", ".join(sorted(map(str, types))) or "none"
            raise UsageError(
                f"heterogeneous stores are not supported: the graph store needs one set of edges, of edge_type None; it has {edge_types}"
            )
        return
    if not isinstance(data, Data):
        kind = type(data).__name__
        if isinstance(data, (tuple, list)):
            kind = f"{kind} of {', '.join(type(part).__name__ for part in data)}"
        raise UsageError(f"{_ONLY if has_types(data) else _KINDS}; got a {kind}")
    adj_t = data.adj_t if "adj_t" in data else None
    if isinstance(adj_t, torch.Tensor) and adj_t.layout != torch.sparse_csr:
        layout = str(adj_t.layout).removeprefix("torch.")
        raise UsageError(f"adj_t: got a torch tensor of layout {layout}; use adj_t.to_sparse_csr(), or an edge_index")


def check_edge_index(name: str, data: Any) -> None:
    """Raise `UsageError` unless a graph is a `Data` with an `edge_index`."""
    check_plain(data)
    if is_pair(data) or getattr(data, "edge_index", None) is None:
        raise UsageError(f"{name} needs a Data with an edge_index")


def read_graph(data: Any, weight_attr: str | None = None, time_attr: str | None = None) -> Graph:
    """Return the graph of a `HeteroData`, a `Data`, or a (FeatureStore, GraphStore) pair; parallel edges are entries of their own.

    Raises `UsageError` if no type and no relation has `time_attr`, or both have it; if no relation has `weight_attr`; for data of another
    kind. Raises `DataError`, naming the type or the relation, if edges, weights or times are malformed.
    """
    if not is_pair(data) and not isinstance(data, HeteroData | Data):
        raise UsageError(f"got a {type(data).__name__}; use a Data, a HeteroData, or a pair of a FeatureStore and a GraphStore")
    if is_pair(data) and weight_attr is not None:
        instead = "HeteroData" if has_types(data) else "Data"
        raise UsageError(f"weight_attr: got {weight_attr!r}, but a graph store has no weights; use a {instead}")
    counts, ends, column = _of_stores(data) if is_pair(data) else _of_types(data) if has_types(data) else _of_data(data, weight_attr)
    timed = [] if time_attr is None else [key for key in [*counts, *ends] if column(key, time_attr) is not None]
    if time_attr is not None and len({isinstance(key, tuple) for key in timed}) != 1:
        holders = f"both vertices and edges have it: {', '.join(map(str, timed))}" if timed else "no vertices and no edges have it"
        raise UsageError(f"time_attr: got {time_attr!r}; {holders}; name an attribute of one kind")
    weights_of = {} if weight_attr is None else {key: column(key, weight_attr) for key in ends}
    if weight_attr is not None and all(values is None for values in weights_of.values()):
        has = f"; it has {', '.join(sorted(data.keys()))}" if isinstance(data, Data) else ""
        raise UsageError(f"the graph has no weight {weight_attr!r}{has}")

    def times_of(key: Any, count: int) -> np.ndarray | None:
        if key not in timed:
            return None
        values = torch.as_tensor(column(key, str(time_attr))).detach().cpu().numpy()
        return as_times(f"{time_attr} of {key!r}", values, count)

    types = {name: (count, times_of(name, count)) for name, count in counts.items()}
    if EDGES in ends:
        _check_ends(*ends[EDGES], counts[NODE])
    made = {name: VertexType(name, count, times=times) for name, (count, times) in types.items()}
    relations = []
    for key, both in ends.items():
        kinds, m = (made[key[0]], key[1], made[key[2]]), len(both[0])
        weights = weights_of_edges(str(weight_attr), weights_of.get(key), m)
        relations.append(relation_from_edges(*kinds, *both, weights=weights, times=times_of(key, m)))
    return Graph.of(tuple(made.values()), tuple(relations))


def edges_of(data: Any, leaving: bool = False) -> Relation:
    """Return the edges of a `Data` without weights; `leaving` turns them, so that row v holds the edges that leave v."""
    source, destination = edge_ends(data)
    n = num_nodes_of(data)
    _check_ends(source, destination, n)
    kind, ends = VertexType(NODE, n), (destination, source) if leaving else (source, destination)
    return relation_from_edges(kind, EDGE, kind, *ends)


def _check_ends(sources: np.ndarray, destinations: np.ndarray, n: int) -> None:
    """Raise `DataError` unless the ends of edges are vertices of a graph without types."""
    if n > MAX_VERTICES:
        raise DataError(f"there are {n} vertices, by num_nodes or the largest id of the edges; number them from 0, fewer than 2**31")
    for end, vertices in (("source", sources), ("destination", destinations)):
        bad = np.flatnonzero((vertices < 0) | (vertices >= n))
        if len(bad):
            raise DataError(f"edge {bad[0]} names {end} {vertices[bad[0]]}; vertices run from 0 to {n - 1}")


Read = tuple[dict[str, int], dict[Key, Ends], Callable[[Any, str], Any]]  # vertices by type, edges by relation, and how to find a column


def _of_data(data: Any, weight_attr: str | None) -> Read:
    """Read a `Data`; weights may have any length here, so that a wrong one is refused by its shape."""

    def column(key: Any, name: str) -> Any:
        if name not in data:
            return None
        belongs = data.is_edge_attr if isinstance(key, tuple) else data.is_node_attr
        return data[name] if name == weight_attr or belongs(name) else None

    return {NODE: num_nodes_of(data)}, {EDGES: edge_ends(data)}, column


def _of_types(data: Any) -> Read:
    counts = {name: int(data[name].num_nodes or 0) for name in data.node_types}
    for end in (end for key in data.edge_types for end in (key[0], key[2])):
        counts.setdefault(end, 0)
    ends = {key: edge_ends(data[key]) for key in data.edge_types if "edge_index" in data[key] or "adj_t" in data[key]}
    return counts, ends, lambda key, name: data[key][name] if key in (*data.node_types, *data.edge_types) and name in data[key] else None


def _of_stores(data: Any) -> Read:
    features, graph = data
    attrs = features.get_all_tensor_attrs()
    if not has_types(data):
        counts, ends = {NODE: num_nodes_of(data)}, {EDGES: edge_ends(data)}
    else:
        rows, columns, _ = graph.coo()
        keys: list[Any] = list(dict.fromkeys(attr.edge_type for attr in graph.get_all_edge_attrs()))
        ends = {key: (rows[key].long().numpy(), columns[key].long().numpy()) for key in keys}
        names = [attr.group_name for attr in attrs if isinstance(attr.group_name, str)]
        names = list(dict.fromkeys([*names, *(end for key in keys for end in (key[0], key[2]))]))
        counts = {name: int(stored_size(features, graph, name) or 0) for name in names}

    def column(key: Any, name: str) -> Any:
        untyped = NODE if name == "time" else EDGES  # as torch_geometric tells apart the two in a store without types
        for attr in attrs:
            if attr.attr_name == name and key == (untyped if attr.group_name is None else attr.group_name):
                whole = copy.copy(attr)
                whole.index = None
                return features.get_tensor(whole)
        return None

    return counts, ends, column


def num_nodes_of(data: Any) -> int:
    """Return the number of vertices of a `Data`, or of a pair of stores without types.

    Of stores it is the larger side of the edges' size or, where no size was put, the length of the features.
    """
    if not is_pair(data):
        return int(data.num_nodes or 0)
    features, graph = data
    sizes = [max(attr.size) for attr in graph.get_all_edge_attrs() if attr.size is not None and None not in attr.size]
    sizes = sizes or [features.get_tensor_size(attr)[0] for attr in features.get_all_tensor_attrs()]
    if not sizes:
        raise UsageError("the stores do not say how many vertices there are; give put_edge_index a size=(n, n)")
    return int(max(sizes))


def edge_ends(data: Any) -> Ends:
    """Return sources and destinations of the edges in their order: int64, shape (m,) each; `DataError` if `edge_index` is none.

    They are those of an `edge_index`, of an `adj_t` (torch_sparse or torch CSR), or of a pair of stores without types.
    """
    if is_pair(data):
        source, destination, _ = data[1].coo()
        pairs = int_pairs("the graph store's edges", torch.stack([source.long(), destination.long()]))
    elif (adj_t := compressed(data)) is not None:
        rows = np.diff(adj_t.crow_indices().cpu().numpy())
        return adj_t.col_indices().cpu().numpy().astype(np.int64), np.repeat(np.arange(len(rows)), rows)
    elif "adj_t" in data:
        destination, source, _ = data.adj_t.coo()
        return source.cpu().numpy(), destination.cpu().numpy()
    elif data.edge_index is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    else:
        pairs = int_pairs("edge_index", data.edge_index)
    return pairs[0].contiguous().numpy(), pairs[1].contiguous().numpy()


def int_pairs(name: str, pairs: Any) -> torch.Tensor:
    """Return edges as int64 of shape (2, m); raises `DataError` for anything but integers of that shape."""
    try:
        edges: torch.Tensor = torch.as_tensor(pairs).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"{name}: got a {type(pairs).__name__}; use integers of shape (2, m)") from None
    whole = not (edges.is_floating_point() or edges.is_complex() or edges.dtype == torch.bool) or not edges.numel()
    if edges.ndim != 2 or len(edges) != 2 or not whole:
        kind = str(edges.dtype).removeprefix("torch.")
        raise DataError(f"{name}: got {kind} of shape {tuple(edges.shape)}; use integers of shape (2, m)")
    return edges.long()


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
