"""Measure how close the gradient of isolated parts comes to that of training on the whole graph, by view, chunks and weights.

The model trains for 20 epochs on the whole block model of bench_grappa.py; then its weights are fixed. Each super-epoch gives one gradient
g_t. G is the gradient of the whole graph, m the mean of all g_t. A row has the mean of cos(g_t, G), then

    cosine_of_mean    cos(m, G)              error_of_mean    |m - G| / |G|
    noise             the standard error of m over |G|: the error that an unbiased gradient would have, if draws were independent

In rows named ``sampled``, each vertex draws one neighbor, and G is the mean gradient of ten times as many whole-graph draws. There `tree`
weights are exact but for their normalization. In all other rows a step takes all neighbors, and no first-order weight makes m equal to G.
p - 1 draws (7 by default) see every pair of static chunks once: take a multiple. Each seed has another graph, partition, model and draws;
rows hold the value of every seed, and the table shows their mean with its 95 % interval (Student's t).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_grappa import Inverse, block_model
from claim_figures import interval
from harness import Numbers

from bulksample.data import store
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.grappa.method import Grappa
from bulksample.methods.run import make_trainer
from bulksample.training.batches import EMPTY_BATCH, StepBatch
from bulksample.training.loop import Trainer

STILL = {"hidden": 32, "lr": 0.01, "dropout": 0.0, "threads": 1, "partition": "random", "quiet": True}
GRAPPA = {"method": "grappa", "full_graph": True, "swap_every": 1, "overlap": False}
SAMPLED = {"full_graph": False, "sampler": "sage", "batch_size": 2**31, "bulk_size": 1}
TARGET_DRAWS = 10  # whole-graph draws for each draw of the parts, so that the noise of the target is small beside theirs
VIEWS: dict[str, dict[str, Any]] = {
    "strict, static": {"view": "strict"}, "strict, fresh": {"view": "strict", "chunking": "fresh"},
    "halo, static": {"view": "halo"}, "halo, fresh": {"view": "halo", "chunking": "fresh"},
    "sampled, strict, fresh": {"view": "strict", "chunking": "fresh", "seed_weights": "tree", **SAMPLED},
}  # fmt: skip
Weights = dict[str, tuple[type[Grappa], dict[str, Any]]]
WEIGHTS: Weights = {
    "uniform": (Grappa, {"seed_weights": "none"}),
    "batch": (Grappa, {"seed_weights": "batch", "shrink": 1.0}),
    "node, lambda of ESS": (Grappa, {}),
    "node, lambda 1": (Grappa, {"shrink": 1.0}),
    "node, first hop, lambda 1": (Grappa, {"shrink": 1.0, "weight_hops": 1}),
    "1/kappa": (Inverse, {}),
}
OF_SAMPLED: Weights = {
    "uniform": (Grappa, {"seed_weights": "none"}),
    "node, lambda 1": (Grappa, {"seed_weights": "node", "shrink": 1.0}),
    "tree": (Grappa, {}),
}
FIGURES = ("cosine_of_one", "cosine_of_mean", "error_of_mean", "noise")


def gradient(trainer: Trainer, batch: StepBatch = EMPTY_BATCH) -> np.ndarray:
    """Return the gradient of one step of all ranks."""
    trainer.context.optimizer.zero_grad()
    loss, counted = trainer.method.loss(trainer.context, batch)
    loss.backward()
    trainer.method.combine_gradients(trainer.context, torch.tensor([counted, loss.detach(), 0.0]))
    return torch.cat([parameter.grad.reshape(-1) for parameter in trainer.model.parameters()]).numpy().astype(np.float64)


def at(trainer: Trainer, epoch: int) -> None:
    """Move the trainer to the beginning of an epoch."""
    trainer.context.batches.load_state_dict(trainer.context.batches.state_dict() | {"epoch": epoch, "step": 0})


def gradients(directory: Path, comm: Comm, asked: dict[str, Any], weights: dict[str, Any], draws: int) -> dict[str, np.ndarray]:
    """Return a gradient for each kind of weights and each super-epoch: shape (draws, parameters)."""
    trainer = make_trainer(TrainConfig.of(**GRAPPA | asked, epochs=draws), directory, comm)
    trainer.model.load_state_dict(weights)
    method, kinds = trainer.method, WEIGHTS if trainer.config.full_graph else OF_SAMPLED
    plain, found = method.config, {name: [] for name in kinds}  # type: tuple[Any, dict[str, list[np.ndarray]]]
    for turn in range(draws):
        at(trainer, turn)
        method.begin_round(trainer.context)
        (batch,) = trainer.context.batches
        for name, (kind, options) in kinds.items():
            method.config = plain.model_copy(update=options)
            method._raw, method._amount = kind._coverage_weights(method)
            found[name].append(gradient(trainer, batch))
        method.config = plain
    return {name: np.array(drawn) for name, drawn in found.items()}


def sampled_target(directory: Path, asked: dict[str, Any], weights: dict[str, Any], draws: int) -> np.ndarray:
    """Return the mean gradient of steps on the whole graph whose vertices draw their neighbors."""
    trainer = make_trainer(TrainConfig.of(**asked | {"method": "sync", "partition": "block"}, epochs=draws), directory)
    trainer.model.load_state_dict(weights)
    found = []
    for epoch in range(draws):
        at(trainer, epoch)
        found += [gradient(trainer, batch) for batch in trainer.context.batches]
    return np.mean(found, axis=0)


def line(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return the figures of a row for one seed."""

    def cosine(g: np.ndarray) -> float:
        return float(g @ truth / np.linalg.norm(g) / np.linalg.norm(truth))

    mean, size = found.mean(0), np.linalg.norm(truth)
    scatter = np.square(found - mean).sum() / max(1, len(found) - 1)
    figures = (np.mean([cosine(g) for g in found]), cosine(mean), np.linalg.norm(mean - truth) / size, (scatter / len(found)) ** 0.5 / size)
    return dict(zip(FIGURES, map(float, figures), strict=True))


