"""Graphs of torch_geometric and DGL as graphs of this package: `bulksample.from_pyg` and `bulksample.from_dgl`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data.columns import as_array, make_relation, make_type
from ..data.from_edges import from_edges
from ..errors import DataError, UsageError
from ..graph import Graph, Key
from ..graph.vertex_table import SPLITS

PYG_WEIGHTS = ("edge_weight", "edge_attr")  # the names under which the libraries keep weights of edges
DGL_WEIGHTS = ("weight", "edge_weight", "w")


def from_pyg(
    data: Any, weight_attr: str | None = "auto", name: str = "graph", target: str | None = None, time_attr: str | None = "time"
) -> Any:
    """Convert a `torch_geometric.data.Data`, or a `HeteroData`, to a `Graph`.

    Row v of the adjacency lists the sources of the edges into v, the vertices that a `MessagePassing` layer aggregates.
    Parallel edges of a `Data` become one edge, and their weights add up; those of a `HeteroData` stay apart.

    Parameters
    ----------
    data : torch_geometric.data.Data or HeteroData
        ``x``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask`` are taken where they are there, and the edges from
        ``edge_index`` or ``adj_t``. An ``edge_attr`` that is not the weight becomes `Graph.edge_features`.
    weight_attr : str or None
        The attribute with one weight for each edge; None leaves weights out. "auto" takes ``edge_weight``, or an
        ``edge_attr`` of one number for each edge, or the values of ``adj_t``, where they are there.
    name : str
    target : {"class", "multilabel", "regression"}, optional
        Take y as labels of this target; see `from_edges`.
    time_attr : str, optional
        The attribute of vertices, edges or both of a `HeteroData` that holds their times: integers. Types and relations without it have
        no times.

    Raises
    ------
    UsageError
        If the data has no such weights.
    DataError
        If an attribute has the wrong dtype or length, such as a mask of several splits.
    """
    from .pyg.read_graph import check_plain, edge_ends, edge_values

    if hasattr(data, "edge_types"):
        return _of_types_pyg(data, weight_attr, time_attr, name, target)
    check_plain(data)
    source, destination = edge_ends(data)
    present = [key for key in PYG_WEIGHTS if key in data and data[key] is not None]
    usable = [key for key in present if key == "edge_weight" or _one_each(data[key], len(source))]  # other edge_attr are no weights
    weights = _weights(data, weight_attr, usable)
    if weights is None and weight_attr == "auto":
        weights = edge_values(data)
    masks = {f"{split}_mask": data[f"{split}_mask"] for split in SPLITS if f"{split}_mask" in data}
    for key, mask in masks.items():
        if len(mask.shape) == 2:
            raise DataError(f"{key}: holds {mask.shape[1]} splits, a column each; choose one, such as data.{key} = data.{key}[:, 0]")
    if usable and weight_attr == "auto":
        values = as_array(usable[0], weights).reshape(-1)
        bad = np.flatnonzero(~(values >= 0))
        if len(bad):
            remedy = "weights are numbers, 0 or more; if these are no weights, use weight_attr=None"
            raise DataError(f"{usable[0]}: entry {bad[0]} is {values[bad[0]]}, and {remedy}")
    columns = {key: data[key] for key in ("x", "y") if key in data}
    weight = "".join(usable[:1]) if weight_attr == "auto" else weight_attr
    if "edge_attr" in present and weight != "edge_attr":
        columns["edge_attr"] = data["edge_attr"]
    return from_edges(source, destination, int(data.num_nodes or 0), weights, **columns, **masks, name=name, target=target)


def from_dgl(
    graph: Any, x: str = "feat", y: str = "label", weight_attr: str | None = "auto", name: str = "graph", target: str | None = None,
    edge_attr: str = "feat", time_attr: str | None = "time",
) -> Any:  # fmt: skip
    """Convert a `DGLGraph`, with one or several types of vertices and edges, to a `Graph`.

    Row v of the adjacency lists the sources of the edges into v. Parallel edges of a graph of one type become one edge, and their weights
    add up; those of other graphs stay apart.

    Parameters
    ----------
    graph : dgl.DGLGraph
        ``train_mask``, ``val_mask`` and ``test_mask`` of its vertices are taken where they are there.
    x, y : str
        The vertex data with features and labels, taken where they are there.
    weight_attr : str or None
        The edge data with weights; None leaves weights out. "auto" takes ``weight``, ``edge_weight`` or ``w`` where
        one of them holds one number for each edge.
    name : str
    target : {"class", "multilabel", "regression"}, optional
        Take y as labels of this target; see `from_edges`.
    edge_attr : str
        The edge data with edge features, taken where they are there.
    time_attr : str, optional
        The data of vertices and edges of a heterogeneous graph with their times: integers.

    Raises
    ------
    UsageError
        If this is no graph, or it has no such weights.
    DataError
        If a column has the wrong dtype or length.
    """
    if not hasattr(graph, "is_homogeneous"):
        raise UsageError(f"got a {type(graph).__name__}; use a DGLGraph")
    if not graph.is_homogeneous:
        keys = [tuple(key) for key in graph.canonical_etypes]
        ends, data = {key: graph.edges(etype=key, order="eid") for key in keys}, {key: dict(graph.edges[key].data) for key in keys}
        types = {kind: (int(graph.num_nodes(kind)), dict(graph.nodes[kind].data)) for kind in graph.ntypes}
        return _graph(types, ends, data, (x, y, edge_attr), DGL_WEIGHTS, weight_attr, time_attr, name, target)
    source, destination = graph.edges(order="eid")
    usable = [key for key in DGL_WEIGHTS if key in graph.edata and _one_each(graph.edata[key], len(source))]
    weights = _weights(graph.edata, weight_attr, usable)
    vertices = graph.ndata
    masks = {f"{split}_mask": vertices[f"{split}_mask"] for split in SPLITS if f"{split}_mask" in vertices}
    columns = {key: vertices[name_there] for key, name_there in (("x", x), ("y", y)) if name_there in vertices}
    if edge_attr in graph.edata and edge_attr != weight_attr:
        columns["edge_attr"] = graph.edata[edge_attr]
    return from_edges(source, destination, int(graph.num_nodes()), weights, **columns, **masks, name=name, target=target)


def _weights(columns: Any, wanted: str | None, usable: list[str]) -> Any:
    """Return the column of weights named `wanted`, or with "auto" the first of `usable`; None if there is none."""
    if wanted == "auto":
        return columns[usable[0]] if usable else None
    if wanted is None:
        return None
    if wanted not in columns:
        raise UsageError(f"the graph has no edge weights {wanted!r}; use {', '.join(sorted(columns.keys())) or 'None: it has no columns'}")
    return columns[wanted]


def _one_each(values: Any, edges: int) -> bool:
    """Return True if a column holds one number for each edge."""
    return values is not None and tuple(values.shape) in ((edges,), (edges, 1))


def _of_types_pyg(data: Any, weight_attr: str | None, time_attr: str | None, name: str, target: str | None) -> Graph:
    """Convert a `torch_geometric.data.HeteroData`."""
    from .pyg.read_graph import edge_ends, edge_values

    stores = {tuple(key): data[key] for key in data.edge_types}
    ends = {key: edge_ends(store) for key, store in stores.items() if "edge_index" in store or "adj_t" in store}
    columns = {key: dict(store.items()) for key, store in stores.items()}
    if weight_attr == "auto":
        for key in ends:
            columns[key].setdefault("edge_weight", edge_values(stores[key]))
    kinds = dict.fromkeys([*data.node_types, *(end for key in stores for end in (key[0], key[2]))])  # some stand in an edge type alone
    types = {kind: (_count(data[kind].num_nodes, kind, ends), dict(data[kind].items())) for kind in kinds}
    return _graph(types, ends, columns, ("x", "y", "edge_attr"), PYG_WEIGHTS, weight_attr, time_attr, name, target)


def _count(known: int | None, kind: str, ends: Mapping[Key, tuple[Any, Any]]) -> int:
    """Return the number of vertices of a type: as the library says, or one more than the largest that an edge names."""
    if known is not None:
        return int(known)
    both = [pair for key, pair_of_ends in ends.items() for pair in zip((key[0], key[2]), pair_of_ends, strict=True)]
    vertices = [np.asarray(end) for end_type, end in both if end_type == kind]
    return 1 + max((int(one.max(initial=-1)) for one in vertices), default=-1)


def _graph(
    types: Mapping[str, tuple[int, dict[str, Any]]], ends: Mapping[Key, tuple[Any, Any]], columns: Mapping[Key, dict[str, Any]],
    names: tuple[str, str, str], auto: tuple[str, ...], weight_attr: str | None, time_attr: str | None, name: str, target: str | None,
) -> Graph:  # fmt: skip
    """Return the graph of columns by type and by relation; `names` are those of features, labels and edge features."""
    x, y, edge_attr = names
    made = {}
    for kind, (count, data) in types.items():
        masks = {split: data[f"{split}_mask"] for split in SPLITS if f"{split}_mask" in data}
        made[kind] = make_type(kind, count, data.get(x), data.get(y), masks, data.get(str(time_attr)), target=target)
    if weight_attr not in (None, "auto") and not any(weight_attr in data for data in columns.values()):
        names_of_columns = sorted({column for data in columns.values() for column in data})
        raise UsageError(f"no relation has edge weights {weight_attr!r}; use {', '.join(names_of_columns) or 'None: there are no columns'}")
    relations = []
    for key, both in ends.items():
        data, count = columns[key], len(both[0])
        weight = next((one for one in auto if _one_each(data.get(one), count)), None) if weight_attr == "auto" else weight_attr
        features = None if weight == edge_attr else data.get(edge_attr)
        stamps = data.get(str(time_attr))
        relations.append(make_relation(made[key[0]], key[1], made[key[2]], both, data.get(str(weight)), stamps, features))
    return Graph.of(tuple(made.values()), tuple(relations), name).validate()
