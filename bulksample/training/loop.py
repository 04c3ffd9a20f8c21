"""The training loop that all methods share. A method changes it through the hooks of `training.method`.

    for each round (epoch):
        agree on the number of steps
        for each step:   fetch x;  loss = model(blocks, x);  gradients;  combine over ranks;  Adam
        evaluate, if it is due;  keep the best weights by validation score

Step t trains rank r on mini-batch t p + r, or on a share of the mini-batches of W virtual ranks (`virtual_ranks`). A rank without a
mini-batch takes part in the collectives with zeros. Everything random in a step is seeded by (seed, epoch, step, virtual rank), so a
run that is resumed in the middle of an epoch continues bit by bit.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from ..backends.base import Backend
from ..config.metrics import is_better
from ..config.train import TrainOptions
from ..distributed.comm.agree import agree, together
from ..distributed.comm.base import Comm
from ..distributed.comm.ledger import Ledger, combine, sent_by
from ..distributed.comm.stop_signals import StopSignals
from ..distributed.comm.thread_budget import divide_threads, fair_threads
from ..distributed.comm.threads import SerialComm
from ..distributed.matrix.placement import Placement
from ..errors import UsageError
from ..evaluation.metrics import check_two_classes
from ..graph import Graph
from ..nn.model import Model
from ..relations.graph import HeteroGraph
from ..samplers import Sampler
from ..version import __version__
from . import checkpoint
from .callbacks import Callback
from .choose_device import make_compute_context
from .compute import ComputeContext
from .context import TrainingContext
from .method import Method
from .placed import placed
from .relational_source import held
from .report import Run, report_of, told
from .setup import ViewRequest, check_splits, make_sampler
from .shards import shards_to_rank_0
from .source import Source, fitted, gaps, preferred, shared_fingerprint, sizes_of, verify
from .state import capture, read, restore
from .step import Stepper
from .step_sums import StepSums
from .temporary_store import readable
from .virtual_ranks import virtual_ranks
from .weights import has_batch_norm


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

    Attributes
    ----------
    context : TrainingContext
        The state of the run, which the hooks of the method receive.

    Raises
    ------
    UsageError
        If an option does not fit this graph, or the ranks were given different options.
    """

    def __init__(
        self, config: TrainOptions, graph: Source, comm: Comm | None = None, callbacks: Sequence[Callback] = (),
        compute: ComputeContext | None = None, *, method: type[Method], module: nn.Module | None = None,
    ) -> None:  # fmt: skip
        self.config, self.comm = config, comm or SerialComm()
        before = sent_by(self.comm)
        self.callbacks = list(callbacks) if self.comm.rank == 0 else []
        options = {f"option {key}": value for key, value in config.model_dump(mode="json").items()}
        agree(self.comm, {"version": __version__, **options})

        self._store = None if isinstance(graph, Graph | HeteroGraph) else str(graph)
        graph = held(graph, config, self.comm)

        def prepared() -> tuple[TrainOptions, Method, Placement, ComputeContext]:
            config, place = fitted(self.config, graph), compute
            if config.checkpoint or config.resume:
                checkpoint.require()
            made = method(config)
            if module is not None:
                made.train_module(module)
            where = placed(config, method.name, preferred(graph, method.graphs), method.feature_placements, self.comm)
            return config, made, where, place or make_compute_context(config)

        config, self.method, placement, compute = together(self.comm, prepared)
        self.config = config
        self.placement = placement = placement.on_devices(self.comm) if compute.has_device else placement
        self.total_threads = config.threads or fair_threads(self.comm)
        threads = divide_threads(self.total_threads, config.sampling_threads, waits=placement.partitioned or compute.ahead)
        torch.set_num_threads(threads.compute)

        def backend_and_sampler() -> tuple[Backend, Sampler]:
            if threads.sample and placement.partitioned:
                self.comm.check_threads()
            return compute.backend(config, threads.sample or self.total_threads), make_sampler(config)

        backend, sampler = together(self.comm, backend_and_sampler)
        self.backend = backend.name

        mark = shared_fingerprint(graph, self.comm)
        verify(graph, self.comm, config.check)
        snapshot = read(config, self.comm)
        state = None if snapshot is None else snapshot[1]
        virtual = virtual_ranks(config, self.comm, state, self.method.name, self.method.elastic)
        opened, self._folder = readable(graph, self.method.needs_store(placement), self.comm)
        view = self.method.open(ViewRequest(opened, mark, placement, backend, sampler, self.comm, threads.gather, virtual, self._store))
        self._warnings: list[str] = []  # on rank 0
        for warning in gaps(graph, config) if self.comm.rank == 0 else ():
            self._warn(warning)
        if config.metric == "rocauc" and config.target == "class":
            check_two_classes(view.num_classes)
        check_splits(config, view)
        ledger, tensor_comm = Ledger(self.comm, view.sampling, compute.phase, before), self.method.tensor_comm(compute, self.comm)
        place = placement.place(self.comm) if config.seed_locality else self.comm.rank
        context = self.context = TrainingContext(config, self.comm, compute, tensor_comm, sampler, threads, ledger, view, virtual, place)
        self.method.view(context)
        self.data = {**sizes_of(graph), "features": view.num_features, "classes": view.num_classes, "seeds": len(view.seeds)}
        context.batches = self.method.batches(context)
        if context.batches.together != config.fetch_together:
            raise UsageError(
                f"method {method.name!r} fetches features of one mini-batch at a time; got fetch_together {config.fetch_together}: use 1"
            )
        context.set_model(self.method.model(context, 0))
        if config.seed_locality and has_batch_norm(context.model):
            self._warn(
                f"batch norm takes its statistics from mini-batches, and seed_locality {config.seed_locality} draws each from a part of "
                "the graph; use layer_norm"
            )
        self.epoch_seconds: list[float] = []  # of the epochs of this run, without evaluation
        self.steps_of_run = 0
        self.stopped = False
        self._stepper, self._sums = Stepper(context, self.method, self._store), StepSums(compute)
        self.failed_saves = 0
        self.resumed = snapshot is not None
        if snapshot is not None:
            restore(context, self.method, *snapshot)

    def _warn(self, warning: str) -> None:
        """Print a warning on rank 0, and keep it for the report."""
        if self.comm.rank == 0:
            print(f"bulksample: warning: {warning}", file=sys.stderr)
            self._warnings.append(warning)

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
            if self.config.checkpoint and not self.resumed and self.comm.rank == 0:
                checkpoint.clear(self.config.checkpoint)  # with the lines of their epochs, which a callback replaces now
            for callback in self.callbacks:
                callback.begin(first, sum(stages), self.context.batches.steps)
            with StopSignals() as signals:
                while self.context.progress.stage < len(stages) and not self.stopped:
                    self._stage(stages, signals)
            self.context.compute.synchronize()  # memory is given back now, and bulks sampled ahead, or queued steps, may still read it
        except BaseException:
            if self.comm.size == 1:  # else a message between devices may never end
                with suppress(RuntimeError):  # the device may be what failed, and its error is under way
                    self.context.compute.synchronize()
            raise
        finally:
            for callback in self.callbacks:
                callback.end()
        return self._report(self.context.epoch - first, time.perf_counter() - start)

    # ---- one stage, one round, one step

    def _stage(self, stages: list[int], signals: StopSignals) -> None:
        """Run the remaining rounds of a stage; afterwards the model has its best weights."""
        context, progress = self.context, self.context.progress
        self.method.begin_stage(context, progress.stage)
        if not progress.rounds:
            progress.best_epoch = -1
        while progress.rounds < stages[progress.stage] and not progress.finished and not self.stopped:
            self._round(stages, signals)
        if self.stopped:
            return
        if context.best_weights:
            context.model.load_state_dict(context.best_weights)
        self.method.end_stage(context, progress.stage)
        progress.next_stage()
        if progress.stage < len(stages):
            context.set_model(self.method.model(context, progress.stage))

    def _round(self, stages: list[int], signals: StopSignals) -> None:
        """Run the remaining steps of one epoch, evaluate and save; return early if a signal asks to stop."""
        start, context, progress = time.perf_counter(), self.context, self.context.progress
        self.method.begin_round(context)
        epoch, done = context.epoch, context.step
        remaining = context.batches.steps - done
        steps = remaining if self.method.equal_steps else max(self.comm.gather_control(remaining))
        batches = iter(context.batches)
        for step in range(done, done + steps):
            self._sums.add(step, self._stepper.step(batches, epoch, step, signals.received))
            progress.steps, self.steps_of_run = progress.steps + 1, self.steps_of_run + 1
            saves = bool(self.config.checkpoint_every) and progress.steps % self.config.checkpoint_every == 0
            alone_and_stopped = self.comm.size == 1 and signals.received
            self._count(epoch, now=saves or alone_and_stopped or step == done + steps - 1)
            if self.stopped or saves:
                self.save()
            if self.stopped:
                context.batches.drop()
                return
        for _ in batches:  # asking once more moves the loader on to the next epoch
            raise UsageError(f"the ranks agreed on {steps} steps, but the loader of rank {self.comm.rank} has more")
        seconds = time.perf_counter() - start
        self.epoch_seconds.append(seconds)
        self._end_epoch(epoch, seconds, last=progress.rounds + 1 >= stages[progress.stage])

    def _count(self, epoch: int, now: bool) -> None:
        """Count the steps whose sums are on the host; with `now`, or if one of them asks to stop, all of them."""
        progress = self.context.progress
        with self.context.ledger.phase("step"):
            known = self._sums.read(now)
            if any(one.sums[2] > 0 for one in known):
                known += self._sums.read(now=True)
        for step, sums, late in known:
            if late and not torch.isfinite(sums[1]):
                self._stepper.explain(float(sums[1]), epoch, step)
            progress.seeds += float(sums[0])
            progress.loss += float(sums[1])
            for callback in self.callbacks:
                callback.step(epoch, step, float(sums[1] / sums[0].clamp(min=1)))
            self.stopped = self.stopped or bool(sums[2] > 0)

    # ---- after a round

    def _end_epoch(self, epoch: int, seconds: float, last: bool) -> None:
        """Evaluate if due, call the callbacks, then save. Callbacks come first, so every saved epoch has been reported."""
        context, progress = self.context, self.context.progress
        if progress.seeds or progress.last_loss is None:  # a method may count the seeds of some epochs later
            progress.last_loss = progress.loss / max(1.0, progress.seeds)
        progress.seeds = progress.loss = 0.0
        progress.rounds += 1
        scores: dict[str, float] = {}
        if self.config.evaluation == "none":
            self._keep_best(epoch, scores)
        elif last or progress.rounds % self.config.eval_every == 0:
            with context.ledger.phase("evaluate"):  # nothing is sampled meanwhile, so evaluation takes all threads
                torch.set_num_threads(self.total_threads)
                scores = self.method.evaluate(context)
                torch.set_num_threads(context.threads.compute)
            self._keep_best(epoch, scores)
        spent = combine(self.comm.gather_control(context.ledger.take()))
        line = {"epoch": epoch, "steps": progress.steps, "loss": progress.last_loss, "seconds": seconds, **told(scores), **spent}
        for callback in self.callbacks:
            callback.epoch(line)
        if self.config.checkpoint:
            self.save()

    def _keep_best(self, epoch: int, scores: dict[str, float]) -> None:
        """Keep the weights of the best validation score; without one, or if none is defined, the newest."""
        context, progress, metric = self.context, self.context.progress, self.method.metric
        key = f"val_{metric}"
        kept = progress.best_scores if progress.best_epoch >= 0 else {}
        if key in scores and not math.isnan(kept.get(key, math.nan)) and not is_better(metric, scores[key], kept[key]):
            progress.since_best += 1
            progress.finished = 0 < self.config.patience <= progress.since_best
            return
        progress.best_epoch, progress.best_scores, progress.since_best = epoch, scores, 0
        context.best_weights = {name: tensor.detach().clone() for name, tensor in context.model.state_dict().items()}

    def save(self) -> None:
        """Write a checkpoint on rank 0. Print the first failure and continue; the report counts all failures."""
        if not self.config.checkpoint:
            return
        context = self.context
        with context.ledger.phase("checkpoint"):
            self.method.before_save(context)
            shards = shards_to_rank_0(context)
            if not self.comm.rank:
                self._write(shards)
            for _ in shards:  # on other ranks, and those that rank 0 could not write
                pass

    def _write(self, shards: Iterator[dict[str, torch.Tensor]]) -> None:
        """Write a checkpoint; `shards` may be taken in part if it fails."""
        context = self.context
        try:
            checkpoint.save(self.config.checkpoint or "", context.progress.steps, *capture(context, self.method), shards)
        except OSError as error:
            if not self.failed_saves:
                print(f"bulksample: no checkpoint at step {context.progress.steps}, going on: {error}", file=sys.stderr)
            self.failed_saves += 1

    def _report(self, epochs: int, seconds: float) -> dict[str, Any]:
        run = Run(
            epochs, seconds, self.epoch_seconds, self.steps_of_run, self.resumed, self.stopped, self.failed_saves, self._warnings,
            self.data, self.placement, self.backend, self.total_threads,
        )  # fmt: skip
        return report_of(self.context, self.method, run)
