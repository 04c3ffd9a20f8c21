"""Tell a store of torch.distributed from another service that listens at its address, before torch's client waits for it.

A client of a store opens with a magic number and a ping, to which the store returns the ping's number:

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

from .master_address import TOLD_SECONDS, own_name, speaks

_MAGIC = bytes([0]) + (0x3C85F7CE).to_bytes(4, "little") + bytes([13])
_ANSWER_SECONDS, _SILENT_SECONDS, _SILENT_SHARE = 5.0, 30.0, 0.1  # for one answer; and for all, at least, and of the timeout
_SHOWN = 40  # bytes of a foreign answer
_POLL_SECONDS = 0.2


class NoStore(OSError):
    """Another service than a store listens at the address of the store."""


def check_store(host: str, port: int, timeout: float, greets: Callable[[], bool]) -> None:
    """Check that a store answers at an address where something listens.

    Another answer than that of a store ends the wait at once. A service that is silent or hangs up gets a tenth of the timeout, at least
    thirty seconds, because a machine may be busy; after two seconds standard error says so. The last greeting has its full time too, up to
    five seconds more: cut short, it would call a service silent that is only slow.

    Parameters
    ----------
    greets : callable
        True if a store of the installed torch is known to answer as here.

    Raises
    ------
    NoStore
        If what listens there is no store; with what it answered.
    """
    start, silent = time.monotonic(), True
    patience = min(timeout, max(_SILENT_SECONDS, _SILENT_SHARE * timeout))
    while True:
        try:
            with socket.create_connection((host, port), min(_ANSWER_SECONDS, timeout)) as connection:
                found, final = fault(connection, min(TOLD_SECONDS if silent else _ANSWER_SECONDS, timeout))
        except OSError:
            return  # nothing listens any more; torch's client tries on
        if not found:
            return
        waited = time.monotonic() - start
        if final or waited >= patience:
            if greets():
                raise NoStore(f"another service listens there than a store of torch.distributed: {found}")
            return
        if silent and waited >= min(TOLD_SECONDS, patience / 2) and speaks():
            silent = False
            where = f"MASTER_ADDR:MASTER_PORT {host}:{port}"
            sys.stderr.write(
                f"bulksample: {own_name()}: what listens at {where} is no store of torch.distributed so far: {found}; "
                f"waiting up to {patience:g} s for an answer\n"
            )
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
