"""Features of vertices from features of edges, for sets that have only these, such as ogbn-proteins.

    x_v = mean of the features of the edges into v          zeros where there is none

These are the features of OGB's own baseline for ogbn-proteins. Edges are read in pieces: the memory is that of the result.

References
----------
Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", 2020, section on ogbn-proteins.
"""

from __future__ import annotations

import numpy as np


class EdgeMeans:
    """The mean over the edges into each vertex, from a list of edges one piece at a time.

    Parameters
    ----------
    n : int
        Number of vertices.
    undirected : bool
        Each edge also leads back, with the same features.
    """

    def __init__(self, n: int, undirected: bool) -> None:
        self._undirected = undirected
        self._sums, self._counts = np.zeros((n, 0)), np.zeros(n, np.int64)

    def add(self, sources: np.ndarray, targets: np.ndarray, rows: np.ndarray) -> None:
        """Add the features of some edges, shape (some, f); an edge that is listed twice counts twice."""
        n = len(self._counts)
        self._sums = self._sums if self._sums.shape[1] else np.zeros((n, rows.shape[1]))
        for into in (targets, sources) if self._undirected else (targets,):
            self._counts += np.bincount(into, minlength=n)
            for column in range(rows.shape[1]):
                self._sums[:, column] += np.bincount(into, rows[:, column], minlength=n)

    @property
    def means(self) -> np.ndarray:
        """The means: float32, shape (n, f)."""
        means: np.ndarray = (self._sums / np.maximum(self._counts, 1)[:, None]).astype(np.float32)
        return means
