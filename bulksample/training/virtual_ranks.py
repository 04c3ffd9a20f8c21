"""A run on another number of ranks than it was started on: the mini-batches of a step stay those of W virtual ranks.

    step t trains mini-batches t W .. t W + W - 1;   each of p ranks takes a consecutive share of them, one in a slot

W is the number of ranks at the first start, or the option `virtual_ranks`; a checkpoint records it. A rank adds the gradients of its
slots in the order of a balanced binary tree, and so does the all-reduce: for W and p powers of two, every p gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch

from ..config.train import TrainOptions
from ..distributed.comm.base import Comm
from ..distributed.comm.primitives import TreeSum
from ..errors import UsageError
from ..nn.model import Model
from .weights import running_statistics


def virtual_ranks(config: TrainOptions, comm: Comm, state: dict[str, Any] | None, method: str, elastic: str) -> int:
    """Return W of a run: that of the checkpoint it continues, whose state is given, that of its option, or the number of ranks.

    Raises `UsageError` on every rank if the method (`elastic` is `Method.elastic`) or the checkpoint does not fit the number of ranks.
    """
    asked, p = config.virtual_ranks, comm.size
    before = None if state is None else state.get("virtual_ranks", state["loader"].get("ranks"))  # none in old states of whole graphs
    if elastic != "minibatches":
        if asked not in (None, p):
            raise UsageError(f"method {method!r} does not share mini-batches; got virtual_ranks {asked} with {p} ranks: leave it out")
        if before not in (None, p) and elastic == "no":
            raise UsageError(
                f"the checkpoint does not fit this run: ranks was {before} and is {p} now, and method {method!r} keeps a part of the graph "
                f"or other state on each rank; use {before} ranks"
            )
        return p
    if None not in (before, asked) and asked != before:
        raise UsageError(f"the checkpoint does not fit this run: virtual_ranks was {before} and is {asked} now; leave it out")
    virtual: int = before or asked or p
    if p > virtual:
        raise UsageError(
            f"a step has the mini-batches of {virtual} virtual ranks, too few for {p} ranks; use at most {virtual} ranks, or start a run "
            f"with virtual_ranks {p}"
        )
    return virtual


class SlotSums:
    """The sums of a step over the slots of a rank: gradients, counts, and running statistics of batch norms.

    Every slot begins with the model's buffers as the step found them; other buffers than statistics end as the first slot leaves them.
    A step of one slot is left as it is.
    """

    def __init__(self, model: Model, slots: int) -> None:
        self._model, self._sums = model, TreeSum()
        self._many, self._first = slots > 1, list[torch.Tensor]()
        self._before = self._copies() if slots > 1 else []

    def begin_slot(self) -> None:
        """Restore the buffers and forget the gradients of the slot before."""
        if self._many:
            self._restore(self._before)
            self._model.zero_grad()

    def end_slot(self, sums: torch.Tensor) -> None:
        """Add the gradients, the statistics and the counts of a slot, float32, shape (3,)."""
        if self._many:
            self._first = self._first or self._copies()
            numbers = [*self._gradients(), *running_statistics(self._model), sums]
            self._sums.add(torch.cat([tensor.detach().reshape(-1).to(numbers[0].device) for tensor in numbers]))

    def finish(self, sums: torch.Tensor) -> torch.Tensor:
        """Put the sums over all slots into the model; return the counts, `sums` those of the only slot."""
        if not self._many:
            return sums
        self._restore(self._first)
        totals, at = self._sums.total(), 0
        for tensor in (*self._gradients(), *running_statistics(self._model), sums):
            tensor.copy_(totals[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()
        return sums

    def _gradients(self) -> list[torch.Tensor]:
        found = []
        for parameter in self._model.replicated:  # owners add the gradients of shards
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                found.append(parameter.grad)
        return found

    def _copies(self) -> list[torch.Tensor]:
        return [buffer.clone() for buffer in self._model.buffers()]

    def _restore(self, buffers: list[torch.Tensor]) -> None:
        for buffer, before in zip(self._model.buffers(), buffers, strict=True):
            buffer.copy_(before)
