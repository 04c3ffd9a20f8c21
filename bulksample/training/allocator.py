"""Keep freed memory in the process between the steps of a training.

glibc's malloc maps large arrays anew for every use, and the system clears their pages: a quarter of the processor time of a step on a CPU.
While a run trains, malloc is told to keep what is freed, for the arrays of torch, NumPy and bulksample alike, on all threads. Sizes vary
from step to step, so more and more pages would have been used once; every hundred steps all free ones go back to the system, which costs a
hundredth of what is saved. csrc/native_allocator.cpp has the settings.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from ..backends.native import unavailable_because
from ..errors import UsageError

STEPS = 100  # between two times that free pages go back to the system
_KEPT = "keep"
_SETTINGS = ("mmap_max", "mmap_threshold", "trim_threshold", "top_pad")  # of glibc's malloc, which the environment can set


def choose_allocator(option: str) -> str:
    """Return what a run does with freed memory, for its report: "keep", "system", or "system: " and the reason why it cannot keep any.

    Raises `UsageError` if the option is "keep", and this process cannot.
    """
    if option == "system":
        return option
    reason = _set_by_environment() or unavailable_because() or _extension().why_memory_is_not_kept()
    if not reason:
        return _KEPT
    if option == _KEPT:
        raise UsageError(f"allocator: got 'keep', which needs malloc of glibc with its default settings ({reason}); use auto or system")
    return f"system: {reason}"


class FreedMemory:
    """The memory that steps free: kept in this context, if `choose_allocator` chose so, and given back by the last context of the process.

    What other code of the process frees meanwhile is kept too. malloc does not tell its settings, so those of glibc hold afterwards, not
    those that the process had made by mallopt.
    """

    def __init__(self, chosen: str) -> None:
        self._kernels, self._steps = _extension() if chosen == _KEPT else None, 0

    def __enter__(self) -> FreedMemory:
        if self._kernels is not None:
            self._kernels.keep_memory()
        return self

    def __exit__(self, *error: object) -> None:
        if self._kernels is not None:
            self._kernels.return_memory()

    def end_step(self) -> None:
        """Count a step, and give the free pages to the system after every `STEPS` of them."""
        self._steps += 1
        if self._kernels is not None and self._steps % STEPS == 0:
            self._kernels.return_free_pages()


def _set_by_environment() -> str:
    """Name the variable that sets malloc up for this process; an empty string if none does."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for name in _SETTINGS:
        if f"glibc.malloc.{name}=" in tunables:
            return f"GLIBC_TUNABLES sets glibc.malloc.{name}"
        if f"MALLOC_{name.upper()}_" in os.environ:
            return f"MALLOC_{name.upper()}_ is set"
    return ""


def _extension() -> Any:
    return importlib.import_module("bulksample._native")
