"""Measure where a training step of this rank goes: matrix products, memory, waiting; and the floor of memory.

All are means, those of the step over the steps from the sixth of this process on::

    step      = seconds of all phases of training
    waiting   = of these in "sample", "fetch" and, between ranks, "reduce"
    products  = (step - waiting) times their share of the rest of a watched step
    memory    = step - waiting - products
    floor     = bytes that a watched step must move / rate of a copy

One step of an epoch is watched: the sixth, or in a shorter epoch the last but one. It is not the last, whose mini-batch may be smaller,
unless the epoch has no other, and no earlier step of the process than the sixth. A `TorchDispatchMode` sees the operations of its forward
and backward passes, which run in the calling thread, and times the products. It changes no bit of our models. It adds some microseconds to
an operation, which `watching_seconds` measures; they are taken off. `step_floor` counts bytes, `machine_rates` measures the rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..distributed.comm.ledger import ASIDE, PHASES, WAITING
from ..nn.own_model import OwnModel
from .batches import StepBatch
from .context import TrainingContext
from .machine_rates import run_copy_rate
from .step_floor import bytes_of, moves_of

WARM_STEPS = 5
_ONE_WATCH = threading.Lock()  # ranks may be threads, and torch keeps the state of dispatch modes in globals of the process
_TRAINING = tuple(name for name in PHASES if name not in ASIDE)
_FACTORS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "addbmm": 1, "mv": 0, "addmv": 1}  # the place of the first factor of a product


class ProductWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Time and count the matrix products of this thread while the context is active.

    `seconds` is spent in products, `flops` are their floating-point operations, two for a multiply-add, and `calls` counts all operations.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds, self.flops, self.calls = 0.0, 0, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch's compiler, which takes a second; compiled models are not watched

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.calls += 1
        first = _FACTORS.get(func.overloadpacket.__name__.rstrip("_"))
        if first is None:
            return func(*args, **(kwargs or {}))
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        self.seconds += time.perf_counter() - began
        left, right = args[first : first + 2]
        self.flops += 2 * left.numel() * (right.shape[-1] if right.dim() > 1 else 1)
        return result


@cache
def watching_seconds() -> float:
    """Return the seconds that a `ProductWatch` adds to an operation, measured once a process on one number."""
    number, calls = torch.zeros(1), 200

    def spent() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            number.neg_()
        return time.perf_counter() - began

    plain = min(spent() for _ in range(3))
    with ProductWatch():
        watched = min(spent() for _ in range(3))
    return max(0.0, watched - plain) / calls


class StepMeter:
    """The figures of the steps of a run on this rank; `alone` is True if no other process takes part in a step."""

    def __init__(self, context: TrainingContext, alone: bool) -> None:
        self._context, self._alone = context, alone
        self._waiting = WAITING if alone else (*WAITING, "reduce")
        self._steps, self._before = 0, {"all": 0.0, "waiting": 0.0}
        self._batches = False  # steps train on mini-batches
        self._watch: ProductWatch | None = None  # of the present step, if it is watched
        self._skipped = False  # the present pass
        self._moved: list[dict[str, float] | None] = []  # by each pass of the present step
        self._watched_epoch: int | None = None
        self._watched = {"steps": 0, "seconds": 0.0, "products": 0.0, "flops": 0, "bytes": 0.0}
        self._floor_known = True

    @contextmanager
    def step(self, epoch: int, step: int, steps: int) -> Iterator[None]:
        """Count a step, and watch it if it is due; it is number `step` of `steps` of the epoch."""
        if self._steps == WARM_STEPS:
            self._before = self._spent()
        due = self._steps >= WARM_STEPS and epoch != self._watched_epoch and min(WARM_STEPS, max(0, steps - 2)) <= step < max(1, steps - 1)
        self._steps += 1
        if not (due and self._watchable() and _ONE_WATCH.acquire(blocking=False)):
            yield
            return
        try:
            self._watch, self._moved, before = ProductWatch(), [], self._spent()
            yield
            spent = {name: now - before[name] for name, now in self._spent().items()}
            if self._moved:
                self._watched_epoch = epoch
                self._add(self._watch, spent["all"] - spent["waiting"])
        finally:
            self._watch = None
            _ONE_WATCH.release()

    @contextmanager
    def passes(self, batch: StepBatch) -> Iterator[None]:
        """Watch the forward and the backward pass over a batch, if the step is watched."""
        self._batches = self._batches or batch.minibatch is not None
        if self._watch is None or batch.minibatch is None:
            yield
            return
        self._skipped = False
        with self._watch:
            yield
        if not self._skipped:
            self._moved.append(self._bytes(batch))

    def skip_passes(self) -> None:
        """Leave out the passes under way: no seed of their batch has a label, and nothing was computed."""
        self._skipped = True

    def figures(self) -> dict[str, Any] | None:
        """Return the figures as a JSON object; None without mini-batches, or before the sixth step has ended.

        Entries that are not known are left out: "floor_ms" of a model with other layers than ours; also "products_ms" and "memory_ms" on a
        device, whose work the clocks of the host do not see, and of a module of the user's.
        """
        steps, now = self._steps - WARM_STEPS, self._spent()
        if steps <= 0 or not self._batches:
            return None
        ms, waiting_ms = (1e3 * (now[name] - self._before[name]) / steps for name in ("all", "waiting"))
        found: dict[str, Any] = {"ms": ms}
        if count := self._watched["steps"]:
            products_ms = (ms - waiting_ms) * min(1.0, self._watched["products"] / self._watched["seconds"])
            found |= {"products_ms": products_ms, "memory_ms": ms - waiting_ms - products_ms, "gflop": self._watched["flops"] / count / 1e9}
            if self._floor_known and (rate := run_copy_rate(self._context.comm.size)):
                moved = self._watched["bytes"] / count
                found |= {"floor_ms": moved / rate / 1e6, "floor_bytes": moved, "copy_gb_per_second": rate}
        return found | {"waiting_ms": waiting_ms, "steps": steps, "watched_steps": count}

    def _spent(self) -> dict[str, float]:
        ledger = self._context.ledger
        return {"all": ledger.seconds(*_TRAINING), "waiting": ledger.seconds(*self._waiting)}

    def _watchable(self) -> bool:
        """Return True if a watch can tell products from memory.

        A module of the user's may be compiled, or hold operations that take another way under a `TorchDispatchMode`. Learned rows of
        other ranks are looked up in the forward pass, which then waits.
        """
        model = self._context.model
        compiled = any(module._compiled_call_impl is not None for module in model.modules())
        return not (self._context.compute.has_device or isinstance(model, OwnModel) or compiled or (model.shards and not self._alone))

    def _bytes(self, batch: StepBatch) -> dict[str, float] | None:
        assert batch.minibatch is not None
        moves = moves_of(self._context.model, batch.minibatch, batch.x)
        return None if moves is None else bytes_of(*moves, parameters=0)

    def _add(self, watch: ProductWatch, seconds: float) -> None:
        """Add what a watched step took."""
        weights = sum(parameter.numel() for parameter in self._context.model.parameters() if parameter.requires_grad)
        moved = [sum(one.values()) for one in self._moved if one is not None]
        self._floor_known = self._floor_known and len(moved) == len(self._moved)
        own = {
            "steps": 1, "seconds": max(watch.seconds, seconds - watch.calls * watching_seconds()), "products": watch.seconds,
            "flops": watch.flops, "bytes": sum(moved) + sum(bytes_of([], [], weights).values()),
        }  # fmt: skip
        self._watched = {name: total + own[name] for name, total in self._watched.items()}


def slowest(figures: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the figures of the rank that computes longest, for which others wait; None if no rank has any."""
    known = [one for one in figures if one is not None]
    return max(known, key=lambda one: one["ms"] - one["waiting_ms"], default=None)


def step_line(figures: dict[str, Any]) -> str:
    """Return a line for people, such as "step 412 ms: products 180, memory 160 (floor 120), waiting 20"."""
    parts = [f"{name} {_digits(figures[f'{name}_ms'])}" for name in ("products", "memory", "waiting") if f"{name}_ms" in figures]
    if "floor_ms" in figures:
        parts[1] += f" (floor {_digits(figures['floor_ms'])})"
    return f"step {_digits(figures['ms'])} ms: {', '.join(parts)}"


def _digits(value: float) -> str:
    """Format a number with three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
