"""Learned rows of types without features that lie in block rows over the ranks: looked up before a forward pass, and their gradients.

The owners have been asked for the rows before, as `TypeFeatures` fetches inputs. A looked-up row is a leaf of the graph of operations, so a
backward pass leaves its gradient there; `add_gradients` sends it to the owner. Blocks and their gradients stay in the memory
of the host, where ranks exchange them; for a model on a device the looked-up rows are copied there, and their gradients back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from ..distributed.matrix.codec import codec_named
from ..distributed.matrix.feature_exchange import Fetch
from ..distributed.matrix.learned_rows import AskedRows, LearnedRows
from ..distributed.matrix.type_layouts import TypeLayouts
from .layers import Input
from .type_input import TypeInput


class LearnedInputs:
    """The learned rows of some types, each in the block rows of one process grid; collective.

    Parameters
    ----------
    blocks : TypeLayouts
    inputs : dict of TypeInput by type
        They hold the rows of this rank's block.
    """

    def __init__(self, blocks: TypeLayouts, inputs: Mapping[str, TypeInput]) -> None:
        self.blocks, self.inputs = blocks, dict(inputs)
        self._rows = {name: LearnedRows(blocks.grid, blocks.of[name], own.weight.detach().numpy()) for name, own in self.inputs.items()}
        self._of_step: dict[str, list[tuple[Fetch, torch.Tensor]]] = {name: [] for name in self.inputs}

    def look_up(self, x: Mapping[str, Input], where: torch.device) -> dict[str, Input]:
        """Replace the vertices of a look-up by their learned rows; collective.

        Parameters
        ----------
        x : dict by type
            ``AskedRows`` of the types of `inputs`, also where this rank names no vertex.
        where : torch.device
            Where the model computes; the looked-up rows are copied there.
        """
        asked = {name: cast(AskedRows, x[name]) for name in self.inputs}
        started = {name: self._rows[name].start(own) for name, own in asked.items()}
        found: dict[str, Input] = dict(x)
        for name, fetch in started.items():
            rows = torch.from_numpy(fetch.wait()).to(where).requires_grad_(torch.is_grad_enabled())
            if torch.is_grad_enabled():
                self._of_step[name].append((fetch, rows))
            found[name] = rows.index_select(0, torch.from_numpy(asked[name].position).to(where))
        return found

    def add_gradients(self, codec: str) -> None:
        """Set the gradient of each block row to the sum over all look-ups of the step on all ranks; collective.

        The gradients of these rows take the bytes of the codec.
        """
        for name, own in self.inputs.items():
            fetches = [fetch for fetch, _ in self._of_step[name]]
            gradients = [(torch.zeros_like(rows) if rows.grad is None else rows.grad).cpu().numpy() for _, rows in self._of_step[name]]
            own.weight.grad = torch.from_numpy(self._rows[name].add_gradients(fetches, gradients, codec_named(codec)))
            self._of_step[name] = []
