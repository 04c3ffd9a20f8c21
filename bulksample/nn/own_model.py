"""A model of the user's own, as the training loop sees it.

    logits = module(x, blocks)
    h = block.sources(h)        at the start of each layer, for methods that exchange rows between layers

``x`` holds the features of all vertices of a mini-batch, shape (N, f), and ``blocks`` one `TensorBlock` a layer, from the input
layer to the output layer. Logits are those of the destinations of the last block: shape (D, outputs). A model that trains with
`bulksample.Loader` and ``batch.to(device)`` has this form.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..errors import UsageError
from ..graph.minibatch import Block
from .dropout import PassNames
from .layers import Input
from .model import Model
from .tensor_block import TensorBlock

_GLOBAL_GENERATOR = threading.Lock()  # torch has one generator for all threads; ranks that are threads take turns
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
_OF_TORCH = os.path.dirname(torch.__file__)


class OwnModel(Model):
    """A module of the user's in the place of a `Gnn`: it takes ``(x, blocks)``, with `hops` blocks, and returns logits.

    What the module draws from torch's global generator, such as dropout, is seeded anew for every step, and the generator of the process is
    put back: training is as repeatable as that of other models. Without `trains` the module only predicts, and all its weights may be
    frozen. Raises `UsageError` if the module has no weights to train, weights that cannot be sent, or another `forward`.
    """

    def __init__(self, module: nn.Module, name: str, outputs: int, hops: int, trains: bool = True) -> None:
        super().__init__()
        check_module(module, name, trains)
        self.module, self.name, self.outputs, self.hops = module, name, outputs, hops
        self.generator, self.input_dropout = torch.Generator(), 0.0
        self.newest = torch.empty(0)  # logits, to tell those that are not finite from a loss that is not

    def forward(self, blocks: Sequence[Block], x: Input, degrees: torch.Tensor, names: PassNames | None = None) -> torch.Tensor:
        """Compute the logits of the destinations of the last block; see `Gnn.forward`. The blocks draw their dropout by `names`.

        Raises `UsageError` if the number of blocks is not that of the hops. Raises `ModelFault` if the module raises an exception, or
        returns anything but logits of that shape, with a gradient in training.
        """
        if len(blocks) != self.hops:
            raise UsageError(f"the model trains on {self.hops} hops; the mini-batch has {len(blocks)} blocks: use one fanout for each hop")
        rows = as_dense(x)
        return self.over(rows, blocks_of_layers(blocks, rows.device, names))

    def over(self, x: torch.Tensor, blocks: Sequence[TensorBlock]) -> torch.Tensor:
        """Call the module on rows of the input, shape (N, f), and one block for each hop; see `forward`."""
        with _GeneratorTurn(self.generator.initial_seed(), x.device) as self._turn, passes_of(self.name, "forward(x, blocks)"):
            logits = self.module(x, list(blocks))
        check_logits(logits, self.name, (blocks[-1].num_destinations, self.outputs), self.training and torch.is_grad_enabled())
        self.newest = logits.detach()
        return cast(torch.Tensor, logits)

    def exchange(self, rows_of_all: Callable[[torch.Tensor], torch.Tensor], h: torch.Tensor) -> torch.Tensor:
        """Return ``rows_of_all(h)`` in the middle of a pass. It waits for other ranks, and those that are threads draw meanwhile."""
        with self._turn.paused():
            return rows_of_all(h)


def blocks_of_layers(blocks: Sequence[Block], device: torch.device, names: PassNames | None) -> list[TensorBlock]:
    """Return the blocks of a pass for a module of the user's, from the input layer to the output layer; see `TensorBlock`."""
    shared = {id(block): TensorBlock(block, device) for block in blocks}  # layers may have one block
    return [shared[id(block)].in_pass(names, layer) for layer, block in enumerate(blocks, 1)]


def as_dense(x: Input) -> torch.Tensor:
    """Return rows as a module of the user's takes them: dense, float32."""
    return (x if isinstance(x, torch.Tensor) else x.packed().dense()).float()


