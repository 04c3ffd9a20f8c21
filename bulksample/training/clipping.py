"""Clip the gradient of a step by its norm over all parameters.

    g <- g min(1, c / (|g| + 1e-6)),    |g| the Euclidean norm of the gradients of all parameters together

as `torch.nn.utils.clip_grad_norm_` does, with a norm in float64. It is the norm of the gradient that the optimizer takes: the mean over the
seeds of a step of all ranks, so it is the same on any number of ranks that share a step. On the host the squares are added by numpy in an
order that no number of threads changes, so all ranks find the same bits. Ranks that divide learned rows add up their squares: 8 bytes each
(kind "control").

Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
"""

from __future__ import annotations

import numpy as np
import torch

from ..errors import UsageError
from .context import TrainingContext
from .shards import grid_of

_PIECE = 2**16  # numbers at a time, so that their squares in float64 stay in a cache
_TINY = 1e-6  # as in torch


def clip_gradients(context: TrainingContext, most: float) -> torch.Tensor:
    """Scale all gradients down to a norm of at most `most`, in place, and return the norm before: float64, shape (), where the model lies.

    A norm that is not finite makes gradients of NaN. The steps of a run raise for it; a correction by the server of `llcg` does not: it
    makes weights that are not finite. A server whose trainers may fail refuses such an average, and other trainers raise in their next
    step. Collective if ranks divide learned rows.
    """
    shards = list(context.model.shards.values())
    gradients = [parameter.grad for parameter in context.model.replicated if parameter.grad is not None]
    total = sum((squares(gradient) for gradient in gradients), torch.zeros((), dtype=torch.float64, device=context.compute.where))
    if shards:
        own = np.array([sum(float(squares(shard.grad)) for shard in shards if shard.grad is not None)])
        total = total + float(grid_of(context).column_comm.allreduce(own, "control")[0])
    norm = total.sqrt()
    factor = (most / (norm + _TINY)).clamp(max=1.0)
    for gradient in gradients + [shard.grad for shard in shards if shard.grad is not None]:
        gradient.mul_(factor.to(gradient.device, gradient.dtype))
    return norm


def squares(gradient: torch.Tensor) -> torch.Tensor:
    """Return the sum of the squares of a gradient: float64, shape (), on its device."""
    if gradient.device.type != "cpu":
        return gradient.double().square().sum()
    if gradient.is_sparse:
        raise UsageError("clip_norm adds squares of dense gradients; got a sparse one: use Embedding(sparse=False), or leave clip_norm out")
    half = gradient.dtype in (torch.float16, torch.bfloat16)
    flat = (gradient.float() if half else gradient).detach().reshape(-1).numpy()
    parts = [np.square(flat[first : first + _PIECE], dtype=np.float64).sum() for first in range(0, len(flat), _PIECE)]
    return torch.tensor(float(np.sum(parts)), dtype=torch.float64)
