"""The input rows of vertex types: linear maps of their features, or learned rows, which may lie in block rows over the ranks.

Rows of other ranks are looked up before a forward pass. Their owners have been asked for them before, as `TypeFeatures` fetches inputs. A
looked-up row is a leaf of the graph of operations, so a backward pass leaves its gradient there; `add_gradients` sends it to the owner.
Blocks and their gradients stay in the memory of the host, where ranks exchange them; for a model on a device the looked-up rows are copied
there, and their gradients back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ..distributed.matrix.codec import codec_named
from ..distributed.matrix.feature_exchange import Fetch
from ..distributed.matrix.layout import TypeLayouts
from ..distributed.matrix.learned_rows import AskedRows, LearnedRows
from .aggregate import multiply
from .layers import Input, xavier

_CHUNK = 2**18  # numbers that are drawn at once, so that a rank draws a table without holding it


class TypeInput(nn.Module):
    """The input rows of one type: a linear map of its f features, or learned rows if the width is 0.

    There is a learned row for each vertex, or one (`rows` is 1). `members` are the vertices whose learned rows this rank holds, int32,
    ascending, all by default; their initial values are those of the whole table.
    """

    weight: nn.Parameter  # the linear map, shape (f, hidden), or learned rows, shape (rows or members, hidden)

    def __init__(self, width: int, rows: int, hidden: int, generator: torch.Generator, members: np.ndarray | None = None) -> None:
        super().__init__()
        self.width, self.rows, self.members = width, rows, members
        if width:
            self.weight = xavier(width, hidden, generator)
        else:
            self.weight = nn.Parameter(_normal_rows(rows, hidden, generator, members))  # rows of norm 1 or so
        self.bias = nn.Parameter(torch.zeros(hidden)) if width else None

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> TypeInput:
        """Leave a block of learned rows on the host, where ranks exchange them, when the model moves to a device."""
        return self if self.members is not None else super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def forward(self, x: Input) -> torch.Tensor:
        """Return the rows of vertices from their features; or from their ids, int64, or their learned rows, if this rank holds a part."""
        if self.bias is not None:
            return multiply(x, self.weight) + self.bias
        assert isinstance(x, torch.Tensor)
        if self.members is not None:
            return x
        return F.embedding(x if self.rows > 1 else torch.zeros_like(x), self.weight)


def _normal_rows(rows: int, width: int, generator: torch.Generator, members: np.ndarray | None) -> torch.Tensor:
    """Draw a table of normal numbers with deviation ``width ** -0.5``, chunk by chunk, and keep all of its rows or those of the members."""
    kept = np.arange(rows) if members is None else members.astype(np.int64)
    table, step = torch.empty(len(kept), width), max(1, _CHUNK // width)
    for first in range(0, rows, step):
        chunk = torch.empty(min(step, rows - first), width).normal_(std=width**-0.5, generator=generator)
        low, high = np.searchsorted(kept, [first, first + step])
        table[low:high] = chunk[torch.from_numpy(kept[low:high] - first)]
    return table


class LearnedInputs:
    """The learned rows of some types, each in the block rows of one process grid; `inputs` hold those of this rank's block. Collective."""

    def __init__(self, blocks: TypeLayouts, inputs: Mapping[str, TypeInput]) -> None:
        self.blocks, self.inputs = blocks, dict(inputs)
        self._rows = {name: LearnedRows(blocks.grid, blocks.of[name], own.weight.detach().numpy()) for name, own in self.inputs.items()}
        self._of_step: dict[str, list[tuple[Fetch, torch.Tensor]]] = {name: [] for name in self.inputs}

    def look_up(self, x: Mapping[str, Input], where: torch.device) -> dict[str, Input]:
        """Replace the `AskedRows` of the types of `inputs` by their learned rows, on the device that computes; collective."""
        wanted = {name: cast(AskedRows, x[name]) for name in self.inputs}
        started = {name: self._rows[name].start(rows_asked) for name, rows_asked in wanted.items()}
        inputs: dict[str, Input] = dict(x)
        for name, fetch in started.items():
            rows = torch.from_numpy(fetch.wait()).to(where).requires_grad_(torch.is_grad_enabled())
            if torch.is_grad_enabled():
                self._of_step[name].append((fetch, rows))
            inputs[name] = rows.index_select(0, torch.from_numpy(wanted[name].position).to(where))
        return inputs

    def add_gradients(self, codec: str) -> None:
        """Set the gradient of each block row to the sum over all look-ups of the step on all ranks, encoded on their way; collective."""
        for name, inputs in self.inputs.items():
            fetches = [fetch for fetch, _ in self._of_step[name]]
            gradients = [(torch.zeros_like(rows) if rows.grad is None else rows.grad).cpu().numpy() for _, rows in self._of_step[name]]
            inputs.weight.grad = torch.from_numpy(self._rows[name].add_gradients(fetches, gradients, codec_named(codec)))
            self._of_step[name] = []
