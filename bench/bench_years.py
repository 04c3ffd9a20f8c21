"""Predict the field of papers from the past alone, and show that a leak of the future is a score too good to be true.

    python bench/bench_years.py --data FOLDER [--train 2014] [--test 2016] [--until 2018] [--seeds 0,1,2] [--json FILE]

FOLDER has confpapers.npz: papers with a year, joined if they share an author. Models train on papers before one year and are scored on
papers from another year on, before a third; later papers exist in the graph. A paper sees the title words of its neighbors, and,
through a second relation, their fields.

    honest    a paper sees neighbors of earlier years alone (`strict`)
    leak      the same graph without times: neighbors of later years and their fields are seen too, and its own field two hops away

FILE is written after every run; runs that it has are kept.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine

import bulksample as bs

OPTIONS = {
    "model": "hetero-sage", "fanouts": (10, 5), "hidden": 32, "batch_size": 512, "lr": 0.01, "dropout": 0.2, "feature_norm": "l2",
    "evaluate": "sampled", "eval_fanouts": (10, 5), "threads": 1,
}  # fmt: skip


def papers(path: Path, train: int, test: int, until: int, most: int) -> bs.HeteroGraph:
    """Return papers and their fields with years; of each split at most so many papers are seeds, drawn once."""
    with np.load(path) as raw:
        year, field = raw["year"].astype(np.int64), raw["y_area"].astype(np.int64)
        words = bs.CSR(raw["x_indptr"], raw["x_indices"], raw["x_data"], tuple(raw["x_shape"]))
        edges = bs.CSR(raw["indptr"], raw["indices"], None, (len(year), len(year)))
    order = np.random.default_rng(0).permutation(len(year))
    spans = {"train": year < train, "val": (year >= train) & (year < test), "test": (year >= test) & (year < until)}
    masks = {}
    for split, span in spans.items():
        masks[split] = np.zeros(len(year), bool)
        masks[split][order[(span & (field >= 0))[order]][:most]] = True
    paper = bs.VertexType("paper", len(year), words, field, int(field.max()) + 1, masks, year)
    known = bs.VertexType("field", len(year), np.eye(int(field.max()) + 1, dtype=np.float32)[field], times=year)
    relations = (bs.Relation("paper", "shares author", "paper", edges), bs.Relation("field", "of neighbor", "paper", edges))
    return bs.HeteroGraph((paper, known), relations, "confpapers").validate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of confpapers.npz")
    parser.add_argument("--train", type=int, default=2014, help="models train on papers before this year")
    parser.add_argument("--test", type=int, default=2016, help="papers from this year on are the test")
    parser.add_argument("--until", type=int, default=2018, help="the test ends before this year")
    parser.add_argument("--most", type=int, default=20_000, help="seeds of each split")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    honest = papers(given.data / "confpapers.npz", given.train, given.test, given.until, given.most)
    leak = replace(honest, types=tuple(replace(kind, times=None) for kind in honest.types))
    result: dict[str, Any] = {"runs": []}
    if given.json and given.json.exists():
        result = json.loads(given.json.read_text())
    result |= {
        "machine": machine(),
        "train": given.train,
        "test": given.test,
        "until": given.until,
        "most": given.most,
        "epochs": given.epochs,
    }
    done = {(run["arm"], run["seed"]) for run in result["runs"]}
    for seed in map(int, given.seeds.split(",")):
        for arm, graph, strict in (("honest", honest, True), ("leak", leak, False)):
            if (arm, seed) in done:
                continue
            report = bs.train(graph, seed=seed, epochs=given.epochs, strict=strict, **OPTIONS)
            run = {"arm": arm, "seed": seed, **{key: report[key] for key in ("val_accuracy", "test_accuracy", "seconds_per_epoch")}}
            result["runs"].append(run)
            print(run, flush=True)
            if given.json:
                given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
