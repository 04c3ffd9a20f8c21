"""Predict what `rows` and `owner` send as a bulk grows: the curve over sampler, mini-batches per rank and c, with its break-even.

The graph and the samplers are those of `bench_exchange.py`, which stops unless measured bytes equal the prediction. So nothing is sent
here. `rows` fetches a row once for all mini-batches of a bulk; this is the published point of large bulks. `owner` draws for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import Annotated, Any

import numpy as np
from bench_exchange import WORD, Workload, like_products
from harness import Numbers
from oracles.call_recorder import CallRecorder, predict_calls
from oracles.sampling import costs_of

from bulksample import CSR, LocalAdjacency, backends, samplers
from bulksample.distributed.matrix.layout import Layout


def point(work: Workload, ranks: int, calls: list[list], replication: int) -> dict:
    """Predict the words of a bulk under both policies, and of what each sends once for a graph."""
    layout, found = Layout.even(work.matrix.shape[0], ranks // replication), {"minibatches": work.minibatches, "replication": replication}
    for policy in ("rows", "owner"):
        costs = costs_of(policy, ranks, replication, work.matrix, backends.make(), layout)
        once = int(costs.first_use("squares")[0, 1].sum()) if work.sampler.name == "ladies" else 0
        words = (int(predict_calls(costs, calls)[0, 1].sum()) - once) // WORD
        found |= {policy: words, f"{policy}_once": once // WORD}
    extra = found["owner_once"] - found["rows_once"]
    saved = found["rows"] - found["owner"]
    return found | {"quotient": found["rows"] / found["owner"], "even_after_bulks": ceil(extra / saved) if saved > 0 else None}


def curve(matrix: CSR, sampler: str, fanouts: tuple[int, ...], batch: int, ranks: int, bulks: Sequence[int]) -> list[dict]:
    """Predict every bulk size and every c < p."""
    points = []
    for k in bulks:
        work = Workload(matrix, samplers.make(sampler, fanouts), batch, k)
        recorders = [CallRecorder(LocalAdjacency(matrix, backends.make())) for _ in range(ranks)]
        for rank, recorder in enumerate(recorders):
            work.sample(recorder, rank)
        calls = [recorder.calls for recorder in recorders]
        points += [point(work, ranks, calls, c) for c in range(1, ranks) if ranks % c == 0]
        print(*points[-2:], sep="\n", flush=True)
    return points


def break_even(points: list[dict], replication: int) -> float | None:
    """Return the mini-batches per rank from which a bulk of `rows` sends less, interpolated; None if no measured bulk does."""
    curve_ = [one for one in points if one["replication"] == replication]
    for before, after in pairwise(curve_):
        if before["quotient"] >= 1 > after["quotient"]:
            share = np.log(before["quotient"]) / np.log(before["quotient"] / after["quotient"])
            return float(before["minibatches"] * (after["minibatches"] / before["minibatches"]) ** share)
    return None


def exchange_bulk(
    scale: Annotated[int, "the graph has 2^scale vertices"] = 17, ranks: int = 4,
    minibatches: Annotated[Numbers, "mini-batches per rank, in one bulk"] = (1, 2, 4, 8, 16, 32),
) -> dict[str, Any]:  # fmt: skip
    matrix = like_products(scale, 73)
    results = {
        "GraphSAGE 15,10,5, batch 1024": curve(matrix, "sage", (15, 10, 5), 1024, ranks, minibatches),
        "LADIES 512,512,512, batch 512": curve(matrix, "ladies", (512, 512, 512), 512, ranks, minibatches),
    }
    counts = sorted({one["replication"] for points in results.values() for one in points})
    even = {name: {str(c): break_even(points, c) for c in counts} for name, points in results.items()}
    return {"vertices": matrix.shape[0], "edges": matrix.nnz, "ranks": ranks, "results": results, "break_even": even}
