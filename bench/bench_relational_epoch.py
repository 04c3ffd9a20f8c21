"""Measure what loading takes of a training epoch on relations in time, as RelBench's examples train.

    python bench/bench_relational_epoch.py FOLDER [--task driver-dnf] [--fanouts 128,64] [--channels 64] [--rounds 3] [--json FILE]

FOLDER holds the tables of `examples/relational_f1.py`, whose graph, task and model are used. One thread samples, gathers and computes in
turn, without prefetch, so that nothing is hidden behind anything. The first epoch is a warm-up. Printed are processor seconds of an epoch,
the share of sampling and gathering in them, sampled edges, and edges per processor second of loading. The aim is a share under 10 %.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1] / "examples"))

import torch
from harness import machine, report, summary
from relational_f1 import TASKS, make_graph, read_tables, task_table
from relational_model import RelationalSAGE

import bulksample as bs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder of the tables")
    parser.add_argument("--task", choices=TASKS, default="driver-dnf")
    parser.add_argument("--fanouts", default="128,64")
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tables, fanouts = read_tables(args.folder), [int(s) for s in args.fanouts.split(",")]
    graph, seeds = make_graph(tables), task_table(tables, args.task)["train"]
    loader = bs.HeteroLoader(
        graph, "sage", fanouts, seeds=("drivers", seeds.driver), times=seeds.time, batch_size=512, shuffle=True, seed=0, frontier="new",
        prefetch=False, threads=1,
    )  # fmt: skip
    model = RelationalSAGE(graph, "drivers", layers=len(fanouts), channels=args.channels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    loss_of = torch.nn.L1Loss() if TASKS[args.task].metric == "mae" else torch.nn.BCEWithLogitsLoss()

    def epoch() -> tuple[float, float, int]:
        """Train for an epoch; return its processor seconds, those of loading, and the sampled edges."""
        began, loading, edges, batches = time.process_time(), 0.0, 0, iter(loader)
        while True:
            asked = time.process_time()
            batch = next(batches, None)
            loading += time.process_time() - asked
            if batch is None:
                return time.process_time() - began, loading, edges
            edges += batch.minibatch.num_edges
            label = torch.from_numpy(seeds.label[batch.minibatch.rows["drivers"].places]).float()
            optimizer.zero_grad()
            loss_of(model(batch), label).backward()
            optimizer.step()

    epoch()
    turns = [epoch() for _ in range(args.rounds)]
    found = {
        "task": args.task, "fanouts": fanouts, "channels": args.channels, "seeds": len(seeds.driver), "edges": turns[0][2],
        "seconds": summary([seconds for seconds, _, _ in turns]),
        "share_of_loading": summary([loading / seconds for seconds, loading, _ in turns]),
        "million_edges_per_second_of_loading": summary([edges / loading / 1e6 for _, loading, edges in turns]),
    }  # fmt: skip
    report({"machine": machine(), **found}, args.json)


if __name__ == "__main__":
    main()
