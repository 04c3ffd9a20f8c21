"""Back ends: where the primitives of `base.Backend` run."""

from __future__ import annotations

from ..errors import BackendUnavailable
from .base import Backend

NAMES = ("reference", "native")


def make(name: str = "auto", threads: int | None = None) -> Backend:
    """The back end of that name; ``auto`` takes the fastest that runs here.

    Parameters
    ----------
    name : {"auto", "reference", "native"}
    threads : int, optional
        Threads of the native back end; the processors this process may use unless given.

    Raises
    ------
    BackendUnavailable
        If the name is unknown, or it cannot run here; the message says why and what can.
    """
    from .native import Native, unavailable_because
    from .reference import Reference

    reason = unavailable_because()
    if name == "auto":
        name = "reference" if reason else "native"
    if name == "reference":
        return Reference()
    if name == "native" and not reason:
        return Native(threads)
    why = reason if name == "native" else "there is no back end of that name"
    raise BackendUnavailable(f"backend {name!r} was asked for, but {why}; available here: {', '.join(available())}")


def available() -> list[str]:
    """The back ends that run here."""
    from .native import unavailable_because

    return ["reference"] if unavailable_because() else ["reference", "native"]
