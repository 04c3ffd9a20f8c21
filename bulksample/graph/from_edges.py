"""A relation from a list of edges in any order; parallel edges stay apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DataError
from ..sparse import CSR, fixed_point, row_pointers
from .times import as_times
from .types import Relation, VertexType, spelled


def relation_from_edges(
    source: VertexType, name: str, destination: VertexType, sources: Any, destinations: Any, *, weights: Any = None, times: Any = None,
    features: np.ndarray | None = None,
) -> Relation:  # fmt: skip
    """Build a relation: edge i runs from vertex ``sources[i]`` of one type to vertex ``destinations[i]`` of another.

    Parameters
    ----------
    source, destination : VertexType
        They may be the same.
    name : str
    sources, destinations : integers, shape (m,)
    weights : numbers, shape (m,), optional
        Finite and not negative.
    times : integers or datetime64, shape (m,), optional
        See `as_times`.
    features : float32 or float16, shape (m, d), optional

    Returns
    -------
    Relation
        Entries are sorted by (destination, source, position in the list); ``relation.edge_ids`` holds the positions.

    Raises
    ------
    DataError
        Naming the relation and the row: an end is no vertex of its type, arrays differ in length or dtype, a weight is negative or not
        finite, or a time is missing.

    Notes
    -----
    Sorts m keys, unless they are sorted already.
    """
    what = f"relation {spelled((source.name, name, destination.name))}"
    u, v = _ends(what, "sources", sources, source), _ends(what, "destinations", destinations, destination)
    if len(u) != len(v):
        raise DataError(f"{what}: got {len(u)} sources and {len(v)} destinations; use one of each for every edge")
    keys = v * max(source.count, 1) + u
    order = None if (keys[1:] >= keys[:-1]).all() else np.argsort(keys, kind="stable")
    stamps = None if times is None else as_times(f"times of {what}", times, len(u))
    integers, unit = (None, 1.0) if weights is None else _fixed(what, weights, u, v)
    if features is not None and len(features) != len(u):
        raise DataError(f"{what}: got {len(features)} rows of features; use one for each of the {len(u)} edges")
    columns = [array if array is None or order is None else array[order] for array in (u, integers, stamps, features)]
    indptr = row_pointers(np.bincount(v, minlength=destination.count))
    assert columns[0] is not None
    matrix = CSR(indptr, columns[0].astype(np.int32), columns[1], (destination.count, source.count))
    return Relation(source.name, name, destination.name, matrix, unit, order, columns[2], columns[3])


def _ends(what: str, label: str, given: Any, kind: VertexType) -> np.ndarray:
    """Return one end of the edges as int64; raises `DataError` unless all are vertices of their type."""
    ends = np.asarray(given)
    if isinstance(given, list | tuple) and not given:  # numpy takes an empty list for floats
        ends = ends.astype(np.int64)
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        raise DataError(f"{what}: {label}: got {ends.dtype} of shape {ends.shape}; use integers of shape (m,)")
    bad = np.flatnonzero((ends < 0) | (ends >= kind.count))
    if len(bad):
        found = f"row {bad[0]} names vertex {ends[bad[0]]} of type {kind.name!r}"
        raise DataError(f"{what}: {label}: {found}; it has {kind.count} vertices: use 0 to {kind.count - 1}")
    return ends.astype(np.int64, copy=False)


def _fixed(what: str, weights: Any, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, float]:
    """Return fixed-point weights, whose sums over a row or a column stay within 2**62, and their unit."""
    real = np.asarray(weights)
    if real.shape != u.shape or real.dtype.kind not in "biuf":
        raise DataError(f"{what}: weights: got {real.dtype} of shape {real.shape}; use one number for each of the {len(u)} edges")
    most = max(int(np.bincount(ends, minlength=1).max()) for ends in (u, v))
    try:
        return fixed_point(real, most)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None
