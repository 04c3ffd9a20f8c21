"""Ranks as MPI processes. `world` imports mpi4py.MPI and passes the module in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Comm, TransferHandle
from .cuda_aware import CudaAware, ask
from .pairwise_alltoall import PairwiseAlltoall
from .processes import ProcessComm, SubComm
from .sentinel import Sentinel
from .side_channel_mpi import MpiSideChannel
from .watch import alarm, deadline

_ABORT_SECONDS = 5.0  # for the launcher to end this process as well
_TAGS = 2**15  # every MPI library has that many


class MpiComm(ProcessComm):
    """All ranks of MPI_COMM_WORLD.

    Parameters
    ----------
    mpi : the module mpi4py.MPI
    """

    def __init__(self, mpi: Any, timeout: float, sentinel: Sentinel) -> None:
        comm, channel = mpi.COMM_WORLD.Dup(), MpiSideChannel(mpi, lambda: self.watch.now())
        self._mpi, self._comm = mpi, comm
        self._alltoalls, self._in_flight = 0, set[PairwiseAlltoall]()
        super().__init__(comm.rank, comm.size, channel, (mpi.Exception,), timeout, sentinel)
        self._only_thread = None if mpi.Query_thread() >= mpi.THREAD_MULTIPLE else threading.get_ident()

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        if array.dtype.kind == "f":  # MPI libraries add floats in different orders
            super()._allreduce(array, kind)
            return
        what = f"allreduce {kind} {array.dtype} {array.shape}"
        self._complete(what, lambda: self._comm.Iallreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM).Test)

    def _exchange_shares(self, array: np.ndarray, counts: list[int], into: np.ndarray) -> Callable[[], bool]:
        own = [into.shape[1]] * self.size
        done: Callable[[], bool] = self._comm.Ialltoallv([array, counts], [into, own]).Test
        return done

    def _gather_shares(self, share: np.ndarray, counts: list[int], array: np.ndarray) -> Callable[[], bool]:
        done: Callable[[], bool] = self._comm.Iallgatherv(share, [array, counts]).Test
        return done

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        out = np.empty(int(sizes.sum()), np.uint8)
        starts = np.cumsum(sizes) - sizes
        target = [out, sizes.tolist(), starts.tolist(), self._mpi.BYTE]
        self._complete(f"allgather {kind} {len(out)} bytes", lambda: self._comm.Iallgatherv([part, self._mpi.BYTE], target).Test)
        return out

    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        what = f"broadcast {kind} {len(part)} bytes from rank {root}"
        self._complete(what, lambda: self._comm.Ibcast([part, self._mpi.BYTE], root).Test)

    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        out = np.empty_like(words)
        self._complete("alltoall counts", lambda: self._comm.Ialltoall([words, self._mpi.INT64_T], [out, self._mpi.INT64_T]).Test)
        return out

    def _start_alltoall(self, sent: np.ndarray, outgoing: np.ndarray, into: np.ndarray, incoming: np.ndarray, kind: str) -> TransferHandle:
        parts, buffers = _pieces(sent, outgoing), _pieces(into, incoming)
        buffers[self.rank][:] = parts[self.rank]
        return self.start_bytes(parts, buffers, kind)

    def start_bytes(self, parts: list[Any], into: list[Any], kind: str) -> TransferHandle:
        """Begin an all-to-all of one-dimensional byte buffers in host or device memory, of agreed lengths; no bytes are counted.

        This rank's own part stays where it is.
        """
        self._alltoalls += 1
        incoming = sum(len(buffer) for r, buffer in enumerate(into) if r != self.rank)
        what = f"alltoall {kind} {incoming} bytes"
        exchange = self._attempt(
            what, lambda: PairwiseAlltoall(self._mpi, self._comm, self._alltoalls % _TAGS, self.most_elements, parts, into)
        )
        self._in_flight.add(exchange)  # keeps its memory alive until `wait`: MPI writes into it

        def wait() -> None:
            if exchange in self._in_flight:
                self._attempt(what, lambda: self.watch.wait(exchange.done, what + self._among, self._glance))
                self._in_flight.remove(exchange)
                if exchange.fault:
                    self._end(f"{what}: {exchange.fault}")

        return TransferHandle(lambda: self._attempt(what, exchange.done), wait)

    def _split(self, color: int, members: list[int]) -> Comm:
        return _MpiSubComm(self, color, members)

    @property
    def cuda_aware(self) -> CudaAware:
        return ask(self._mpi.__file__)

    def barrier(self) -> None:
        self._complete("barrier", lambda: self._comm.Ibarrier().Test)

    def _end_ranks(self, code: int) -> None:
        with alarm(2 * _ABORT_SECONDS):
            if self._sentinel.abort(code):
                time.sleep(_ABORT_SECONDS)
            self._comm.Abort(code)


def _pieces(buffer: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Return consecutive views of a buffer with the given lengths."""
    ends = np.cumsum(lengths).tolist()
    return [buffer[start:end] for start, end in zip([0, *ends], ends, strict=False)]


class _MpiSubComm(SubComm, MpiComm):
    """A subset of the ranks, over an MPI communicator of their own."""

    def __init__(self, whole: MpiComm, color: int, members: list[int]) -> None:
        SubComm.__init__(self, whole, members)
        self._mpi, self._alltoalls, self._in_flight = whole._mpi, 0, whole._in_flight
        with deadline(self.watch.timeout, "the other ranks to split", self._strike):
            self._comm = whole._comm.Split(color, self.rank)
