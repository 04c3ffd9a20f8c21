"""A graph of several vertex types in an `.npz` file: lists of edges, and names that begin with their type or relation.

Only the first three arrays and the `edge_index` of each relation are required::

    node_types                 text, shape (t,)                 names of the vertex types
    num_nodes                  integers, shape (t,)             vertices of each
    edge_types                 text, shape (r, 3)               source type, name and destination type of each relation
    TYPE/x, TYPE/y, …          as those of a plain graph, see `npz`
    TYPE/time                  integers, shape (n,)             when each vertex came to be
    SOURCE/NAME/DESTINATION/edge_index    integers, shape (2, m)    sources, destinations; edges may repeat
    SOURCE/NAME/DESTINATION/edge_weight, /edge_attr, /time    (m,), (m, d) and integers (m,)
"""

from __future__ import annotations

from functools import partial

from ..errors import DataError, instead_of, named
from ..graph import Graph, Key, Relation, VertexType
from ..graph.times import as_times
from .columns import make_relation
from .npz_vertices import Arrays, vertices

HEADS = {"node_types": ("U", 1), "num_nodes": ("iu", 1), "edge_types": ("U", 2)}
_OF_EDGES = ("edge_index", "edge_weight", "edge_attr", "time")


def graph_of_types(arrays: Arrays, name: str, target: str | None) -> Graph:
    """Return the graph of all arrays of a file; raises `DataError` naming the array."""
    types, counts, keys = _heads(arrays)
    parts, made = _by_part(arrays, types, keys), {}
    for kind, count in zip(types, counts, strict=True):
        stamps = parts[kind].pop("time", None)
        times = None if stamps is None else as_times(f"times of type {kind!r}", stamps, count)
        made[kind] = named(f"type {kind!r}", partial(vertices, kind, count, parts[kind], times, target))
    return Graph.of(made.values(), [_relation(made, key, parts["/".join(key)]) for key in keys], name).validate()


def _heads(arrays: Arrays) -> tuple[list[str], list[int], list[Key]]:
    """Return the types, their numbers of vertices, and the keys of the relations."""
    for head, (kinds, ndim) in HEADS.items():
        if head not in arrays:
            raise DataError(f"has no {head}; use node_types, num_nodes and edge_types")
        array = arrays[head]
        if array.ndim != ndim or (array.dtype.kind not in kinds and array.size):
            use = "text" if kinds == "U" else "integers"
            raise DataError(f"{head}: got {array.dtype} of shape {array.shape}; use {use} of {ndim} dimension(s)")
    types, counts, table = (arrays[head].tolist() for head in HEADS)
    if len(types) != len(counts) or min(counts, default=0) < 0:
        raise DataError(f"num_nodes: got {counts} for the types {types}; use one number, 0 or more, for each")
    if arrays["edge_types"].shape[1] != 3 and table:
        raise DataError(f"edge_types: got shape {arrays['edge_types'].shape}; use source, name and destination of each relation")
    keys = [(source, name, destination) for source, name, destination in table]
    for word in (*types, *(part for key in keys for part in key)):
        if not word or "/" in word:
            raise DataError(f"the name {word!r} cannot be part of the name of an array; use names without '/'")
    for source, name, destination in keys:
        for end in (source, destination):
            if end not in types:
                raise DataError(f"edge_types: ({source}, {name}, {destination}): there is no type {end!r}; {instead_of(end, types)}")
    return types, counts, keys


def _by_part(arrays: Arrays, types: list[str], keys: list[Key]) -> dict[str, Arrays]:
    """Return the arrays of each type and relation, by their last names."""
    parts: dict[str, Arrays] = {part: {} for part in (*types, *("/".join(key) for key in keys))}
    for name, array in arrays.items():
        part, _, last = name.rpartition("/")
        if name in HEADS:
            continue
        if part not in parts or ("/" in part and last not in _OF_EDGES):
            use = f"use TYPE/COLUMN, or SOURCE/NAME/DESTINATION/ and {', '.join(_OF_EDGES)}"
            raise DataError(f"{name}: belongs to no type or relation; {use}")
        parts[part][last] = array
    return parts


def _relation(types: dict[str, VertexType], key: Key, arrays: Arrays) -> Relation:
    what = "/".join(key)
    if "edge_index" not in arrays:
        raise DataError(f"{what}/edge_index: is missing; every relation has one")
    ends = arrays["edge_index"]
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise DataError(f"{what}/edge_index: got {ends.dtype} of shape {ends.shape}; use integers of shape (2, m)")
    features, times = arrays.get("edge_attr"), arrays.get("time")
    return make_relation(types[key[0]], key[1], types[key[2]], (ends[0], ends[1]), arrays.get("edge_weight"), times, features)
