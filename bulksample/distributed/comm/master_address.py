"""The address at which ranks without MPI meet: how long one waits that nobody answers at, and what is said meanwhile."""

from __future__ import annotations

import os
import socket
import sys
import time

_DEAD_SECONDS = 10.0  # for a name that nobody knows, or a machine that does not answer
_REFUSED_SECONDS, _REFUSED_SHARE = 30.0, 0.1  # for a machine that answers, where nothing listens: at least, and of the timeout
TOLD_SECONDS = 2.0
_POLL_SECONDS = 0.2


def await_listener(host: str, port: int, timeout: float, opens: bool = False) -> None:
    """Wait until something listens at an address; if this rank `opens` it, only until its name is known.

    Torch's own client goes on for many times its timeout. A name that stays unknown and a machine that does not answer get ten seconds;
    a machine that refuses the connection a tenth of the timeout, at least thirty seconds, because rank 0 may be starting there. No wait
    is longer than the timeout.

    Raises
    ------
    OSError
        The last one, after that time.
    """
    start, silent = time.monotonic(), True
    while True:
        left = start + timeout - time.monotonic()
        try:
            if opens:
                socket.getaddrinfo(host, port)
            else:
                socket.create_connection((host, port), max(0.1, min(5.0, left))).close()
            return
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            patience = min(timeout, max(_REFUSED_SECONDS, _REFUSED_SHARE * timeout) if refused else _DEAD_SECONDS)
            waited = time.monotonic() - start
            if waited >= patience:
                raise
            if silent and waited >= min(TOLD_SECONDS, patience / 2) and speaks():
                silent = False
                found = f"nothing listens at MASTER_ADDR:MASTER_PORT {host}:{port} ({error})"
                sys.stderr.write(f"bulksample: {own_name()}: {found}; waiting up to {patience:g} s for rank 0 to start there\n")
        time.sleep(_POLL_SECONDS)


def speaks() -> bool:
    """True on the ranks that say what they wait for: 0, 1, and the first of each machine, as far as the launcher tells it."""
    return os.environ.get("LOCAL_RANK", "0") == "0" or os.environ.get("RANK") in ("0", "1")


def own_name() -> str:
    """Name this rank by the variables of the launcher."""
    return f"rank {os.environ.get('RANK', '?')} of {os.environ.get('WORLD_SIZE', '?')}"


def others_at() -> str:
    """Describe the wait of a rank that has found the address for the ranks that have not."""
    where = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return f"{own_name()} waits for the other ranks to connect to MASTER_ADDR:MASTER_PORT {where}"


def advice(error: Exception) -> str:
    """Return what to do about an address at which ranks did not meet."""
    if "EADDRINUSE" in str(error) or "another service" in str(error):
        return "; end what listens there, or give all ranks another MASTER_PORT"
    if isinstance(error, ConnectionRefusedError):
        return "; start rank 0 there, or raise the timeout if it comes later"
    if isinstance(error, OSError):
        return "; set MASTER_ADDR to a name or an address of the machine of rank 0 that all ranks can reach"
    return f"; start {os.environ.get('WORLD_SIZE', 'all')} ranks, each with its own RANK and the same MASTER_ADDR and MASTER_PORT"
