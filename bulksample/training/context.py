"""The state of a run on one rank, which the loop shares with its method.

Hooks of a method read it. They change it through `replace_view`, `set_model`, `set_result` and `set_scores` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from ..config.train import TrainOptions
from ..distributed.comm.base import Comm
from ..distributed.comm.ledger import Ledger
from ..distributed.comm.machines import ThreadBudget
from ..loading.division import own_share
from ..nn.dropout import PassKey
from ..nn.model import Model
from ..rng import Stream, Substream, as_u64
from ..samplers import Sampler
from ..views.view import View
from .batches import BatchSource
from .compute import ComputeContext
from .sampling_weights import SamplingWeights
from .tensor_comm import TensorComm
from .weights import Adam, weights_of_rank_0


@dataclass
class Progress:
    """The position and the scores of a run, as a checkpoint holds them beside the tensors and the position of the loader."""

    steps: int = 0  # since the beginning of the run
    seeds: float = 0.0  # seeds in the loss of this epoch so far
    loss: float = 0.0  # the loss summed over these seeds
    best_epoch: int = -1
    best_scores: dict[str, float] = field(default_factory=dict)
    last_loss: float | None = None
    lr: float | None = None  # the learning rate of the newest step
    since_best: int = 0  # evaluations since the best one
    finished: bool = False  # early stopping has ended the stage
    stage: int = 0
    rounds: int = 0  # rounds of this stage so far


class TrainingContext:
    """The state of a run on one rank.

    `compute` holds the model, `tensor_comm` carries tensors of a step, such as gradients, and `ledger` counts seconds by phase and bytes by
    kind. The trainer sets `batches`, the steps of an epoch, after the view, which this rank samples from and trains on.
    """

    batches: BatchSource
    model: Model
    optimizer: Adam
    best_weights: dict[str, torch.Tensor]  # of the best validation score in this stage; empty before the first evaluation
    virtual_ranks: int  # W, the mini-batches of a step over all ranks; see `training.step`
    place: int  # the number of this rank among those that share a step: its rank or, with `seed_locality`, `Placement.place`
    module: torch.nn.Module | None = None  # the user's, if there is one
    lr_factor: float = 1.0  # of the present step, the share of `lr`; see `schedule`
    random_rank: int  # names this process in the seeds of a user's module: its first virtual rank, or its own outside the job

    def __init__(
        self, config: TrainOptions, comm: Comm, compute: ComputeContext, tensor_comm: TensorComm, sampler: Sampler, threads: ThreadBudget,
        ledger: Ledger, view: View, virtual_ranks: int, place: int | None = None, sampling_weights: SamplingWeights | None = None,
    ) -> None:  # fmt: skip
        self.config, self.comm, self.compute, self.tensor_comm = config, comm, compute, tensor_comm
        self.sampler, self.threads, self.ledger, self.view = sampler, threads, ledger, view
        self.progress, self.virtual_ranks, self.sampling_weights = Progress(), virtual_ranks, sampling_weights
        self.place = comm.rank if place is None else place
        self.random_rank = own_share(self.place, comm.size, virtual_ranks).start
        self._stream = Stream(config.seed)

    @property
    def epoch(self) -> int:
        """The number of the current epoch."""
        return self.batches.epoch

    @property
    def step(self) -> int:
        """The number of steps that this epoch has completed."""
        return self.batches.step

    def step_seed(self, epoch: int, step: int, virtual: int = 0) -> int:
        """Return the seed of the model's generator for one step of this process, on its virtual rank number `virtual`."""
        return self._word(0, self.random_rank + virtual, epoch, step)

    def initial_seed(self) -> int:
        """Return the seed of the initial weights, which is the same on every rank."""
        return self._word(1, 0, 0, 0)

    def _word(self, draw: int, rank: int, epoch: int, step: int) -> int:
        words = self._stream.words(Substream.MODEL.tag(epoch), np.array([draw]), vertex=rank, minibatch=step)
        return int(as_u64(words)[0])

    def whole_pass(self, seed_offset: int = 0) -> PassKey:
        """Return the name of this epoch's pass over all rows, for dropout; ranks that train apart draw with different offsets."""
        return PassKey((self.config.seed + seed_offset) % 2**64, self.epoch, 0, self.progress.stage)

    def replace_view(self, view: View) -> None:
        """Train on another view from now on; moves its adjacency and features to the compute device. Collective if the adjacency is."""
        self.view = self.compute.move_view(view, self.tensor_comm, self.sampler)

    def set_model(self, model: Model) -> None:
        """Train another model from now on, with rank 0's weights, ``(p - 1) |theta|`` words (kind "model"), and a new Adam."""
        weights_of_rank_0(model, self.comm)
        self.model, self.best_weights = self.compute.move_model(model), {}
        kinds = self.model.replicated, list(self.model.shards.values())
        apart = [{"params": group} for group in kinds if group]  # a group is updated at once where all of it is on a device
        self.optimizer = Adam(apart, lr=self.config.lr, weight_decay=self.config.weight_decay)

    def set_result(self, model: Model) -> None:
        """Leave another model as the result of the run; its weights are the same on every rank already, so nothing is sent."""
        self.model = model

    def set_scores(self, epoch: int, scores: dict[str, float]) -> None:
        """Report these scores, of this epoch, as the best ones of the run."""
        self.progress.best_epoch, self.progress.best_scores = epoch, scores
