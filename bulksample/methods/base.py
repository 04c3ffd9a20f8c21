"""The hooks of the one training loop. Their defaults are the exact baseline, `sync`: synchronous data parallelism.

    g = (sum over ranks of the gradients of the summed losses) / (seeds of this step on all ranks)

so P ranks with a minibatch each make the step that one rank makes with their union. A method overrides what its
paper changes and leaves the rest. A round is an epoch unless a method says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from ..dist.base import Comm
from .buckets import add_over_ranks

if TYPE_CHECKING:
    from ..train.loop import Trainer
    from ..train.view import View


class Method:
    """Synchronous data parallelism: every rank sees the whole graph, and gradients are averaged at every step."""

    name: ClassVar[str] = "sync"

    def view(self, view: View, comm: Comm) -> View:
        """The graph that this rank samples from and trains on."""
        return view

    def begin_round(self, trainer: Trainer) -> None:
        """Called before the first step of a round, also where a resumed run enters in its middle."""

    def steps(self, remaining: int, comm: Comm) -> int:
        """How many steps this round makes, agreed by all ranks before the first collective of the round.

        `remaining` is what this rank's loader has left; a rank that runs out goes on with empty minibatches.
        """
        return max(comm.gather_control(remaining))

    def combine_gradients(self, trainer: Trainer, sums: torch.Tensor) -> torch.Tensor:
        """Turn this rank's gradients into those of the step.

        Parameters
        ----------
        sums : float32, shape (3,)
            Of this rank: seeds in the loss, summed loss, and 1 if it was asked to stop.

        Returns
        -------
        float32, shape (3,)
            The same, summed over ranks. Every parameter of the model has its gradient afterwards.

        Notes
        -----
        2 (p - 1) (|theta| + 3) words over all ranks (kind "gradients"); running statistics of a batch norm are averaged
        besides (kind "model").
        """
        parameters = list(trainer.model.parameters())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        add_over_ranks([*gradients, sums], trainer.comm, "gradients")
        statistics = [buffer for buffer in trainer.model.buffers() if buffer.is_floating_point()]
        if statistics and trainer.comm.size > 1:
            add_over_ranks(statistics, trainer.comm, "model")
            for buffer in statistics:
                buffer.div_(trainer.comm.size)
        if sums[0] > 0:
            for gradient in gradients:
                gradient.div_(sums[0])
        return sums

    def end_round(self, trainer: Trainer) -> None:
        """Called after the last step of a round, before it is evaluated."""
