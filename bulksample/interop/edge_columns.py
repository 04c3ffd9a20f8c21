"""The names under which torch_geometric and DGL keep weights of edges."""

from __future__ import annotations

from typing import Any

PYG_WEIGHTS = ("edge_weight", "edge_attr")
DGL_WEIGHTS = ("weight", "edge_weight", "w")


def one_each(values: Any, edges: int) -> bool:
    """Return True if a column holds one number for each edge."""
    return values is not None and tuple(values.shape) in ((edges,), (edges, 1))
