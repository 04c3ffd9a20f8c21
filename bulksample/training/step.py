"""One step of the optimizer: forward and backward passes, the gradients of all ranks, an update of the weights, and the sums of a step.

A step trains the same mini-batches on any number of ranks, those of W virtual ranks:

    step t trains mini-batches t W .. t W + W - 1;   each of p ranks takes a consecutive share of them, one in a slot

W is the number of ranks at the first start, or the option `virtual_ranks`; a checkpoint records it. A rank adds the gradients of its
slots in the order of a balanced binary tree, and so does the all-reduce: for W and p powers of two, every p gives the same bits.

Sums of seeds, loss and stop requests over all ranks, float32, shape (3,), are copied from a device to the host for several steps at once,
and read when as many more have been queued: the device has then passed the copy, and training never waits for a single step. All ranks read
after the same steps. Sums on the host are read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import NamedTuple, NoReturn

import torch

from ..distributed.comm.primitives import TreeSum
from ..errors import UsageError
from ..loading.division import own_share
from ..nn.model import Model
from ..nn.own_model import ModelFault, OwnModel, passes_of
from .batches import EMPTY_BATCH, StepBatch
from .clipping import clip_gradients
from .compute import ComputeContext
from .context import TrainingContext
from .method import Method
from .schedule import lr_factor
from .step_meter import StepMeter
from .weights import gradients_of, running_statistics, set_lr

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
            numbers = [*gradients_of(self._model), *running_statistics(self._model), sums]
            self._sums.add(torch.cat([tensor.detach().reshape(-1).to(numbers[0].device) for tensor in numbers]))

    def finish(self, sums: torch.Tensor) -> torch.Tensor:
        """Put the sums over all slots into the model; return the counts, `sums` those of the only slot."""
        if not self._many:
            return sums
        self._restore(self._first)
        tensors = [*gradients_of(self._model), *running_statistics(self._model), sums]
        for tensor, total in zip(tensors, torch.split(self._sums.total(), [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))
        return sums

    def _copies(self) -> list[torch.Tensor]:
        return [buffer.clone() for buffer in self._model.buffers()]

    def _restore(self, buffers: list[torch.Tensor]) -> None:
        for buffer, before in zip(self._model.buffers(), buffers, strict=True):
            buffer.copy_(before)


class Stepper:
    """The steps of a run on one rank, whose passes `meter` may watch; `store`, the folder of the graph, is for messages."""

    def __init__(self, context: TrainingContext, method: Method, store: str | None, meter: StepMeter) -> None:
        self._context, self._method, self._store, self._meter = context, method, store, meter
        self._fault: ModelFault | None = None  # the failure of the user's module on this rank
        self._norms: dict[tuple[int, int], torch.Tensor] = {}  # on a device, of the gradients of the steps whose sums the host may not know

    def step(self, batches: Iterator[StepBatch], epoch: int, step: int, stop: bool) -> torch.Tensor:
        """Make one optimizer step; return the seeds, the summed loss and the number of stop requests, over all ranks.

        A device computes them, and the host does not wait for it, unless the rank has no seeds and asks if another has any, or ranks divide
        learned rows, whose gradients the host exchanges.
        """
        context, slots = self._context, self._context.batches.slots
        context.optimizer.zero_grad()
        slots_here = len(own_share(context.place, self._context.comm.size, context.virtual_ranks)) if slots > 1 else 1
        slot_sums, sums, seeds = SlotSums(context.model, slots), torch.zeros(3), 0.0
        for slot in range(slots):
            batch, place = next(batches, EMPTY_BATCH), slot - (slots - slots_here)
            if place < 0:  # this rank has a smaller share than others
                context.model.look_up(batch.x)  # collective
                continue
            slot_sums.begin_slot()
            context.model.generator.manual_seed(context.step_seed(epoch, step, place))
            with self._meter.passes(batch):
                sums, count = self._passes(batch, stop)
                if not count:
                    self._meter.skip_passes()
            slot_sums.end_slot(sums)
            seeds += count
        sums = slot_sums.finish(sums)
        with context.ledger.phase("reduce"):
            sums = self._method.combine_gradients(context, sums)
        if not on_device(sums) and not torch.isfinite(sums[1]):
            self.explain(float(sums[1]), epoch, step)
        with context.ledger.phase("step"):
            self._set_rate(step)
            if seeds > 0 or sums[0] > 0:
                sums = self._clip(sums, epoch, step)
                context.optimizer.step()
        with context.ledger.phase("reduce"):
            return self._method.end_step(context, sums)

    def _set_rate(self, step: int) -> None:
        """Give the optimizer the learning rate of a step."""
        context, config, progress = self._context, self._context.config, self._context.progress
        rounds = self._method.stages()[progress.stage]
        context.lr_factor = lr_factor(config, progress.rounds, step, context.batches.steps, rounds)
        progress.lr = config.lr * context.lr_factor
        set_lr(context.optimizer, progress.lr)

    def _clip(self, sums: torch.Tensor, epoch: int, step: int) -> torch.Tensor:
        """Clip the gradients of a step, if the run does; return its sums, with a loss of NaN if the gradient is not finite on a device.

        The host raises at once for gradients on the host, and else when it reads the sums.
        """
        if (most := self._context.config.clip_norm) is None:
            return sums
        norm = clip_gradients(self._context, most)
        if not on_device(sums):
            if not torch.isfinite(norm):
                self._explain_norm(float(norm), epoch, step)
            return sums
        self._norms[epoch, step] = torch.where(torch.isfinite(sums[1]), norm, 0.0)  # else the loss is what is reported
        while len(self._norms) > 2 * STEPS:
            del self._norms[next(iter(self._norms))]
        return torch.cat([sums[:1], torch.where(torch.isfinite(norm), sums[1:2], float("nan")), sums[2:]])

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
        fault = str(self._fault or "")
        if not fault and isinstance(model, OwnModel) and not model.newest.isfinite().all():
            fault = f"model {model.name}: got logits that are not finite from forward(x, blocks) {when}; mend the model, or use a lower lr"
        faults = self._context.comm.gather_control(fault) if self._method.shared_sums else [fault]
        lines = [f"rank {rank}: {one}" for rank, one in enumerate(faults) if one]
        if lines:
            raise UsageError(fault if faults == [fault] * len(faults) else "; ".join(lines)) from self._fault
        if (norm := self._norms.get((epoch, step))) is not None and not torch.isfinite(norm):
            self._explain_norm(float(norm), epoch, step)
        raise UsageError(f"the loss is {loss} {when}; use a lower lr, or feature_norm l2{self._check_data()}")

    def _explain_norm(self, norm: float, epoch: int, step: int) -> NoReturn:
        """Raise `UsageError` for a gradient that is not finite, which cannot be clipped."""
        fits = f"use a lower lr, feature_norm l2, or precision fp32 or tf32{self._check_data()}"
        raise UsageError(f"the norm of the gradient is {norm} in epoch {epoch}, step {step}, and clip_norm scales finite ones; {fits}")

    def _check_data(self) -> str:
        return "" if self._store is None else f"; if the data may be damaged: bulksample data verify {self._store}"
