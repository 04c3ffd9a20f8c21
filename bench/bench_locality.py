"""Measure seeds near their ranks: feature rows that other ranks send, hits of caches, and accuracy, with and without `seed_locality`.

Ranks are threads. The topology lies on every rank, the features in block rows by METIS. Three parts:

- away: the vertices of mini-batches that other ranks hold, over all vertices. The benchmark stops unless the exchanges send as many ids.
- hits: of these vertices, those in a cache of alpha n / q rows, from the bytes that are sent. Features are 16 numbers drawn at random here:
  a cache takes dense rows, and hits do not depend on values. "oracle" caches what the measured epochs ask for most.
- accuracy: of short runs, by seed.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bulksample.data import npz, store
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.partition import make
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

SHAPE: dict[str, Any] = {
    "fanouts": (10, 5), "batch_size": 128, "hidden": 64, "threads": 1, "topology": "replicated", "features": "partitioned",
}  # fmt: skip
MODEL = {"lr": 0.01, "weight_decay": 5e-5, "dropout": 0.5, "eval_splits": "val,test"}
WIDTH, ALPHAS, CHOICES, MEASURED = 16, (0.1, 0.2, 0.5), ("inclusion", "frequency", "degree"), (1, 2)


def fetched(folder: Path, ranks: int, options: dict[str, Any]) -> dict[str, Any]:
    """Fetch the epochs MEASURED; return vertices asked for, those of other ranks, rows sent, and the hits of an oracle by alpha."""

    def rank(comm: Comm) -> tuple[int, int, int, list[int]]:
        context = make_trainer(TrainConfig.of(**SHAPE | options), folder, comm).context
        view: Any = context.view
        loader, layout = context.batches.loader, view.features.layout  # type: ignore[attr-defined]
        first, end, n = *layout.bounds[comm.rank : comm.rank + 2], layout.n
        before, asked, counts = comm.tally["topology"].bytes, 0, np.zeros(n, np.int64)
        for epoch in MEASURED:
            loader.epoch = epoch
            for batch in context.batches:
                if batch.minibatch is not None:
                    places = layout.places(batch.minibatch.vertices)
                    asked += len(places)
                    counts[places[(places < first) | (places >= end)]] += 1
        best = np.sort(counts)[::-1]
        oracle = [int(best[: int(alpha * n / ranks)].sum()) for alpha in ALPHAS]
        return asked, int(counts.sum()), (comm.tally["topology"].bytes - before) // 4, oracle

    found = on_threads(ranks, rank)
    asked, away, sent = (sum(one[i] for one in found) for i in range(3))
    return {"asked": asked, "away": away, "sent": sent, "oracle": np.sum([one[3] for one in found], 0).tolist()}


def travelled(folder: Path, ranks: int, common: dict[str, Any]) -> dict[str, Any]:
    """Return the share of rows from other ranks, and the hits of caches."""
    made = fetched(folder, ranks, common)
    if made["away"] != made["sent"]:
        raise SystemExit(f"the exchanges asked for {made['sent']} rows; the mini-batches need {made['away']}")
    n = store.manifest(folder).vertices
    hits: dict[str, dict[str, float]] = {}
    for i, alpha in enumerate(ALPHAS):
        cache = {"cache_bytes": int(alpha * n / ranks) * 4 * WIDTH}
        hits[str(alpha)] = {
            how: 1 - fetched(folder, ranks, {**common, **cache, "cache_by": how})["sent"] / made["away"] for how in CHOICES
        } | {"oracle": made["oracle"][i] / made["away"]}
    return {"away_share": made["away"] / made["asked"], "rows_of_other_ranks": made["away"], "hits": hits}


def accuracy(folder: Path, ranks: int, options: dict[str, Any]) -> float:
    """Train, and return the test accuracy at the best validation accuracy."""
    reports = on_threads(ranks, lambda comm: make_trainer(TrainConfig.of(**SHAPE | MODEL | options), folder, comm).run())
    return float(reports[0]["test_accuracy"])


def locality(
    file: Annotated[Path, "FOLDER/coauthor-physics.npz"], ranks: int = 4, seeds: Annotated[int, "number of seeds"] = 3, epochs: int = 8
) -> dict[str, Any]:
    graph = npz.read(file)
    kinds = {"global": None, "local": ranks}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        store.save(graph, place / "graph")
        store.save(replace(graph, features=np.random.default_rng(0).random((graph.n, WIDTH), np.float32)), place / "dense")
        make("metis", graph.adjacency, ranks, 0, train=graph.masks["train"]).save(place / "parts.npz")
        common = {"partition": str(place / "parts.npz")}
        found = {name: travelled(place / "dense", ranks, {**common, "seed_locality": g}) for name, g in kinds.items()}
        scores: dict[str, list[float]] = {name: [] for name in kinds}
        for seed, (name, g) in product(range(seeds), kinds.items()):
            scores[name].append(accuracy(place / "graph", ranks, {**common, "seed_locality": g, "seed": seed, "epochs": epochs}))
    differences = [100 * (near - far) for near, far in zip(scores["local"], scores["global"], strict=True)]
    trained = {"test_accuracy": scores, "difference_points": differences, "mean_difference_points": statistics.mean(differences)}
    return {"graph": graph.name, "ranks": ranks, "epochs": epochs, **found, "accuracy": trained}
