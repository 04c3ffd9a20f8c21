"""Predict the field of papers from the past alone, and show that a leak of the future is a score too good to be true.

FOLDER has confpapers.npz: papers with a year, joined if they share an author. Models train on papers before one year and are scored on
papers from another year on, before a third; later papers exist in the graph. A paper sees the title words of its neighbors, and,
through a second relation, their fields.

    honest    a paper sees neighbors of earlier years alone (`strict`)
    leak      the same graph without times: neighbors of later years and their fields are seen too, and its own field two hops away

FILE is written after every run; runs that it has are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from harness import Data, Numbers

import bulksample as bs

OPTIONS = {
    "model": "hetero-sage", "fanouts": (10, 5), "hidden": 32, "batch_size": 512, "lr": 0.01, "dropout": 0.2, "feature_norm": "l2",
    "evaluate": "sampled", "eval_fanouts": (10, 5), "threads": 1,
}  # fmt: skip


def papers(path: Path, train: int, test: int, until: int, most: int) -> bs.Graph:
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
    return bs.Graph.of((paper, known), relations, "confpapers").validate()


def years(
    data: Data, train: Annotated[int, "models train on papers before this year"] = 2014,
    test: Annotated[int, "papers from this year on are the test"] = 2016, until: Annotated[int, "the test ends before this year"] = 2018,
    most: Annotated[int, "seeds of each split"] = 20_000, epochs: int = 4, seeds: Numbers = (0, 1, 2), kept: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    honest = papers(data / "confpapers.npz", train, test, until, most)
    leak = replace(honest, types=tuple(replace(kind, times=None) for kind in honest.types))
    result = {"runs": [], **(kept or {}), "train": train, "test": test, "until": until, "most": most, "epochs": epochs}
    done = {(run["arm"], run["seed"]) for run in result["runs"]}
    for seed, (arm, graph, strict) in product(seeds, (("honest", honest, True), ("leak", leak, False))):
        if (arm, seed) not in done:
            report = bs.train(graph, seed=seed, epochs=epochs, strict=strict, **OPTIONS)
            run = {"arm": arm, "seed": seed, **{key: report[key] for key in ("val_accuracy", "test_accuracy", "seconds_per_epoch")}}
            result["runs"].append(run)
            print(run, flush=True)
        yield result
