"""Weights of a model, and their moments, wherever it lies: from rank 0, and from a checkpoint."""

from __future__ import annotations

import torch

from ..distributed.comm.base import Comm
from ..nn.model import Model


def weights_of_rank_0(model: Model, comm: Comm) -> None:
    """Give the model of every rank the weights of rank 0's: ``(p - 1) |theta|`` words (kind "model"), over the host."""
    for parameter in model.parameters():
        there = parameter.detach().cpu()
        comm.broadcast(there.numpy(), "model")
        parameter.detach().copy_(there)


def moments_at(parameter: torch.Tensor, moments: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What Adam keeps of a parameter, where the parameter lies; but for its steps, which it counts on the host."""
    return {key: value if key == "step" else value.to(parameter.device) for key, value in moments.items()}
