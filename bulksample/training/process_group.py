"""Begin torch.distributed with the ranks of a communicator, for models that are trained by `DistributedDataParallel` or FSDP."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as torch_distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from ..distributed.comm.base import Comm
from ..distributed.comm.torch_distributed import TorchComm
from ..errors import UsageError

_LOCAL = "127.0.0.1"
_WAITING = 2**12  # connections that wait to be accepted


def begin(comm: Comm, backend: str) -> None:
    """Make the default process group of torch.distributed over all ranks; collective. There may be one, of the same ranks, already."""
    if not torch_distributed.is_available() or not torch_distributed.is_backend_available(backend):
        raise UsageError(f"process_group: this torch has no back end {backend!r}; use gloo")
    if not torch_distributed.is_initialized():
        store = PrefixStore("default group", shared_store(comm))
        torch_distributed.init_process_group(
            backend, store=store, rank=comm.rank, world_size=comm.size, timeout=timedelta(seconds=comm.timeout)
        )
    group = (torch_distributed.get_rank(), torch_distributed.get_world_size())
    if group != (comm.rank, comm.size):
        raise UsageError(f"torch.distributed was begun as rank {group[0]} of {group[1]}; this is rank {comm.rank} of {comm.size}")


def shared_store(comm: Comm) -> Any:
    """Return a store of torch.distributed that all ranks of a communicator reach; collective.

    Ranks that torchrun started have one already. Otherwise the first rank opens a store and sends its address to the others. Like any
    store of torch it admits whoever reaches its port, so it listens at one address only; see `listen_at`.
    """
    from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

    if isinstance(comm, TorchComm):
        return comm.store
    if comm.size == 1:
        return HashStore()
    host = store_host(comm.gather_control([socket.gethostname(), os.environ.get("MASTER_ADDR", "")]))
    options: dict[str, Any] = {"timeout": timedelta(seconds=comm.timeout), "wait_for_workers": False}
    store, port = None, 0
    if comm.rank == 0:
        listener = listen_at(host)
        port = listener.getsockname()[1]
        store = TCPStore(host, port, comm.size, True, master_listen_fd=listener.detach(), **options)
    port = comm.gather_control(port)[0]
    return store or TCPStore(host, port, comm.size, False, **options)


def listen_at(host: str) -> socket.socket:
    """Return a socket that listens on a free port at the address of a host, and at no other address of this machine.

    Only if the name leads elsewhere, such as to an address that is translated or to a loopback address of a name that other machines
    know, it listens at all addresses.
    """
    addresses: list[Any] = []
    with suppress(OSError):
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in addresses:
        if host != _LOCAL and ipaddress.ip_address(address[0]).is_loopback:
            continue
        with suppress(OSError):
            made = socket.socket(family, kind, protocol)
            try:
                made.bind(address)
                made.listen(_WAITING)
            except OSError:
                made.close()
                raise
            return made
    return socket.create_server(("", 0), backlog=_WAITING)


def store_host(ranks: list[list[str]]) -> str:
    """Return the address of the first rank, given the host name and MASTER_ADDR of each rank."""
    machine, master = ranks[0]
    return _LOCAL if all(other == machine for other, _ in ranks) else master or machine
