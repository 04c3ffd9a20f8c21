"""Ranks as MPI processes, and what the MPI library can do and leaves behind. `world` imports mpi4py.MPI and passes the module in.

`MPIX_Query_cuda_support` is an extension that Open MPI and MPICH export; name and version of a library are not evidence. A library without
it is taken as not CUDA-aware. A variable can turn the support off where the library answers yes, so variables are read too.

https://docs.open-mpi.org/en/main/man-openmpi/man3/MPIX_Query_cuda_support.3.html
https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Running_MPICH_with_GPU.md

MPICH removes its files in /dev/shm when it ends. After a kill the memory would stay allocated until the machine restarts.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from .base import Comm
from .peer_memory import PeerMemory
from .primitives import CudaAware
from .process_end import Sentinel
from .processes import GRACE_SECONDS, ProcessComm, SubComm
from .side_channels import MpiSideChannel, ranks_in_words
from .watch import alarm, deadline

_ABORT_SECONDS = 5.0  # for the launcher to end this process as well
_TAGS = 2**15  # every MPI library has that many
SYMBOL = "MPIX_Query_cuda_support"
SWITCHES = ("MPIR_CVAR_ENABLE_GPU", "MPICH_GPU_SUPPORT_ENABLED", "OMPI_MCA_opal_cuda_support", "MV2_USE_CUDA")
_OFF = ("0", "no", "false", "off")
SHARED_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"/mpich_shm_\w+")
_OLD_SECONDS = 600.0  # ranks may be about to open a younger file


class MpiComm(ProcessComm):
    """All ranks of MPI_COMM_WORLD, over the module mpi4py.MPI."""

    def __init__(self, mpi: Any, timeout: float, sentinel: Sentinel) -> None:
        comm, channel = mpi.COMM_WORLD.Dup(), MpiSideChannel(mpi, lambda: self.watch.now())
        self._mpi, self._comm = mpi, comm
        self._alltoalls, self._in_flight = 0, set[PairwiseAlltoall]()
        super().__init__(comm.rank, comm.size, channel, (mpi.Exception,), timeout, sentinel)
        self._only_thread = None if mpi.Query_thread() >= mpi.THREAD_MULTIPLE else threading.get_ident()
        self._memory = PeerMemory({})
        self._memory = PeerMemory.of_ranks(self)

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        if array.dtype.kind == "f":  # MPI libraries add floats in different orders
            super()._allreduce(array, kind)
            return
        what = f"allreduce {kind} {array.dtype} {array.shape}"
        self._complete(what, lambda: self._comm.Iallreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM).Test)

    def _exchange_shares(self, array: np.ndarray, counts: list[int], into: np.ndarray) -> Callable[[], bool]:
        incoming = [into.shape[1]] * self.size
        done: Callable[[], bool] = self._comm.Ialltoallv([array, counts], [into, incoming]).Test
        return done

    def _gather_shares(self, share: np.ndarray, counts: list[int], array: np.ndarray) -> Callable[[], bool]:
        done: Callable[[], bool] = self._comm.Iallgatherv(share, [array, counts]).Test
        return done

    def _send_from_root(self, part: np.ndarray, root: int) -> Callable[[], bool]:
        done: Callable[[], bool] = self._comm.Ibcast([part, self._mpi.BYTE], root).Test
        return done

    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        out = np.empty_like(words)
        self._complete("alltoall counts", lambda: self._comm.Ialltoall([words, self._mpi.INT64_T], [out, self._mpi.INT64_T]).Test)
        return out

    def _start_alltoall(
        self, sent: np.ndarray, outgoing: np.ndarray, into: np.ndarray, incoming: np.ndarray, kind: str
    ) -> Callable[[], None]:
        parts, buffers = _pieces(sent, outgoing), _pieces(into, incoming)
        buffers[self.rank][:] = parts[self.rank]
        return self.start_bytes(parts, buffers, kind)

    def start_bytes(self, parts: list[Any], into: list[Any], kind: str) -> Callable[[], None]:
        """Begin an all-to-all of byte buffers of agreed lengths, on host or device; the own part stays, and no bytes are counted."""
        self._alltoalls += 1
        incoming = sum(len(buffer) for r, buffer in enumerate(into) if r != self.rank)
        what = f"alltoall {kind} {incoming} bytes"
        exchange = self._attempt(
            what, lambda: PairwiseAlltoall(self._mpi, self._comm, self._alltoalls % _TAGS, self.most_elements, parts, into)
        )
        self._in_flight.add(exchange)  # keeps its memory alive until `wait`: MPI writes into it

        def wait() -> None:
            if exchange in self._in_flight:
                self._wait(what, exchange.done)
                self._in_flight.remove(exchange)
                if exchange.fault:
                    self._end(f"{what}: {exchange.fault}")

        return wait

    def _split(self, color: int, members: list[int]) -> Comm:
        return _MpiSubComm(self, color, members)

    @property
    def cuda_aware(self) -> CudaAware:
        return ask(self._mpi.__file__)

    def barrier(self) -> None:
        self._complete("barrier", lambda: self._comm.Ibarrier().Test)

    def _complete(self, what: str, start: Callable[[], Callable[[], bool]]) -> None:
        def begin() -> Callable[[], bool]:
            done = start()
            return lambda: done() and not self._dead()

        super()._complete(what, begin)

    def _glance(self, waited: float) -> None:
        super()._glance(waited)
        if waited > GRACE_SECONDS and (dead := self._dead()):  # and the sentinel of that rank has not ended the job
            self._end(f"{ranks_in_words(dead)} ended while this rank is in {self.watch.now()}")

    def _dead(self) -> list[int]:
        """Return the ranks of this communicator and machine that have died; what the library received from them may be lost."""
        top = cast(MpiComm, self._top)
        return top._memory.lost(self._members)

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


class PairwiseAlltoall:
    """One all-to-all under way, as messages of at most `most` bytes between pairs of ranks. Empty parts send no message.

    `Ialltoallv` wants all parts in one buffer, with displacements of 32 bits before MPI 4. Here parts are arrays of their own, in host or
    device memory, and may be longer; and a part whose length is not the agreed one must name its sender.
    """

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
            for (rank, buffer), status in zip(self._incoming, self._statuses, strict=False) if self._finished else ():
                if (received := status.Get_count(self._mpi.BYTE)) != len(buffer):
                    self.fault = f"rank {rank} sent {received} bytes where {len(buffer)} were agreed"
        return self._finished


def ask(library: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> CudaAware:
    """Query a loaded and initialized MPI library, or a module linked with it, such as mpi4py's; `environment` may turn the support off."""
    try:
        query = getattr(ctypes.CDLL(os.fspath(library)), SYMBOL)
    except OSError as error:
        return CudaAware(False, f"the MPI library cannot be asked: {error}")
    except AttributeError:
        return CudaAware(False, f"the MPI library has no {SYMBOL} to ask")
    query.restype, query.argtypes = ctypes.c_int, []
    if query() != 1:
        return CudaAware(False, f"the MPI library says that it does not read device memory ({SYMBOL})")
    off = next((name for name in SWITCHES if environment.get(name, "").lower() in _OFF), None)
    if off:
        return CudaAware(False, f"{off}={environment[off]} keeps the MPI library from device memory")
    return CudaAware(True, f"the MPI library says that it reads device memory ({SYMBOL})")


