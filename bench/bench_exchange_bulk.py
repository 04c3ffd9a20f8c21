"""Predict what `rows` and `owner` send as a bulk grows: the curve over sampler, mini-batches per rank and c, with its break-even.

    python bench/bench_exchange_bulk.py [--ranks 4] [--minibatches 1,2,4,8,16,32] [--json FILE] [--plot FILE]

The graph and the samplers are those of `bench_exchange.py`, which stops unless measured bytes equal the prediction. So nothing is sent
here. `rows` fetches a row once for all mini-batches of a bulk; this is the published point of large bulks. `owner` draws for each.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
from bench_exchange import WORD, Workload
from harness import machine

from bulksample import CSR, LocalAdjacency, backends, samplers
from bulksample.data.blockmodel import PRESETS
from bulksample.data.dcsbm import dcsbm
from bulksample.distributed.costs.call_recorder import CallRecorder, predict_calls
from bulksample.distributed.costs.sampling import costs_of
from bulksample.distributed.matrix.layout import Layout
from bulksample.report.chart_style import new_figure


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


def curve(matrix: CSR, sampler: str, fanouts: tuple[int, ...], batch: int, ranks: int, bulks: list[int]) -> list[dict]:
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


def plot(results: dict[str, list[dict]], path: Path) -> None:
    """Draw the words of `rows` over those of `owner`, one panel per sampler."""
    with new_figure(len(results), (6.0, 4.0)) as (figure, every):
        for axes, (name, points) in zip(every, results.items(), strict=True):
            for replication in sorted({one["replication"] for one in points}):
                line = [one for one in points if one["replication"] == replication]
                axes.plot([one["minibatches"] for one in line], [one["quotient"] for one in line], "o-", label=f"c = {replication}")
            axes.axhline(1, color="grey")
            axes.set(title=name, xlabel="mini-batches per rank and bulk", ylabel="words of rows / owner", xscale="log", yscale="log")
            axes.legend()
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=17, help="2^scale vertices")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--minibatches", default="1,2,4,8,16,32", help="mini-batches per rank, in one bulk")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    matrix = dcsbm(2**options.scale, 73, replace(PRESETS["products"], features=0), seed=1).adjacency
    bulks = [int(part) for part in options.minibatches.split(",")]
    results = {
        "GraphSAGE 15,10,5, batch 1024": curve(matrix, "sage", (15, 10, 5), 1024, options.ranks, bulks),
        "LADIES 512,512,512, batch 512": curve(matrix, "ladies", (512, 512, 512), 512, options.ranks, bulks),
    }
    counts = sorted({one["replication"] for points in results.values() for one in points})
    even = {name: {str(c): break_even(points, c) for c in counts} for name, points in results.items()}
    print(json.dumps(even))
    result = {"machine": machine(), "vertices": matrix.shape[0], "edges": matrix.nnz, "ranks": options.ranks}
    if options.json:
        options.json.write_text(json.dumps(result | {"results": results, "break_even": even}, indent=1) + "\n")
    if options.plot:
        plot(results, options.plot)


if __name__ == "__main__":
    main()
