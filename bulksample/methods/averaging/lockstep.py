"""Model averaging among the ranks of one job, each time after a fixed number of steps. It is deterministic; a lost rank ends the job.

Rank 0 is the server and ranks 1 .. p - 1 train; a rank alone is both. All trainers make the same number of steps an epoch;
smaller parts have smaller mini-batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...distributed.comm.base import Comm
from ...errors import DataError, UsageError
from ...training.batches import BatchSource
from ...training.context import TrainingContext
from ...training.loaders import IsolatedBatches, equal_steps, examples, part_loader, steps_of
from ..config import TrainConfig
from .participant import SCALARS, AveragingRule, Participant, Partitioning, fill, load_vector, vector_of, weights_of

_KIND = "model"


class Lockstep(Participant):
    """A participant that is a rank of a job. All ranks average together at the end of each interval of steps."""

    def __init__(self, config: TrainConfig, comm: Comm) -> None:
        self._config, self._comm = config, comm
        self.trainers, self.serves = max(1, comm.size - 1), comm.rank == 0
        self.part = 0 if comm.size == 1 else comm.rank - 1 if comm.rank else None
        self._sums, self._steps_made, self._averages = torch.zeros(3), 0, 0  # since the last average: sums and steps
        self._saved: np.ndarray | None = None  # state of the trainers, from a checkpoint or for one
        self._resumed = False

    def receive_part(self, partitioning: Partitioning | None) -> tuple[np.ndarray | None, str]:
        """Broadcast the part of each vertex: 4 n bytes to every trainer (kind "topology"); collective."""
        made = partitioning or Partitioning()
        n, split, fault, damaged = self._comm.gather_control([len(made.assignment), made.split, made.fault, made.damaged])[0]
        if fault:
            raise DataError(fault) if damaged else UsageError(fault)
        assignment = made.assignment.copy() if self.serves else np.empty(n, np.int32)
        assignment = self._comm.broadcast(assignment, "topology")
        whole = self.part is None or (self._comm.size == 1 and not assignment.any())
        return None if whole else np.flatnonzero(assignment == self.part).astype(np.int32), split

    def batches(self, context: TrainingContext) -> BatchSource:
        config, view = self._config, context.view
        counts = self._comm.gather_control(0 if self.part is None else examples(config.task, view))
        counts = counts if self._comm.size == 1 else counts[1:]
        steps, sizes = equal_steps(counts, config)
        self._interval = float(steps if config.interval == "epoch" else int(config.interval))
        self._next = max(1, round(self._interval))
        source = None if self.part is None else steps_of(context, part_loader(context, self.part, sizes[self.part]), view)
        batches = IsolatedBatches({"ranks": self._comm.size, "steps": steps})
        batches.train_on(source, steps)
        return batches

    def end_step(self, context: TrainingContext, rule: AveragingRule, sums: torch.Tensor) -> torch.Tensor:
        """Average at the end of an interval: 8 (|theta| + 4) bytes for each trainer."""
        due = self._due(context.progress.steps + 1, self._config.epochs * context.batches.steps)
        self._averages += due
        if self._comm.size == 1:
            if due:
                rule.correct(context)
            return sums
        self._sums += sums
        self._steps_made += 1
        if not due:
            return torch.zeros(3)
        totals = self._average(context, rule)
        self._sums, self._steps_made = torch.zeros(3), 0
        return totals

    def _due(self, step: int, last: int) -> bool:
        """Return True if an interval ends with this step."""
        while self._next < step:
            self._interval *= self._config.interval_growth
            self._next += max(1, round(self._interval))
        return step in (self._next, last)

    def _average(self, context: TrainingContext, rule: AveragingRule) -> torch.Tensor:
        weights = {"responders": 1.0, "steps": float(self._steps_made), "vertices": float(context.view.adjacency.n)}  # a_m
        weight = weights[self._config.average_by]
        vector = np.append(np.concatenate([vector_of(context.model), self._sums.numpy()]), weight).astype(np.float32)
        vectors = self._to_server(vector)
        average = self._comm.broadcast(rule.average(context, vectors) if self.serves else np.empty_like(vector), _KIND)
        if not self.serves:
            load_vector(context.model, average[:-SCALARS])
        return torch.from_numpy(average[-SCALARS:-1].copy())

    def _to_server(self, vector: np.ndarray) -> list[np.ndarray]:
        """Send a vector from every trainer to rank 0."""
        nothing = np.empty(0, np.float32)
        first = nothing if self.part is None else vector
        return self._comm.alltoall([first, *[nothing] * (self._comm.size - 1)], _KIND)[1:]

    def share_scores(self, scores: dict[str, float]) -> dict[str, float]:
        shared: dict[str, float] = self._comm.gather_control(scores)[0]
        return shared

    # ---- checkpoints: weights between two averages, moments of Adam, sums since the last average

    def before_save(self, context: TrainingContext) -> None:
        """Send rank 0 the weights and Adam's moments of each trainer: 3 |theta| words and a few more.

        A rank alone sends nothing, because the loop's checkpoint is complete.
        """
        if self._comm.size > 1:
            moments = [tensor.reshape(-1).cpu() for tensor in _moments(context)]
            tensors = [torch.from_numpy(vector_of(context.model)), *moments, self._sums, torch.tensor([float(self._steps_made)])]
            vectors = self._to_server(torch.cat(tensors).numpy())
            self._saved = np.stack(vectors) if self.serves else None

    def begin_round(self, context: TrainingContext) -> None:
        if not self._resumed or self._saved is None:
            return
        self._resumed = False
        if self.part is not None:
            moments, steps_made = _moments(context), torch.zeros(1)
            fill([*weights_of(context.model), *moments, self._sums, steps_made], self._saved[self.part])
            self._steps_made = int(steps_made)
            for parameter, state in zip(context.model.parameters(), zip(*[iter(moments)] * 3, strict=True), strict=True):
                context.optimizer.state[parameter] = dict(zip(("step", "exp_avg", "exp_avg_sq"), state, strict=True))

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {} if self._saved is None else {"trainers": torch.from_numpy(self._saved)}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        if "trainers" in tensors:
            self._saved, self._resumed = tensors["trainers"].numpy(), True

    def describe(self) -> dict[str, Any]:
        return {"trainers": self.trainers, "averages": self._averages}


def _moments(context: TrainingContext) -> list[torch.Tensor]:
    """Return the step count and both moments of Adam for every parameter; zeros before its first step."""
    tensors = []
    for parameter in context.model.parameters():
        state = context.optimizer.state.get(parameter, {})
        tensors.append(state["step"].clone() if state else torch.zeros(()))
        tensors += [state[key] if state else torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")]
    return [tensor.detach() for tensor in tensors]
