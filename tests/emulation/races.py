"""Races between the threads of a kernel, as recorder.cpp finds them, in words."""

import ctypes
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np

_ONE_RECORD = threading.Lock()  # the recorder has one
MOST = 8  # races that are told of one launch
KINDS = ("read", "written", "changed by an atomic")


class Conflict(ctypes.Structure):
    """BsConflict of recorder.h."""

    _fields_ = (
        ("array", ctypes.c_longlong), ("byte", ctypes.c_longlong), ("block", ctypes.c_uint32 * 2), ("thread", ctypes.c_uint32 * 2),
        ("kind", ctypes.c_uint32 * 2), ("code", ctypes.c_size_t * 2),
    )  # fmt: skip


class Race(AssertionError):
    """Two accesses to the same memory that nothing orders."""


@contextmanager
def watched(library, name, values):
    """Record what a launch reads and writes of its arguments and of shared memory; raise `Race` afterwards if two accesses conflict."""
    places = {i: value for i, value in enumerate(values) if isinstance(value, np.ndarray)}
    firsts, sizes = (
        (ctypes.c_size_t * len(places))(*numbers)
        for numbers in ((array.ctypes.data for array in places.values()), (array.nbytes for array in places.values()))
    )
    found = (Conflict * MOST)()
    library.bs_host_conflicts.restype = ctypes.c_longlong
    with _ONE_RECORD:
        library.bs_host_watch(firsts, sizes, ctypes.c_longlong(len(places)))
        try:
            yield
        finally:
            count = library.bs_host_conflicts(found, ctypes.c_longlong(MOST))
    if count:
        told = [_told(library, conflict, list(places)) for conflict in found[:count]]
        raise Race("\n".join([f"kernel {name} has {count}{' or more' * (count == MOST)} race{'s' * (count > 1)}", *told]))


def _told(library, conflict, numbers):
    where = f"argument {numbers[conflict.array]}" if conflict.array >= 0 else "shared memory"
    sides = [
        f"{KINDS[conflict.kind[i]]} by thread {conflict.thread[i]} of block {conflict.block[i]} ({_line(library, conflict.code[i])})"
        for i in range(2)
    ]
    return f"  byte {conflict.byte} of {where}: {' and '.join(sides)}"


def _line(library, code):
    """The line of a kernel in which an instruction is; the functions of the emulation that it lies in are passed over."""
    command = ["addr2line", "-i", "-e", library._name, hex(code - 1)]
    try:
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        return hex(code)
    names = [Path(line.split(" ")[0]).name for line in lines if line]
    own = [name for name in names if name.split(":")[0].endswith((".cu", ".h")) and not name.startswith("cuda_on_host.h")]
    return own[0] if own else hex(code)
