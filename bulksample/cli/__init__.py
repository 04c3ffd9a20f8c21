"""The command line: `bulksample` and `python -m bulksample`.

Each module here turns options into calls of the package and prints one table or one JSON object; nothing is
computed here. `main` gives every error of the package its exit code and shows its message without a traceback.
"""

from __future__ import annotations

import os
import sys

from ..errors import EXIT_BAD_DATA, EXIT_BAD_USE, EXIT_PEER_LOST, BackendUnavailable, DataError, PeerLost, UsageError

_EXIT_CODES = {DataError: EXIT_BAD_DATA, UsageError: EXIT_BAD_USE, BackendUnavailable: EXIT_BAD_USE, PeerLost: EXIT_PEER_LOST}


def main() -> None:
    """Run the command line and exit: 0, 2 (bad use), 65 (bad data) or 75 (a peer was lost)."""
    # Read when libgomp is loaded. Threads that spin at a barrier take the core from the rank they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from .app import app

    try:
        app()
    except tuple(_EXIT_CODES) as error:
        code = next(code for kind, code in _EXIT_CODES.items() if isinstance(error, kind))
        end_all_ranks(code, f"bulksample: {type(error).__name__}: {error}")
        sys.exit(code)
    except ModuleNotFoundError as error:
        from .info import EXTRAS

        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        end_all_ranks(EXIT_BAD_USE, f"bulksample: this command needs {error.name}; pip install 'bulksample[{extra}]' would fit")
        sys.exit(EXIT_BAD_USE)


def end_all_ranks(code: int, reason: str) -> None:
    """Say what went wrong. Where this process is one of several MPI ranks, end them all: the others may be waiting for this one."""
    comm = sys.modules.get("bulksample.distributed.comm.world")
    if comm is not None:
        comm.abort_world(code, reason)
    else:
        print(reason, file=sys.stderr)
