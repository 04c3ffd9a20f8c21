"""The standard streams of a command: there, and able to print every message."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Open standard streams that the caller closed (``2>&-``) on the null device, and print ``?`` for what their encoding lacks.

    The next file that is opened gets the number of a closed stream, and would receive what C libraries print there. Call it first.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
