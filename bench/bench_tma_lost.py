"""Measure the cost of a lost part for averaged models: on its own vertices, on the others, and by class.

Block model and settings are those of bench_tma.py; scores are test accuracy in percent. A row has a method, the parts in use and the
number of super-nodes. "all" has four trainers on four parts, "lost" three trainers on three parts, "one" a single trainer on the same
three parts without averaging, and "alike" three trainers on all vertices. Runs with four parts also report the accuracy on the test
vertices of the fourth part and on the others, and for every class its accuracy and the share of its training vertices in the fourth part.
FILE is written after each run, and a later call continues from it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_tma import COMMON, EVERY, hard_sbm
from harness import Numbers, spread

from bulksample import Graph
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix import partition as partitions
from bulksample.distributed.matrix.partition import Partition
from bulksample.evaluation.inference import infer
from bulksample.methods import load
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

PARTS = 4
RANKS = {"all": 5, "lost": 4, "alike": 4, "one": 2}
SHORT = [
    ("sync", "all", None), ("super-tma", "all", None), ("super-tma", "lost", None), ("super-tma", "alike", None),
    ("super-tma", "one", None), ("super-tma", "all", 16), ("super-tma", "lost", 16), ("super-tma", "all", 333), ("super-tma", "lost", 333),
    ("psgd-pa", "all", None), ("psgd-pa", "lost", None), ("psgd-pa", "one", None), ("random-tma", "one", None),
]  # fmt: skip
LONG = [("sync", "all", None), *product(("super-tma", "psgd-pa"), ("all", "lost"), (None,)), ("super-tma", "one", None)]


def run(graph: Graph, directory: Path, method: str, present: str, clusters: int | None, steps: int, seed: int) -> dict[str, Any]:
    """Return the scores of one run."""
    asked = {**COMMON, "epochs": steps, "eval_every": 8, "method": method, "seed": seed}
    if method == "sync":
        found = make_trainer(TrainConfig.of(**asked), directory).run()
        return {"test": 100 * found["test_accuracy"], "val": 100 * found["val_accuracy"]}
    part = partitions.make(load(method).partition_kind, graph.adjacency, PARTS, seed, clusters).assignment
    asked |= EVERY | ({"clusters": clusters} if clusters else {}) | ({} if present in ("all", "alike") else {"lost_parts": 1})
    if present == "one":
        Partition(2, (part == PARTS - 1).astype(np.int32)).save(directory / "three.npz")
        asked["partition"] = str(directory / "three.npz")
    config = TrainConfig.of(**asked)

    def rank(comm: Any) -> tuple[dict[str, Any], np.ndarray | None]:
        trainer = make_trainer(config, directory, comm)
        found = trainer.run()
        return found, infer(trainer.model, trainer.method.whole_view.share).argmax(1).numpy() if comm.rank == 0 else None

    found, predicted = on_threads(RANKS[present], rank, timeout=600.0)[0]
    scores = {"test": 100 * found["test_accuracy"], "val": 100 * found["val_accuracy"]}
    return scores if present == "alike" else scores | where(graph, predicted == graph.labels, part)


def where(graph: Graph, hit: np.ndarray, part: np.ndarray) -> dict[str, Any]:
    """Return the accuracy on the fourth part and on the others, and for each class its accuracy and share in the fourth part."""
    test, train, fourth = graph.masks["test"], graph.masks["train"], part == PARTS - 1
    of_class = [graph.labels == c for c in range(graph.num_classes)]
    return {
        "fourth": 100 * float(hit[test & fourth].mean()), "others": 100 * float(hit[test & ~fourth].mean()),
        "share_of_class": [float(fourth[train & own].mean()) for own in of_class],
        "accuracy_of_class": [100 * float(hit[test & own].mean()) for own in of_class],
    }  # fmt: skip


def costs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cost of a missing part, in points paired by seed, and its correlation with the missing share by class."""
    by_name = {(row["method"], row["present"], row["clusters"], row["steps"]): row["runs"] for row in rows}
    found = []
    for (method, present, clusters, steps), runs in by_name.items():
        whole = by_name.get(("sync", "all", None, steps) if present == "one" else (method, "all", clusters, steps), {})
        both = sorted(set(runs) & set(whole))
        if present not in ("lost", "one") or not both:
            continue
        cost: dict[str, Any] = {"method": method, "present": present, "clusters": clusters, "steps": steps, "seeds": len(both)}
        for what in ("test", "fourth", "others"):
            if what in whole[both[0]]:
                cost[what] = spread([whole[seed][what] - runs[seed][what] for seed in both])
        if "share_of_class" in whole[both[0]]:
            drops = {seed: np.subtract(whole[seed]["accuracy_of_class"], runs[seed]["accuracy_of_class"]) for seed in both}
            cost["correlation"] = [float(np.corrcoef(runs[seed]["share_of_class"], drops[seed])[0, 1]) for seed in both]
        found.append(cost)
    return found


def tma_lost(seeds: Numbers = (0, 1, 2, 3, 4), steps: Numbers = (80, 400), kept: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    rows = {(row["method"], row["present"], row["clusters"], row["steps"]): row for row in (kept or {"rows": []})["rows"]}
    for seed in seeds:
        graph = hard_sbm(seed)
        with tempfile.TemporaryDirectory() as folder:
            store.save(graph, Path(folder) / "graph")
            for name, length in [(name, count) for count in steps for name in (SHORT if count == steps[0] else LONG)]:
                asked = dict(zip(("method", "present", "clusters", "steps"), (*name, length), strict=True))
                row = rows.setdefault(tuple(asked.values()), {**asked, "runs": {}})
                if str(seed) not in row["runs"]:
                    row["runs"][str(seed)] = run(graph, Path(folder) / "graph", *name, length, seed)
                    print(f"seed {seed} {name} {length} steps: {row['runs'][str(seed)]['test']:.1f}", file=sys.stderr, flush=True)
                made = [{**row, "test": spread([run["test"] for run in row["runs"].values()])} for row in rows.values() if row["runs"]]
                yield {"rows": made, "costs": costs(made)}
