"""Run `bulksample` as one of the training processes on the hosts of a lab; `on_hosts` starts it.

    python bench/on_a_host.py FOLDER 0.4,0.4,0.1 train GRAPH ...       on host h1 with 0.4 of a core, on h3 with 0.1

A trainer that joins a server loads its data while the server loads the graph, and starts when all trainers are ready, as ranks do. Without
this, early trainers would make steps before the first round. They meet in FOLDER. A process with a share below 1 runs for that share of
the time while it trains: another process stops and continues all its threads by signals, a hundred times per second.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PERIOD = 0.01  # seconds
LISTENING = "listening"  # the file that the server creates


def pace(number: int, share: float) -> None:
    """Stop and continue the parent process, which has the given id, until it ends or training is over."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda one, _: asked.append(one))
    os.nice(-20)
    while os.getppid() == number and not asked:
        os.kill(number, signal.SIGSTOP)
        time.sleep((1 - share) * PERIOD)
        os.kill(number, signal.SIGCONT)
        time.sleep(share * PERIOD)


def paced(run: Callable[[], dict[str, Any]], share: float) -> dict[str, Any]:
    """Run a function for a share of the time, and return its result."""
    pacing = subprocess.Popen([sys.executable, "-S", __file__, "pace", str(os.getpid()), str(share)])
    try:
        return run()
    finally:
        pacing.terminate()  # not killed: it may have stopped this process and must continue it
        pacing.wait()


def wait_for(files: list[Path]) -> None:
    while not all(file.exists() for file in files):
        time.sleep(0.02)


def main() -> None:
    if sys.argv[1] == "pace":
        pace(int(sys.argv[2]), float(sys.argv[3]))
        return
    folder, shares = Path(sys.argv.pop(1)), [float(share) for share in sys.argv.pop(1).split(",")]
    host, joins = socket.gethostname(), "--join" in sys.argv
    share = shares[int(host.removeprefix("h")) - 1]
    from bulksample.cli import main as command
    from bulksample.training.loop import Trainer

    whole = Trainer.run

    def run(self: Trainer) -> dict[str, Any]:
        if joins:
            (folder / host).touch()
            wait_for([folder / f"h{i + 1}" for i in range(len(shares))])
        return paced(lambda: whole(self), share) if share < 1 else whole(self)

    Trainer.run = run  # type: ignore[method-assign]
    if joins:
        wait_for([folder / LISTENING])
    command()


if __name__ == "__main__":
    main()
