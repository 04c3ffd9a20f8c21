"""Averages after agreed numbers of steps, over the ranks of a job: deterministic, and as safe as the job.

Rank 0 is the server and ranks 1 .. p - 1 train; a rank alone is both. All trainers make as many steps an epoch, the smaller
parts with smaller minibatches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...config.train import TrainConfig
from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...training.batches import BatchSource
from ...training.isolated_batches import part_loader, shared_steps
from ...training.link_batches import examples
from .participant import SCALARS, Dealt, Participant, load_vector, put, steps_on, vector_of

if TYPE_CHECKING:
    from ...training.loop import Trainer
    from .method import Averaging

_KIND = "model"


class Lockstep(Participant):
    """Ranks that average when all have made the steps of an interval."""

    def __init__(self, config: TrainConfig, comm: Comm) -> None:
        self._config, self._comm = config, comm
        self.trainers, self.serves = max(1, comm.size - 1), comm.rank == 0
        self.part = 0 if comm.size == 1 else comm.rank - 1 if comm.rank else None
        self._since, self._made, self._averages = torch.zeros(3), 0, 0
        self._kept: np.ndarray | None = None  # of trainers, from or for a checkpoint
        self._resumed = False

    def share(self, dealt: Dealt | None) -> tuple[np.ndarray | None, str]:
        """Collective: 4 n bytes to every trainer (kind "topology")."""
        dealt = dealt or Dealt()
        n, split, fault = self._comm.gather_control([len(dealt.assignment), dealt.split, dealt.fault])[0]
        if fault:
            raise UsageError(fault)
        assignment = dealt.assignment.copy() if self.serves else np.empty(n, np.int32)
        assignment = self._comm.broadcast(assignment, "topology")
        whole = self.part is None or (self._comm.size == 1 and not assignment.any())
        return None if whole else np.flatnonzero(assignment == self.part).astype(np.int32), split

    def batches(self, trainer: Trainer) -> BatchSource:
        config, view = self._config, trainer.view
        counts = self._comm.gather_control(0 if self.part is None else examples(config.task, view))
        counts = counts if self._comm.size == 1 else counts[1:]
        steps, sizes = shared_steps(counts, config.batch_size)
        self._interval = float(steps if config.interval == "epoch" else int(config.interval))
        self._next = max(1, round(self._interval))
        loader = None if self.part is None else part_loader(trainer, self.part, sizes[self.part])
        return steps_on(trainer, loader, steps, {"ranks": self._comm.size, "steps": steps})

    def end_step(self, trainer: Trainer, method: Averaging, sums: torch.Tensor) -> torch.Tensor:
        """Where an interval ends, 8 (|theta| + 4) bytes for each trainer."""
        due = self._due(trainer.progress.steps + 1, self._config.epochs * trainer.batches.steps)
        self._averages += due
        if self._comm.size == 1:
            if due:
                method.correct(trainer)
            return sums
        self._since += sums
        self._made += 1
        if not due:
            return torch.zeros(3)
        totals = self._average(trainer, method)
        self._since, self._made = torch.zeros(3), 0
        return totals

    def _due(self, made: int, last: int) -> bool:
        """Whether an interval ends with this step."""
        while self._next < made:
            self._interval *= self._config.interval_growth
            self._next += max(1, round(self._interval))
        return made in (self._next, last)

    def _average(self, trainer: Trainer, method: Averaging) -> torch.Tensor:
        own = np.append(np.concatenate([vector_of(trainer.model), self._since.numpy()]), np.float32(method.share(trainer, self._made)))
        came = self._to_server(own.astype(np.float32))
        result = method.averaged(trainer, came) if self.serves else np.empty_like(own, np.float32)
        result = self._comm.broadcast(result, _KIND)
        if not self.serves:
            load_vector(trainer.model, result[:-SCALARS])
        return torch.from_numpy(result[-SCALARS:-1].copy())

    def _to_server(self, own: np.ndarray) -> list[np.ndarray]:
        """What the trainers have, on rank 0."""
        nothing = np.empty(0, np.float32)
        first = nothing if self.part is None else own
        return self._comm.alltoall([first, *[nothing] * (self._comm.size - 1)], _KIND)[1:]

    def told_by_server(self, scores: dict[str, float]) -> dict[str, float]:
        return self._comm.gather_control(scores)[0]

    # ---- checkpoints: weights between two averages, moments of Adam, what was counted

    def before_save(self, trainer: Trainer) -> None:
        """3 |theta| words and a few for each trainer; nothing where the checkpoint of the loop says it all."""
        if self._comm.size > 1:
            moments = [tensor.reshape(-1).cpu() for tensor in _moments(trainer)]
            own = [torch.from_numpy(vector_of(trainer.model)), *moments, self._since, torch.tensor([float(self._made)])]
            came = self._to_server(torch.cat(own).numpy())
            self._kept = np.stack(came) if self.serves else None

    def begin_round(self, trainer: Trainer) -> None:
        if not self._resumed or self._kept is None:
            return
        self._resumed = False
        if self.part is not None:
            moments = _moments(trainer)
            counted = torch.zeros(1)
            model = [*trainer.model.parameters(), *(buffer for buffer in trainer.model.buffers() if buffer.is_floating_point())]
            put([*model, *moments, self._since, counted], self._kept[self.part])
            self._made = int(counted)
            for parameter, state in zip(trainer.model.parameters(), zip(*[iter(moments)] * 3, strict=True), strict=True):
                trainer.optimizer.state[parameter] = dict(zip(("step", "exp_avg", "exp_avg_sq"), state, strict=True))

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {} if self._kept is None else {"trainers": torch.from_numpy(self._kept)}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        if "trainers" in tensors:
            self._kept, self._resumed = tensors["trainers"].numpy(), True

    def describe(self) -> dict[str, Any]:
        return {"trainers": self.trainers, "averages": self._averages}


def _moments(trainer: Trainer) -> list[torch.Tensor]:
    """Of every parameter: steps and both moments of Adam; zeros before its first step."""
    tensors = []
    for parameter in trainer.model.parameters():
        held = trainer.optimizer.state.get(parameter, {})
        tensors.append(held["step"].clone() if held else torch.zeros(()))
        tensors += [held[key] if held else torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")]
    return [tensor.detach() for tensor in tensors]
