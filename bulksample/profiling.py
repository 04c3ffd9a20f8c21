"""Name the phases of a step for profilers: those of torch, and any other that gives contexts by name, such as Lightning's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

Profile = Callable[[str], AbstractContextManager[Any]]


@contextmanager
def profiled(phase: str, profile: Profile | None = None) -> Iterator[None]:
    """Mark a ``with`` block as ``bulksample: PHASE`` for the profilers of torch, and for `profile` if there is one.

    Does not import torch; a program without torch runs no profiler of it.
    """
    name, torch_profiler = f"bulksample: {phase}", sys.modules.get("torch.autograd.profiler")
    with torch_profiler.record_function(name) if torch_profiler else nullcontext(), profile(name) if profile else nullcontext():
        yield
