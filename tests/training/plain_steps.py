"""The loop that a user of plain torch would write, on the mini-batches of a trainer: optimizer, schedule and clipping are torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from training_runs import weights_of

Optimizer = torch.optim.Optimizer


def train_plainly(
    made: Any, epochs: int, scheduler: Callable[[Optimizer], Any] | None = None, clip: float | None = None, every: int = 1,
    lr: float = 0.05,
) -> tuple[torch.Tensor, list[float]]:  # fmt: skip
    """Train the model of a trainer that has not run, with an update for every so many mini-batches; return weights and learning rates.

    The gradient of an update is that of the mean loss over all its seeds. The model must not drop rows.
    """
    optimizer = torch.optim.Adam(made.model.parameters(), lr=lr)
    schedule, rates = scheduler(optimizer) if scheduler else None, []
    for _ in range(epochs):
        minibatches = [batch for batch in made.context.batches if batch.minibatch is not None]
        for first in range(0, len(minibatches), every):
            optimizer.zero_grad()
            parts = [made.method.loss(made.context, batch) for batch in minibatches[first : first + every]]
            seeds = sum(count for _, count in parts)
            for loss, _ in parts:
                (loss / seeds).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(made.model.parameters(), clip)
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if schedule is not None:
                schedule.step()
    return weights_of(made), rates
