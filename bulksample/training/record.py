"""The books of a run on one rank: sums of its steps, best weights, lines for its callbacks, and checkpoints; and the report of the run.

The report has scores, seconds, bytes and memory, the same on every rank but for what a rank decides alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from ..config.metrics import is_better
from ..distributed.comm.launchers import launched
from ..distributed.comm.ledger import balance, combine
from ..evaluation.evaluate import overlap_warnings, undefined_warnings
from ..log import warn
from . import checkpoint
from .callbacks import Callback
from .environment import environment
from .opening import OpenRun
from .setup import sampled_scoring
from .shards import shards_to_rank_0
from .state import capture
from .step import StepSums
from .step_meter import StepMeter, slowest


class RunRecord:
    """The books of a run, which the loop keeps and the report reads.

    Parameters
    ----------
    opened : OpenRun
    callbacks : sequence of Callback
        Empty on all ranks but rank 0.
    explain : callable
        Raises the error for a loss that is not finite, given the loss, the epoch and the step; see `Stepper.explain`.

    Attributes
    ----------
    epoch_seconds : list of float
        One for each epoch of this run, without evaluation.
    steps : int
        Steps of this run; `Progress.steps` counts those before it too.
    stopped : bool
        True if a signal on any rank asked to stop.
    failed_saves : int
        Checkpoints that could not be written.
    """

    def __init__(self, opened: OpenRun, callbacks: Sequence[Callback], explain: Callable[[float, int, int], NoReturn]) -> None:
        self._context, self._method, self._resumed, self._explain = opened.context, opened.choices.method, opened.resumed, explain
        self._folder, self._sums, self.callbacks = opened.context.config.checkpoint, StepSums(opened.context.compute), list(callbacks)
        self.epoch_seconds: list[float] = []
        self.steps, self.stopped, self.failed_saves = 0, False, 0

    def begin(self, epochs: int) -> None:
        """Call the callbacks; a run that begins anew removes the checkpoints that it replaces."""
        if self._folder and not self._resumed and self._context.comm.rank == 0:
            checkpoint.clear(self._folder)  # with the lines of their epochs, which a callback replaces now
        for callback in self.callbacks:
            callback.begin(self._context.epoch, epochs, self._context.batches.steps)

    def end(self) -> None:
        """Call the callbacks; the run has ended, complete or not."""
        for callback in self.callbacks:
            callback.end()

    def add_step(self, step: int, sums: torch.Tensor) -> None:
        """Take the sums of the newest step, which the host may know later."""
        self._sums.add(step, sums)
        self.steps += 1
        self._context.progress.steps += 1

    def count(self, epoch: int, now: bool) -> None:
        """Count the steps whose sums are on the host; with `now`, or if one of them asks to stop, all of them."""
        progress = self._context.progress
        with self._context.ledger.phase("step"):
            known = self._sums.read(now)
            if any(one.sums[2] > 0 for one in known):
                known += self._sums.read(now=True)
        for step, sums, late in known:
            if late and not torch.isfinite(sums[1]):
                self._explain(float(sums[1]), epoch, step)
            progress.seeds += float(sums[0])
            progress.loss += float(sums[1])
            for callback in self.callbacks:
                callback.step(epoch, step, float(sums[1] / sums[0].clamp(min=1)))
            self.stopped = self.stopped or bool(sums[2] > 0)

    def end_epoch(self, seconds: float) -> None:
        """Close the loss of an epoch whose steps have been counted."""
        progress = self._context.progress
        self.epoch_seconds.append(seconds)
        if progress.seeds or progress.last_loss is None:  # a method may count the seeds of some epochs later
            progress.last_loss = progress.loss / max(1.0, progress.seeds)
        progress.seeds = progress.loss = 0.0
        progress.rounds += 1

    def keep_best(self, epoch: int, scores: dict[str, float]) -> None:
        """Keep the weights of the best validation score; without one, or if none is defined, the newest."""
        context, progress, metric = self._context, self._context.progress, self._method.metric
        key = f"val_{metric}"
        best = progress.best_scores.get(key, math.nan) if progress.best_epoch >= 0 else math.nan
        if key in scores and not math.isnan(best) and not is_better(metric, scores[key], best):
            progress.since_best += 1
            progress.finished = 0 < context.config.patience <= progress.since_best
            return
        progress.best_epoch, progress.best_scores, progress.since_best = epoch, scores, 0
        context.best_weights = {name: tensor.detach().clone() for name, tensor in context.model.state_dict().items()}

    def tell_epoch(self, epoch: int, scores: dict[str, float]) -> None:
        """Give the callbacks the line of an epoch; collective."""
        context, progress = self._context, self._context.progress
        spent = combine(context.comm.gather_control(context.ledger.take()))
        loss, seconds = progress.last_loss, self.epoch_seconds[-1]
        line = {"epoch": epoch, "steps": progress.steps, "loss": loss, "lr": progress.lr, "seconds": seconds}
        line |= {**none_for_nan(scores), **spent}
        for callback in self.callbacks:
            callback.epoch(line)

    def save(self) -> None:
        """Write a checkpoint on rank 0, if the run keeps any. Print the first failure and continue; the report counts all failures."""
        if not self._folder:
            return
        context = self._context
        with context.ledger.phase("checkpoint"):
            self._method.before_save(context)
            shards = shards_to_rank_0(context)
            if not context.comm.rank:
                steps = context.progress.steps
                try:
                    checkpoint.save(self._folder, steps, *capture(context, self._method), shards)
                except OSError as error:
                    if not self.failed_saves:
                        print(f"bulksample: no checkpoint at step {steps}, going on: {error}", file=sys.stderr)
                    self.failed_saves += 1
            for _ in shards:  # on other ranks, and those that rank 0 could not write
                pass


def none_for_nan(scores: dict[str, float]) -> dict[str, Any]:
    """Return scores as reports and callbacks give them: None for one that is not defined."""
    return {name: None if math.isnan(value) else value for name, value in scores.items()}


def report_of(opened: OpenRun, record: RunRecord, epochs: int, seconds: float, meter: StepMeter) -> dict[str, Any]:
    """Return the report of a run as a JSON object, and print warnings about its scores; collective.

    `epochs` were trained in this run, in `seconds` from the first step to the last evaluation. `meter` has measured its steps.
    """
    choices, context, method = opened.choices, opened.context, opened.choices.method
    config, comm, progress = context.config, context.comm, context.progress
    warnings = undefined_warnings(progress.best_scores)
    scores = none_for_nan(progress.best_scores)
    warnings += [] if config.task == "links" else overlap_warnings(scores, config.seeds, "edges" if config.task == "edges" else "vertices")
    warn(*warnings if comm.rank == 0 else ())
    ledgers, memory = comm.gather_control(context.ledger.total()), comm.gather_control(context.view.held_bytes())
    read, steps = zip(*comm.gather_control([context.view.read_bytes, meter.figures()]), strict=True)
    evaluation: dict[str, Any] = {"kind": config.evaluation}
    if config.evaluation == "exact":
        evaluation["streamed"] = context.view.share.streamed
    elif config.evaluation == "sampled":
        scoring = sampled_scoring(config, context.view)
        evaluation |= {"fanouts": list(scoring.sampler.fanouts), "seeds": scoring.most or "all"}
    return {
        "method": method.name, "model": config.model, "sampler": config.sampler, "fanouts": list(config.fanouts),
        "batch_size": config.batch_size, "ranks": comm.size, "virtual_ranks": context.virtual_ranks, "launcher": launched().launcher,
        "epochs": context.epoch, "epochs_in_this_run": epochs, "steps": progress.steps, "train_loss": progress.last_loss,
        "lr": progress.lr,
        "test_accuracy": scores.get("test_accuracy"), "val_accuracy": scores.get("val_accuracy"),
        "metric": config.metric, "target": config.target, "evaluation": evaluation,
        **{key: value for key, value in scores.items() if key not in ("test_accuracy", "val_accuracy")},
        "best_epoch": progress.best_epoch,
        "seconds_per_epoch": sum(record.epoch_seconds) / max(1, len(record.epoch_seconds)), "seconds": seconds, "step": slowest(steps),
        **(spent := combine(ledgers)),
        "collectives_per_step": spent["training_collectives"]["total"] / max(1, record.steps), "balance": balance(ledgers),
        **choices.placement.describe(comm),
        "held_bytes": {part: max(rank[part] for rank in memory) for part in memory[0]}, "read_bytes": list(read),
        "parameters": context.model.size, **context.model.describe(),
        "backend": choices.backend.name, **context.compute.describe(), "device_comm": context.tensor_comm.name,
        "threads": choices.all_threads, "thread_division": context.threads._asdict(),
        "allocator": choices.allocator,
        **context.batches.describe(),
        **method.describe(),
        "seed": config.seed, "resumed": opened.resumed, "stopped": record.stopped, "failed_saves": record.failed_saves,
        "warnings": [*opened.warnings, *warnings], "data": opened.data, "config": config.model_dump(mode="json"),
        "environment": environment(),
    }  # fmt: skip
