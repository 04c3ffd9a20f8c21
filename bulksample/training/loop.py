"""The training loop that all methods share. A method changes it through the hooks of `training.method`.

    for each round (epoch):
        agree on the number of steps
        for each step:   fetch x;  loss = model(blocks, x);  gradients;  combine over ranks;  Adam
        evaluate, if it is due;  keep the best weights by validation score

Step t trains rank r on mini-batch t p + r, or on a share of the mini-batches of W virtual ranks (`virtual_ranks`). A rank without a
mini-batch takes part in the collectives with zeros. Everything random in a step is seeded by (seed, epoch, step, virtual rank), so a
run that is resumed in the middle of an epoch continues bit by bit.

`training.opening` opens a run, `training.record` keeps its books and reports it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from ..config.train import TrainOptions
from ..distributed.comm.base import Comm
from ..distributed.comm.process_end import StopSignals
from ..distributed.comm.threads import SerialComm
from ..errors import UsageError
from ..nn.model import Model
from .allocator import FreedMemory
from .callbacks import Callback
from .compute import ComputeContext
from .method import Method
from .opening import open_run
from .record import RunRecord, report_of
from .source import Source
from .step import Stepper
from .step_meter import StepMeter


class Trainer:
    """One training run on one rank.

    Parameters
    ----------
    config : TrainOptions
    graph : Graph, or the directory of a store
        With features and labels; the same on every rank. A partitioned graph must be a store.
    comm : Comm, optional
        A single rank by default.
    callbacks : sequence of Callback
        Called on rank 0.
    compute : ComputeContext, optional
        The host or device that computes; by default the one that the configuration names.
    method : class of Method
        The method that the configuration names; `bulksample.methods.load` returns it.
    module : nn.Module, optional
        A model to train in place; see `bulksample.nn.own_model` for what it takes and returns.
    edge_labels : dict, pandas.DataFrame or pyarrow.Table, optional
        The table of labelled edges in memory, in place of the file that the configuration names; see `bulksample.data.edge_table`.

    Attributes
    ----------
    context : TrainingContext
        The state of the run, which the hooks of the method receive.
    opened : OpenRun
        The choices of the run: its placement, back end and threads.
    record : RunRecord
        The books of the run: seconds, steps, failed checkpoints.

    Raises
    ------
    UsageError
        If an option does not fit this graph, or the ranks were given different options.
    """

    def __init__(
        self, config: TrainOptions, graph: Source, comm: Comm | None = None, callbacks: Sequence[Callback] = (),
        compute: ComputeContext | None = None, *, method: type[Method], module: nn.Module | None = None, edge_labels: Any = None,
    ) -> None:  # fmt: skip
        self.comm = comm or SerialComm()
        self.opened = opened = open_run(config, graph, self.comm, compute, method, module, edge_labels)
        self.config, self.method, self.placement = opened.choices[:3]
        self.backend, self.context, self.data = opened.choices.backend.name, opened.context, opened.data
        self._freed_memory = FreedMemory(opened.choices.allocator)
        self._meter = StepMeter(self.context, alone=self.comm.size == 1 and self.method.shared_sums)
        self._stepper = Stepper(self.context, self.method, opened.store, self._meter)
        self.record = RunRecord(opened, callbacks if self.comm.rank == 0 else (), self._stepper.explain)
        self.callbacks, self.epoch_seconds = self.record.callbacks, self.record.epoch_seconds

    @property
    def model(self) -> Model:
        """The model with its current weights."""
        return self.context.model

    def run(self) -> dict[str, Any]:
        """Train to the end, or until a signal or early stopping, and report.

        Returns
        -------
        dict, a JSON object
            Scores at the best validation score, seconds of the slowest rank by phase, bytes summed over ranks, bytes of the graph
            on the rank that holds most. The report is the same on every rank, except for what a rank decides alone (threads, bulk
            size) or does alone (writing checkpoints).
        """
        start, first = time.perf_counter(), self.context.epoch
        stages = self.method.stages()
        try:
            self.record.begin(sum(stages))
            with self._freed_memory, StopSignals() as signals:
                while self.context.progress.stage < len(stages) and not self.record.stopped:
                    self._stage(stages, signals)
            self.context.compute.synchronize()  # memory is given back now, and bulks sampled ahead, or queued steps, may still read it
        except BaseException:
            if self.comm.size == 1:  # else a message between devices may never end
                with suppress(RuntimeError):  # the device may be what failed, and its error is under way
                    self.context.compute.synchronize()
            raise
        finally:
            self.record.end()
        return report_of(self.opened, self.record, self.context.epoch - first, time.perf_counter() - start, self._meter)

    def _stage(self, stages: list[int], signals: StopSignals) -> None:
        """Run the remaining rounds of a stage; afterwards the model has its best weights."""
        context, progress = self.context, self.context.progress
        self.method.begin_stage(context, progress.stage)
        if not progress.rounds:
            progress.best_epoch = -1
        while progress.rounds < stages[progress.stage] and not progress.finished and not self.record.stopped:
            self._round(stages, signals)
        if self.record.stopped:
            return
        if context.best_weights:
            context.model.load_state_dict(context.best_weights)
        self.method.end_stage(context, progress.stage)
        progress.stage, progress.rounds, progress.since_best, progress.finished = progress.stage + 1, 0, 0, False  # scores stay
        if progress.stage < len(stages):
            context.set_model(self.method.model(context, progress.stage))

    def _round(self, stages: list[int], signals: StopSignals) -> None:
        """Run the remaining steps of one epoch, evaluate and save; return early if a signal asks to stop."""
        start, context, record, every = time.perf_counter(), self.context, self.record, self.config.checkpoint_every
        self.method.begin_round(context)
        epoch, done = context.epoch, context.step
        remaining = context.batches.steps - done
        steps = remaining if self.method.equal_steps else max(self.comm.gather_control(remaining))
        batches = iter(context.batches)
        for step in range(done, done + steps):
            with self._meter.step(epoch, step, done + steps):
                sums = self._stepper.step(batches, epoch, step, signals.received)
            record.add_step(step, sums)
            self._freed_memory.end_step()
            saves = bool(every) and context.progress.steps % every == 0
            alone_and_stopped = self.comm.size == 1 and signals.received
            record.count(epoch, now=saves or alone_and_stopped or step == done + steps - 1)
            if record.stopped or saves:
                record.save()
            if record.stopped:
                context.batches.drop()
                return
        for _ in batches:  # asking once more moves the loader on to the next epoch
            raise UsageError(f"the ranks agreed on {steps} steps, but the loader of rank {self.comm.rank} has more")
        record.end_epoch(time.perf_counter() - start)
        last, scores = context.progress.rounds >= stages[context.progress.stage], dict[str, float]()
        if self.config.evaluation == "none":
            record.keep_best(epoch, scores)
        elif last or context.progress.rounds % self.config.eval_every == 0:
            with context.ledger.phase("evaluate"):  # nothing is sampled meanwhile, so evaluation takes all threads
                torch.set_num_threads(self.opened.choices.all_threads)
                scores = self.method.evaluate(context)
                torch.set_num_threads(context.threads.compute)
            record.keep_best(epoch, scores)
        record.tell_epoch(epoch, scores)
        record.save()  # after the callbacks, so every saved epoch has been reported
