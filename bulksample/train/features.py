"""Input features by vertex: dense or sparse, in memory or mapped from a file, normalised as they are fetched.

    X_batch = D Q X        Q selects the vertices of a minibatch, D scales each row to unit norm

Sparse features stay sparse; the first layer multiplies with them.
"""

from __future__ import annotations

import numpy as np
import torch

from ..errors import UsageError
from ..graph import Graph
from ..sparse import CSR
from .aggregate import SparseRows, gather_rows

NORMS = ("none", "l1", "l2")
_CHUNK = 2**24  # numbers looked at together, where features may be larger than memory


class Features:
    """The features of a graph.

    Parameters
    ----------
    graph : Graph
    norm : {"none", "l1", "l2"}
        Divide each row by its l1 or l2 norm; rows of zeros stay.

    Raises
    ------
    UsageError
        If the graph has no features, or the norm is unknown.
    """

    def __init__(self, graph: Graph, norm: str = "none") -> None:
        if graph.features is None:
            raise UsageError(f"graph {graph.name!r} has no features; training needs some")
        if norm not in NORMS:
            raise UsageError(f"there is no feature norm {norm!r}; {', '.join(NORMS)} would fit")
        self._x = graph.features
        self.width = graph.num_features
        self.is_sparse = isinstance(self._x, CSR)
        self._scale = None if norm == "none" else _inverse_norms(self._x, norm)

    def fetch(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        """The rows of some vertices, in their order: float32, shape (N, f); sparse where the features are."""
        return self._fetch_sparse(vertices) if isinstance(self._x, CSR) else self._fetch_dense(vertices)

    def _fetch_dense(self, vertices: np.ndarray) -> torch.Tensor:
        assert isinstance(self._x, np.ndarray)
        rows = torch.from_numpy(gather_rows(self._x, vertices))
        return rows if self._scale is None else rows * torch.from_numpy(self._scale[vertices])[:, None]

    def _fetch_sparse(self, vertices: np.ndarray) -> SparseRows:
        assert isinstance(self._x, CSR)
        assert self._x.values is not None
        degrees = self._x.degrees[vertices]
        indptr = np.concatenate([[0], np.cumsum(degrees)])
        entry = np.arange(indptr[-1]) + np.repeat(self._x.indptr[vertices] - indptr[:-1], degrees)
        values = self._x.values[entry]
        if self._scale is not None:
            values = values * np.repeat(self._scale[vertices], degrees)
        return SparseRows(indptr, self._x.indices[entry], values, self.width)


def _inverse_norms(x: np.ndarray | CSR, norm: str) -> np.ndarray:
    """One over the norm of each row, 1 where the row is zero: float32, shape (n,)."""
    power = {"l1": np.abs, "l2": np.square}[norm]
    if isinstance(x, CSR):
        assert x.values is not None
        totals = np.bincount(x.row_of_entry(), power(x.values.astype(np.float64)), minlength=x.shape[0])
    else:
        step = max(1, _CHUNK // max(1, x.shape[1]))
        parts = [power(x[first : first + step].astype(np.float64)).sum(1) for first in range(0, len(x), step)]
        totals = np.concatenate([np.empty(0), *parts])
    norms = np.sqrt(totals) if norm == "l2" else totals
    return np.divide(1.0, norms, out=np.ones_like(norms), where=norms > 0).astype(np.float32)
