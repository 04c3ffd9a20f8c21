"""A graph from arrays in memory: `bulksample.from_edges`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..errors import DataError, UsageError, is_whole
from ..graph import Graph
from ..graph.labels import gap_warning
from ..graph.times import UNITS, as_times
from .columns import Array, as_array, typed, with_columns
from .listed_graph import listed_graph


def from_edges(
    source: Any, destination: Any, num_nodes: int | None = None, weights: Any = None, x: Any = None, y: Any = None, *,
    edge_attr: Any = None, train_mask: Any = None, val_mask: Any = None, test_mask: Any = None, num_classes: int | None = None,
    target: str | None = None, undirected: bool = False, self_loops: str = "keep", duplicates: str | None = None, name: str = "graph",
    times: Any = None, time_unit: str = "ns",
) -> Graph:  # fmt: skip
    """Build a graph from its edges, in any order. Arrays may be lists, numpy arrays or torch tensors.

    Parameters
    ----------
    source, destination : integers, shape (e,)
        Edge i runs from ``source[i]`` to ``destination[i]``: the destination aggregates from the source, so row v of
        the adjacency lists the sources of the edges into v.
    num_nodes : int, optional
        Number n of vertices. Unless given: the rows of x, y or a mask if there are any, else the largest id plus one.
    weights : numbers, shape (e,), optional
        Edge weights; finite and not negative.
    x : numbers, shape (n, f), optional
        Features; stored as float32, or as float16 if they are that.
    y : numbers, shape (n,), (n, 1) or (n, t), optional
        Integers of shape (n,) are classes from 0; -1 marks a vertex without a label. Columns of 0 and 1 are several classes at
        once; NaN, and -1 of integers, is a missing label. Other floats are numbers to predict.
    edge_attr : numbers, shape (e, d), optional
        Features of the edges; stored as float32, or as float16 if they are that.
    train_mask, val_mask, test_mask : booleans, shape (n,), optional
        Disjoint, and only on vertices that have a class, if y are classes.
    num_classes : int, optional
        One more than the largest class unless given. A warning counts the numbers below it that no vertex has.
    target : {"class", "multilabel", "regression"}, optional
        Take y as labels of this target; needed for floats that are all whole.
    undirected : bool
        Add the edge v -> u for every edge u -> v.
    self_loops : {"keep", "drop", "error"}
    duplicates : {"sum", "max", "error"} without times, {"keep", "error"} with times
        The weight of an edge that is listed more than once, and its features; by default their sum. Without weights, "sum" and "max" keep
        it once. With times all edges are kept.
    name : str
    times : integers or datetime64, shape (e,), optional
        When each edge came to be. The graph then has one relation, ``graph.relations[0]``, whose parallel edges stay apart.
    time_unit : str
        The unit in which datetime64 is counted from 1970: D, h, m, s, ms, us or ns.

    Raises
    ------
    DataError
        If an array has the wrong dtype or length, or names a vertex that is not there; the message names the array.
    """
    ends = [(label, as_array(label, ids)) for label, ids in (("source", source), ("destination", destination))]
    # numpy takes an empty list for floats
    source, destination = (typed(label, ids if ids.size else ids.astype(np.int64), "iu", 1, np.int64) for label, ids in ends)
    if len(source) != len(destination):
        raise DataError(f"source and destination must have one entry for each edge; got {len(source)} and {len(destination)}")
    x, y = (None if part is None else as_array(label, part) for label, part in (("x", x), ("y", y)))
    masks = {"train": train_mask, "val": val_mask, "test": test_mask}
    masks = {split: as_array(f"{split} mask", mask) for split, mask in masks.items() if mask is not None}
    columns = {"x": x, "y": y, **{f"{split}_mask": mask for split, mask in masks.items()}}
    n = _count(num_nodes, (source, destination), {name: column for name, column in columns.items() if column is not None})
    real = None if weights is None else as_array("weights", weights)
    if real is not None:
        if real.shape not in ((len(source),), (len(source), 1)):
            raise DataError(f"weights: got shape {real.shape}; use one number for each of the {len(source)} edges")
        real = typed("weights", real.reshape(-1), "iuf", 1, np.float64)
    if time_unit not in UNITS:
        raise UsageError(f"time_unit was {time_unit!r}; use {', '.join(UNITS)}")
    listed = times.detach().cpu() if hasattr(times, "detach") else times
    stamps = None if times is None else as_times("times", listed, len(source), time_unit)
    rows = None if edge_attr is None else as_array("edge_attr", edge_attr)
    graph = listed_graph(
        (source, destination), n, real, stamps, rows, undirected=undirected, self_loops=self_loops, duplicates=duplicates
    )  # fmt: skip
    graph = with_columns(graph.replace(name=name), x, y, masks, num_classes, target)
    if num_classes is None and (gaps := gap_warning(graph.labels, graph.num_classes)):
        warnings.warn(gaps, stacklevel=2)
    return graph


def _count(num_nodes: int | None, ends: tuple[Array, Array], columns: dict[str, Array]) -> int:
    """Return the number of vertices: as given, or that of the columns, or of the ids."""
    if num_nodes is not None:
        if not is_whole(num_nodes, 0):
            raise DataError(f"num_nodes: got {num_nodes!r}; use a number of vertices, 0 or more")
        return int(num_nodes)
    least = 1 + max(int(ids.max(initial=-1)) for ids in ends)
    rows = {name: len(column) for name, column in columns.items() if column.ndim}
    for name, count in rows.items():
        if count < least:
            raise DataError(f"{name}: has {count} rows, but an edge names vertex {least - 1}; use one row for each vertex, {least} or more")
    return max(rows.values(), default=least)
