"""Warnings on standard error, and the logger ``bulksample`` with the way its records are shown."""

from __future__ import annotations

import logging
import sys

from .printable import printable_message


def warn(*warnings: str) -> None:
    """Print warnings on standard error, each on a line of its own."""
    for warning in warnings:
        print(f"bulksample: warning: {printable_message(warning)}", file=sys.stderr)


def start_logging(level: str = "INFO") -> None:
    """Print records of the logger ``bulksample``, from a level on, as lines on standard error."""
    log, handler = logging.getLogger("bulksample"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("bulksample: %(message)s"))
    log.handlers[:] = [handler]  # not a second one when commands run in one process
    log.setLevel(level.upper())


def ensure_logging() -> None:
    """Let records of level INFO be shown: by the handlers of the program if it has set up logging, else on standard error."""
    log = logging.getLogger("bulksample")
    if not log.hasHandlers():
        start_logging()
    elif log.level == logging.NOTSET and not log.isEnabledFor(logging.INFO):
        log.setLevel(logging.INFO)
