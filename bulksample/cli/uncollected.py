"""Import large libraries without garbage collection, which finds nothing in new modules: a fifth of the time of ``import torch``."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Stop the garbage collector within a ``with`` block. It never searches what the block leaves, such as modules, again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