def make_module(name: str, features: int, outputs: int, seed: int) -> nn.Module:
    """Call the factory ``package.module:factory`` with the widths of the input and of the output, and return its module.

    The folder of the process is searched first, as ``python -m`` does. Torch's generator has `seed` meanwhile. Raises `UsageError` if there
    is no such factory, or it raises an exception or returns anything but an `nn.Module`.
    """
    path, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(path), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"model: got {name!r}, but {error}; use package.module:factory, which python can import here") from error
    except Exception as error:
        raise UsageError(f"model: got {name!r}, but its import raised {type(error).__name__}: {error}; mend it") from error
    with _GeneratorTurn(seed, torch.device("cpu")), passes_of(name, f"the factory, called with {features} and {outputs},"):
        try:
            module = factory(features, outputs)
        except TypeError as error:
            found = f"{attribute}({features}, {outputs}): {error}"
            raise UsageError(f"model: got {name!r}, but {found}; use a factory that takes these two widths") from error
    if not isinstance(module, nn.Module):
        problem = f"{attribute}({features}, {outputs}) returned a {type(module).__name__}"
        raise UsageError(f"model: got {name!r}, but {problem}; return a torch.nn.Module of so many features and outputs")
    return module


class _GeneratorTurn:
    """The turn of one rank to draw from torch's global generators, which threads share: they have `seed` inside, and are put back."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed, self._device = seed, device

    def __enter__(self) -> _GeneratorTurn:
        _GLOBAL_GENERATOR.acquire()
        self._before = self._states()
        torch.manual_seed(self._seed)
        return self

    def __exit__(self, *_: object) -> None:
        self._install(self._before)
        _GLOBAL_GENERATOR.release()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let other threads draw inside the block."""
        ours = self._states()
        self.__exit__()
        try:
            yield
        finally:
            _GLOBAL_GENERATOR.acquire()
            self._before = self._states()
            self._install(ours)

    def _states(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *([torch.cuda.get_rng_state(self._device)] if self._device.type == "cuda" else [])]

    def _install(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        for state in states[1:]:
            torch.cuda.set_rng_state(state, self._device)


class ModelFault(UsageError):
    """A pass through a module of the user's failed, or returned anything but logits. It may be raised on one rank alone."""


def check_module(module: nn.Module, name: str, trains: bool) -> None:
    """Raise `UsageError` unless a module has weights that can be sent and, if it trains, be trained, and takes ``(x, blocks)``."""
    if type(module).__name__ in _WRAPPERS:
        raise UsageError(f"model {name}: the loop combines gradients itself; got a {type(module).__name__}: use the module inside, .module")
    parameters = dict(module.named_parameters())
    for entry, tensor in (*parameters.items(), *module.named_buffers()):
        if is_lazy(tensor):
            raise UsageError(f"model {name}: {entry} has no shape before a first call; give its layer the input width, or call it once")
        if tensor.is_meta or tensor.layout != torch.strided:
            problem = "has no values, on device meta" if tensor.is_meta else f"has layout {tensor.layout}"
            raise UsageError(f"model {name}: {entry} {problem}; use a dense tensor of numbers")
        is_real = tensor.dtype in (torch.float32, torch.float64)
        if tensor.is_complex() or (tensor.is_floating_point() and not is_real) or (tensor.requires_grad and not is_real):
            fits = "use float32, and precision bf16 to compute in it"
            raise UsageError(f"model {name}: weights of {tensor.dtype} do not travel between ranks; {fits}")
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


@contextmanager
def passes_of(name: str, what: str) -> Iterator[None]:
    """Turn what a pass through a module raises, but for a lack of memory, into a `ModelFault` that names its line in the user's code."""
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
        problem = "the logits of forward(x, blocks) have no gradient"
        raise ModelFault(f"model {name}: {problem}; compute them from the weights without detach(), .data or no_grad()")
