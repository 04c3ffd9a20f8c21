"""The command line with a fault on one rank: `mpirun -n P python tests/faults.py FAULT train DIR ...`.

FAULT is JSON: the rank, what it does (raise, exit, _exit 0, _exit 3, kill, stop) and where:

    ["phase", NAME, k]      when it enters the k-th block of a phase of the ledger
    ["collective", k]       in its k-th wait, on whichever thread; what is waited for has been started by then
    ["thread", k]           in the k-th wait of a thread that is not the main one
    ["import", NAME]        when it imports a module
    ["seconds", s]          s seconds after its start, wherever it is then (kill and stop only)
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

ACTS = ("raise", "exit", "_exit 0", "_exit 3", "kill", "stop")
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}


def misbehave(act):
    print(f"fault: {act}", file=sys.stderr, flush=True)
    if act == "raise":
        raise RuntimeError("boom on one rank")
    if act == "exit":
        sys.exit(0)
    if act.startswith("_exit"):
        os._exit(int(act.split()[1]))
    time.sleep(0.2)  # any output makes mpirun look for dead processes: it looks while this one lives, and the sentinel can speak first
    os.kill(os.getpid(), SIGNALS[act])


def at_phase(act, name, count):
    from bulksample.distributed.comm.ledger import Ledger

    phase, entered = Ledger.phase, itertools.count(1)

    def faulty(self, entering):
        if entering == name and next(entered) == count:
            misbehave(act)
        return phase(self, entering)

    Ledger.phase = faulty


def at_wait(act, count, counts=lambda: True):
    from bulksample.distributed.comm.watch import Watch

    wait, waited = Watch.wait, itertools.count(1)

    def faulty(self, *arguments):
        if counts() and next(waited) == count:
            misbehave(act)
        return wait(self, *arguments)

    Watch.wait = faulty


def at_import(act, module):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == module:
                misbehave(act)

    sys.meta_path.insert(0, Finder)


def after(act, seconds):
    """From outside, so that it strikes while a library keeps the interpreter, too."""
    number = SIGNALS[act].value
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -{number} {os.getpid()}"])


def install(rank, act, where):
    if int(os.environ["PMI_RANK"]) != rank:
        return
    kind, *point = where
    if kind == "phase":
        at_phase(act, *point)
    elif kind == "collective":
        at_wait(act, *point)
    elif kind == "thread":
        at_wait(act, *point, counts=lambda: threading.current_thread() is not threading.main_thread())
    elif kind == "import":
        at_import(act, *point)
    else:
        after(act, *point)


if __name__ == "__main__":
    install(**json.loads(sys.argv.pop(1)))
    from bulksample.cli import main

    main()
