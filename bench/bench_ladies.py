"""Compare LADIES of bulksample with a plain scipy formulation, in milliseconds per mini-batch.

    python bench/bench_ladies.py [--graph rmat18] [--layers 3] [--width 512] [--batch-size 512] [--threads 1] [--json FILE]

Both draw from the same graph and seeds, by the sums of squared row-normalized weights, and use all vertices found so far as the next
frontier. The scipy formulation is the published one: slice rows, sum their squares by column, draw with numpy without replacement from
all n vertices, slice columns, correct by 1 / (s p), normalize rows. With ``--published`` its frontier has only draws and seeds, as in the
published code, which is less work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from graphs import GRAPHS, load, seeds
from harness import alternate, machine, report, summary
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", choices=list(GRAPHS), default="rmat18")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--minibatches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    matrix, fanouts = load(options.graph), [options.width] * options.layers
    batches = seeds(matrix, options.minibatches, options.batch_size)
    contestants = {name: ours(name, matrix, fanouts, options.threads, batches) for name in ("ladies", "fastgcn")}
    contestants["scipy ladies"] = scipy_ladies(matrix, fanouts, batches, options.published)
    figures = alternate(contestants, options.rounds)
    report(
        {
            "unit": "milliseconds a minibatch",
            "machine": machine(),
            "graph": options.graph,
            "vertices": matrix.shape[0],
            "edges": matrix.nnz,
            "threads": options.threads,
            "fanouts": fanouts,
            "batch_size": options.batch_size,
            "minibatches": options.minibatches,
            "rounds": options.rounds,
            "published_frontier": options.published,
            "results": {name: summary(values) for name, values in figures.items()},
        },
        options.json,
    )


if __name__ == "__main__":
    main()
