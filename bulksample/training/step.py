"""One step of the optimizer: forward and backward passes, the gradients of all ranks, an update of the weights, and the sums of a step.

Sums of seeds, loss and stop requests over all ranks, float32, shape (3,), are copied from a device to the host for several steps at once,
and read when as many more have been queued: the device has then passed the copy, and training never waits for a single step. All ranks read
after the same steps. Sums on the host are read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import NamedTuple, NoReturn

import torch

from ..errors import UsageError
from ..loading.division import own_share
from ..nn.own_model import ModelFault, OwnModel, passes_of
from .batches import EMPTY_BATCH, StepBatch
from .compute import ComputeContext
from .context import TrainingContext
from .method import Method
from .virtual_ranks import SlotSums

STEPS = 8  # copied together; sums are read at most 2 * STEPS - 1 steps late


class KnownSums(NamedTuple):
    """The sums of a step, on the host."""

    step: int
    sums: torch.Tensor
    late: bool  # later steps have been made meanwhile


class StepSums:
    """The sums of the steps that the host has not counted yet."""

    def __init__(self, compute: ComputeContext) -> None:
        self._compute = compute
        self._known: list[KnownSums] = []
        self._queued: list[tuple[int, torch.Tensor]] = []
        self._copies: list[tuple[list[int], Callable[[], torch.Tensor]]] = []

    def add(self, step: int, sums: torch.Tensor) -> None:
        """Take the sums of the newest step."""
        if on_device(sums):
            self._queued.append((step, sums))
        else:
            self._known.append(KnownSums(step, sums, late=False))

    def read(self, now: bool) -> list[KnownSums]:
        """Return the sums that have reached the host, in the order of the steps, each once; with `now`, wait for those of all steps."""
        if len(self._queued) == STEPS or (now and self._queued):
            steps, sums = zip(*self._queued, strict=True)
            self._copies.append((list(steps), self._compute.start_read(torch.stack(sums))))
            self._queued = []
        while len(self._copies) > (0 if now else 1):
            numbers, finish = self._copies.pop(0)
            self._known += [KnownSums(step, row, late=True) for step, row in zip(numbers, finish(), strict=True)]
        known, self._known = self._known, []
        return known


def on_device(sums: torch.Tensor) -> bool:
    """Return True if the host would wait for a device to read these sums."""
    return sums.device.type != "cpu"


class Stepper:
    """The steps of a run on one rank; `store`, the folder of the graph, is for messages."""

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
