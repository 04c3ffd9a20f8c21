"""Begin torch.distributed with the ranks of a communicator, for models that are trained by `DistributedDataParallel` or FSDP."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch.distributed as torch_distributed
from torch.distributed.distributed_c10d import PrefixStore

from ..distributed.comm.base import Comm
from ..distributed.comm.torch_distributed import TorchComm
from ..errors import UsageError


def begin(comm: Comm, backend: str) -> None:
    """Make the default process group of torch.distributed over all ranks of a communicator; collective. Does nothing if there is one.

    Raises
    ------
    UsageError
        If this torch was built without the back end, or the default group has other ranks.
    """
    if not torch_distributed.is_available() or not torch_distributed.is_backend_available(backend):
        raise UsageError(f"process_group: this torch has no back end {backend!r}; use gloo")
    if not torch_distributed.is_initialized():
        store = PrefixStore("default group", shared_store(comm))
        torch_distributed.init_process_group(
            backend, store=store, rank=comm.rank, world_size=comm.size, timeout=timedelta(seconds=comm.timeout)
        )
    found = (torch_distributed.get_rank(), torch_distributed.get_world_size())
    if found != (comm.rank, comm.size):
        raise UsageError(f"torch.distributed was begun as rank {found[0]} of {found[1]}; this is rank {comm.rank} of {comm.size}")


def shared_store(comm: Comm) -> Any:
    """Return a store of torch.distributed that all ranks of a communicator reach; collective.

    Ranks that torchrun started have one already. Otherwise the first rank opens a store and sends its address to the others.
    """
    from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

    if isinstance(comm, TorchComm):
        return comm.store
    if comm.size == 1:
        return HashStore()
    host = store_host(comm.gather_control([socket.gethostname(), os.environ.get("MASTER_ADDR", "")]))
    options: dict[str, Any] = {"timeout": timedelta(seconds=comm.timeout), "wait_for_workers": False}
    store = TCPStore(host, 0, comm.size, True, **options) if comm.rank == 0 else None
    port = comm.gather_control(store.port if store else 0)[0]
    return store or TCPStore(host, port, comm.size, False, **options)


def store_host(ranks: list[list[str]]) -> str:
    """Return the address of the first rank, given the host name and MASTER_ADDR of each rank."""
    machine, master = ranks[0]
    return "127.0.0.1" if all(other == machine for other, _ in ranks) else master or machine
