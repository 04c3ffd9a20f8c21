"""Explain that memory has run out: what was being made, and which option makes it smaller."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator

_SAMPLING = "use a smaller --batch-size, --bulk-size or --memory-budget, or smaller --fanouts"
_WORK = (  # modules whose names begin so, their work, and what lowers its memory
    ("loader", "sampling mini-batches", _SAMPLING),
    ("samplers", "sampling mini-batches", _SAMPLING),
    ("adjacency", "sampling mini-batches", _SAMPLING),
    ("views", "fetching features", "use a smaller --batch-size, --feature-storage fp16, or --graph partitioned over more ranks"),
    ("training.loop", "training", "use a smaller --batch-size, --hidden or --fanouts, or more ranks"),
    ("evaluation", "evaluating all vertices", "use a smaller --hidden, or more ranks"),
    ("methods", "training", "use a smaller --batch-size or --hidden, or more ranks"),
    ("distributed.matrix", "distributing the graph", "use more ranks, or a lower --replication"),
    ("data.generate", "generating the graph", "use fewer vertices or a lower degree"),
    ("data.rmat", "generating the graph", "use a lower --scale or --edge-factor"),
    ("data.dcsbm", "generating the graph", "use fewer --vertices, a lower --degree or fewer --features"),
    ("data", "reading the graph", "use a machine with more memory, or import a smaller graph"),
)


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes; pages of mapped files count."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory has run out: of Python, numpy or the kernels in C++, of torch, or of a mapped file."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    of_torch = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and of_torch)


def explain_memory(error: BaseException) -> str:
    """Return one line: the work of the innermost module of the package that has a line above, the reason, and what to lower."""
    work, lower = "running this command", "use a smaller graph or a machine with more memory"
    for module in _modules(error):
        work, lower = next(((work, lower) for name, work, lower in _WORK if module.startswith(f"bulksample.{name}")), (work, lower))
    reason = (str(error).splitlines() or ["the system gave no more"])[0]
    return f"memory ran out while {work}: {reason}; {lower}"


def _modules(error: BaseException) -> Iterator[str]:
    """Yield the modules of the frames that an error went through, outermost first."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_globals.get("__name__", "")
        trace = trace.tb_next