def forget_names() -> None:
    """Unlink the files that this process has mapped. Call it once all ranks have mapped them; the last to exit frees the memory."""
    for path in _mapped(Path("/proc/self")):
        with suppress(OSError):
            path.unlink()


def sweep(old: float = _OLD_SECONDS) -> list[Path]:
    """Unlink this user's shared memory files, older than `old` seconds, that no process maps: killed ranks leave some. Returns them."""
    candidates = [path for path in SHARED_MEMORY.glob("mpich_shm_*") if _is_old(path, old)]
    in_use = set().union(*(_mapped(process) for process in Path("/proc").glob("[0-9]*"))) if candidates else set()
    unused = [path for path in candidates if path not in in_use]
    for path in unused:
        with suppress(OSError):
            path.unlink()
    return unused


def _is_old(path: Path, seconds: float) -> bool:
    with suppress(OSError):
        status = path.stat()
        return status.st_uid == os.getuid() and time.time() - status.st_mtime > seconds
    return False


def _mapped(process: Path) -> set[Path]:
    """Return the shared memory files that a process has mapped; empty for a process of another user."""
    with suppress(OSError):
        return {SHARED_MEMORY / name[1:] for name in _NAME.findall((process / "maps").read_text(encoding="utf-8", errors="replace"))}
    return set()
