"""The process of a command: its standard streams, the memory it takes, and imports without garbage collection.

This module imports nothing large, because a command calls it before anything else.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import resource
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import UsageError

closed: set[str] = set()  # the standard streams that the caller closed
_SAMPLING = "use a smaller --batch-size, --bulk-size or --memory-budget, or smaller --fanouts"
_WORK = (  # modules whose names begin so, their work, and what lowers its memory
    ("loading", "sampling mini-batches", _SAMPLING),
    ("samplers", "sampling mini-batches", _SAMPLING),
    ("adjacency", "sampling mini-batches", _SAMPLING),
    ("local_adjacency", "sampling mini-batches", _SAMPLING),
    ("views", "fetching features", "use a smaller --batch-size, --feature-storage fp16, or --graph partitioned over more ranks"),
    ("training.loop", "training", "use a smaller --batch-size, --hidden or --fanouts, or more ranks"),
    ("evaluation", "evaluating all vertices", "use a smaller --hidden, or more ranks"),
    ("methods", "training", "use a smaller --batch-size or --hidden, or more ranks"),
    ("distributed.matrix", "distributing the graph", "use more ranks, or a lower --replication"),
    ("data.hetero", "generating the graph", "use fewer vertices or a lower degree"),
    ("data.rmat", "generating the graph", "use a lower --scale or --edge-factor"),
    ("data.dcsbm", "generating the graph", "use fewer --vertices, a lower --degree or fewer --features"),
    ("data", "reading the graph", "use a machine with more memory, or import a smaller graph"),
)


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


def peak_memory() -> int:
    """Return the largest resident memory of this program so far, in bytes; pages of mapped files count.

    Linux says so in /proc: `ru_maxrss` there also counts the process that started the program.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return 1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory has run out: of Python, numpy or the kernels in C++, of torch, or of a mapped file."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    of_torch = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and of_torch)


def explain_memory(error: BaseException) -> str:
    """Return one line: the work of the innermost module of the package that has a line above, the reason, and what to lower.

    The line of a package does not replace that of a module in it: generators call what readers of files share.
    """
    name, work, lower = "", "running this command", "use a smaller graph or a machine with more memory"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        line = next((line for line in _WORK if module.startswith(f"bulksample.{line[0]}")), None)
        if line is not None and not name.startswith(f"{line[0]}."):
            name, work, lower = line
    reason = (str(error).splitlines() or ["the system gave no more"])[0]
    return f"memory ran out while {work}: {reason}; {lower}"


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the garbage collector in a ``with`` block, and exempt all objects alive at its end from later collections."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
