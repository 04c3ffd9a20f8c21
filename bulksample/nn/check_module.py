"""Checks of a module of the user's: before training, and of what its passes raise and return."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..errors import UsageError

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
_OF_TORCH = os.path.dirname(torch.__file__)


class ModelFault(UsageError):
    """A pass through a module of the user's failed, or returned anything but logits. It may be raised on one rank alone."""


def check_module(module: nn.Module, name: str, trains: bool = True) -> None:
    """Raise `UsageError` unless a module has weights that can be trained and sent, and a `forward` that takes ``(x, blocks)``.

    Weights of a module that only predicts may be frozen.
    """
    if type(module).__name__ in _WRAPPERS:
        raise UsageError(f"model {name}: the loop combines gradients itself; got a {type(module).__name__}: use the module inside, .module")
    parameters = dict(module.named_parameters())
    for entry, tensor in (*parameters.items(), *module.named_buffers()):
        _check_tensor(name, entry, tensor)
    if trains and not any(parameter.requires_grad for parameter in parameters.values()):
        found = "all of its weights are frozen" if parameters else "it has no weights"
        raise UsageError(f"model {name}: {found}, so there is nothing to train; use a module with a parameter that requires a gradient")
    try:
        inspect.signature(module.forward).bind(None, [])
    except TypeError as error:
        found = f"forward{inspect.signature(module.forward)} does not take (x, blocks)"
        raise UsageError(f"model {name}: {found}: {error}; write forward(self, x, blocks)") from error
    except ValueError:  # a forward without a readable signature, such as a compiled one
        return


def _check_tensor(name: str, entry: str, tensor: torch.Tensor) -> None:
    """Raise `UsageError` unless a weight or a buffer has values, in a form that travels between ranks."""
    if is_lazy(tensor):
        raise UsageError(f"model {name}: {entry} has no shape before a first call; give its layer the input width, or call it once")
    if tensor.is_meta or tensor.layout != torch.strided:
        found = "has no values, on device meta" if tensor.is_meta else f"has layout {tensor.layout}"
        raise UsageError(f"model {name}: {entry} {found}; use a dense tensor of numbers")
    is_real = tensor.dtype in (torch.float32, torch.float64)
    if tensor.is_complex() or (tensor.is_floating_point() and not is_real) or (tensor.requires_grad and not is_real):
        raise UsageError(
            f"model {name}: weights of {tensor.dtype} do not travel between ranks; use float32, and precision bf16 to compute in it"
        )


@contextmanager
def passes_of(name: str, what: str) -> Iterator[None]:
    """Turn what a pass through a module raises into a `ModelFault` that names the error and its line in the user's code.

    Raises
    ------
    MemoryError, torch.OutOfMemoryError
        As they are.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, UsageError):
        raise
    except Exception as error:
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OF_TORCH)]
        place = f" ({os.path.basename(lines[-1].filename)}, line {lines[-1].lineno})" if lines and lines[-1].filename != __file__ else ""
        said = " ".join(str(error).split())
        raise ModelFault(f"model {name}: {what} raised {type(error).__name__}: {said}{place}") from error


def check_logits(logits: Any, name: str, wanted: tuple[int, int], trains: bool) -> None:
    """Raise `ModelFault` unless a module has returned floating-point logits of a shape; if it trains, with a gradient."""
    if not isinstance(logits, torch.Tensor) or logits.shape != wanted or not logits.is_floating_point():
        shape = f"{logits.dtype} of shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
        raise ModelFault(f"model {name}: got {shape} from forward(x, blocks); return logits of shape {wanted}, in floating point")
    if trains and not logits.requires_grad:
        found = "the logits of forward(x, blocks) have no gradient"
        raise ModelFault(f"model {name}: {found}; compute them from the weights without detach(), .data or no_grad()")
