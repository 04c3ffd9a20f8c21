"""Measure what loading takes of a training epoch on relations in time, as RelBench's examples train.

FOLDER holds the tables of `examples/relational_f1.py`, whose graph, task and model are used. One thread samples, gathers and computes in
turn, without prefetch, so that nothing is hidden behind anything. The first epoch is a warm-up. Printed are processor seconds of an epoch,
the share of sampling and gathering in them, sampled edges, and edges per processor second of loading. The aim is a share under 10 %.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1] / "examples"))

import torch
from harness import Numbers, summary
from relational_f1 import TASKS, make_graph, read_tables, task_table
from relational_model import RelationalSAGE

import bulksample as bs


def relational_epoch(
    folder: Annotated[str, "the folder of the tables"], task: str = "driver-dnf", fanouts: Numbers = (128, 64), channels: int = 64,
    rounds: int = 3,
) -> dict[str, Any]:  # fmt: skip
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tables = read_tables(folder)
    graph, seeds = make_graph(tables), task_table(tables, task)["train"]
    loader = bs.Loader(
        graph, "sage", fanouts, seeds=("drivers", seeds.driver), times=seeds.time, batch_size=512, shuffle=True, seed=0, frontier="new",
        prefetch=False, threads=1,
    )  # fmt: skip
    model = RelationalSAGE(graph, "drivers", layers=len(fanouts), channels=channels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    loss_of = torch.nn.L1Loss() if TASKS[task].metric == "mae" else torch.nn.BCEWithLogitsLoss()

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
    turns = [epoch() for _ in range(rounds)]
    return {
        "task": task, "fanouts": fanouts, "channels": channels, "seeds": len(seeds.driver), "edges": turns[0][2],
        "seconds": summary([seconds for seconds, _, _ in turns]),
        "share_of_loading": summary([loading / seconds for seconds, loading, _ in turns]),
        "million_edges_per_second_of_loading": summary([edges / loading / 1e6 for _, loading, edges in turns]),
    }  # fmt: skip
