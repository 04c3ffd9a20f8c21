"""A plugin of pytest's workers: in a fresh checkout one collects first, and so compiles the files of Python that all load."""

import fcntl
import sys
from pathlib import Path

import pytest


def is_fresh() -> bool:
    """True where no file of tests has been compiled yet, but will be."""
    return not sys.dont_write_bytecode and not any((Path(__file__).parent / "__pycache__").glob("test_*.pyc"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    with open(__file__, "rb") as lock:  # until the file is closed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if is_fresh() else fcntl.LOCK_SH)
        except BlockingIOError:  # another one is the first
            fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)
