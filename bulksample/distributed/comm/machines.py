"""The machine that ranks share: its name, an array in its memory, and its processors.

Ranks with the same host name and the same running kernel share a machine. A shared array has no name in any file system: the first rank of
a machine makes an anonymous file (memfd), and the others open it through that process. So nothing is left when ranks die, and the size of
/dev/shm does not matter.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...backends.native import processor_ids
from ...errors import UsageError
from ...free_memory import check_free
from .agree import together
from .base import Comm

VARIABLE = "BULKSAMPLE_MACHINES"  # ranks of each machine, such as 2,2,2,2: simulates machines
_CHUNK_BYTES, _CHUNK_ROWS = 2**20, 2**9  # filled at once; the allocator keeps memory of about that size
_MEETINGS = 10  # of the ranks that fill an array, in the time that a wait may take


def machines_of_ranks(comm: Comm) -> np.ndarray:
    """Return the machine of each rank: int64, shape (p,); machines are numbered by their first rank. Collective; counts no bytes.

    BULKSAMPLE_MACHINES simulates machines: ``2,2,4`` puts two, two and four ranks in the order of ranks on three machines, ``2`` puts
    two on each. Raises `UsageError` on every rank if that variable is no list of numbers that add up to p.
    """
    before = dict(comm.tally)
    names = comm.gather_control(_own_machine(comm.rank, comm.size))
    comm.tally.update(before)  # which ranks are elsewhere was not known yet
    for name in names:
        if name.startswith("!"):
            raise UsageError(name[1:])
    return numbered(names)


def numbered(names: list[str]) -> np.ndarray:
    """Number names in the order in which they first occur: int64."""
    first = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([first[name] for name in names], np.int64)


def simulated(text: str, ranks: int) -> np.ndarray:
    """Return the machine of each rank by the value of BULKSAMPLE_MACHINES; raises `UsageError` if it is not one for p ranks."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if len(counts) == 1 and counts[0] > 0:
        return np.arange(ranks, dtype=np.int64) // counts[0]
    if not counts or min(counts) < 1 or sum(counts) != ranks:
        raise UsageError(f"{VARIABLE}: got {text!r} for {ranks} ranks; use the ranks of each machine, such as 2,2, or one number for all")
    return np.repeat(np.arange(len(counts)), counts)


def on_one_machine(comm: Comm) -> Comm:
    """Return a communicator of the ranks of this machine, in the order of ranks; collective."""
    return comm.split(int(comm.machine_of[comm.rank]), comm.rank)


def uneven(comm: Comm) -> str:
    """Return how many ranks each machine has, such as "2, 2 and 1", unless all have equally many; then an empty string."""
    counts = np.bincount(comm.machine_of).tolist()
    return "" if len(set(counts)) == 1 else f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"


def _own_machine(rank: int, ranks: int) -> str:
    """Return the name of this rank's machine, or a fault that begins with an exclamation mark."""
    if VARIABLE in os.environ:
        try:
            return f"machine {simulated(os.environ[VARIABLE], ranks)[rank]}"
        except UsageError as error:
            return f"!{error}"
    kernel = ""
    with suppress(OSError):
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{socket.gethostname()} {kernel}"


