"""Bytes that sampling sends when the graph lies in block rows: the policies side by side, on every grid.

    python bench/bench_exchange.py [--scale 17] [--degree 50] [--ranks 4,8,16] [--batch-size 256] [--json FILE]

Ranks are threads of this process, so bytes are what they would be on a cluster and seconds are not reported. Each rank samples one
minibatch of GraphSAGE 15,10,5. All policies draw the same minibatches; the digest is compared.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from harness import machine, report

from bulksample import CSR, Selection, Stream, backends, digest, samplers
from bulksample.data.generate import rmat
from bulksample.dist.base import Comm
from bulksample.dist.grid import ProcessGrid
from bulksample.dist.owner import OwnerAdjacency
from bulksample.dist.spgemm15d import RowsAdjacency
from bulksample.dist.threads import on_threads

POLICIES = ("rows-oblivious", "rows", "owner")


def block_row(matrix: CSR, first: int, last: int) -> CSR:
    entries = slice(matrix.indptr[first], matrix.indptr[last])
    return CSR(matrix.indptr[first : last + 1] - matrix.indptr[first], matrix.indices[entries], None, (last - first, matrix.shape[1]))


def sent(matrix: CSR, ranks: int, replication: int, policy: str, batch_size: int) -> tuple[dict, str]:
    """Messages and bytes of kind topology over all ranks, and the digest of what was drawn."""
    backend = backends.make("auto", 1)
    sampler = samplers.make("sage", (15, 10, 5))
    seeds = np.flatnonzero(matrix.degrees > 0)[Stream(7).permutation(int((matrix.degrees > 0).sum()))]

    def rank(comm: Comm) -> tuple[int, int, list]:
        grid = ProcessGrid(comm, replication)
        bounds = grid.bounds(matrix.shape[0])
        block = block_row(matrix, int(bounds[grid.row]), int(bounds[grid.row + 1]))
        adjacency = (
            OwnerAdjacency(grid, block, backend, bounds) if policy == "owner"
            else RowsAdjacency(grid, block, backend, bounds, oblivious=policy == "rows-oblivious")
        )  # fmt: skip
        before = comm.tally["topology"]
        own = seeds[comm.rank * batch_size : (comm.rank + 1) * batch_size]
        bulk = sampler.sample_bulk(adjacency, Selection.of([own], matrix.shape[0], np.array([comm.rank])), Stream(1))
        after = comm.tally["topology"]
        return after.messages - before.messages, after.bytes - before.bytes, [(m.epoch, m.id, m.digest()) for m in bulk]

    messages, moved, drawn = zip(*on_threads(ranks, rank, timeout=600), strict=True)
    return {"messages": sum(messages), "bytes": sum(moved)}, digest(triple for part in drawn for triple in part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=17)
    parser.add_argument("--degree", type=int, default=50)
    parser.add_argument("--ranks", default="4,8,16")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    matrix = rmat(options.scale, edges=options.degree * 2**options.scale // 2, seed=1).adjacency
    rows = []
    for ranks in (int(part) for part in options.ranks.split(",")):
        for replication in (c for c in range(1, ranks + 1) if ranks % c == 0):
            found = {policy: sent(matrix, ranks, replication, policy, options.batch_size) for policy in POLICIES}
            assert len({text for _, text in found.values()}) == 1, "the policies drew different minibatches"
            rows.append({"ranks": ranks, "replication": replication, **{policy: counts for policy, (counts, _) in found.items()}})
            megabytes = "  ".join(f"{policy} {counts['bytes'] / 1e6:.2f} MB" for policy, (counts, _) in found.items())
            print(f"p {ranks:2} c {replication:2}  {megabytes}", flush=True)
    sizes = {"vertices": matrix.shape[0], "edges": matrix.nnz, "batch_size": options.batch_size}
    report({"machine": machine(), **sizes, "rows": rows}, options.json)


if __name__ == "__main__":
    main()
