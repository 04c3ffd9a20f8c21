"""Copies of weights, buffers and Adam's moments: from rank 0 to all ranks, and from a checkpoint to the device of the model.

Buffers follow the rule of `DistributedDataParallel`, except for the running statistics of batch norms. Those are averaged after every
step, because each rank has seen another mini-batch. All other buffers take rank 0's values: before the first step and after every one.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from ..distributed.comm.base import Comm
from ..nn.model import Model
from .tensor_comm import TensorComm, add_over_ranks


def weights_of_rank_0(model: Model, comm: Comm) -> None:
    """Copy rank 0's weights and buffers, but for shards, to every rank, through the host: ``(p - 1) |theta|`` words (kind "model")."""
    copies_of_rank_0([*model.replicated, *model.buffers()], comm)


def copies_of_rank_0(tensors: Iterable[torch.Tensor], comm: Comm) -> None:
    """Copy rank 0's values into tensors that have the same shapes and dtypes on every rank; collective if there are any (kind "model")."""
    for tensor in tensors if comm.size > 1 else ():
        on_host = tensor.detach().cpu().contiguous()
        comm.broadcast(on_host.numpy(), "model")
        tensor.detach().copy_(on_host)


def combine_buffers(model: Model, comm: Comm, over: TensorComm, virtual_ranks: int) -> None:
    """Average the running statistics of batch norms over ranks, and copy all other buffers from rank 0; collective.

    A rank that trained on the mini-batches of several virtual ranks holds the sums of their statistics.

    Sends ``2 (p - 1)`` times the bytes of the statistics and ``p - 1`` times those of the other buffers (kind "model").
    """
    if virtual_ranks == 1:
        return
    statistics = running_statistics(model)
    if statistics:
        add_over_ranks(statistics, comm, "model", over=over)
        for buffer in statistics:
            buffer.div_(virtual_ranks)
    averaged = {id(buffer) for buffer in statistics}
    copies_of_rank_0((buffer for buffer in model.buffers() if id(buffer) not in averaged), comm)


def gradients_of(model: Model) -> list[torch.Tensor]:
    """Return the gradients of all parameters but shards, whose owners add theirs; zeros for a parameter that has none yet."""
    gradients = []
    for parameter in model.replicated:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    return gradients


def running_statistics(model: nn.Module) -> list[torch.Tensor]:
    """Return the running means and variances of all batch norms (and instance norms) of a model."""
    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    return [buffer for norm in norms for buffer in (norm.running_mean, norm.running_var) if buffer is not None]


def has_batch_norm(model: nn.Module) -> bool:
    """Return True if a module of the model normalizes by the mean and variance of a mini-batch."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def batch_counts(model: nn.Module) -> list[torch.Tensor]:
    """Return the numbers of batches that the batch norms of a model have seen: int64, shape ()."""
    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    return [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]


def moments_at(parameter: torch.Tensor, moments: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return Adam's state of a parameter on the parameter's device; the step count stays on the host, as Adam expects."""
    return {key: value if key == "step" else value.to(parameter.device) for key, value in moments.items()}


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Let an optimizer take this learning rate in its next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr


_PLAIN = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


class Adam(torch.optim.Adam):
    """The same updates as `torch.optim.Adam`, bit for bit, by its methods below their decorators. It cannot be compiled.

    Parameters on a CPU are updated in one pass (`fused`), which is several times as fast on a large table of learned rows.

    `torch.optim` imports `torch._dynamo` at the first call of an optimizer, so that a compiled program leaves these calls out. A program
    that compiles nothing pays for it: 0.8 s of a processor and 72 MB on every rank (torch 2.13). `torch.optim` wraps `step` in ``no_grad``,
    and so does this class.
    """

    fused_on: ClassVar[tuple[str, ...]] = ("cpu",)  # the devices of such parameters; elsewhere torch chooses
    _step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:  # a model may have moved
            group["fused"] = all(parameter.device.type in self.fused_on for parameter in group["params"]) or None
        return self._step(closure)

    add_param_group, zero_grad, state_dict, load_state_dict = (inspect.unwrap(getattr(torch.optim.Adam, name)) for name in _PLAIN)
