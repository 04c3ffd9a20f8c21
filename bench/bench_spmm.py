"""Compare sparse-times-dense products: our kernel, torch's CSR product, and a dense product.

Two choices of the package rest on it: the kernel of `SparseRows.times`, and when a layer multiplies by its weights before it aggregates
(`layers._DENSE_COST`). The kernels are checked against each other first.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from harness import alternate, milliseconds, summary

from bulksample import backends
from bulksample.errors import UsageError
from bulksample.nn.aggregate import SparseRows

# destinations, sources, edges a row, width, weighted: the layers of a 3-layer model with fanouts 15,10,5, and sparse features
SIZES = [
    (1024, 6000, 5, 256, False),
    (6000, 40000, 10, 256, False),
    (40000, 250000, 15, 100, False),
    (40000, 250000, 15, 100, True),
    (20000, 8000, 60, 128, True),
    (20000, 767, 267, 128, True),
]


def by_torch(matrix: SparseRows) -> torch.Tensor:
    """The same matrix for torch's own product."""
    indptr, indices = torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices.astype(np.int64))
    return torch.sparse_csr_tensor(indptr, indices, matrix.weights_or_ones(), matrix.shape)


def measure(size: tuple[int, int, int, int, bool], rounds: int) -> dict:
    destinations, sources, per_row, width, weighted = size
    rng = np.random.default_rng(0)
    indices = np.sort(rng.integers(0, sources, (destinations, per_row)), axis=1).astype(np.int32).reshape(-1)
    weights = rng.random(len(indices), dtype=np.float32) if weighted else None
    matrix = SparseRows(np.arange(destinations + 1) * per_row, indices, weights, sources)
    x = torch.from_numpy(rng.standard_normal((sources, width), dtype=np.float32))
    weight, beside = torch.randn(width, width), by_torch(matrix)
    calls = {"native": lambda: matrix.times(x), "torch": lambda: beside @ x, "dense": lambda: x @ weight}
    torch.testing.assert_close(calls["native"](), calls["torch"](), rtol=1e-4, atol=1e-3)
    figures = alternate({name: milliseconds(call) for name, call in calls.items()}, rounds)
    per_edge, per_product = min(figures["native"]) / (len(indices) * width), min(figures["dense"]) / (sources * width * width)
    return {
        "destinations": destinations,
        "sources": sources,
        "edges": len(indices),
        "width": width,
        "weighted": weighted,
        "milliseconds": {name: summary(values) for name, values in figures.items()},
        "dense_cost": per_product / per_edge,
    }


def spmm(threads: int = 1, rounds: int = 7) -> dict[str, Any]:
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", UserWarning)
    if reason := backends.why_not("native"):
        raise UsageError(f"there is nothing to compare with torch: {reason}")
    return {"torch": torch.__version__, "threads": threads, "sizes": [measure(size, rounds) for size in SIZES]}
