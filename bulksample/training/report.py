"""The report of a run: scores, seconds, bytes and memory, the same on every rank but for what a rank decides alone."""

from __future__ import annotations

from typing import Any

from ..distributed.comm.launchers import launched
from ..distributed.comm.ledger import balance, combine
from ..evaluation.evaluate import overlap_warnings, undefined_warnings
from ..log import warn
from .context import TrainingContext
from .environment import environment
from .opening import OpenRun
from .record import RunRecord, none_for_nan
from .setup import sampled_scoring


def report_of(opened: OpenRun, record: RunRecord, epochs: int, seconds: float) -> dict[str, Any]:
    """Return the report of a run as a JSON object, and print warnings about its scores; collective.

    Parameters
    ----------
    opened : OpenRun
    record : RunRecord
    epochs : int
        Trained in this run.
    seconds : float
        From the first step to the last evaluation.
    """
    choices, context, method = opened.choices, opened.context, opened.choices.method
    config, comm, progress = context.config, context.comm, context.progress
    warnings = undefined_warnings(progress.best_scores)
    scores = none_for_nan(progress.best_scores)
    warnings += [] if config.task == "links" else overlap_warnings(scores, config.seeds)
    warn(*warnings if comm.rank == 0 else ())
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
        "epochs_in_this_run": epochs,
        "steps": progress.steps,
        "train_loss": progress.last_loss,
        "test_accuracy": scores.get("test_accuracy"),
        "val_accuracy": scores.get("val_accuracy"),
        "metric": config.metric,
        "target": config.target,
        "evaluation": _evaluation(context),
        **{key: value for key, value in scores.items() if key not in ("test_accuracy", "val_accuracy")},
        "best_epoch": progress.best_epoch,
        "seconds_per_epoch": sum(record.epoch_seconds) / max(1, len(record.epoch_seconds)),
        "seconds": seconds,
        **(spent := combine(ledgers)),
        "collectives_per_step": spent["training_collectives"]["total"] / max(1, record.steps),
        "balance": balance(ledgers),
        **choices.placement.describe(comm),
        "held_bytes": {part: max(rank[part] for rank in memory) for part in memory[0]},
        "read_bytes": read,
        "parameters": context.model.size,
        **context.model.describe(),
        "backend": choices.backend.name,
        **context.compute.describe(),
        "device_comm": context.tensor_comm.name,
        "threads": choices.all_threads,
        "thread_division": context.threads._asdict(),
        **context.batches.describe(),
        **method.describe(),
        "seed": config.seed,
        "resumed": opened.resumed,
        "stopped": record.stopped,
        "failed_saves": record.failed_saves,
        "warnings": [*opened.warnings, *warnings],
        "data": opened.data,
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
