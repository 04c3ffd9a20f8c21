"""The command line: `bulksample` and `python -m bulksample`.

Each module turns options into calls of the package and prints one table or one JSON object; nothing is computed here. `main` gives every
error of the package its exit code and prints its message without a traceback.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn

from ..distributed.comm.launchers import Launch, launched
from ..distributed.comm.process_end import RaiseStopped, Stopped, sentinel_of
from ..errors import EXIT_BAD_DATA, EXIT_BAD_USE, EXIT_PEER_LOST, BackendUnavailable, DataError, PeerLost, UsageError
from ..printable import printable_message
from .process import flush_results, gc_paused, prepare_streams

_EXIT_CODES = {DataError: EXIT_BAD_DATA, UsageError: EXIT_BAD_USE, BackendUnavailable: EXIT_BAD_USE, PeerLost: EXIT_PEER_LOST}
_EXIT_INTERRUPTED = 1
_CONNECT = (["sample"], ["train"])  # the commands whose ranks connect, beside `info --network`; ranks of the others work on their own


def main() -> None:
    """Run the command line and exit: 0, 2 (bad use), 65 (bad data) or 75 (a peer was lost, or a signal asked to stop)."""
    prepare_streams()
    # libgomp reads this when it is loaded. Threads that spin at a barrier slow down the rank that they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if (launch := launched()).ranks > 1:
        sentinel_of(launch)
    try:
        with RaiseStopped():
            _run()
    except Stopped as stopped:
        _stop(launch, str(stopped))
        sys.exit(EXIT_PEER_LOST)


def _run() -> None:
    """Run the command line and exit. Large libraries are imported here, under the eyes of the sentinel."""
    with gc_paused():
        import typer

        from ..log import start_logging
        from .app import app
        from .configured import ParseError, explain, name_flags
        from .output import held_until_the_end

    start_logging()
    if launched().rank:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the process ends: help and results are the affair of rank 0
    try:
        with held_until_the_end():
            code = app(prog_name="bulksample", standalone_mode=False)
            flush_results()
            sys.exit(code)
    except tuple(_EXIT_CODES) as error:
        kind, code = next((kind, code) for kind, code in _EXIT_CODES.items() if isinstance(error, kind))
        _fail(code, f"bulksample: {kind.__name__}: {name_flags(str(error))}")
    except ParseError as error:
        message = explain(error)  # empty if the help was shown instead
        if message and not launched().rank:  # all ranks parse the same command line: rank 0, or no launcher at all
            print(printable_message(f"bulksample: UsageError: {message}"), file=sys.stderr)
        sys.exit(EXIT_BAD_USE)
    except typer.Abort:
        print("bulksample: interrupted", file=sys.stderr)
        sys.exit(_EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        from .info import EXTRAS

        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _fail(EXIT_BAD_USE, f"bulksample: this command needs {error.name}; use pip install 'bulksample[{extra}]'")
    except (MemoryError, OSError, RuntimeError) as error:
        from .process import explain_memory, out_of_memory

        if isinstance(error, OSError):
            try:
                flush_results()
            except UsageError as full:
                _fail(EXIT_BAD_USE, f"bulksample: UsageError: {full}")
        if not out_of_memory(error):
            raise
        _fail(EXIT_BAD_USE, f"bulksample: {explain_memory(error)}")


def _fail(code: int, reason: str) -> NoReturn:
    end_all_ranks(code, printable_message(reason))
    sys.exit(code)


def _stop(launch: Launch, signal: str) -> None:
    """Print which signal stopped this process. Ranks leave together; before they have connected, the launcher ends the others."""
    comm = sys.modules.get("bulksample.distributed.comm.world")
    if launch.ranks == 1 or (comm is not None and comm.connected()):
        end_all_ranks(EXIT_PEER_LOST, f"bulksample: stopped by {signal}; run the same command again")
    else:
        who = f"rank {launch.rank} of {launch.ranks} (process {os.getpid()} on {socket.gethostname()})"
        reason = f"{who} was stopped by {signal} before the ranks connected; run the same command again"
        _end_job(launch, EXIT_PEER_LOST, f"bulksample: {reason}")


def end_all_ranks(code: int, reason: str) -> None:
    """Print the reason of a failure. If this process is one of several ranks, end them all: they may be waiting for this one.

    Ranks of `sample`, `train` and `info --network` leave together and print a common reason once. Those of other commands never connect,
    and would wait here for ranks that have ended: each prints its reason, and the launcher ends the others.
    """
    launch = launched()
    if launch.ranks == 1:
        print(reason, file=sys.stderr)
    elif sys.argv[1:2] in _CONNECT or (sys.argv[1:2] == ["info"] and "--network" in sys.argv):
        from ..distributed.comm.world import abort_world

        abort_world(code, reason)
    else:
        _end_job(launch, code, reason)


def _end_job(launch: Launch, code: int, reason: str) -> None:
    """Print the reason of a rank that has not connected, and ask the launcher to end all ranks."""
    print(reason, file=sys.stderr)
    sys.stdout.flush()
    sentinel_of(launch).abort(code)
