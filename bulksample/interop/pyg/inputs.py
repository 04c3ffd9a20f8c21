"""Check what users give to the drop-in loaders: attributes, numbers, vertices and pairs of vertices."""

from __future__ import annotations

from math import inf
from typing import Any

import torch

from ...errors import UsageError, is_whole
from ...graph.selection import vertex_ids
from .read_graph import int_pairs


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


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return a whole number of Python or numpy as int; raises `UsageError` for anything else, bools too, and outside its bounds."""
    if is_whole(value, least, inf if most is None else most):
        return int(value)
    bounds = f"of at least {least}" if most is None else f"in {least} .. {most}"
    raise UsageError(f"{name} must be a whole number {bounds}; got {value!r}")


def vertex_pairs(name: str, pairs: Any, n: int | tuple[int, int]) -> torch.Tensor:
    """Return pairs of vertices as int64 of shape (2, m).

    Raises `DataError` for another shape or dtype, `UsageError` for ids beyond n, or beyond the numbers of sources and of destinations.
    """
    counts = n if isinstance(n, tuple) else (n, n)
    for end, ids, count in zip(("source", "destination"), checked := int_pairs(name, pairs), counts, strict=True):
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
