"""Read a heterogeneous graph from one `.npz` file.

    node_types                 text, shape (t,)                 names of the vertex types
    num_nodes                  integers, shape (t,)             vertices of each
    edge_types                 text, shape (r, 3)               source type, name and destination type of each relation
    TYPE/x, TYPE/y             (n, f) and (n,) or (n, t)        features and labels, as in the `.npz` format of one vertex type
    TYPE/num_classes           integer
    TYPE/train_mask, …         booleans, shape (n,)             also val_mask and test_mask
    TYPE/time                  integers, shape (n,)             when each vertex came to be
    TYPE/NAME                  (n, ...)                         any other column
    SOURCE/NAME/DESTINATION/edge_index    integers, shape (2, m)    sources, destinations; edges may repeat
    SOURCE/NAME/DESTINATION/edge_weight, /edge_attr, /time    (m,), (m, d) and integers (m,)

Only the first three and the `edge_index` of each relation are required. ``numpy.savez(path, **arrays)`` writes such a file.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import DataError, instead_of
from ...graph import Graph, Key, Relation, VertexType
from ...vertex_table import SPLITS
from ..columns import Array
from ..npy import Archive
from .hetero_parts import make_relation, make_type, named

_HEADS = {"node_types": ("U", 1), "num_nodes": ("iu", 1), "edge_types": ("U", 2)}
_MASKS = {f"{split}_mask": split for split in SPLITS}
_OF_EDGES = ("edge_index", "edge_weight", "edge_attr", "time")


def read(path: str | os.PathLike[str], target: str | None = None) -> Graph:
    """Read the graph of a file; its edges keep their place in `edge_index` as `Relation.edge_ids`.

    Parameters
    ----------
    target : {"class", "multilabel", "regression"}, optional
        Of all labels; see `bulksample.labels.as_labels`.

    Raises
    ------
    DataError
        If an array is missing, unknown or wrong; the message names it, and the row if there is one. Pickled objects are never read.
    """
    path = Path(path)
    with Archive(path) as archive:
        arrays = {name: archive.read(name) for name in archive.names}
    return named(path.name, lambda: _graph(arrays, path.stem, target))


def _graph(arrays: dict[str, Array], name: str, target: str | None) -> Graph:
    types, counts, keys = _heads(arrays)
    own = _by_part(arrays, types, keys)
    made = {kind: _type(kind, count, own[kind], target) for kind, count in zip(types, counts, strict=True)}
    relations = tuple(_relation(made, key, own["/".join(key)]) for key in keys)
    return Graph.of(tuple(made.values()), relations, name).validate()


def _heads(arrays: dict[str, Array]) -> tuple[list[str], list[int], list[Key]]:
    """Return the types, their numbers of vertices, and the keys of the relations."""
    for head, (kinds, ndim) in _HEADS.items():
        if head not in arrays:
            raise DataError(f"has no {head}; use node_types, num_nodes and edge_types")
        found = arrays[head]
        if found.ndim != ndim or (found.dtype.kind not in kinds and found.size):
            raise DataError(
                f"{head}: got {found.dtype} of shape {found.shape}; use {'text' if kinds == 'U' else 'integers'} of {ndim} dimension(s)"
            )
    types, counts, table = (arrays[head].tolist() for head in _HEADS)
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


def _by_part(arrays: dict[str, Array], types: list[str], keys: list[Key]) -> dict[str, dict[str, Array]]:
    """Return the arrays of each type and relation, by their last names."""
    own: dict[str, dict[str, Array]] = {part: {} for part in (*types, *("/".join(key) for key in keys))}
    for name, array in arrays.items():
        part, _, last = name.rpartition("/")
        if name in _HEADS:
            continue
        if part not in own or ("/" in part and last not in _OF_EDGES):
            raise DataError(
                f"{name}: belongs to no type or relation; use TYPE/COLUMN, or SOURCE/NAME/DESTINATION/ and {', '.join(_OF_EDGES)}"
            )
        own[part][last] = array
    return own


def _type(name: str, count: int, own: dict[str, Array], target: str | None) -> VertexType:
    masks = {split: own.pop(column) for column, split in _MASKS.items() if column in own}
    classes = own.pop("num_classes", None)
    if classes is not None and (classes.ndim or classes.dtype.kind not in "iu"):
        raise DataError(f"{name}/num_classes: got {classes.dtype} of shape {classes.shape}; use one integer")
    x, y, times = (own.pop(column, None) for column in ("x", "y", "time"))
    return make_type(name, count, x, y, masks, times, own, None if classes is None else int(classes), target)


def _relation(types: dict[str, VertexType], key: Key, own: dict[str, Array]) -> Relation:
    what = "/".join(key)
    if "edge_index" not in own:
        raise DataError(f"{what}/edge_index: is missing; every relation has one")
    ends = own["edge_index"]
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise DataError(f"{what}/edge_index: got {ends.dtype} of shape {ends.shape}; use integers of shape (2, m)")
    features, times = own.get("edge_attr"), own.get("time")
    return make_relation(types[key[0]], key[1], types[key[2]], (ends[0], ends[1]), own.get("edge_weight"), times, features)
