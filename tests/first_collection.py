"""A plugin of pytest's workers: in a fresh checkout one collects first, and so compiles the files of Python that all load."""

import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def is_fresh() -> bool:
    """True where no file of tests has been compiled yet, but will be."""
    written = not sys.dont_write_bytecode and sys.pycache_prefix is None
    return written and not any((HERE / "__pycache__").glob("test_*.pyc"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    if not os.access(__file__, os.W_OK):  # nothing will be compiled beside it
        return (yield)
    with open(__file__, "r+b") as lock:  # locked until it is closed
        with suppress(OSError):  # of a file system without locks
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if is_fresh() else fcntl.LOCK_SH)
            except BlockingIOError:  # another one is the first
                fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)
