"""The graph that plans expect: random, directed, of one degree; and the requests that the tests of plans share."""

from __future__ import annotations

from functools import cache

import numpy as np

from bulksample import CSR
from bulksample.plan import PlanRequest

N, DEGREE = 20_000, 20


@cache
def digraph():
    """Every row names DEGREE distinct vertices at random."""
    rng = np.random.default_rng(0)
    columns = np.sort(np.stack([rng.choice(N, DEGREE, replace=False) for _ in range(N)]), axis=1).astype(np.int32)
    return CSR(np.arange(N + 1) * DEGREE, columns.reshape(-1), None, (N, N))


def request(**changes):
    return PlanRequest.of(**({"vertices": N, "edges": N * DEGREE, "feature_width": 10, "fanouts": (8, 5, 3)} | changes))


def papers(**changes):
    """ogbn-papers100M, directed."""
    graph = {"vertices": 111_059_956, "edges": 1_615_685_872, "feature_width": 128, "seeds": 1_207_179, "classes": 172}
    return PlanRequest.of(**(graph | changes))
