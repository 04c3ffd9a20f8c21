"""Score model averaging, with all parts and with one of four lost, beside plain training on the whole graph.

    python bench/bench_tma.py --data FOLDER [--task {nodes,links}] [--graphs cora,dblp,hard-sbm-5] [--seeds 0,1,2,3,4] [--steps 80]
        [--methods psgd-pa,llcg] [--all-parts] [--set OPTION=VALUE ...] [--json FILE]

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

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import machine, report

from bulksample import CSR, Graph
from bulksample.data import npz, store
from bulksample.data.edge_split import split_edges
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", choices=["nodes", "links"], default="nodes")
    parser.add_argument("--graphs", default="cora,dblp,facebook-pagepage,amazon-computers,hard-sbm-5")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--all-parts", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", dest="changed", type=_change)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    asked = COMMON | {"task": options.task} | dict(options.changed)
    settings = json.loads(json.dumps(asked | EVERY | {"steps": options.steps}))
    rows, methods = _kept(options.json, settings), options.methods.split(",")
    if strangers := set(methods) - set(METHODS):
        parser.error(f"no row has the method {', '.join(sorted(strangers))}; use {', '.join(METHODS)}")
    wanted = [row for row, (_, how) in ROWS.items() if how["method"] in methods and not (options.all_parts and "lost_parts" in how)]
    for name in options.graphs.split(","):
        for seed in map(int, options.seeds.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                graph = hard_sbm(seed) if name == "hard-sbm-5" else npz.read(options.data / f"{name}.npz")
                degree = graph.adjacency.nnz / graph.n
                if options.task == "links":
                    graph, held = split_edges(graph, 0.05, 0.1, 100, seed)
                store.save(graph, Path(folder) / "graph")
                if options.task == "links":
                    held.save(Path(folder) / "graph")
                for row in wanted:
                    kept = rows.setdefault((name, row), {"graph": name, "degree": degree, "row": row, "task": options.task, "scores": {}})
                    if str(seed) not in kept["scores"]:
                        run(Path(folder) / "graph", kept, {**asked, "seed": seed}, options.steps)
                        if options.json:
                            options.json.write_text(json.dumps(told(rows, settings), indent=2) + "\n")
    report(told(rows, settings), None)


def run(directory: Path, row: dict[str, Any], asked: dict[str, Any], steps: int) -> None:
    """Run one row and seed, and add its scores to the row."""
    seed, (ranks, how) = asked["seed"], ROWS[row["row"]]
    found = on_threads(ranks, lambda comm: trained(directory, asked | how, steps, comm), timeout=600.0)[0]
    row["scores"][str(seed)] = 100 * found["test_mrr" if row["task"] == "links" else "test_accuracy"]
    scores = list(row["scores"].values())
    row["mean"], row["std"] = statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0
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


def told(rows: dict[tuple[str, str], dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Summarize all finished runs, and differences for each graph, in points paired by seed."""
    return {"machine": machine(), "settings": settings, "rows": list(rows.values()), "findings": findings(rows)}


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
                std = statistics.stdev(differences) if len(differences) > 1 else 0.0
                mean = statistics.mean(differences)
                found.append({"graph": graph, "what": name, "points": mean, "std": std, "seeds": len(differences)})
    return found


def _change(text: str) -> tuple[str, str]:
    """Parse an option of `train` and its value."""
    name, equals, value = text.partition("=")
    if not equals or name in SETTLED or name not in TrainConfig.model_fields:
        raise argparse.ArgumentTypeError(f"got {text!r}; use OPTION=VALUE of train, but none of {', '.join(sorted(SETTLED))}")
    return name, value


def _kept(path: Path | None, settings: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Read the runs of an earlier call."""
    if path is None or not path.exists():
        return {}
    kept = json.loads(path.read_text())
    if kept["settings"] != settings:
        raise SystemExit(f"{path} was run with other settings; use another FILE")
    return {(row["graph"], row["row"]): row for row in kept["rows"]}


if __name__ == "__main__":
    main()
