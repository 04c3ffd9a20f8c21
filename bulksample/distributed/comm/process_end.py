"""The ways in which the process of a rank ends: by a request to stop, or killed, when a helper process reports it.

A launcher ends all ranks when one is lost, before the others can notice. It prints a process id at best, not a rank. If the
lost rank exits with code 0 in the middle of its work, the whole job may end with code 0. So each rank starts a sentinel, a
shell of a megabyte that waits for the end of a pipe. The kernel closes the pipe however the rank ends. If the rank has not
reported that it leaves, the sentinel names it and asks the launcher to end the job with code 75.

The sentinel belongs to the process group of its rank. A launcher that kills the group kills the sentinel too, which then
prints nothing. Otherwise the sentinel kills the group in the end, so that no child of the rank is left. Launchers pass Ctrl-C
and requests to stop on to the group; the sentinel blocks these signals, because its rank may outlive them. The command line
starts the sentinel before it imports anything large, other programs when they ask for the communicator.

Requests to stop are SIGINT (Ctrl-C), SIGTERM, SIGUSR1 of a scheduler some time before the end, and SIGHUP of a lost terminal.
In a training the first request lets the loop finish its step and write a checkpoint. Everywhere else it raises `Stopped`.
A later SIGINT or SIGTERM ends the process at once, by the default action of the signal. In a Python program a later SIGINT raises
KeyboardInterrupt instead if it did so before the training: a notebook keeps its process.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

from ...errors import EXIT_PEER_LOST
from .launchers import Launch

# Input: lines "STATE NUMBER"; the last one counts. Output: the socket to a launcher that speaks PMI-1, or nothing.
# Field 52 of /proc/PID/stat is the exit status of the process in the encoding of wait(2).
# Hydra always kills the whole group, so a shell that runs on has something to report. It hurries: if Hydra finds the dead process
# first, the job ends with the code of the signal. Under other launchers the shell sleeps half a second, so that the launcher
# can kill or reap the process first; then it stays silent.
_SCRIPT = r"""
rank=$1 size=$2 pid=$3 host=$4 code=$5 group=$6 hydra=$7
state=importing seconds=0
while read -r word number; do
    state=$word seconds=$number
    case $state in
    reported) exit ;;
    abort) echo "cmd=abort exitcode=$number"; exit ;;
    esac
