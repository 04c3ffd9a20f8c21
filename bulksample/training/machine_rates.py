"""The rates of this machine that bound a training step: bytes that a copy moves, and floating-point operations of a matrix product.

Both are the best of a few repetitions on the threads that torch has at the time. A rate of a copy counts the bytes that it reads and those
that it writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ..free_memory import free_memory

COPIED, ROWS, WIDTH = 2**24, 2**13, 256  # floats of a copy (64 MiB), rows and width of a product
_TURNS = 3
REPEATS, SECONDS = 3, 0.05  # at least so often, and so long: other programs disturb a single call
_CPUINFO = Path("/proc/cpuinfo")
_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # flags of x86-64 and features of Arm


def copy_rate(numbers: int = COPIED) -> float:
    """Return gigabytes per second that a copy of so many floats reads and writes; larger arrays than the caches measure memory."""
    source = torch.ones(numbers)
    target = torch.zeros(numbers)
    return 2 * 4 * numbers / _best(lambda: target.copy_(source)) / 1e9


def product_rate(width: int = WIDTH, rows: int = ROWS, dtype: torch.dtype = torch.float32) -> float:
    """Return billions of floating-point operations per second of (rows, width) times (width, width); a multiply-add is two."""
    left, weight, out = (torch.ones(shape, dtype=dtype) for shape in ((rows, width), (width, width), (rows, width)))
    torch.mm(left, weight, out=out)
    return 2 * rows * width * width / _best(lambda: torch.mm(left, weight, out=out)) / 1e9


def run_copy_rate(ranks: int = 1) -> float | None:
    """Return `copy_rate`, measured once a process; None if its arrays, on all ranks, fill more than half of free memory.

    Ranks that call it at the same time share the memory of their machine, as they do in training.
    """
    return _copy_rate_on(torch.get_num_threads(), ranks)


@cache
def _copy_rate_on(threads: int, ranks: int) -> float | None:
    return copy_rate() if 2 * 8 * COPIED * ranks <= free_memory() else None


def has_bf16() -> bool | None:
    """Return True if the processor has instructions for products in bfloat16, False if not, None where its flags cannot be read."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = {flag for line in lines if line.partition(":")[0].strip() in ("flags", "Features") for flag in line.partition(":")[2].split()}
    return bool(flags & _BF16) if flags else None


def describe_rates() -> dict[str, Any]:
    """Return the rates of this machine for `bulksample info`: numbers, None for a copy without memory and bf16 without instructions.

    Products in bfloat16 are measured only where the processor may have them: emulated ones are many times slower.
    """
    copy, known = run_copy_rate(), has_bf16()
    types = [torch.float32] if known is False else [torch.float32, torch.bfloat16]
    rates = [[product_rate(dtype=dtype) for dtype in types] for _ in range(_TURNS)]  # in turn, since other programs disturb some
    single, *halved = (max(of_type) for of_type in zip(*rates, strict=True))
    return {
        "threads": torch.get_num_threads(),
        "copy_gb_per_second": None if copy is None else round(copy, 1),
        "fp32_gflop_per_second": round(single, 1),
        "bf16_over_fp32": round(halved[0] / single, 2) if halved else None,
    }


def _best(call: Callable[[], Any]) -> float:
    """Return the fewest seconds that a call takes in a few."""
    seconds: list[float] = []
    while len(seconds) < REPEATS or sum(seconds) < SECONDS:
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
