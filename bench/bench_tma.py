"""Score model averaging, with all parts and with one of four lost, beside plain training on the whole graph.

Four trainers and a server run as threads, so figures are accuracies and bytes, not times. The model is GraphSAGE 2 x 64. Every local step
uses all training vertices (or edges) of a part with all neighbors. An average follows every eighth step; the best average by validation
counts, at the ends of about ten epochs. All rows make the same number of local steps, rounded up to whole epochs. --set changes options of
`train` for all rows. Scores are test accuracy in percent, or 100 times the MRR of held-out edges (5 % for validation, 10 % for the test)
among 100 negatives. Rows named ``lost`` make four parts and train on three; --all-parts leaves them out. FOLDER has the `.npz` files.
``hard-sbm-5`` is a block model in which a vertex needs many neighbors, a graph for each seed: 16 blocks, 5000 vertices, degree 29, 30 % of
the edges inside a block, features of noise 6. Seeds change weights, partitions, held-out edges, and the block model. FILE is written
after each run, and a later call continues from it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from harness import Data, Names, Numbers, some_of, spread

from bulksample import CSR, Graph
from bulksample.data import npz
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import UsageError
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

COMMON: dict[str, Any] = {
    "fanouts": (-1, -1), "sampler": "full", "batch_size": 2**31, "bulk_size": 1, "hidden": 64, "lr": 0.005, "dropout": 0.5,
    "threads": 1, "quiet": True,
}  # fmt: skip
EVERY = {"interval": "8"}
EVALUATIONS = 10
ROWS: dict[str, tuple[int, dict[str, Any]]] = {
    "whole graph": (1, {"method": "sync"}),
    "random-tma": (5, {"method": "random-tma", **EVERY}),
    "super-tma": (5, {"method": "super-tma", **EVERY}),
    "psgd-pa": (5, {"method": "psgd-pa", **EVERY}),
    "llcg, 2 server steps": (5, {"method": "llcg", "server_steps": 2, **EVERY}),
    "random-tma, lost": (4, {"method": "random-tma", "lost_parts": 1, **EVERY}),
    "super-tma, lost": (4, {"method": "super-tma", "lost_parts": 1, **EVERY}),
    "psgd-pa, lost": (4, {"method": "psgd-pa", "lost_parts": 1, **EVERY}),
}
METHODS = list(dict.fromkeys(how["method"] for _, how in ROWS.values()))
SETTLED = {"method", "task", "seed", "epochs", "eval_every", "interval", "lost_parts", "server_steps"}  # set by rows and other options
KEPT = ("steps", "edges_kept", "label_distance", "isolated", "averages")


def hard_sbm(seed: int, n: int = 5000, blocks: int = 16, degree: int = 29, inside: float = 0.3) -> Graph:
    rng = np.random.default_rng([seed, 7])
    labels = rng.integers(0, blocks, n)
    theta = np.minimum(1 + rng.pareto(1.8, n), 30 * (1 + 1 / 0.8))
    members = [np.flatnonzero(labels == c) for c in range(blocks)]
    share = [theta[own] / theta[own].sum() for own in members]
    u = rng.choice(n, n * degree // 2, p=theta / theta.sum())
    other = rng.integers(0, blocks, len(u))
    block = np.where(rng.random(len(u)) < inside, labels[u], other)
    v = np.empty_like(u)
    for c in range(blocks):
        v[block == c] = rng.choice(members[c], np.count_nonzero(block == c), p=share[c])
    u, v = u[u != v], v[u != v]
    adjacency = CSR.from_edges(np.concatenate([u, v]), np.concatenate([v, u]), (n, n))
    x = rng.standard_normal((blocks, 64))[labels] + 6 * rng.standard_normal((n, 64))
    split = rng.random(n)
    masks = {"train": split < 0.5, "val": (split >= 0.5) & (split < 0.75), "test": split >= 0.75}
    return Graph(adjacency, 1.0, x.astype(np.float32), labels.astype(np.int64), blocks, masks, {}, "hard-sbm").validate()


def tma(
    data: Data, task: Literal["nodes", "links"] = "nodes",
    graphs: Names = ("cora", "dblp", "facebook-pagepage", "amazon-computers", "hard-sbm-5"), seeds: Numbers = (0, 1, 2, 3, 4),
    steps: Annotated[int, "local steps of a run"] = 80, methods: some_of(*METHODS) = tuple(METHODS),
    all_parts: Annotated[bool, "skip the rows that lose a part"] = False,
    set: Annotated[Names, f"OPTION=VALUE of train, but none of {', '.join(sorted(SETTLED))}"] = (),
    kept: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    torch.set_num_threads(1)
    asked = COMMON | {"task": task} | dict(map(_change, set))
    settings = json.loads(json.dumps(asked | EVERY | {"steps": steps}))
    if kept and kept["settings"] != settings:
        raise UsageError("FILE was run with other settings; use another FILE")
    rows = {(row["graph"], row["row"]): row for row in kept["rows"]} if kept else {}
    wanted = [row for row, (_, how) in ROWS.items() if how["method"] in methods and not (all_parts and "lost_parts" in how)]
    for name, seed in product(graphs, seeds):
        with tempfile.TemporaryDirectory() as folder:
            graph = hard_sbm(seed) if name == "hard-sbm-5" else npz.read(data / f"{name}.npz")
            degree = graph.adjacency.nnz / graph.n
            if task == "links":
                graph = hold_out(graph, "to", 0.05, 0.1, 100, seed)
            graph.save(Path(folder) / "graph")
            for row in wanted:
                found = rows.setdefault((name, row), {"graph": name, "degree": degree, "row": row, "task": task, "scores": {}})
                if str(seed) not in found["scores"]:
                    run(Path(folder) / "graph", found, {**asked, "seed": seed}, steps)
                yield {"settings": settings, "rows": list(rows.values()), "findings": findings(rows)}


def run(directory: Path, row: dict[str, Any], asked: dict[str, Any], steps: int) -> None:
    """Run one row and seed, and add its scores to the row."""
    seed, (ranks, how) = asked["seed"], ROWS[row["row"]]
    found = on_threads(ranks, lambda comm: trained(directory, asked | how, steps, comm), timeout=600.0)[0]
    row["scores"][str(seed)] = 100 * found["test_mrr" if row["task"] == "links" else "test_accuracy"]
    row |= spread(row["scores"].values())
    row.update({key: found[key] for key in KEPT if key in found} | {"model_bytes": found["bytes_sent"]["model"]})
    print(f"{row['graph']:18} seed {seed} {row['row']:22} {row['scores'][str(seed)]:.1f}", file=sys.stderr, flush=True)


def trained(directory: Path, asked: dict[str, Any], steps: int, comm: Comm) -> dict[str, Any]:
    """Return the report of a run of the given number of local steps, in whole epochs; the partition decides the steps per epoch."""
    an_epoch = make_trainer(_config(asked, epochs=1), directory, comm).context.batches.steps
    epochs = -(-steps // an_epoch)
    return make_trainer(_config(asked, epochs=epochs, eval_every=max(1, epochs // EVALUATIONS)), directory, comm).run()


def _config(asked: dict[str, Any], **own: int) -> TrainConfig:
    """Return the configuration of a run; values of ``--set`` are text."""
    return TrainConfig.made(asked | own, {name: f"--set {name}" for name in asked})


def findings(rows: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return differences between rows: mean and standard deviation over common seeds."""
    pairs = [(f"{method} lost a part", method, f"{method}, lost") for method in ("random-tma", "super-tma", "psgd-pa")]
    pairs += [(f"{method} - psgd-pa", method, "psgd-pa") for method in ("random-tma", "super-tma", "llcg, 2 server steps")]
    pairs += [(f"whole graph - {method}", "whole graph", method) for method in ("random-tma", "super-tma", "psgd-pa")]
    found = []
    for graph in dict.fromkeys(graph for graph, _ in rows):
        for name, one, other in pairs:
            a, b = (rows.get((graph, row), {"scores": {}})["scores"] for row in (one, other))
            differences = [a[seed] - b[seed] for seed in sorted(set(a) & set(b))]
            if differences:
                mean, std = spread(differences).values()
                found.append({"graph": graph, "what": name, "points": mean, "std": std, "seeds": len(differences)})
    return found


def _change(text: str) -> tuple[str, str]:
    """Parse an option of `train` and its value."""
    name, equals, value = text.partition("=")
    if not equals or name in SETTLED or name not in TrainConfig.model_fields:
        raise UsageError(f"got {text!r}; use OPTION=VALUE of train, but none of {', '.join(sorted(SETTLED))}")
    return name, value