def shared_array(comm: Comm, shape: tuple[int, ...], dtype: np.dtype, fill: Callable[[int, int], np.ndarray], what: str) -> np.ndarray:
    """Return an array with one copy on every machine, shared by its ranks, read-only; collective over all ranks.

    ``fill(a, b)`` returns rows a to b - 1; each rank of a machine fills an even share of the rows. `what` is the name of the array in
    messages. The memory is freed when no rank of the machine maps it any more. Raises `UsageError` on every rank if a machine has too
    little memory, or one of its ranks cannot open the memory of another, and `DataError` if `fill` raises it on one of them.
    """
    machine = on_one_machine(comm)
    size = max(1, prod(shape) * dtype.itemsize)
    descriptor = together(comm, lambda: _make(size, what) if machine.rank == 0 else -1)
    try:
        pid, number = machine.gather_control([os.getpid(), descriptor])[0]
        opened = together(comm, lambda: _open(pid, number, size, what))
    finally:
        if machine.rank == 0:
            os.close(descriptor)
    array: np.ndarray = np.ndarray(shape, dtype, mmap.mmap(opened, size))
    os.close(opened)
    first, last = (shape[0] * r // machine.size for r in (machine.rank, machine.rank + 1))
    step = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // max(1, array[:1].nbytes)))
    chunks = ((a, min(a + step, last)) for a in range(first, last, step))

    def fill_some() -> bool:
        until = time.monotonic() + comm.timeout / _MEETINGS
        for a, b in chunks:
            array[a:b] = fill(a, b)
            if time.monotonic() >= until:
                return False
        return True

    while not all(comm.gather_control(together(comm, fill_some))):  # several meetings: a rank that reads from a slow disk is not lost
        pass
    array.flags.writeable = False
    return array


def _make(size: int, what: str) -> int:
    """Return the descriptor of an anonymous file of this size; raise `UsageError` if there is too little memory."""
    remedy = "use features partitioned, or feature_storage given, which maps the file of the store"
    check_free(size, f"on {socket.gethostname()}, {what}", remedy)
    descriptor = os.memfd_create("bulksample")
    os.ftruncate(descriptor, size)
    return descriptor


def _open(pid: int, number: int, size: int, what: str) -> int:
    """Open the anonymous file of another process of this machine."""
    path = f"/proc/{pid}/fd/{number}"
    try:
        opened = os.open(path, os.O_RDWR)
    except OSError as error:
        raise UsageError(
            f"{what} in the memory of {socket.gethostname()} cannot be opened through {path} ({error.strerror}); ranks of a machine must "
            "see each other's processes: start them in one container, or use features replicated"
        ) from None
    if (length := os.fstat(opened).st_size) != size or "memfd:bulksample" not in os.readlink(path):
        os.close(opened)
        raise UsageError(f"{path} holds {length} bytes and should be the {size} of {what}; use features replicated")
    return opened


def fair_threads(comm: Comm) -> int:
    """Return this rank's processors: those of its affinity mask, divided by the ranks with the same mask, bound or not."""
    mask = processor_ids()
    processors = [socket.gethostname(), mask]
    return max(1, len(mask) // comm.gather_control(processors).count(processors))


class ThreadBudget(NamedTuple):
    """Threads of a rank by task. The tasks run at the same time."""

    sample: int  # for the next bulk; 0: sampling takes turns with computing, on the same threads
    gather: int  # for the features of the next mini-batch; 0: takes turns likewise
    compute: int

    def __str__(self) -> str:
        ahead = [f"{count} {what}" for count, what in ((self.sample, "sample"), (self.gather, "gather")) if count]
        return ", ".join([*ahead, f"{self.compute} compute"]) if ahead else f"{self.compute}, in turn"


def divide_threads(threads: int, sampling: int | None = None, waits: bool = False) -> ThreadBudget:
    """Divide the threads of a rank between computing and preparing the next mini-batches.

    Sampling and gathering take about a tenth of a step on a CPU. With up to three threads, a thread for them would mostly idle, so the
    tasks take turns on all threads. From four threads on, sampling gets an eighth of them, at least one, or as many as `sampling` says.
    From eight threads on, gathering gets as many as sampling. If sampling `waits` for other ranks or a device most of the time, it gets a
    thread in addition, unless `sampling` is 0. Raises `UsageError` if no thread is left to compute.
    """
    sample = max(1, threads // 8) if sampling is None and threads >= 4 else sampling or 0
    if waits:
        return ThreadBudget(0 if sampling == 0 else max(1, sample), 0, threads)
    if sample >= threads:
        raise UsageError(f"sampling with {sample} of {threads} threads leaves none to compute; use at most {threads - 1}")
    gather = threads // 8 if sample else 0
    return ThreadBudget(sample, gather, threads - sample - gather)
