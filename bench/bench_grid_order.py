"""Compare both mappings of a process grid to machines, on four simulated machines of two ranks with shaped links between them.

FOLDER keeps the graph: a block model of 20,000 vertices with 128 features. The topology is replicated and features lie in block rows with
c = 4, so a process column has 2 of 8 ranks. `columns` puts both on one machine; `rows` puts them on two. Each machine is a network
namespace with a link of the rate (see `netlab`). Rounds alternate; an epoch is the median of those after the first. Bytes between machines
are those that the run counts, without control messages, beside `share_between_machines` of the requested rows. Losses must be equal. Needs
root.
"""

from __future__ import annotations

import os
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import netlab
from harness import summary
from oracles.fetches import share_between_machines
from ranks import graph_in, mpirun, report

from bulksample.distributed.matrix.grid import Order

HOSTS, PER_HOST, C, EPOCHS, TIMEOUT = 4, 2, 4, 3, 600.0
ORDERS: tuple[Order, ...] = ("columns", "rows")


def run(lab: netlab.Lab, launcher: str, graph: Path, order: str) -> dict[str, Any]:
    """Train on all hosts; return the seconds of an epoch, the loss, and bytes of an epoch by where they went."""
    words = [
        "train", str(graph), "--fanouts", "10,5", "--batch-size", "64", "--hidden", "16", "--topology", "replicated", "--features",
        "partitioned", "--replication", str(C), "--grid-order", order, "--evaluate", "none", "--epochs", str(EPOCHS), "--threads", "1",
    ]  # fmt: skip
    start, before = partial(lab.command, launcher, per_host=PER_HOST), sum(lab.sent_bytes())
    told = report(words, HOSTS * PER_HOST, start, TIMEOUT)
    wire, epochs = sum(lab.sent_bytes()) - before, told["lines"]
    last = epochs[-1]
    return {
        "seconds": statistics.median(line["seconds"] for line in epochs[1:]),
        "loss": last["loss"],
        "machines": told["ranks_of_machines"],
        "feature_bytes": last["training_bytes"]["features"],
        "feature_bytes_between": last["training_bytes_between_machines"]["features"],
        "bytes_between": sum(last["training_bytes_between_machines"][kind] for kind in ("topology", "features", "gradients")),
        "wire_bytes_of_the_run": wire,
    }


def measure(graph: Path, rate: str, rounds: int) -> dict[str, Any]:
    """Alternate both orders; return their figures, and how many times as fast columns are."""
    lab, launcher = netlab.Lab(HOSTS, rate), mpirun()
    runs: dict[str, list[dict[str, Any]]] = {order: [] for order in ORDERS}
    for _ in range(rounds):
        for order in ORDERS:
            runs[order].append(run(lab, launcher, graph, order))
            print(f"{order}: {runs[order][-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    if len({one["loss"] for found in runs.values() for one in found}) > 1:
        raise SystemExit("the mappings have different losses")
    lines = {order: found[0] | {"seconds": summary([one["seconds"] for one in found])} for order, found in runs.items()}
    for order in ORDERS:
        lines[order]["predicted_share_of_rows_between"] = share_between_machines(HOSTS * PER_HOST, PER_HOST, C, order)
    ratios = [slow["seconds"] / fast["seconds"] for fast, slow in zip(runs["columns"], runs["rows"], strict=True)]
    return {"orders": lines, "columns_times_as_fast": summary(ratios)}


def grid_order(
    folder: Path, rate: Annotated[str, "of the link of each machine, in both directions"] = "10mbit", rounds: int = 3
) -> dict[str, Any]:
    netlab.go_inside()
    found = measure(graph_in(folder, 20_000, 15, 128), rate, rounds)
    return {"load_after": os.getloadavg()[0], "rate": rate, "rounds": rounds, **found}
