"""One step of the optimizer: forward and backward passes, the gradients of all ranks, and an update of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import NoReturn

import torch

from ..errors import UsageError
from ..nn.own_model import ModelFault, OwnModel, passes_of
from ..position import own_share
from .batches import EMPTY_BATCH, StepBatch
from .context import TrainingContext
from .method import Method
from .step_sums import on_device
from .virtual_ranks import SlotSums


class Stepper:
    """The steps of a run on one rank.

    Parameters
    ----------
    context : TrainingContext
    method : Method
    store : str, optional
        The folder of the graph, for messages.
    """

    def __init__(self, context: TrainingContext, method: Method, store: str | None) -> None:
        self._context, self._method, self._store = context, method, store
        self._fault: ModelFault | None = None  # the failure of the user's module on this rank

    def step(self, batches: Iterator[StepBatch], epoch: int, step: int, stop: bool) -> torch.Tensor:
        """Make one optimizer step; return the seeds, the summed loss and the number of stop requests, over all ranks.

        A device computes them, and the host does not wait for it, unless the rank has no seeds and asks if another has any, or ranks divide
        learned rows, whose gradients the host exchanges.
        """
        context, slots = self._context, self._context.batches.slots
        context.optimizer.zero_grad()
        own = len(own_share(context.place, self._context.comm.size, context.virtual_ranks)) if slots > 1 else 1
        slot_sums, sums, seeds = SlotSums(context.model, slots), torch.zeros(3), 0.0
        for slot in range(slots):
            batch, place = next(batches, EMPTY_BATCH), slot - (slots - own)
            if place < 0:  # this rank has a smaller share than others
                context.model.look_up(batch.x)  # collective
                continue
            slot_sums.begin_slot()
            context.model.generator.manual_seed(context.step_seed(epoch, step, place))
            sums, count = self._passes(batch, stop)
            slot_sums.end_slot(sums)
            seeds += count
        sums = slot_sums.finish(sums)
        with context.ledger.phase("reduce"):
            sums = self._method.combine_gradients(context, sums)
        if not on_device(sums) and not torch.isfinite(sums[1]):
            self.explain(float(sums[1]), epoch, step)
        with context.ledger.phase("step"):
            if seeds > 0 or sums[0] > 0:
                context.optimizer.step()
        with context.ledger.phase("reduce"):
            return self._method.end_step(context, sums)

    def _passes(self, batch: StepBatch, stop: bool) -> tuple[torch.Tensor, float]:
        """Pass forward and backward; return the sums of this rank and its seeds. NaN tells all ranks that the user's module failed here."""
        context, model, count = self._context, self._context.model, 0.0
        with context.ledger.phase("forward"):
            sums = torch.zeros(3, device=context.compute.where)
            if stop:
                sums[2] = 1.0
        try:
            with context.ledger.phase("forward"):
                loss, count = self._method.loss(context, batch)
            if loss is not None:
                named = passes_of(model.name, "its backward pass") if isinstance(model, OwnModel) else nullcontext()
                with context.ledger.phase("backward"), named:
                    loss.backward()  # type: ignore[no-untyped-call]
                sums[0], sums[1] = count, loss.detach()
        except ModelFault as error:
            count, self._fault = 1.0, self._fault or error
            sums[0], sums[1] = count, float("nan")
        return sums, count

    def explain(self, loss: float, epoch: int, step: int) -> NoReturn:
        """Raise `UsageError` for a loss that is not finite: the failures of the user's module on all ranks, or how to mend the loss."""
        model, when = self._context.model, f"in epoch {epoch}, step {step}"
        own = str(self._fault or "")
        if not own and isinstance(model, OwnModel) and not model.newest.isfinite().all():
            own = f"model {model.name}: got logits that are not finite from forward(x, blocks) {when}; mend the model, or use a lower lr"
        faults = self._context.comm.gather_control(own) if self._method.shared_sums else [own]
        found = [f"rank {rank}: {fault}" for rank, fault in enumerate(faults) if fault]
        if found:
            raise UsageError(own if faults == [own] * len(faults) else "; ".join(found)) from self._fault
        damaged = "" if self._store is None else f"; if the data may be damaged: bulksample data verify {self._store}"
        raise UsageError(f"the loss is {loss} {when}; use a lower lr, or feature_norm l2{damaged}")
