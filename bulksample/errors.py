"""The errors that a user may meet, each with its exit code on the command line.

Every message says what was asked, what was found, and what to use instead.
"""

import difflib
from collections.abc import Callable, Iterable
from math import inf
from numbers import Integral
from typing import Any, TypeVar

EXIT_BAD_USE = 2
EXIT_BAD_DATA = 65
EXIT_PEER_LOST = 75
Made = TypeVar("Made")


class DataError(ValueError):
    """A graph, a store or a file does not hold what its format promises (exit code 65)."""


class UsageError(ValueError):
    """The request cannot be met: an option is out of range, or a combination has no meaning (exit code 2)."""


class BackendUnavailable(RuntimeError):
    """A back end was asked for by name and cannot run here (exit code 2)."""


class PeerLost(RuntimeError):
    """Another rank died, left or fell silent past the deadline (exit code 75)."""


def named(what: str, make: Callable[[], Made]) -> Made:
    """Return what `make` makes; its `DataError` begins with `what`."""
    try:
        return make()
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """Return the message for a name that does not exist, such as a method or a sampler: the nearest that does, or all of them."""
    return f"there is no {what} {name!r}; {instead_of(name, known)}"


def instead_of(name: Any, known: Iterable[str]) -> str:
    """Return the end of a message about a mistyped word: the nearest known word, or all of them."""
    near = difflib.get_close_matches(name, known := list(known), 1) if isinstance(name, str) and not name.isdigit() else []
    return f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"


def is_whole(value: Any, least: float = 1, most: float = inf) -> bool:
    """Return True for a whole number, of Python or numpy, from `least` to `most`; bools are refused."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most


def is_switch(value: Any) -> bool:
    """Return True for a bool, of Python or numpy."""
    return isinstance(value, bool) or (str(getattr(value, "dtype", "")) == "bool" and value.shape == ())


def check_switches(**given: Any) -> None:
    """Raise `UsageError` for the first of some arguments that is no bool."""
    for name, value in given.items():
        if not is_switch(value):
            raise UsageError(f"{name} must be true or false; got {value!r}")
