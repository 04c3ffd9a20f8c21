"""A graph of one vertex type with a list of edges in an `.npz` file, by the names of torch_geometric::

edge_index                 integers, (2, m)                 sources and destinations
edge_weight, edge_attr     (m,) and (m, d)
edge_time                  integers, (m,)                   when each edge came to be; edges that repeat then stay apart
num_nodes                  an integer                       by default the rows of x, y, a mask, node_time, else the edges tell
x, y, train_mask, …        as those of `npz`
node_time                  integers, (n,)                   when each vertex came to be
NAME                       (n, ...)                         any other column
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DataError
from ..graph import NODE, Graph
from ..graph.times import as_times
from .columns import Array
from .edges import EdgeTally
from .listed_graph import check_promise, listed_graph
from .npz_vertices import OF_VERTICES, Arrays, take, vertices

_OF_EDGES = ("edge_index", "edge_weight", "edge_attr", "edge_time", "num_nodes", "node_time")
NAMES = {*_OF_EDGES, *OF_VERTICES}


def graph_of_edges(arrays: Arrays, file_bytes: int, target: str | None, rules: dict[str, Any], tally: EdgeTally) -> Graph:
    """Return the graph of a file of `file_bytes`; `rules` are those of `listed_graph`. Raises `DataError` naming the array."""
    ends = arrays["edge_index"]
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise DataError(f"edge_index: got {ends.dtype} of shape {ends.shape}; use integers of shape (2, m): sources, then destinations")
    for name in ("time", "times"):
        if name in arrays:
            raise DataError(f"{name}: may be of vertices or of edges; name it node_time or edge_time")
    if ends.dtype == np.uint64 and ends.size and ends.max() >= 2**63:
        raise DataError("edge_index: names a vertex of 2**63 or more; number them from 0")
    ends, m = ends.astype(np.int64, copy=False), ends.shape[1]
    columns = {name: array for name, array in arrays.items() if name not in _OF_EDGES}
    n = _count(arrays, columns, 1 + int(ends.max(initial=-1)))
    check_promise(n, file_bytes, "num_nodes" if "num_nodes" in arrays else "edge_index", 2**10)
    weights = arrays.get("edge_weight")
    if weights is not None:
        if weights.dtype.kind not in "biuf" or weights.shape not in ((m,), (m, 1)):
            raise DataError(f"edge_weight: got {weights.dtype} of shape {weights.shape}; use one number for each of the {m} edges")
        weights = weights.reshape(-1)
        if len(bad := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))):
            raise DataError(f"edge_weight: entry {bad[0]} is {weights[bad[0]]}; weights must be finite and not negative")
    stamps = as_times("edge_time", arrays["edge_time"], m) if "edge_time" in arrays else None
    graph = listed_graph((ends[0], ends[1]), n, weights, stamps, arrays.get("edge_attr"), tally=tally, **rules)
    born = as_times("node_time", arrays["node_time"], n) if "node_time" in arrays else None
    return graph.replace(types=(vertices(NODE, n, columns, born, target),))


def _count(arrays: Arrays, columns: dict[str, Array], least: int) -> int:
    """Return the number of vertices: as the file says, or that of the rows of known columns, or `least`, which the edges need."""
    given = arrays.get("num_nodes")
    if given is not None:
        stated = take({"num_nodes": given.reshape(-1)}, "num_nodes", "iu", 1, np.int64)
        if stated is None or stated.shape != (1,) or stated[0] < least:
            raise DataError(f"num_nodes: is {given.tolist()}, and the edges need {least}; use one number, {least} or more")
        return int(stated[0])
    rows = {name: len(array) for name, array in columns.items() if name in OF_VERTICES and array.ndim and not name.startswith("x_")}
    if "x_indptr" in columns:
        rows["x_indptr"] = columns["x_indptr"].size - 1
    if "node_time" in arrays:
        rows["node_time"] = arrays["node_time"].size
    for name, count in rows.items():
        if count < least:
            raise DataError(f"{name}: has {count} rows, but an edge names vertex {least - 1}; use one row for each vertex, {least} or more")
    return max(rows.values(), default=least)
