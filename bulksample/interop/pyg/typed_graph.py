"""Read a torch_geometric graph of any kind as a `Graph`: its types, relations and times, without features.

A `Data` becomes one type and one relation, so that temporal sampling needs no code of its own for it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.remote_backend_utils import size as stored_size

from ...errors import UsageError
from ...graph import Graph, Key, VertexType
from ...graph.from_edges import relation_from_edges
from ...graph.times import as_times
from .edge_lists import edge_ends
from .stores import is_pair, stored_edges, stored_nodes

NODE = "node"
EDGES: Key = (NODE, "to", NODE)
Columns = Callable[[Any, str], Any]


def has_types(data: Any) -> bool:
    """Return True for a `HeteroData`, and for a pair of stores whose edges have types."""
    if is_pair(data):
        types = {attr.edge_type for attr in data[1].get_all_edge_attrs()}
        return bool(types) and None not in types
    return isinstance(data, HeteroData)


def typed_graph(data: Any, weight_attr: str | None = None, time_attr: str | None = None) -> Graph:
    """Return the graph of a `HeteroData`, a `Data`, or a (FeatureStore, GraphStore) pair.

    Raises
    ------
    UsageError
        If no type and no relation has `time_attr`, or both have it; if no relation has `weight_attr`; if the data is of another kind.
    DataError
        If edges, weights or times are malformed; the message names the type or the relation.
    """
    if not is_pair(data) and not isinstance(data, HeteroData | Data):
        raise UsageError(f"got a {type(data).__name__}; use a Data, a HeteroData, or a pair of a FeatureStore and a GraphStore")
    if is_pair(data):
        if weight_attr is not None:
            raise UsageError(f"weight_attr: got {weight_attr!r}, but a graph store has no weights; use a HeteroData")
        counts, ends, column = _of_stores(data)
    else:
        counts, ends, column = _of_data(data)
    timed = [] if time_attr is None else [key for key in [*counts, *ends] if column(key, time_attr) is not None]
    if time_attr is not None and len({isinstance(key, tuple) for key in timed}) != 1:
        found = f"both vertices and edges have it: {', '.join(map(str, timed))}" if timed else "no vertices and no edges have it"
        raise UsageError(f"time_attr: got {time_attr!r}; {found}; name an attribute of one kind")
    weighted = [] if weight_attr is None else [key for key in ends if column(key, weight_attr) is not None]
    if weight_attr is not None and not weighted:
        raise UsageError(f"the graph has no weight {weight_attr!r}")

    def times_of(key: Any, count: int) -> np.ndarray | None:
        return as_times(f"{time_attr} of {key!r}", _on_host(column(key, str(time_attr))), count) if key in timed else None

    types = tuple(VertexType(name, count, times=times_of(name, count)) for name, count in counts.items())
    by_name = {kind.name: kind for kind in types}
    relations = []
    for key, (source, destination) in ends.items():
        weights = _on_host(column(key, str(weight_attr))).reshape(-1) if key in weighted else None
        times = times_of(key, len(source))
        relations.append(relation_from_edges(by_name[key[0]], key[1], by_name[key[2]], source, destination, weights=weights, times=times))
    return Graph.of(types, tuple(relations))


def _of_data(data: Any) -> tuple[dict[str, int], dict[Key, tuple[np.ndarray, np.ndarray]], Columns]:
    """Return vertices by type, the ends of the edges by relation, and how to look up a column."""
    if isinstance(data, Data):

        def own(key: Any, name: str) -> Any:
            belongs = data.is_edge_attr if isinstance(key, tuple) else data.is_node_attr
            return data[name] if name in data and belongs(name) else None

        return {NODE: int(data.num_nodes or 0)}, {EDGES: edge_ends(data)}, own
    counts = {name: int(data[name].num_nodes or 0) for name in data.node_types}
    for end in (end for key in data.edge_types for end in (key[0], key[2])):
        counts.setdefault(end, 0)
    ends = {key: edge_ends(data[key]) for key in data.edge_types if "edge_index" in data[key] or "adj_t" in data[key]}
    return counts, ends, lambda key, name: data[key][name] if key in (*data.node_types, *data.edge_types) and name in data[key] else None


def _of_stores(data: Any) -> tuple[dict[str, int], dict[Key, tuple[np.ndarray, np.ndarray]], Columns]:
    features, graph = data
    attrs = features.get_all_tensor_attrs()
    keys: list[Any] = list(dict.fromkeys(attr.edge_type for attr in graph.get_all_edge_attrs()))
    if keys == [None]:
        source, destination = stored_edges(data)
        counts: dict[str, int] = {NODE: stored_nodes(data)}
        ends: dict[Key, tuple[np.ndarray, np.ndarray]] = {EDGES: (source.numpy(), destination.numpy())}
    else:
        rows, columns, _ = graph.coo()
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


def _on_host(values: Any) -> np.ndarray:
    found: np.ndarray = torch.as_tensor(values).detach().cpu().numpy()
    return found
