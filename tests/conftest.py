"""One fixture runs a test on every back end present; the zoo holds the graphs on which samplers go wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from bulksample import CSR, LocalAdjacency, backends
from bulksample.sparse import fixed_point

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(params=["reference", "native"])
def backend(request):
    if request.param not in backends.available():
        pytest.skip(f"{request.param}: {backends.native.unavailable_because()}")
    return backends.make(request.param)


@pytest.fixture(scope="session")
def reference():
    return backends.make("reference")


def random_matrix(n, edges, seed, weighted=False, skew=1.0):
    """Random rows; columns bent towards 0 by `skew`; some rows are empty."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, n, edges)
    rows = rows[rows % 7 != 3]  # every seventh vertex is isolated
    columns = (n * rng.random(len(rows)) ** skew).astype(np.int64)
    matrix = CSR.from_edges(rows, columns, (n, n))
    if not weighted:
        return matrix
    weights, _ = fixed_point(rng.integers(1, 1000, matrix.nnz) * (rng.random(matrix.nnz) > 0.15), n)
    return matrix.with_values(weights)


def star(leaves):
    """Vertex 0 and its leaves 1 .. n - 1, joined both ways."""
    others = np.arange(1, leaves + 1)
    ends = np.concatenate([np.zeros(leaves, int), others]), np.concatenate([others, np.zeros(leaves, int)])
    return CSR.from_edges(*ends, (leaves + 1, leaves + 1))


def complete(n):
    rows, columns = np.divmod(np.arange(n * n), n)
    return CSR.from_edges(rows[rows != columns], columns[rows != columns], (n, n))


def empty(n):
    return CSR(np.zeros(n + 1, np.int64), np.empty(0, np.int32), None, (n, n))


def loops(n):
    return CSR(np.arange(n + 1), np.arange(n, dtype=np.int32), None, (n, n))


ZOO = {
    "random": random_matrix(200, 3000, 1),
    "skewed": random_matrix(300, 4000, 2, skew=3.0),
    "weighted": random_matrix(200, 3000, 3, weighted=True),
    "sparse": random_matrix(400, 500, 4),
    "star": star(60),
    "complete": complete(24),
    "isolated": empty(30),
    "loops": loops(20),
    "single": empty(1),
    "pair": complete(2),
}


@pytest.fixture(params=ZOO)
def matrix(request):
    return ZOO[request.param]


@pytest.fixture
def adjacency(matrix, backend):
    return LocalAdjacency(matrix, backend)
