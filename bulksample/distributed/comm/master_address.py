"""Find out what listens at the address at which ranks without MPI meet, and say meanwhile what this rank waits for.

A client of a store of torch.distributed opens with a magic number and a ping, to which the store returns the ping's number:

    0  ce f7 85 3c    13  number, 4 bytes    ->    number

Torch does not promise this protocol. So a service is refused only after a store of the torch that is installed has been seen to return
its number; where it does not, nothing is refused, and torch's own client finds out.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable

_DEAD_SECONDS = 10.0  # for a name that nobody knows, or a machine that does not answer
_REFUSED_SECONDS, _REFUSED_SHARE = 30.0, 0.1  # for a machine that answers, where nothing listens: at least, and of the timeout
TOLD_SECONDS = 2.0
_POLL_SECONDS = 0.2
_MAGIC = bytes([0]) + (0x3C85F7CE).to_bytes(4, "little") + bytes([13])
_ANSWER_SECONDS, _SILENT_SECONDS, _SILENT_SHARE = 5.0, 30.0, 0.1  # for one answer; and for all, at least, and of the timeout
_SHOWN = 40  # bytes of a foreign answer


def await_listener(host: str, port: int, timeout: float, opens: bool = False) -> None:
    """Wait until something listens at an address, or raise the last OSError; if this rank `opens` it, only until its name is known.

    Torch's own client goes on for many times its timeout. A name that stays unknown and a machine that does not answer get ten seconds;
    a machine that refuses the connection a tenth of the timeout, at least thirty seconds, because rank 0 may be starting there. No wait
    is longer than the timeout.
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
                _report(f"nothing listens at MASTER_ADDR:MASTER_PORT {host}:{port} ({error})", patience, "rank 0 to start there")
        time.sleep(_POLL_SECONDS)


def _report(state: str, patience: float, awaited: str) -> None:
    sys.stderr.write(f"bulksample: {own_name()}: {state}; waiting up to {patience:g} s for {awaited}\n")


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


class NoStore(OSError):
    """Another service than a store listens at the address of the store."""


def check_store(host: str, port: int, timeout: float, greets: Callable[[], bool]) -> None:
    """Check that a store answers at an address where something listens; raise `NoStore`, with the other answer, if it is none.

    Another answer than that of a store ends the wait at once. A service that is silent or hangs up gets a tenth of the timeout, at least
    thirty seconds, because a machine may be busy; after two seconds standard error says so. The last greeting has its full time too, up to
    five seconds more: cut short, it would call a service silent that is only slow. Nothing is refused unless ``greets()`` is true: a store
    of the installed torch is known to answer as here.
    """
    start, silent = time.monotonic(), True
    patience = min(timeout, max(_SILENT_SECONDS, _SILENT_SHARE * timeout))
    while True:
        try:
            with socket.create_connection((host, port), min(_ANSWER_SECONDS, timeout)) as connection:
                problem, final = fault(connection, min(TOLD_SECONDS if silent else _ANSWER_SECONDS, timeout))
        except OSError:
            return  # nothing listens any more; torch's client tries on
        if not problem:
            return
        waited = time.monotonic() - start
        if final or waited >= patience:
            if greets():
                raise NoStore(f"another service listens there than a store of torch.distributed: {problem}")
            return
        if silent and waited >= min(TOLD_SECONDS, patience / 2) and speaks():
            silent = False
            where = f"MASTER_ADDR:MASTER_PORT {host}:{port}"
            _report(f"what listens at {where} is no store of torch.distributed so far: {problem}", patience, "an answer")
        time.sleep(_POLL_SECONDS)


def fault(connection: socket.socket, seconds: float) -> tuple[str, bool]:
    """Greet as a client of a store; return what is wrong with the answer, "" for that of a store, and True if it cannot be a store."""
    number, answer = os.urandom(4), b""
    connection.settimeout(seconds)
    try:
        connection.sendall(_MAGIC + number)
        while len(answer) < len(number):
            received = connection.recv(_SHOWN)
            if not received:
                return (f"it answers {answer!r} and hangs up", True) if answer else ("it hangs up", False)
            answer += received
    except TimeoutError:
        return (f"it answers {answer!r}", True) if answer else ("it does not answer", False)
    except OSError as error:
        return (f"it answers {answer!r} and hangs up", True) if answer else (f"it hangs up ({error.strerror})", False)
    return ("", False) if answer == number else (f"it answers {answer[:_SHOWN]!r}", True)
