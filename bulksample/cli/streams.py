"""The standard streams of a command: there, and able to print every message."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from ..errors import UsageError

closed: set[str] = set()  # the standard streams that the caller closed


def prepare_streams() -> None:
    """Open standard streams that the caller closed (``2>&-``) on the null device, and print ``?`` for what their encoding lacks.

    The next file that is opened gets the number of a closed stream, and would receive what C libraries print there. Call it first.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            closed.add(name)
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # a stream that is open for reading too cannot be set anew
                stream.reconfigure(errors="replace")


def flush_results() -> None:
    """Raise `UsageError` if standard output cannot take what was printed, such as one that leads to a full disk."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # whoever reads has seen enough
    except OSError as error:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # else the end of the process would fail again
        raise UsageError(f"cannot write to standard output: {error.strerror or error}") from error
