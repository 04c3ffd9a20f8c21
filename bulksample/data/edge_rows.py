"""Edge features by entry of the adjacency: row i belongs to entry i, whatever order the edges were listed in."""

from __future__ import annotations

import numpy as np

from ..errors import DataError
from ..sparse import CSR
from .columns import Array, dense_features


def edge_rows(
    matrix: CSR, sources: np.ndarray, targets: np.ndarray, rows: Array, *, undirected: bool = False, duplicates: str = "sum"
) -> Array:
    """Return the features of the entries of an adjacency from those of a list of edges.

    Parameters
    ----------
    matrix : CSR, shape (n, n)
        The adjacency that `edges.adjacency` made of this list; row v holds u for an edge u -> v.
    sources, targets : integers, shape (e,)
    rows : numbers, shape (e, d) or (e,)
    undirected : bool
        The entry v -> u takes the row of u -> v too.
    duplicates : {"sum", "max", "error"}
        The row of an edge that is listed more than once is the sum or the maximum of its rows.

    Returns
    -------
    float16 if `rows` are that, else float32; shape (nnz, d). Entries of no listed edge are zeros; dropped self loops are left out.

    Raises
    ------
    DataError
        If there is not one row for each edge.
    """
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != len(sources):
        raise DataError(f"edge_attr: got shape {rows.shape}; use one row for each of the {len(sources)} edges")
    rows = dense_features("edge_attr", rows)
    made, taken = np.zeros((matrix.nnz, rows.shape[1]), rows.dtype), np.zeros(matrix.nnz, bool)
    for u, v in ((sources, targets), (targets, sources)) if undirected else ((sources, targets),):
        entries = matrix.find(v, u)
        listed = np.flatnonzero((entries >= 0) & ((u != v) | (u is sources)))  # a self loop has one direction
        entries = entries[listed]
        first = np.zeros(len(entries), bool)
        first[np.unique(entries, return_index=True)[1]] = True
        first &= ~taken[entries]
        made[entries[first]], taken[entries] = rows[listed[first]], True
        if not first.all():
            merge = np.maximum if duplicates == "max" else np.add
            merge.at(made, entries[~first], rows[listed[~first]])
    return made
