"""Constructors of what several ranks make together: what one rank refuses, all of them refuse, and all were given the same options.

Ranks that divide the examples of a drop-in loader by hand are told that they draw the same random numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, wraps
from inspect import signature
from typing import Any, ParamSpec, Protocol, cast

from ..distributed.comm.agree import made_alike
from ..distributed.comm.base import Comm
from ..distributed.comm.launchers import launched, rank_of_torch
from ..distributed.matrix.grid import duplicates
from ..errors import UsageError

P = ParamSpec("P")
_MAKING: ContextVar[bool] = ContextVar("bulksample_making", default=False)  # of this thread: an outer constructor compares


class Shared(Protocol):
    """An object that ranks make together; `made_together` calls these methods, in this order, after the outermost constructor."""

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options that are equal on all ranks, by the names that users know, and the hashes of what is too long to show."""

    def connect(self) -> None:
        """Make the communicators of this object; collective."""


class OwnComm:
    """A loader whose ranks have communicators of its own, so that another thread of each rank may use the one that was given."""

    _comm: Comm | None

    def connect(self) -> None:
        """Take the communicators; collective."""
        if self._comm is not None and self._comm.size > 1:
            self._lease = duplicates(self._comm).lease()
            self._comm = self._lease.lent


def made_together(init: Callable[P, None]) -> Callable[P, None]:
    """Decorate ``__init__`` of a `Shared` class, which sends nothing. With the argument `comm`, a call is collective, in one exchange.

    The ranks of a `neighbor_sampler` count instead of `comm`. Constructors of base classes and parts are compared with the outer one. All
    ranks raise `UsageError`, `DataError` or `BackendUnavailable` if the constructor fails on one, or they were given different options.
    """

    names = list(signature(init).parameters)

    @wraps(init)
    def make(*arguments: P.args, **options: P.kwargs) -> None:
        if _MAKING.get():
            init(*arguments, **options)
            return
        instance, comm = cast(Shared, arguments[0]), _ranks(**{**dict(zip(names, arguments, strict=False)), **options})

        def compared() -> tuple[None, dict[str, Any], dict[str, Any]]:
            init(*arguments, **options)
            return None, *instance.compared()

        mark = _MAKING.set(True)
        try:
            if comm is None:
                init(*arguments, **options)
            else:
                made_alike(comm, compared)
        finally:
            _MAKING.reset(mark)
        instance.connect()

    return make


def _ranks(comm: Any = None, neighbor_sampler: Any = None, **others: Any) -> Comm | None:
    if comm is not None and not isinstance(comm, Comm):
        raise UsageError(f"comm: got a {type(comm).__name__}; use what bulksample.init() returns")
    ranks: Comm | None = comm if neighbor_sampler is None else getattr(neighbor_sampler, "comm", comm)
    return ranks


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def warn_of_equal_draws(loader: str) -> None:
    """Warn once if this process is one of several ranks, whose loaders have no `comm` and the same default seed."""
    rank, ranks = rank_of_torch()
    if ranks == 1:
        launch = launched()
        rank, ranks = launch.rank or 0, launch.ranks
    if ranks > 1:
        _warn_once(
            f"{loader}: rank {rank} of {ranks} got neither comm nor seed, so all ranks draw with seed 0: a vertex gets the same neighbors "
            "on each of them in the same step. Use comm=bulksample.init() to share mini-batches, or for ids divided by hand another seed "
            "on each rank, such as seed=rank"
        )
