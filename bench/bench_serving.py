"""Measure what strangers cost the server of trainers that may fail: rounds per second with them over rounds per second without.

    python bench/bench_serving.py [--rounds 5] [--seconds 4] [--json FILE]

Two trainers answer each PUSH after a pause that stands for their steps, with 1 MB of weights. They, and all hostile peers together, are
processes of their own; the server is this process. Each round measures every kind of hostile peer in turn, and the same server alone
just before it:

    idle      300 connections that send nothing, and connect again when they are closed
    flood     connects, sends 64 KB of noise, and connects again, without a pause
    unread    knocks, and reads nothing
    strangers idle, flood and unread together
    trainer   knows the token, has a part, sends late answers without a pause, and reads nothing
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import secrets
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import machine, report, summary

from bulksample.errors import PeerLost, UsageError
from bulksample.methods.averaging.answers import fault_of
from bulksample.methods.averaging.connection import Connection, address_of, listen
from bulksample.methods.averaging.frames import Frame, Kind, header
from bulksample.methods.averaging.handshake import TOKEN, join, token_of_trainer
from bulksample.methods.averaging.roster import Roster, vector_frame

WEIGHTS, TRAINERS, PAUSE, IDLE = 250_000, 2, 0.02, 300
GRACE = 0.5  # seconds for a trainer that is late
KINDS = {"idle": ["idle"], "flood": ["flood"], "unread": ["unread"], "strangers": ["idle", "flood", "unread"], "trainer": ["trainer"]}


# ---- the peers, each in a process of its own


def joined(address: str) -> Connection:
    """Join as a trainer; return the connection once the server counts it as ready."""
    line = join(address, token_of_trainer(None), 60)
    line.send(Frame(Kind.HELLO, b"{}"), 60)
    line.receive(60)
    line.send(Frame(Kind.READY), 60)
    return line


def answer(address: str) -> None:
    """Be an honest trainer until the server ends."""
    line = joined(address)
    while (frame := line.receive(60)).kind == Kind.PUSH:
        time.sleep(PAUSE)
        line.send(Frame(Kind.ANSWER, frame.payload, frame.round, 1), 60)


def idle(address: str) -> None:
    with selectors.DefaultSelector() as selector:
        for _ in range(IDLE):
            selector.register(socket.create_connection(address_of(address)), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                closed = key.fileobj
                assert isinstance(closed, socket.socket)
                selector.unregister(closed)
                closed.close()
                selector.register(socket.create_connection(address_of(address)), selectors.EVENT_READ)


def flood(address: str) -> None:
    noise = os.urandom(2**16)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(address_of(address)) as line:
            line.sendall(noise)


def unread(address: str) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(address_of(address)) as line:
            line.sendall(header(knock := Frame(Kind.KNOCK, bytes(32))) + knock.payload)
            time.sleep(11)  # until the server has closed it


def trainer(address: str) -> None:
    late = vector_frame(Kind.ANSWER, np.zeros(WEIGHTS + 4, np.float32), 2**31, 1)
    while True:
        with contextlib.suppress(PeerLost, UsageError, OSError):
            line = joined(address)
            while True:
                line.send(late, 60)


ROLES: dict[str, Callable[[str], None]] = {"answer": answer, "idle": idle, "flood": flood, "unread": unread, "trainer": trainer}


# ---- the server


class Server:
    """A roster that averages what its trainers answer, and counts rounds."""

    def __init__(self) -> None:
        listener = listen("127.0.0.1:0")
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.weights = np.random.default_rng(0).standard_normal(WEIGHTS + 4).astype(np.float32)
        self.roster = Roster(
            listener, token_of_trainer(None), TRAINERS + 1, {}, {}, lambda _: [Frame(Kind.WELCOME, b"{}")], self.push,
            lambda found, pushed: fault_of(found, pushed, WEIGHTS, 100.0), GRACE, 300.0, quiet=True,
        )  # fmt: skip
        self.roster.answer_bytes = self.weights.nbytes
        self.roster.server.max_queued_bytes = 4 * self.weights.nbytes + 2**20

    def push(self) -> Frame:
        return vector_frame(Kind.PUSH, self.weights, self.roster.round)

    def round(self) -> None:
        answered = self.roster.collect(self.roster.round, pull=False)
        vectors = [member.answer.numbers("float32") for member in answered if member.answer is not None]
        if vectors:
            self.weights = np.mean(vectors, 0, np.float64).astype(np.float32)
        self.roster.round += 1
        self.roster.push(self.push(), answered)

    def rounds_per_second(self, seconds: float) -> float:
        began, first = time.perf_counter(), self.roster.round
        while time.perf_counter() < began + seconds:
            self.round()
        return (self.roster.round - first) / (time.perf_counter() - began)


def process(role: str, address: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, __file__, "--role", role, "--address", address], env=environment)


def besieged(server: Server, kind: str, seconds: float) -> float:
    """Return the rounds per second while hostile peers are at work."""
    hostile = [process(role, server.address) for role in KINDS[kind]]
    before = server.roster.joined
    try:
        server.rounds_per_second(3.0)  # the peers start
        while kind == "trainer" and server.roster.joined == before:
            server.round()
        return server.rounds_per_second(seconds)
    finally:
        for one in hostile:
            one.kill()
            one.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role](options.address)
        return
    os.environ[TOKEN] = secrets.token_hex(32)
    server = Server()
    honest = [process("answer", server.address) for _ in range(TRAINERS)]
    server.roster.wait_for(TRAINERS, time.monotonic() + 60)
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for _, kind in itertools.product(range(options.rounds), KINDS):
        server.rounds_per_second(1.0)  # what the last peers left is closed
        found[kind].append((server.rounds_per_second(options.seconds), besieged(server, kind, options.seconds)))
    server.roster.end()
    for one in honest:
        one.wait()
    rows = [
        {
            "peers": kind, "alone": summary([alone for alone, _ in pairs]), "with_them": summary([under for _, under in pairs]),
            "ratio": statistics.median(under / alone for alone, under in pairs),
        } for kind, pairs in found.items()
    ]  # fmt: skip
    report(
        {"machine": machine(), "weight_bytes": server.weights.nbytes, "trainers": TRAINERS, "pause_seconds": PAUSE, "rows": rows},
        options.json,
    )


if __name__ == "__main__":
    main()
