"""The report of a run: scores, seconds, bytes and memory, the same on every rank but for what a rank decides alone."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from ..distributed.comm.launchers import launched
from ..distributed.comm.ledger import balance, combine
from ..distributed.matrix.placement import Placement
from ..evaluation.evaluate import overlap_warnings, undefined_warnings
from .context import TrainingContext
from .environment import environment
from .method import Method
from .setup import sampled_scoring


class Run(NamedTuple):
    """Hold the figures of a run that the loop counts, for its report.

    Parameters
    ----------
    epochs : int
        Trained in this run, with `steps` optimizer steps.
    seconds : float
        From the first step to the last evaluation; `epoch_seconds` are those of each epoch, without evaluation.
    warnings : list of str
        Printed so far; on rank 0.
    data : dict
        Sizes of the graph.
    backend, threads : str, int
        The back end that samples, and its threads.
    """

    epochs: int
    seconds: float
    epoch_seconds: list[float]
    steps: int
    resumed: bool
    stopped: bool
    failed_saves: int
    warnings: list[str]
    data: dict[str, Any]
    placement: Placement
    backend: str
    threads: int


def told(scores: dict[str, float]) -> dict[str, float | None]:
    """Return scores as reports and callbacks give them: None for one that is not defined."""
    return {name: None if math.isnan(value) else value for name, value in scores.items()}


def report_of(context: TrainingContext, method: Method, run: Run) -> dict[str, Any]:
    """Return the report of a run as a JSON object, and print what is to be said of its scores; collective."""
    config, comm, progress = context.config, context.comm, context.progress
    warnings = undefined_warnings(progress.best_scores)
    scores = told(progress.best_scores)
    warnings += [] if config.task == "links" else overlap_warnings(scores, config.seeds)
    for warning in warnings if comm.rank == 0 else ():
        print(f"bulksample: warning: {warning}", file=sys.stderr)
    ledgers, memory = comm.gather_control(context.ledger.total()), comm.gather_control(context.view.held_bytes())
    read = comm.gather_control(context.view.read_bytes)
    return {
        "method": method.name,
        "model": config.model,
        "sampler": config.sampler,
        "fanouts": list(config.fanouts),
        "batch_size": config.batch_size,
        "ranks": comm.size,
        "virtual_ranks": context.virtual_ranks,
        "launcher": launched().launcher,
        "epochs": context.epoch,
        "epochs_in_this_run": run.epochs,
        "steps": progress.steps,
        "train_loss": progress.last_loss,
        "test_accuracy": scores.get("test_accuracy"),
        "val_accuracy": scores.get("val_accuracy"),
        "metric": config.metric,
        "target": config.target,
        "evaluation": _evaluation(context),
        **{key: value for key, value in scores.items() if key not in ("test_accuracy", "val_accuracy")},
        "best_epoch": progress.best_epoch,
        "seconds_per_epoch": sum(run.epoch_seconds) / max(1, len(run.epoch_seconds)),
        "seconds": run.seconds,
        **(spent := combine(ledgers)),
        "collectives_per_step": spent["training_collectives"]["total"] / max(1, run.steps),
        "balance": balance(ledgers),
        **run.placement.describe(comm),
        "held_bytes": {part: max(rank[part] for rank in memory) for part in memory[0]},
        "read_bytes": read,
        "parameters": context.model.size,
        **context.model.describe(),
        "backend": run.backend,
        **context.compute.describe(),
        "device_comm": context.tensor_comm.name,
        "threads": run.threads,
        "thread_division": context.threads._asdict(),
        **context.batches.describe(),
        **method.describe(),
        "seed": config.seed,
        "resumed": run.resumed,
        "stopped": run.stopped,
        "failed_saves": run.failed_saves,
        "warnings": [*run.warnings, *warnings],
        "data": run.data,
        "config": config.model_dump(mode="json"),
        "environment": environment(),
    }


def _evaluation(context: TrainingContext) -> dict[str, Any]:
    """Return the kind of the scores, and what was sampled for them."""
    config = context.config
    if config.evaluation == "exact":
        return {"kind": "exact", "streamed": context.view.share.streamed}
    if config.evaluation == "none":
        return {"kind": "none"}
    scoring = sampled_scoring(config, context.view)
    return {"kind": "sampled", "fanouts": list(scoring.sampler.fanouts), "seeds": scoring.most or "all"}
