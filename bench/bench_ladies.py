"""Compare LADIES of bulksample with a plain scipy formulation, in milliseconds per mini-batch.

Both draw from the same graph and seeds, by the sums of squared row-normalized weights, and use all vertices found so far as the next
frontier. The scipy formulation is the published one: slice rows, sum their squares by column, draw with numpy without replacement from
all n vertices, slice columns, correct by 1 / (s p), normalize rows. With ``--published`` its frontier has only draws and seeds, as in the
published code, which is less work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from graphs import load, seeds
from harness import compare
from scipy import sparse

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers


def ours(name: str, matrix: CSR, fanouts: list[int], threads: int, batches: list[np.ndarray]) -> Callable[[], float]:
    adjacency = LocalAdjacency(matrix, backends.make("native", threads))
    sampler, chosen = samplers.make(name, fanouts), Selection.of(batches, matrix.shape[0])

    def run() -> float:
        began = time.perf_counter()
        sampler.sample_bulk(adjacency, chosen, Stream(1))
        return 1e3 * (time.perf_counter() - began) / len(batches)

    return run


def scipy_ladies(matrix: CSR, fanouts: list[int], batches: list[np.ndarray], published: bool) -> Callable[[], float]:
    degrees = np.maximum(matrix.degrees, 1)
    shares = np.repeat(1.0 / degrees, matrix.degrees)
    laplacian = sparse.csr_matrix((shares, matrix.indices, matrix.indptr), shape=matrix.shape)
    rng = np.random.default_rng(0)

    def layer(frontier: np.ndarray, s: int) -> tuple[np.ndarray, sparse.csr_matrix]:
        rows = laplacian[frontier]
        squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel()
        p = squares / squares.sum()
        count = min(s, np.count_nonzero(p))
        drawn = np.sort(rng.choice(len(p), count, p=p, replace=False))
        block = rows[:, drawn].multiply(1.0 / (count * p[drawn]))
        totals = np.asarray(block.sum(axis=1)).ravel()
        return drawn, sparse.diags(1.0 / np.where(totals > 0, totals, 1.0)) @ block

    def run() -> float:
        began = time.perf_counter()
        for batch in batches:
            held = np.unique(batch)
            for s in fanouts:
                drawn, _ = layer(held, s)
                held = np.union1d(batch if published else held, drawn)
        return 1e3 * (time.perf_counter() - began) / len(batches)

    return run


def ladies(
    graph: Literal["rmat18", "rmat20", "products"] = "rmat18", layers: int = 3, width: int = 512, batch_size: int = 512,
    minibatches: int = 8, rounds: int = 5, threads: int = 1, published: Annotated[bool, "frontiers of the published code"] = False,
) -> dict[str, Any]:  # fmt: skip
    matrix, fanouts = load(graph), [width] * layers
    batches = seeds(matrix, minibatches, batch_size)
    contestants = {name: ours(name, matrix, fanouts, threads, batches) for name in ("ladies", "fastgcn")}
    contestants["scipy ladies"] = scipy_ladies(matrix, fanouts, batches, published)
    return {
        "unit": "milliseconds a minibatch", "graph": graph, "vertices": matrix.shape[0], "edges": matrix.nnz, "threads": threads,
        "fanouts": fanouts, "batch_size": batch_size, "minibatches": minibatches, "rounds": rounds, "published_frontier": published,
        "results": compare(contestants, rounds),
    }  # fmt: skip
