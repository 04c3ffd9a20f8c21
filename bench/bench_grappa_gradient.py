"""Measure how close the gradient of isolated parts comes to that of the whole graph, by view, chunks and weights.

    python bench/bench_grappa_gradient.py [--draws 42] [--layers 2,3] [--ranks 8] [--json FILE]

The model trains for 20 epochs on the whole block model of bench_grappa.py; then its weights are fixed. Each super-epoch gives one gradient
g_t. G is the gradient of the whole graph, m the mean of all g_t. The table has the mean of cos(g_t, G), then cos(m, G) and
|m - G| / |G|. No first-order weight makes m equal to G. The exact case, `tree` weights, is tested against neighbor-sampled training.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_grappa import Inverse, block_model
from harness import machine, report

from bulksample.data import store
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.grappa.method import Grappa
from bulksample.methods.run import make_trainer
from bulksample.training.batches import EMPTY_BATCH
from bulksample.training.loop import Trainer

STILL = {"hidden": 32, "lr": 0.01, "dropout": 0.0, "threads": 1, "partition": "random", "quiet": True}
VIEWS = {
    "strict, static": {"view": "strict"}, "strict, fresh": {"view": "strict", "chunking": "fresh"},
    "halo, static": {"view": "halo"}, "halo, fresh": {"view": "halo", "chunking": "fresh"},
}  # fmt: skip
WEIGHTS: dict[str, tuple[type[Grappa], dict[str, Any]]] = {
    "uniform": (Grappa, {"seed_weights": "none"}),
    "batch": (Grappa, {"seed_weights": "batch", "shrink": 1.0}),
    "node, lambda of ESS": (Grappa, {}),
    "node, lambda 1": (Grappa, {"shrink": 1.0}),
    "node, first hop, lambda 1": (Grappa, {"shrink": 1.0, "weight_hops": 1}),
    "1/kappa": (Inverse, {}),
}


def gradient(trainer: Trainer) -> np.ndarray:
    """Return the gradient of one step of all ranks."""
    trainer.context.optimizer.zero_grad()
    loss, counted = trainer.method.loss(trainer.context, EMPTY_BATCH)
    loss.backward()
    trainer.method.combine_gradients(trainer.context, torch.tensor([counted, loss.detach(), 0.0]))
    return torch.cat([parameter.grad.reshape(-1) for parameter in trainer.model.parameters()]).numpy().astype(np.float64)


def gradients(directory: Path, comm: Comm, layers: int, view: dict[str, Any], weights: dict[str, Any], draws: int) -> dict[str, Any]:
    """Return a gradient for each kind of weights and each super-epoch."""
    asked = {**STILL, "method": "grappa", "layers": layers, "full_graph": True, "swap_every": 1, "overlap": False, "epochs": draws}
    trainer = make_trainer(TrainConfig.of(**asked, **view), directory, comm)
    trainer.model.load_state_dict(weights)
    method, found = trainer.method, {name: [] for name in WEIGHTS}
    plain = method.config
    for turn in range(draws):
        trainer.context.batches.load_state_dict(trainer.context.batches.state_dict() | {"epoch": turn})
        method.begin_round(trainer.context)
        for name, (kind, options) in WEIGHTS.items():
            method.config = plain.model_copy(update=options)
            method._raw, method._amount = kind._coverage_weights(method)
            found[name].append(gradient(trainer))
        method.config = plain
    return found


def line(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    def cosine(g: np.ndarray) -> float:
        return float(g @ truth / np.linalg.norm(g) / np.linalg.norm(truth))

    mean = found.mean(0)
    error = float(np.linalg.norm(mean - truth) / np.linalg.norm(truth))
    return {"cosine_of_one": float(np.mean([cosine(g) for g in found])), "cosine_of_mean": cosine(mean), "error_of_mean": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=42)
    parser.add_argument("--layers", default="2,3")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "graph"
        store.save(block_model(0), directory)
        for layers in map(int, options.layers.split(",")):
            full = make_trainer(TrainConfig.of(**STILL, method="full", layers=layers, epochs=20, eval_every=20), directory)
            full.run()
            truth, weights = gradient(full), full.model.state_dict()
            for view, settings in VIEWS.items():
                asked = (layers, settings, weights, options.draws)
                found = on_threads(options.ranks, lambda comm, asked=asked: gradients(directory, comm, *asked), timeout=600.0)[0]
                for name, drawn in found.items():
                    rows.append({"layers": layers, "view": view, "weights": name, **line(np.array(drawn), truth)})
                    told = " | ".join(f"{rows[-1][key]:.2f}" for key in ("cosine_of_one", "cosine_of_mean", "error_of_mean"))
                    print(f"| {layers} | {view} | {name} | {told} |", flush=True)
                report({"machine": machine(), "draws": options.draws, "ranks": options.ranks, "rows": rows}, options.json)


if __name__ == "__main__":
    main()
