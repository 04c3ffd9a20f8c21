"""Ranks started by torchrun, or by anything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. MPI is not needed.

The gloo back end of torch.distributed moves the bytes. Stores, and the default group that `bulksample.init(process_group=...)` makes,
come from its public functions. Process groups of communicators do not: `new_group` needs the default group, which belongs to the program,
as a second `init_process_group` is an error; and it pairs groups by the order of calls. Two threads that split in another order on
each rank then silently add each other's numbers (seen with torch 2.13). A group is therefore made of its back end, a store and a name that
its ranks know; ranks that split in different orders wait until the deadline, which says so. `all_to_all_single` and `broadcast` take
groups of `new_group` alone, hence the calls of the group's own methods.

Only gloo's broadcast and its all-to-all with lengths are used. They can be polled, so every wait has a deadline; gloo's messages
between two ranks cannot.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as torch_distributed
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from ...errors import PeerLost, UsageError
from .base import Comm, bytes_of
from .master_address import TOLD_SECONDS, advice, await_listener, check_store, fault, others_at, speaks
from .process_end import Sentinel
from .processes import ProcessComm, SubComm
from .side_channels import StoreSideChannel
from .watch import announce, deadline, end_process

_WORLDS = itertools.count()  # communicators of all ranks opened so far; each has its own prefix in the store
BACKENDS = {"gloo": "ProcessGroupGloo", "nccl": "ProcessGroupNCCL"}
_GREETED_SECONDS = 10.0  # for a store of this process to answer
_SECONDS_MORE = 60.0  # gloo's own deadline comes later than that of `Watch`, because its error names no rank


def meet(timeout: float) -> tuple[Any, int, int]:
    """Connect to the store that all ranks share; return the store, this rank and the number of ranks.

    After two seconds standard error says what this rank waits for, and for how long. Raises `PeerLost` if the store cannot be reached in
    time, or another service listens at its address; see `await_listener` and `check_store`. Raises `UsageError` if another process has this
    rank.
    """
    host, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    opens = os.environ.get("RANK") == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    began = time.monotonic()
    try:
        if host and port.isdigit():
            await_listener(host, int(port), timeout, opens)
            if not opens:
                check_store(host, int(port), timeout, own_store_greets)
        with announce(others_at(), timeout, TOLD_SECONDS, speaks()):
            store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=timeout))))
    except (RuntimeError, ValueError, OSError) as error:
        waited = f"within {max(1, round(time.monotonic() - began))} s"
        raise PeerLost(f"the ranks did not meet at MASTER_ADDR:MASTER_PORT {host}:{port} {waited}: {error}{advice(error)}") from error
    ours = PrefixStore(f"bulksample {next(_WORLDS)}", store)
    if ours.add(f"rank {rank}", 1) > 1:
        raise UsageError(f"RANK: two processes are rank {rank} of {size}; give each its own, from 0 to {size - 1}")
    return ours, rank, size


def own_store_greets() -> bool:
    """Return True if a store of this torch, opened for a moment at 127.0.0.1, answers as `fault` expects."""
    with suppress(RuntimeError, ValueError, OSError):
        listener = socket.create_server(("127.0.0.1", 0))
        port, patience = listener.getsockname()[1], timedelta(seconds=_GREETED_SECONDS)
        store = TCPStore("127.0.0.1", port, 1, True, patience, False, master_listen_fd=listener.detach())
        with socket.create_connection(("127.0.0.1", port), _GREETED_SECONDS) as connection:
            problem, _ = fault(connection, _GREETED_SECONDS)
        del store
        return not problem
    return False


def process_group(backend: str, store: Any, name: str, rank: int, size: int, timeout: float) -> Any:
    """Create a process group of torch.distributed without registering it; block until all its ranks have called this.

    `backend` is a key of BACKENDS; `name` is the same on all ranks of the group, and was not used before. Raises `UsageError` if this torch
    was built without the back end.
    """
    made = getattr(torch_distributed, BACKENDS[backend], None)
    if made is None:
        raise UsageError(f"torch {torch.__version__} was built without {backend}; use mpirun and mpi4py")
    return made(PrefixStore(name, store), rank, size, timedelta(seconds=timeout))


class TorchComm(ProcessComm):
    """The communicator of all ranks that share a store; the tensors of its process groups are in host memory."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, sentinel: Sentinel, backend: str = "gloo") -> None:
        self.store, self.backend, self.name, self._splits = store, backend, "all", 0
        with deadline(timeout, "the other ranks to start", end_process), announce(others_at(), timeout, TOLD_SECONDS, speaks()):
            self._group = process_group(backend, store, self.name, rank, size, timeout + _SECONDS_MORE)
        messages = PrefixStore("side channel", store.clone() if hasattr(store, "clone") else store)
        self._store_channel = StoreSideChannel(messages, rank, size, lambda: self.watch.now())
        super().__init__(rank, size, self._store_channel, (RuntimeError,), timeout, sentinel)
        self._channel.read()

    def new_group(self, backend: str) -> Any:
        """Create a process group of the ranks of this communicator with another back end; collective."""
        self._splits += 1
        name = f"{self.name}.{self._splits}-{backend}"
        with deadline(self.watch.timeout, f"the other ranks to make a group of {backend}", self._strike):
            return process_group(backend, self.store, name, self.rank, self.size, self.watch.timeout + _SECONDS_MORE)

    def _start(self, parts: np.ndarray, lengths: list[int], into: np.ndarray, incoming: list[int]) -> Callable[[], bool]:
        """Begin an all-to-all of one-dimensional arrays, int64 or bytes; lengths are entries for and from each rank."""
        options = torch_distributed.AllToAllOptions()
        return ended(self._group.alltoall_base(torch.from_numpy(into), torch.from_numpy(parts), incoming, lengths, options))

    def _exchange_shares(self, array: np.ndarray, counts: list[int], into: np.ndarray) -> Callable[[], bool]:
        size = array.itemsize
        return self._start(bytes_of(array), [size * count for count in counts], bytes_of(into), [size * into.shape[1]] * self.size)

    def _gather_shares(self, share: np.ndarray, counts: list[int], array: np.ndarray) -> Callable[[], bool]:
        copies = np.tile(bytes_of(share), self.size)  # one for each rank
        return self._start(copies, [share.nbytes] * self.size, bytes_of(array), [array.itemsize * count for count in counts])

    def _send_from_root(self, part: np.ndarray, root: int) -> Callable[[], bool]:
        options = torch_distributed.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        return ended(self._group.broadcast([torch.from_numpy(part)], options))

    def _alltoall_words(self, words: np.ndarray, what: str = "alltoall counts") -> np.ndarray:
        out = np.empty_like(words)
        ones = [1] * self.size
        self._complete(what, lambda: self._start(words, ones, out, ones))
        return out

    def _start_alltoall(
        self, sent: np.ndarray, outgoing: np.ndarray, into: np.ndarray, incoming: np.ndarray, kind: str
    ) -> Callable[[], None]:
        """Send one message to each rank, however long: gloo counts bytes in 64 bits."""
        what = f"alltoall {kind} {len(into)} bytes"
        sent = sent if sent.flags.writeable else sent.copy()  # torch warns of memory that it must not write
        done = self._attempt(what, lambda: self._start(sent, outgoing.tolist(), into, incoming.tolist()))
        return lambda: self._wait(what, done)

    def _split(self, color: int, members: list[int]) -> Comm:
        self._splits += 1
        return _TorchSubComm(self, f"{self.name}.{self._splits}-{color}", members)

    def barrier(self) -> None:
        if self.size > 1:
            self._alltoall_words(np.zeros(self.size, np.int64), "barrier")

    def leave(self, within: float | None, reason: str = "") -> bool:
        if not super().leave(within, reason):
            return False
        del self._group  # its threads would delay the exit of the interpreter
        return True

    def _glance(self, waited: float) -> None:
        super()._glance(waited)
        self._follow()

    def _strike(self, report: str) -> None:
        with suppress(*self._faults):
            self._follow()
        super()._strike(report)

    def _follow(self) -> None:
        """Exit if another rank has ended the job; that rank has printed the reason."""
        if (code := self._store_channel.ended()) is not None:
            self._sentinel.report("reported")
            os._exit(code)

    def _end_ranks(self, code: int) -> None:
        """Write the exit code to the store and exit. The others exit when they read it or lose this rank; torchrun ends them, too."""
        with suppress(*self._faults):
            self._store_channel.end(code)
        self._sentinel.report("reported")
        os._exit(code)


class _TorchSubComm(SubComm, TorchComm):
    """A subset of the ranks, in a process group of their own."""

    def __init__(self, whole: TorchComm, name: str, members: list[int]) -> None:
        SubComm.__init__(self, whole, members)
        self.store, self.backend, self.name, self._splits = whole.store, whole.backend, name, 0
        self._store_channel = whole._store_channel
        with deadline(self.watch.timeout, "the other ranks to split", self._strike):
            more = self.watch.timeout + _SECONDS_MORE
            self._group = process_group(self.backend, self.store, name, self.rank, self.size, more)


def ended(work: Any) -> Callable[[], bool]:
    """Return a function that is true once a collective has finished, and raises its error if it failed."""

    def done() -> bool:
        if work.is_completed():
            work.wait()
            return True
        return False

    return done
