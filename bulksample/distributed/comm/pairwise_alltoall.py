"""One all-to-all over MPI, as messages between pairs of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np


class PairwiseAlltoall:
    """One all-to-all as messages between pairs of ranks, each of at most `most` bytes; nothing is sent for nothing."""

    def __init__(self, mpi: Any, comm: Any, tag: int, most: int, parts: list[np.ndarray], into: list[np.ndarray]) -> None:
        self._mpi = mpi
        self.wrong = ""  # what came otherwise than agreed
        self._expected = [(r, place[at : at + most]) for r, place in enumerate(into) if r != comm.rank for at in range(0, len(place), most)]
        outgoing = [(r, part[at : at + most]) for r, part in enumerate(parts) if r != comm.rank for at in range(0, len(part), most)]
        self._requests = [comm.Irecv([place, mpi.BYTE], r, tag) for r, place in self._expected]
        self._requests += [comm.Isend([part, mpi.BYTE], r, tag) for r, part in outgoing]
        self._statuses = [mpi.Status() for _ in self._requests]
        self._landed = not self._requests

    def done(self) -> bool:
        if not self._landed:
            self._landed = self._mpi.Request.Testall(self._requests, self._statuses)
            if self._landed:
                self._compare()
        return self._landed

    def _compare(self) -> None:
        for (rank, place), status in zip(self._expected, self._statuses, strict=False):
            found = status.Get_count(self._mpi.BYTE)
            if found != len(place):
                self.wrong = f"rank {rank} sent {found} bytes where {len(place)} were agreed"
