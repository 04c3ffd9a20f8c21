"""The contract of a target of the fuzzer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from bulksample.errors import DataError, UsageError

Attempt = Callable[[bytes], object]


class Target(NamedTuple):
    """One target.

    Attributes
    ----------
    seeds : callable
        Returns valid inputs.
    made : callable
        Takes an empty folder and returns the function to feed.
    refusals : tuple of exceptions
        The errors that are documented.
    """

    seeds: Callable[[], Iterable[bytes]]
    made: Callable[[Path], Attempt]
    refusals: tuple[type[Exception], ...] = (DataError, UsageError)
