"""Start a training program on the hosts of a lab (`netlab`), as a launcher of `bulksample compare`: MPI ranks, or a server and trainers.

Each of h1 .. hRANKS runs one rank. A program with --tolerate-failures runs once on h0 as the server, and as many trainers join it from
h1 .. hRANKS. So an averaging method has as many training processes as a gradient method has ranks. Each of these processes
gets its share of a core while it trains (`on_a_host`); the server is not limited.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from netlab import on_host, over_mpi
from on_a_host import LISTENING
from ranks import mpirun

SERVER, PORT, TOKEN = "h0", 5000, "BULKSAMPLE_TOKEN"
_END_SECONDS = 10.0  # for trainers whose server has ended


def on_hosts(shares: str, ranks: str, *program: str) -> None:
    """Run a program, PYTHON -m bulksample train FOLDER OPTIONS, on so many hosts, with these shares of a core; exit with its code."""
    hosts, plain, words = [f"h{i + 1}" for i in range(int(ranks))], list(program[:3]), list(program[3:])
    with tempfile.TemporaryDirectory() as folder:
        start = [plain[0], str(Path(__file__).with_name("on_a_host.py")), folder, shares]
        if "--tolerate-failures" in words:
            sys.exit(serve(hosts, [*plain, *words], [*start, *words[:2]], Path(folder)))
        sys.exit(subprocess.call(over_mpi(hosts, mpirun(), int(ranks), [*start, *words])))


def serve(hosts: list[str], server: list[str], trainer: list[str], folder: Path) -> int:
    """Run a server, start a trainer on each host once it listens, and return the server's exit code."""
    os.environ[TOKEN] = secrets.token_hex(32)  # inherited by the server and its trainers
    where = f"{SERVER}:{PORT}"
    asked = [*server, "--listen", where, "--trainers", str(len(hosts))]
    running = subprocess.Popen(on_host(SERVER, asked), stderr=subprocess.PIPE, text=True)
    trainers = [subprocess.Popen(on_host(host, [*trainer, "--join", where, "--quiet"])) for host in hosts]
    assert running.stderr is not None
    for line in running.stderr:
        print(line, end="", file=sys.stderr, flush=True)
        if "listening" in line:
            (folder / LISTENING).touch()
    code, deadline = running.wait(), time.monotonic() + _END_SECONDS
    for one in trainers:
        try:
            one.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
    return code
