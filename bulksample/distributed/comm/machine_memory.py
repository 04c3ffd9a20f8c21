"""One array in the memory of each machine, which its ranks map and fill together.

The memory has no name in any file system: the first rank of a machine makes an anonymous file (memfd), and the others open it through
that process. So nothing is left when ranks die, and the size of /dev/shm does not matter.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from ...errors import UsageError
from ...free_memory import check_free
from .agree import together
from .base import Comm
from .machines import on_one_machine

_CHUNK_BYTES, _CHUNK_ROWS = 2**20, 2**9  # filled at once; the allocator keeps memory of about that size
_MEETINGS = 10  # of the ranks that fill an array, in the time that a wait may take


def shared_array(comm: Comm, shape: tuple[int, ...], dtype: np.dtype, fill: Callable[[int, int], np.ndarray], what: str) -> np.ndarray:
    """Return an array with one copy on every machine, shared by its ranks; collective.

    Parameters
    ----------
    comm : Comm
        All ranks.
    fill : callable
        Returns rows a to b - 1. Each rank of a machine fills an even share of the rows.
    what : str
        The name of the array in messages.

    Returns
    -------
    np.ndarray
        Read-only. The memory is freed when no rank of the machine maps it any more.

    Raises
    ------
    UsageError
        On every rank, if a machine has too little memory, or one of its ranks cannot open the memory of another.
    DataError
        On every rank, if `fill` raises it on one of them.
    """
    machine = on_one_machine(comm)
    size = max(1, prod(shape) * dtype.itemsize)
    made = together(comm, lambda: _make(size, what) if machine.rank == 0 else -1)
    try:
        pid, number = machine.gather_control([os.getpid(), made])[0]
        opened = together(comm, lambda: _open(pid, number, size, what))
    finally:
        if machine.rank == 0:
            os.close(made)
    array: np.ndarray = np.ndarray(shape, dtype, mmap.mmap(opened, size))
    os.close(opened)
    first, last = (shape[0] * r // machine.size for r in (machine.rank, machine.rank + 1))
    _fill_together(comm, array, _chunks(array, first, last), fill)
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
    if (found := os.fstat(opened).st_size) != size or "memfd:bulksample" not in os.readlink(path):
        os.close(opened)
        raise UsageError(f"{path} holds {found} bytes and should be the {size} of {what}; use features replicated")
    return opened


def _chunks(array: np.ndarray, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield (a, b) of consecutive rows that are filled at once."""
    step = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // max(1, array[:1].nbytes)))
    return ((a, min(a + step, last)) for a in range(first, last, step))


def _fill_together(comm: Comm, array: np.ndarray, chunks: Iterator[tuple[int, int]], fill: Callable[[int, int], np.ndarray]) -> None:
    """Fill this rank's chunks; collective. Ranks meet several times within a timeout: one that reads from a slow disk is not lost."""

    def fill_some() -> bool:
        until = time.monotonic() + comm.timeout / _MEETINGS
        for a, b in chunks:
            array[a:b] = fill(a, b)
            if time.monotonic() >= until:
                return False
        return True

    while not all(comm.gather_control(together(comm, fill_some))):
        pass