done
ended=
read -r line 2>/dev/null </proc/"$pid"/stat && { set -- ${line##*)}; shift 49; ended=$1; }
[ "$hydra" ] || { sleep 0.5 || sleep 1; kill -0 "$pid" 2>/dev/null || exit; }
signal=$((${ended:-0} % 128))
case $state:$signal in
left:0 | importing:0) exit ;;
starting:14) what="waited $seconds s for the other ranks to start" ;;
left:14) what="waited $seconds s for the other ranks to end" ;;
*:9) what="was killed by signal 9, as by the kernel when memory runs out" ;;
*:0) what="ended${ended:+ with exit code $((ended / 256))} in the middle of the work" ;;
*) what="was ended by signal $signal" ;;
esac
echo "bulksample: rank $rank of $size (process $pid on $host) $what
ending all ranks; a training that keeps checkpoints goes on from the last one with --resume auto, in Python resume='auto'" >&2
sleep 0.1 || sleep 1
echo "cmd=abort exitcode=$code"
[ "$group" = "$pid" ] && kill -9 0
"""
_BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_AT_ONCE = (signal.SIGINT, signal.SIGTERM)  # a scheduler may send SIGTERM long after SIGUSR1: that is still a first request
_SAME_SECONDS = 0.5  # one Ctrl-C may arrive twice, from the terminal and from a launcher


@functools.cache
def sentinel_of(launch: Launch) -> Sentinel:
    """Return the sentinel of this process; the first call starts it."""
    return Sentinel(launch)


class Sentinel:
    """The sentinel of this process. It reports the process if that ends in another way than its last reported state says."""

    def __init__(self, launch: Launch) -> None:
        rank = "?" if launch.rank is None else str(launch.rank)
        shell = shutil.which("sh", path=os.defpath)
        self._pipe, socket_to_launcher = -1, _launcher_socket()
        self._connected = socket_to_launcher is not None
        if shell is None or not hasattr(os, "posix_spawn"):
            return
        reading, self._pipe = os.pipe()
        hydra = "yes" if self._connected else ""
        words = [rank, str(launch.ranks), str(os.getpid()), socket.gethostname(), str(EXIT_PEER_LOST), str(os.getpgrp()), hydra]
        nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        files = [(os.POSIX_SPAWN_DUP2, reading, 0), nowhere if socket_to_launcher is None else (os.POSIX_SPAWN_DUP2, socket_to_launcher, 1)]
        os.posix_spawn(shell, ["sh", "-c", _SCRIPT, "sentinel", *words], os.environ, file_actions=files, setsigmask=_BLOCKED)
        os.close(reading)
        os.register_at_fork(after_in_child=self._close_in_child)

    def report(self, state: str, number: float = 0) -> bool:
        """Report the state of this process; return False if the sentinel is not running.

        ``importing`` (the first state): not connected, so this rank may exit; ranks that wait for it in MPI end at their deadline.
        ``starting`` and ``left`` (by all ranks): about to wait in MPI for `number` seconds. ``working``. ``reported``: an error has
        been printed already, the sentinel need not report the end.
        """
        if self._pipe < 0:
            return False
        try:
            os.write(self._pipe, f"{state} {number:g}\n".encode())
        except OSError:  # the sentinel was killed
            return False
        return True

    def abort(self, code: int) -> bool:
        """Ask the launcher to end all ranks, this one included; return True if the request was sent.

        `MPI_Abort` sends the same request but exits at once; the launcher may then report the exit of some rank instead of
        `code`. It also runs the exit functions of libraries whose threads are still at work.
        """
        return self.report("abort", code) and self._connected

    def _close_in_child(self) -> None:
        """Close the pipe in a forked child, which would otherwise keep it open."""
        os.close(self._pipe)
        self._pipe = -1


def _launcher_socket() -> int | None:
    """Return the socket to Hydra, the launcher of MPICH and its relatives; None under other launchers."""
    number = os.environ.get("PMI_FD", "")
    if "HYDI_CONTROL_FD" in os.environ and number.isdigit():
        with suppress(OSError):
            os.fstat(int(number))
            return int(number)
    return None


class Stopped(BaseException):
    """Raised by a signal that asks this process to stop; its message is the name of the signal. No `except Exception` catches it."""


class StopSignals:
    """A context that records requests to stop in `received`, so that the loop can finish its step, write a checkpoint and return.

    Off the main thread, where Python allows no handlers, it does nothing. A signal that the parent process ignores stays ignored:
    a shell lets its background jobs ignore Ctrl-C. A handler of C code stays, because Python could not put it back.
    """

    def __init__(self) -> None:
        self.received = False
        self._first_seconds: float | None = None
        self._before: dict[int, Any] = {}
        self._terminals: list[int] = []

    def __enter__(self) -> StopSignals:
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # once one is gone, it is no longer known as one
        self._before = {number: signal.signal(number, self._handle) for number in _ours()}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave(self._terminals)
        if number in _AT_ONCE:
            now = time.monotonic()
            if self._first_seconds is not None:
                if now - self._first_seconds > _SAME_SECONDS:
                    self._act_again(number)
                return
            self._first_seconds = now
        first, self.received = not self.received, True
        if first:
            self._act(number)

    def _act(self, number: int) -> None:
        """React to the first request; the loop reads `received`."""

    def _act_again(self, number: int) -> None:
        """React to a later request: raise KeyboardInterrupt where Python would have done so, else end the process."""
        if self._before[number] is signal.default_int_handler:
            signal.signal(number, signal.default_int_handler)
            raise KeyboardInterrupt
        _end(number)


class RaiseStopped(StopSignals):
    """A context in which the first request to stop raises `Stopped` on the main thread."""

    def _act(self, number: int) -> None:
        raise Stopped(signal.Signals(number).name)

    def _act_again(self, number: int) -> None:
        _end(number)


def default_actions() -> AbstractContextManager[None]:
    """Let signals end the process at once for the length of a ``with`` block: in a library that does not return, handlers never run."""
    return handling(_ours(), signal.SIG_DFL)


@contextmanager
def handling(signals: Iterable[signal.Signals], handler: Any) -> Iterator[None]:
    """Handle signals by a handler of `signal.signal` for the length of a ``with`` block."""
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _ours() -> list[signal.Signals]:
    """Return the signals to handle: none off the main thread, none that is ignored, none whose handler Python cannot put back (None)."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def _leave(terminals: list[int]) -> None:
    """Write to the null device in place of a terminal that is gone: each write there would fail, and end the run before its checkpoint."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in terminals:
        os.dup2(null, stream)
    os.close(null)


def _end(number: int) -> None:
    """End this process by the default action of a signal, so that its parent sees which one it was."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
