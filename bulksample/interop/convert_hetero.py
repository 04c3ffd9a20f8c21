"""Heterogeneous graphs of torch_geometric and DGL as graphs of this package; see `bulksample.from_pyg` and `bulksample.from_dgl`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data.columns import make_relation, make_type
from ..errors import UsageError
from ..graph import Graph, Key
from ..vertex_table import SPLITS

PYG_WEIGHTS = ("edge_weight", "edge_attr")  # the names under which the libraries keep weights of edges
DGL_WEIGHTS = ("weight", "edge_weight", "w")


def one_each(values: Any, edges: int) -> bool:
    """Return True if a column holds one number for each edge."""
    return values is not None and tuple(values.shape) in ((edges,), (edges, 1))


def hetero_from_pyg(data: Any, weight_attr: str | None, time_attr: str | None, name: str, target: str | None) -> Graph:
    """Convert a `torch_geometric.data.HeteroData`."""
    from .pyg.read_graph import edge_ends, edge_values

    stores = {tuple(key): data[key] for key in data.edge_types}
    ends = {key: edge_ends(own) for key, own in stores.items() if "edge_index" in own or "adj_t" in own}
    columns = {key: dict(own.items()) for key, own in stores.items()}
    if weight_attr == "auto":
        for key in ends:
            columns[key].setdefault("edge_weight", edge_values(stores[key]))
    kinds = dict.fromkeys([*data.node_types, *(end for key in stores for end in (key[0], key[2]))])  # some stand in an edge type alone
    types = {kind: (_count(data[kind].num_nodes, kind, ends), dict(data[kind].items())) for kind in kinds}
    return _graph(types, ends, columns, ("x", "y", "edge_attr"), PYG_WEIGHTS, weight_attr, time_attr, name, target)


def hetero_from_dgl(
    graph: Any, x: str, y: str, weight_attr: str | None, time_attr: str | None, name: str, target: str | None, edge_attr: str
) -> Graph:
    """Convert a heterogeneous `DGLGraph`."""
    ends = {tuple(key): graph.edges(etype=key, order="eid") for key in graph.canonical_etypes}
    columns = {tuple(key): dict(graph.edges[key].data) for key in graph.canonical_etypes}
    types = {kind: (int(graph.num_nodes(kind)), dict(graph.nodes[kind].data)) for kind in graph.ntypes}
    return _graph(types, ends, columns, (x, y, edge_attr), DGL_WEIGHTS, weight_attr, time_attr, name, target)


def _count(given: int | None, kind: str, ends: Mapping[Key, tuple[Any, Any]]) -> int:
    """Return the number of vertices of a type: as the library says, or one more than the largest that an edge names."""
    if given is not None:
        return int(given)
    found = [
        np.asarray(end) for (source, _, last), both in ends.items() for own, end in ((source, both[0]), (last, both[1])) if own == kind
    ]
    return 1 + max((int(one.max(initial=-1)) for one in found), default=-1)


def _graph(
    types: Mapping[str, tuple[int, dict[str, Any]]], ends: Mapping[Key, tuple[Any, Any]], columns: Mapping[Key, dict[str, Any]],
    names: tuple[str, str, str], auto: tuple[str, ...], weight_attr: str | None, time_attr: str | None, name: str, target: str | None,
) -> Graph:  # fmt: skip
    """Return the graph of columns by type and by relation; `names` are those of features, labels and edge features."""
    x, y, edge_attr = names
    made = {}
    for kind, (count, own) in types.items():
        masks = {split: own[f"{split}_mask"] for split in SPLITS if f"{split}_mask" in own}
        made[kind] = make_type(kind, count, own.get(x), own.get(y), masks, own.get(str(time_attr)), target=target)
    if weight_attr not in (None, "auto") and not any(weight_attr in own for own in columns.values()):
        found = sorted({column for own in columns.values() for column in own})
        raise UsageError(f"no relation has edge weights {weight_attr!r}; use {', '.join(found) or 'None: there are no columns'}")
    relations = []
    for key, both in ends.items():
        own, count = columns[key], len(both[0])
        weight = next((one for one in auto if one_each(own.get(one), count)), None) if weight_attr == "auto" else weight_attr
        features = None if weight == edge_attr else own.get(edge_attr)
        stamps = own.get(str(time_attr))
        relations.append(make_relation(made[key[0]], key[1], made[key[2]], both, own.get(str(weight)), stamps, features))
    return Graph.of(tuple(made.values()), tuple(relations), name).validate()
