"""Back ends run the primitives of `base.Backend`: the reference in numpy, native code on CPUs, CUDA on GPUs."""

from __future__ import annotations

from functools import cache

from ..errors import BackendUnavailable, UsageError, is_whole
from .base import Backend

NAMES = ("reference", "native", "cuda")


def make(name: str = "auto", threads: int | None = None) -> Backend:
    """Make the back end of that name; ``auto`` takes the fastest CPU back end that runs here.

    Parameters
    ----------
    name : {"auto", "reference", "native", "cuda"}
    threads : int, optional
        Threads of the native back end; by default one for each processor that this process may use.

    Raises
    ------
    BackendUnavailable
        If the name is unknown or cannot run here; the message says why, and names those that can.
    UsageError
        If `threads` is not positive.
    """
    if threads is not None and not is_whole(threads):
        raise UsageError(f"threads must be positive, and a whole number; got {threads!r}: leave it out for the default")
    if name == "auto":
        name = "reference" if why_not("native") else "native"
    reason = why_not(name)
    if reason:
        raise BackendUnavailable(f"backend {name!r} was asked for, but {reason}; available here: {', '.join(available())}")
    if name == "native":
        from .native import Native

        return Native(threads)
    if name == "cuda":
        from .cuda.nvrtc import on_device

        return on_device()
    from .reference import Reference

    return Reference()


@cache
def on_host(threads: int) -> Backend:
    """Return the fastest CPU back end; models aggregate and gather with it. One object for each number of threads."""
    return make("auto", threads)


def available() -> list[str]:
    """List the back ends that run here."""
    return [name for name in NAMES if not why_not(name)]


def why_not(name: str) -> str | None:
    """Say why the back end of that name cannot run here; None if it can."""
    if name == "native":
        from .native import unavailable_because

        return unavailable_because()
    if name == "cuda":
        from .cuda.nvrtc import unavailable_because as no_device

        return no_device()
    return None if name in NAMES else "there is no back end of that name"
