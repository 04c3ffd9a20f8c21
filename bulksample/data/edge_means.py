"""Features of vertices from features of edges, for sets that have only these, such as ogbn-proteins.

    x_v = mean of the features of the edges into v          zeros where there is none

These are the features of OGB's own baseline for ogbn-proteins. Edges are read in pieces: the memory is that of the result.

References
----------
Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", 2020, section on ogbn-proteins.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..errors import DataError


def edge_means(pieces: Iterable[np.ndarray], sources: np.ndarray, targets: np.ndarray, n: int, undirected: bool, name: str) -> np.ndarray:
    """Return the mean over the edges into each vertex: float32, shape (n, f).

    Parameters
    ----------
    pieces : iterable of arrays, shape (some, f)
        The features of consecutive edges, in the order of `sources` and `targets`; an edge that is listed twice counts twice.
    undirected : bool
        Each edge also leads back, with the same features.
    name : str
        The name of the features, which begins a message.

    Raises
    ------
    DataError
        If there is not one finite row for each edge.
    """
    first, sums = 0, np.zeros((n, 0))
    for piece in pieces:
        bad = np.flatnonzero(~np.isfinite(piece).all(axis=1))
        if len(bad):
            raise DataError(f"{name}: row {first + bad[0]} is not finite")
        ends = [targets[first : first + len(piece)], *([sources[first : first + len(piece)]] if undirected else [])]
        if len(ends[0]) != len(piece):
            raise DataError(f"{name}: has more rows than the {len(sources)} edges")
        sums = sums if first else np.zeros((n, piece.shape[1]))
        for into in ends:
            for column in range(piece.shape[1]):
                sums[:, column] += np.bincount(into, piece[:, column], minlength=n)
        first += len(piece)
    if first != len(sources):
        raise DataError(f"{name}: has {first} rows; there are {len(sources)} edges")
    counts = np.bincount(targets, minlength=n) + (np.bincount(sources, minlength=n) if undirected else 0)
    means: np.ndarray = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return means
