"""Sparse times dense: our kernel beside torch's CSR product, and what a dense product costs beside either.

The comparison behind two choices in `bulksample.train`: which kernel `SparseRows.times` calls, and when a layer
multiplies by its weights before it aggregates (`layers._DENSE_COST`). Both kernels are checked against each other
first. Run with --json FILE for the numbers, --threads N for more than one thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings

import numpy as np
import torch

from bulksample.train import aggregate
from bulksample.train.aggregate import SparseRows

# destinations, sources, edges a row, width, weighted: the layers of a 3-layer model with fanouts 15,10,5, and sparse features
SIZES = [
    (1024, 6000, 5, 256, False),
    (6000, 40000, 10, 256, False),
    (40000, 250000, 15, 100, False),
    (40000, 250000, 15, 100, True),
    (20000, 8000, 60, 128, True),
    (20000, 767, 267, 128, True),
]


def timed(call, repeats):
    """Median, minimum and maximum of milliseconds after one warm-up call, and the last result."""
    result, times = call(), []
    for _ in range(repeats):
        began = time.perf_counter()
        result = call()
        times.append(1e3 * (time.perf_counter() - began))
    return {"median": statistics.median(times), "min": min(times), "max": max(times)}, result


def measure(size, repeats):
    destinations, sources, per_row, width, weighted = size
    rng = np.random.default_rng(0)
    indices = np.sort(rng.integers(0, sources, (destinations, per_row)), axis=1).astype(np.int32).reshape(-1)
    weights = rng.random(len(indices), dtype=np.float32) if weighted else None
    matrix = SparseRows(np.arange(destinations + 1) * per_row, indices, weights, sources)
    x = torch.from_numpy(rng.standard_normal((sources, width), dtype=np.float32))
    ours, a = timed(lambda: matrix.times(x), repeats)
    native, aggregate._native = aggregate._native, None
    theirs, b = timed(lambda: matrix.times(x), repeats)
    aggregate._native = native
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
    weight = torch.randn(width, width)
    dense, _ = timed(lambda: x @ weight, repeats)
    per_edge = ours["min"] / (len(indices) * width)
    per_product = dense["min"] / (sources * width * width)
    return {"destinations": destinations, "sources": sources, "edges": len(indices), "width": width, "weighted": weighted,
            "native_ms": ours, "torch_ms": theirs, "dense_cost": per_product / per_edge}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", help="write the numbers to a file")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    warnings.simplefilter("ignore", UserWarning)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {asked.threads} thread(s); ms, median (min .. max)")
    if aggregate._native is None:
        print("the native extension is not built: both columns are torch")
    rows = [measure(size, asked.repeats) for size in SIZES]
    print(f"{'D x S':>16} {'edges':>9} {'f':>4} {'weights':>7} {'native':>24} {'torch':>24} {'dense cost':>10}")
    for row in rows:
        native, torch_ = (f"{t['median']:.2f} ({t['min']:.2f} .. {t['max']:.2f})" for t in (row["native_ms"], row["torch_ms"]))
        shape = f"{row['destinations']} x {row['sources']}"
        sizes = f"{shape:>16} {row['edges']:>9} {row['width']:>4} {row['weighted']!s:>7}"
        print(f"{sizes} {native:>24} {torch_:>24} {row['dense_cost']:>10.3f}")
    if asked.json:
        where = {"machine": platform.platform(), "torch": torch.__version__, "threads": asked.threads}
        with open(asked.json, "w") as stream:
            json.dump({**where, "sizes": rows}, stream, indent=1)


if __name__ == "__main__":
    main()