def measure(directory: Path, seed: int, layers: int, ranks: int, draws: int) -> dict[tuple[str, str], dict[str, float]]:
    """Return the figures of every view and kind of weights, for one seed."""
    asked = {**STILL, "seed": seed, "layers": layers}
    full = make_trainer(TrainConfig.of(**asked, method="full", epochs=20, eval_every=20), directory)
    full.run()
    truth, weights, rows = gradient(full), full.model.state_dict(), {}
    one_each = {"fanouts": (1,) * layers}
    whole = {key: value for key, value in SAMPLED.items() if key != "full_graph"}
    target = sampled_target(directory, asked | one_each | whole, weights, TARGET_DRAWS * draws)
    for view, settings in VIEWS.items():
        sampled = "full_graph" in settings
        options = (asked | settings | (one_each if sampled else {}), weights, draws)
        found = on_threads(ranks, lambda comm, options=options: gradients(directory, comm, *options), timeout=600.0)[0]
        rows |= {(view, name): line(drawn, target if sampled else truth) for name, drawn in found.items()}
    return rows


def shown(values: list[float]) -> str:
    """Format the mean over seeds with its interval."""
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return interval(float(np.mean(values)), error, len(values), 2, "") if len(values) > 1 else f"{values[0]:.2f}"


def grappa_gradient(
    seeds: Numbers = (0, 1, 2, 3, 4), draws: int = 42, layers: Numbers = (2, 3), ranks: int = 8
) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for depth in layers:
        found = []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                store.save(block_model(seed), Path(folder) / "graph")
                found.append(measure(Path(folder) / "graph", seed, depth, ranks, draws))
        for view, name in found[0]:
            values = {figure: [one[view, name][figure] for one in found] for figure in FIGURES}
            rows.append({"layers": depth, "view": view, "weights": name, **values})
            print(f"| {depth} | {view} | {name} | {' | '.join(map(shown, values.values()))} |", flush=True)
        yield {"seeds": seeds, "draws": draws, "ranks": ranks, "rows": rows}
