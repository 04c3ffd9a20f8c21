"""The training loop, the only one. Methods change what their paper changes through the hooks of `training.method`.

    for each round (epoch):
        agree on the number of steps
        for each step:   fetch x;  loss = model(blocks, x);  gradients;  combine over ranks;  Adam
        evaluate exactly;  keep the best weights by validation

Step t trains rank r on minibatch t p + r. A rank without a minibatch takes part in the collectives with zeros.
Everything random in a step is seeded by (seed, epoch, step, rank), so a run that is resumed in the middle of an epoch
goes on bit by bit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import methods
from ..config.train import TrainConfig
from ..distributed.comm.agree import agree
from ..distributed.comm.base import Comm
from ..distributed.comm.launchers import launched
from ..distributed.comm.ledger import Ledger, balance, combine
from ..distributed.comm.thread_budget import divide_threads, fair_threads
from ..distributed.comm.threads import SerialComm
from ..errors import UsageError
from ..evaluation.metrics import check_metric
from ..nn.model import Model
from ..rng import Purpose, Stream, as_u64
from ..version import __version__
from ..views.view import View
from . import checkpoint
from .batches import NOTHING, Step
from .choose_device import make_compute_context
from .compute import ComputeContext
from .environment import environment
from .observers import Observer
from .setup import Source, make_sampler, open_view, sizes_of
from .signals import StopSignals
from .state import Progress, capture, resume
from .weights import weights_of_rank_0


class Trainer:
    """One training run on one rank.

    Parameters
    ----------
    config : TrainConfig
    graph : Graph, or the directory of a store
        With features and labels; the same on every rank. In block rows over the ranks if the configuration says so.
    comm : Comm, optional
        Alone unless given.
    observers : sequence of Observer
        Told on rank 0.
    place : Place, optional
        Where this rank computes; what the configuration says unless given.

    Raises
    ------
    UsageError
        If the request has no meaning on this graph, or the ranks do not agree on what they were asked.
    """

    def __init__(
        self,
        config: TrainConfig,
        graph: Source,
        comm: Comm | None = None,
        observers: Sequence[Observer] = (),
        place: ComputeContext | None = None,
    ) -> None:
        self.config, self.comm = config, comm or SerialComm()
        self.observers = list(observers) if self.comm.rank == 0 else []
        asked = {f"option {key}": value for key, value in config.model_dump(mode="json").items()}
        agree(self.comm, {"version": __version__, **asked})

        self.method = methods.make(config)
        self.threads = config.threads or fair_threads(self.comm)
        self.placement = config.graph or self.method.graphs[0]
        self.place = place or make_compute_context(config)
        self.division = divide_threads(self.threads, config.sampling_threads, waits=self.placement == "partitioned" or self.place.ahead)
        torch.set_num_threads(self.division.compute)
        backend, self.sampler = self.place.backend(config, self.division.sample or self.threads), make_sampler(config)
        self.backend = backend.name
        view = open_view(config, self.placement, graph, backend, self.sampler, self.method, self.comm, self.division.gather)
        if config.task == "nodes":
            check_metric(config.metric, view.num_classes)
        self.ledger = Ledger(self.comm, view.sampling, self.place.phase)
        self.tensors = self.method.tensors(self.place, self.comm)
        if self.method.apart:
            self.view = self.bring(self.method.view(view, self.comm))
        else:
            self.view = self.method.view(self.bring(view), self.comm)
        self.data = {**sizes_of(graph), "features": view.num_features, "classes": view.num_classes, "seeds": len(view.seeds)}
        self.batches = self.method.batches(self)
        if self.batches.together != config.fetch_together:
            raise UsageError(f"method {config.method!r} fetches no features of several minibatches at once: fetch_together 1 would fit")

        self._stream = Stream(config.seed)
        self.progress = Progress()
        self.set_model(self.method.model(self, 0))
        self.seconds: list[float] = []  # of the epochs of this run, without evaluation
        self.stopped = False
        self.failed_saves = 0
        self.resumed = resume(self) if config.resume else False

    def bring(self, view: View) -> View:
        """A view, brought to where this rank computes; collective where its adjacency is."""
        return self.place.move_view(view, self.tensors, self.sampler, self.division.sample > 0)

    def set_model(self, model: Model) -> None:
        """Train another model from now on: rank 0's weights for all ranks, ``(p - 1) |theta|`` words (kind "model"), and a fresh Adam."""
        weights_of_rank_0(model, self.comm)
        model = self.place.move_model(model)
        self.model, self.best_weights = model, dict[str, torch.Tensor]()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=self.config.lr, weight_decay=self.config.weight_decay)

    @property
    def epoch(self) -> int:
        """The epoch under way."""
        return self.batches.epoch

    @property
    def step(self) -> int:
        """Steps made in this epoch."""
        return self.batches.step

    def run(self) -> dict[str, Any]:
        """Train to the end, or until a signal or early stopping, and report.

        Returns
        -------
        dict of what JSON can say
            Scores at the best validation score, seconds of the slowest rank by phase, bytes summed over ranks, bytes of the graph
            on the rank that holds most. Alike on
            every rank, except for what a rank decides alone (threads, bulk size) or does alone (writing checkpoints).
        """
        began, first = time.perf_counter(), self.epoch
        try:
            for observer in self.observers:
                observer.begin(first, sum(map(self.method.rounds, range(self.method.stages()))), self.batches.steps)
            with StopSignals() as signals:
                while self.progress.stage < self.method.stages() and not self.stopped:
                    self._stage(signals)
        finally:
            for observer in self.observers:
                observer.end()
        return self._report(self.epoch - first, time.perf_counter() - began)

    # ---- one stage, one round, one step

    def _stage(self, signals: StopSignals) -> None:
        """What remains of the rounds of a stage; afterwards the model has its best weights."""
        progress = self.progress
        self.method.begin_stage(self, progress.stage)
        if not progress.rounds:
            progress.best_epoch = -1
        while progress.rounds < self.method.rounds(progress.stage) and not progress.finished and not self.stopped:
            self._round(signals)
        if self.stopped:
            return
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        self.method.end_stage(self, progress.stage)
        progress.next_stage()
        if progress.stage < self.method.stages():
            self.set_model(self.method.model(self, progress.stage))

    def _round(self, signals: StopSignals) -> None:
        """One epoch and what follows it; or a part of one, where a signal asks to stop."""
        began = time.perf_counter()
        self.method.begin_round(self)
        epoch, done = self.epoch, self.step
        steps = self.method.steps(self.batches.steps - done, self.comm)
        supplied = iter(self.batches)
        for step in range(done, done + steps):
            sums = self._step(next(supplied, NOTHING), epoch, step, signals.received)
            self.progress.steps += 1
            self.progress.seeds += float(sums[0])
            self.progress.loss += float(sums[1])
            for observer in self.observers:
                observer.step(epoch, step, float(sums[1] / sums[0].clamp(min=1)))
            self.stopped = bool(sums[2] > 0)
            every = self.config.checkpoint_every
            if self.stopped or (every and self.progress.steps % every == 0):
                self.save()
            if self.stopped:
                self.batches.drop()
                return
        for _ in supplied:  # the loader moves on to the next epoch when it is asked once more
            raise UsageError(f"the method {self.method.name!r} agreed on {steps} steps, but the loader of rank {self.comm.rank} has more")
        self.method.end_round(self)
        seconds = time.perf_counter() - began
        self.seconds.append(seconds)
        self._end_epoch(epoch, seconds)

    def _step(self, supplied: Step, epoch: int, step: int, stop: bool) -> torch.Tensor:
        """One step of the optimiser; returns seeds, summed loss and wishes to stop, over all ranks."""
        self.model.generator.manual_seed(self.word(epoch, step))
        self.optimizer.zero_grad()
        sums = torch.tensor([0.0, 0.0, float(stop)])
        with self.ledger.phase("forward"):
            loss, counted = self.method.loss(self, supplied)
        if loss is not None:
            with self.ledger.phase("backward"):
                loss.backward()
            sums[0], sums[1] = counted, loss.detach()
        with self.ledger.phase("reduce"):
            sums = self.method.combine_gradients(self, sums)
        if not torch.isfinite(sums[1]):
            raise UsageError(f"the loss is {sums[1].item()} in epoch {epoch}, step {step}; a lower lr, or feature_norm l2, would fit")
        with self.ledger.phase("step"):
            if sums[0] > 0:
                self.optimizer.step()
        with self.ledger.phase("reduce"):
            return self.method.end_step(self, sums)

    # ---- after a round

    def _end_epoch(self, epoch: int, seconds: float) -> None:
        progress = self.progress
        if progress.seeds or progress.last_loss is None:  # a method may tell of some epochs later
            progress.last_loss = progress.loss / max(1.0, progress.seeds)
        progress.seeds = progress.loss = 0.0
        progress.rounds += 1
        last = progress.rounds >= self.method.rounds(progress.stage)
        scores: dict[str, float] = {}
        if last or progress.rounds % self.config.eval_every == 0:
            with self.ledger.phase("evaluate"):  # nothing is sampled meanwhile
                torch.set_num_threads(self.threads)
                scores = self.method.evaluate(self)
                torch.set_num_threads(self.division.compute)
            self._judge(epoch, scores)
        if self.config.checkpoint:
            self.save()
        spent = combine(self.comm.gather_control(self.ledger.take()))
        line = {"epoch": epoch, "steps": progress.steps, "loss": progress.last_loss, "seconds": seconds, **scores, **spent}
        for observer in self.observers:
            observer.epoch(line)

    def _judge(self, epoch: int, scores: dict[str, float]) -> None:
        """Keep the weights of the best validation score; without a validation split, the newest."""
        progress, key = self.progress, f"val_{self.config.metric}"
        if key in scores and progress.best_epoch >= 0 and scores[key] <= progress.best_scores[key]:
            progress.since_best += 1
            progress.finished = 0 < self.config.patience <= progress.since_best
            return
        progress.best_epoch, progress.best_scores, progress.since_best = epoch, scores, 0
        self.best_weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def save(self) -> None:
        """Write a checkpoint on rank 0. A failure is told once and training goes on; the report counts it."""
        if not self.config.checkpoint:
            return
        with self.ledger.phase("checkpoint"):
            self.method.before_save(self)
            if self.comm.rank:
                return
            try:
                checkpoint.save(self.config.checkpoint, self.progress.steps, *capture(self))
            except OSError as error:
                if not self.failed_saves:
                    print(f"bulksample: no checkpoint at step {self.progress.steps}, going on: {error}", file=sys.stderr)
                self.failed_saves += 1

    def _report(self, epochs: int, seconds: float) -> dict[str, Any]:
        scores = self.progress.best_scores
        ledgers, held = self.comm.gather_control(self.ledger.total()), self.comm.gather_control(self.view.memory)
        config = self.config
        return {
            "method": config.method,
            "model": config.model,
            "sampler": config.sampler,
            "fanouts": list(config.fanouts),
            "batch_size": config.batch_size,
            "ranks": self.comm.size,
            "launcher": launched().launcher,
            "epochs": self.epoch,
            "epochs_in_this_run": epochs,
            "steps": self.progress.steps,
            "train_loss": self.progress.last_loss,
            "test_accuracy": scores.get("test_accuracy"),
            "val_accuracy": scores.get("val_accuracy"),
            "metric": config.metric,
            **{key: value for key, value in scores.items() if key not in ("test_accuracy", "val_accuracy")},
            "best_epoch": self.progress.best_epoch,
            "seconds_per_epoch": sum(self.seconds) / max(1, len(self.seconds)),
            "seconds": seconds,
            **combine(ledgers),
            "balance": balance(ledgers),
            "graph": self.placement,
            "replication": config.replication,
            "exchange": config.exchange,
            "held_bytes": {what: max(rank[what] for rank in held) for what in held[0]},
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "backend": self.backend,
            **self.place.describe(),
            "device_comm": self.tensors.name,
            "threads": self.threads,
            "thread_division": self.division._asdict(),
            **self.batches.describe(),
            **self.method.describe(),
            "seed": config.seed,
            "resumed": self.resumed,
            "stopped": self.stopped,
            "failed_saves": self.failed_saves,
            "data": self.data,
            "config": config.model_dump(mode="json"),
            "environment": environment(),
        }

    def word(self, epoch: int, step: int, initial: bool = False) -> int:
        """The seed of the model's generator for one step of this rank, or for the initial weights, which all ranks share."""
        rank = 0 if initial else self.comm.rank
        words = self._stream.words(Purpose.TRAIN, np.array([int(initial)]), vertex=rank, minibatch=step, epoch=epoch)
        return int(as_u64(words)[0])


def train(
    graph: Source, comm: Comm | None = None, observers: Sequence[Observer] = (), place: ComputeContext | None = None, **options: Any
) -> dict[str, Any]:
    """Train a model on a graph and return the report; options are those of `TrainConfig`."""
    return Trainer(TrainConfig.of(**options), graph, comm, observers, place).run()
