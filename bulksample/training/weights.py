"""Copies of weights and of Adam's moments: from rank 0 to all ranks, and from a checkpoint to the device of the model."""

from __future__ import annotations

import torch

from ..distributed.comm.base import Comm
from ..nn.model import Model


def weights_of_rank_0(model: Model, comm: Comm) -> None:
    """Copy rank 0's weights to the model of every rank, through host memory: ``(p - 1) |theta|`` words (kind "model")."""
    for parameter in model.parameters():
        on_host = parameter.detach().cpu()
        comm.broadcast(on_host.numpy(), "model")
        parameter.detach().copy_(on_host)


def moments_at(parameter: torch.Tensor, moments: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return Adam's state of a parameter on the parameter's device; the step count stays on the host, as Adam expects."""
    return {key: value if key == "step" else value.to(parameter.device) for key, value in moments.items()}
