"""A model of the user's own, as the training loop sees it.

    logits = module(x, blocks)
    h = block.sources(h)        at the start of each layer, for methods that exchange rows between layers

``x`` holds the features of all vertices of a mini-batch, shape (N, f), and ``blocks`` one `TensorBlock` a layer, from the input
layer to the output layer. Logits are those of the destinations of the last block: shape (D, outputs). A model that trains with
`bulksample.Loader` and ``batch.to(device)`` has this form.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import nn

from ..errors import UsageError
from ..minibatch import Block
from .check_module import check_logits, check_module, passes_of
from .layers import Input
from .model import Model
from .tensor_block import TensorBlock

_GLOBAL_GENERATOR = threading.Lock()  # torch has one generator for all threads; ranks that are threads take turns


class OwnModel(Model):
    """A module of the user's in the place of a `Gnn`.

    Parameters
    ----------
    module : nn.Module
        Takes ``(x, blocks)``.
    name : str
        Names the module in messages.
    outputs : int
        Width of the logits.
    hops : int
        Number of blocks.
    trains : bool
        False if the module only predicts: all its weights may be frozen.

    Raises
    ------
    UsageError
        If the module has no weights to train, weights that cannot be sent, or a `forward` that does not take ``(x, blocks)``.

    Notes
    -----
    What the module draws from torch's global generator, such as dropout, is seeded anew for every step, and the generator of the
    process is put back: training is as repeatable as that of other models.
    """

    def __init__(self, module: nn.Module, name: str, outputs: int, hops: int, trains: bool = True) -> None:
        super().__init__()
        check_module(module, name, trains)
        self.module, self.name, self.outputs, self.hops = module, name, outputs, hops
        self.generator, self.input_dropout = torch.Generator(), 0.0
        self.newest = torch.empty(0)  # logits, to tell those that are not finite from a loss that is not

    def forward(self, blocks: Sequence[Block], x: Input, degrees: torch.Tensor) -> torch.Tensor:
        """Compute the logits of the destinations of the last block; see `Gnn.forward`.

        Raises
        ------
        UsageError
            If the number of blocks is not that of the hops.
        ModelFault
            If the module raises an exception, or returns anything but logits of that shape, with a gradient in training.
        """
        if len(blocks) != self.hops:
            raise UsageError(f"the model trains on {self.hops} hops; the mini-batch has {len(blocks)} blocks: use one fanout for each hop")
        rows = as_dense(x)
        converted = {id(block): TensorBlock(block, rows.device) for block in blocks}
        return self.over(rows, [converted[id(block)] for block in blocks])

    def over(self, x: torch.Tensor, blocks: Sequence[TensorBlock]) -> torch.Tensor:
        """Call the module on rows of the input, shape (N, f), and one block for each hop; see `forward`."""
        with _Turn(self.generator.initial_seed(), x.device) as self._turn, passes_of(self.name, "forward(x, blocks)"):
            logits = self.module(x, list(blocks))
        check_logits(logits, self.name, (blocks[-1].num_destinations, self.outputs), self.training and torch.is_grad_enabled())
        self.newest = logits.detach()
        return cast(torch.Tensor, logits)

    def exchange(self, rows_of_all: Callable[[torch.Tensor], torch.Tensor], h: torch.Tensor) -> torch.Tensor:
        """Return ``rows_of_all(h)`` in the middle of a pass. It waits for other ranks, and those that are threads draw meanwhile."""
        with self._turn.paused():
            return rows_of_all(h)


def as_dense(x: Input) -> torch.Tensor:
    """Return rows as a module of the user's takes them: dense, float32."""
    return (x if isinstance(x, torch.Tensor) else x.packed().dense()).float()


def make_module(name: str, features: int, outputs: int, seed: int) -> nn.Module:
    """Call the factory ``package.module:factory`` with the widths of the input and of the output, and return its module.

    The folder of the process is searched first, as ``python -m`` does. Torch's generator has `seed` meanwhile.

    Raises
    ------
    UsageError
        If there is no such factory, or it raises an exception or returns anything but an `nn.Module`.
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
    with _Turn(seed, torch.device("cpu")), passes_of(name, f"the factory, called with {features} and {outputs},"):
        try:
            module = factory(features, outputs)
        except TypeError as error:
            raise UsageError(
                f"model: got {name!r}, but {attribute}({features}, {outputs}): {error}; use a factory that takes these two widths"
            ) from error
    if not isinstance(module, nn.Module):
        found = f"{attribute}({features}, {outputs}) returned a {type(module).__name__}"
        raise UsageError(f"model: got {name!r}, but {found}; return a torch.nn.Module of so many features and outputs")
    return module


class _Turn:
    """The turn of one rank to draw from torch's global generators, which all threads of a process share.

    The generators have `seed` inside the block; afterwards they are as they were.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed, self._device = seed, device

    def __enter__(self) -> _Turn:
        _GLOBAL_GENERATOR.acquire()
        self._found = self._states()
        torch.manual_seed(self._seed)
        return self

    def __exit__(self, *_: object) -> None:
        self._install(self._found)
        _GLOBAL_GENERATOR.release()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let other threads draw inside the block."""
        own = self._states()
        self.__exit__()
        try:
            yield
        finally:
            _GLOBAL_GENERATOR.acquire()
            self._found = self._states()
            self._install(own)

    def _states(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *([torch.cuda.get_rng_state(self._device)] if self._device.type == "cuda" else [])]

    def _install(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        for state in states[1:]:
            torch.cuda.set_rng_state(state, self._device)
