"""Tell whether the other ranks of this machine still have their memory.

Between ranks of one machine, an MPI library may copy a large message straight from the memory of its sender (process_vm_readv). Once the
sender has died there is nothing to copy. MPICH 5 then completes a collective as if the message had come, and its buffer keeps what it held
before. So a collective counts as complete only if, after its end, every rank that took part still has its memory. All-to-alls are messages
of their own, whose failure MPICH reports.

The kernel answers in one read of ``/proc/PID/statm``, the size of a process's memory: 0 from the moment at which a copy would fail, and an
error once nothing is left of the process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .base import Comm


class PeerMemory:
    """Open files on the memory of processes, by rank; a rank of another machine or container has none, and is never missed."""

    def __init__(self, processes: dict[int, int]) -> None:
        self._files: dict[int, int] = {}
        for rank, process in processes.items():
            with suppress(OSError):  # it has died since: the sentinel of that rank reports it
                self._files[rank] = os.open(f"/proc/{process}/statm", os.O_RDONLY)

    @classmethod
    def of_ranks(cls, comm: Comm) -> PeerMemory:
        """Return the memory of the other ranks that share this one's process numbers; collective, counts no bytes."""
        before = dict(comm.tally)
        processes = comm.gather_control([_numbering(), os.getpid()])
        comm.tally.update(before)
        own, _ = processes[comm.rank]
        return cls({rank: process for rank, (space, process) in enumerate(processes) if own and space == own and rank != comm.rank})

    def lost(self, ranks: list[int]) -> list[int]:
        """Return those of the ranks whose memory is gone."""
        return [rank for rank in ranks if rank in self._files and not _has_memory(self._files[rank])]


def _has_memory(file: int) -> bool:
    try:
        return os.pread(file, 2, 0) != b"0 "
    except OSError:  # no such process
        return False


def _numbering() -> str:
    """Return the name of the space in which process numbers of this process hold; an empty string if the system does not tell."""
    with suppress(OSError):
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{kernel} {os.readlink('/proc/self/ns/pid')}"
    return ""
