"""One rule for the results of every command: they can be written, what exists is kept unless ``--overwrite`` is given, and no other run
writes them at the same time.

The rule is checked at the start, before the work, and ends a command with exit code 2. See `data.result_places`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..data.result_places import check_ending, check_outputs, holding

OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")]
_HELD: list[ExitStack] = []  # of the command that runs


def ending(option: str, *endings: str, prints: bool = False) -> Callable[[Path | None], Path | None]:
    """Return a callback for the file of an option, which refuses other endings; see `data.result_places.check_ending`."""

    def checked(file: Path | None) -> Path | None:
        check_ending(option, file, *endings, prints=prints)
        return file

    return checked


@contextmanager
def held_until_the_end() -> Iterator[None]:
    """Run a command: what it holds is free afterwards."""
    with ExitStack() as held:
        _HELD.append(held)
        try:
            yield
        finally:
            _HELD.pop()


def hold_outputs(overwrite: bool, *files: Path | None) -> None:
    """Hold the files of a command until it ends, once each can be written and none exists, unless `overwrite`; raises `UsageError`."""
    hold_checked(lambda: check_outputs(overwrite, *files), *files)


def hold_checked(check: Callable[[], None], *places: Path | None) -> None:
    """Hold places until the command ends, once `check` passes; it is called again when nobody else can change them.

    A command that another program calls by its function, not by `main`, has no known end, and holds nothing.
    """
    check()
    if _HELD:
        _HELD[-1].enter_context(holding(*places))
        check()
