"""Constructors of what several ranks make together: what one rank refuses, all of them refuse, and all were given the same options."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Protocol, cast

from ..distributed.comm.agree import made_alike
from ..distributed.comm.base import Comm
from ..distributed.matrix.grid import duplicates
from ..errors import UsageError
from .default_seed import seed_of_rank_0

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
    """Decorate ``__init__`` of a `Shared` class, which sends nothing. With the argument `comm`, a call is collective, in two exchanges.

    The first tells all ranks the seed that rank 0 takes if none is given, the second compares.

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
                with seed_of_rank_0(comm):
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
