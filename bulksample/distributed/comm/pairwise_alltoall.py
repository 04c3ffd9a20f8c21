"""An all-to-all over MPI, made of messages between pairs of ranks, where MPI's own does not serve.

`Ialltoallv` wants all parts in one buffer, with displacements of 32 bits before MPI 4. Here parts are arrays of their own, in host or
device memory, and may be longer; and a part whose length is not the agreed one must name its sender. All-reduces and counts use MPI's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class PairwiseAlltoall:
    """One all-to-all under way, as messages of at most `most` bytes between pairs of ranks. Empty parts send no message."""

    def __init__(self, mpi: Any, comm: Any, tag: int, most: int, parts: list[np.ndarray], into: list[np.ndarray]) -> None:
        self._mpi, self.fault = mpi, ""  # `fault` describes a message whose length is not the agreed one
        self._incoming = [
            (r, buffer[at : at + most]) for r, buffer in enumerate(into) if r != comm.rank for at in range(0, len(buffer), most)
        ]
        outgoing = [(r, part[at : at + most]) for r, part in enumerate(parts) if r != comm.rank for at in range(0, len(part), most)]
        self._requests = [comm.Irecv([buffer, mpi.BYTE], r, tag) for r, buffer in self._incoming]
        self._requests += [comm.Isend([part, mpi.BYTE], r, tag) for r, part in outgoing]
        self._statuses = [mpi.Status() for _ in self._requests]
        self._finished = not self._requests

    def done(self) -> bool:
        """Return True once all messages have been sent and received; does not wait."""
        if not self._finished:
            self._finished = self._mpi.Request.Testall(self._requests, self._statuses)
            if self._finished:
                self._check_lengths()
        return self._finished

    def _check_lengths(self) -> None:
        for (rank, buffer), status in zip(self._incoming, self._statuses, strict=False):
            found = status.Get_count(self._mpi.BYTE)
            if found != len(buffer):
                self.fault = f"rank {rank} sent {found} bytes where {len(buffer)} were agreed"
