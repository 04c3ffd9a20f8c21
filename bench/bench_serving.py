"""Measure what strangers cost the server of trainers that may fail: rounds per second with them over rounds per second without.

Two servers with two trainers each, which answer each PUSH after a pause that stands for their steps, with 1 MB of weights. Hostile peers
visit one of them. Slices of five rounds alternate between both servers; hostile processes are stopped while the other server has its
slice. The servers share this process; trainers and hostile peers are processes of their own:

    idle        300 connections that send nothing, and connect again when they are closed
    flood       connects, sends 64 KB of noise, and connects again, without a pause
    unread      knocks, and reads nothing
    strangers   idle, flood and unread together
    trainer     knows the token, has a part, sends late answers without a pause, and reads nothing
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import call, some_of

from bulksample.errors import PeerLost, UsageError
from bulksample.methods.averaging.frames import Connection, Frame, Kind, address_of, header, listen
from bulksample.methods.averaging.handshake import TOKEN, join, token_of_trainer
from bulksample.methods.averaging.trainer_registry import TrainerRegistry, vector_frame
from bulksample.methods.averaging.trainer_server import fault_of

WEIGHTS, TRAINERS, PAUSE, IDLE = 250_000, 2, 0.02, 300
GRACE = 0.5  # seconds for a trainer that is late
ROUNDS, START = 5, 4.0  # rounds of a slice; seconds for hostile peers to start
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
    """A registry that averages what its trainers answer, and counts rounds."""

    def __init__(self) -> None:
        listener = listen("127.0.0.1:0")
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.weights = np.random.default_rng(0).standard_normal(WEIGHTS + 4).astype(np.float32)
        self.registry = TrainerRegistry(
            listener, token_of_trainer(None), TRAINERS + 1, {}, {}, lambda _: [Frame(Kind.WELCOME, b"{}")], self.push,
            lambda found, pushed: fault_of(found, pushed, WEIGHTS, 100.0), GRACE, 300.0, quiet=True,
        )  # fmt: skip
        self.registry.answer_bytes = self.weights.nbytes
        self.registry.server.max_queued_bytes = 4 * self.weights.nbytes + 2**20

    def push(self) -> Frame:
        return vector_frame(Kind.PUSH, self.weights, self.registry.round)

    def round(self) -> None:
        answered = self.registry.collect(self.registry.round, pull=False)
        vectors = [member.answer.numbers("float32") for member in answered if member.answer is not None]
        if vectors:
            self.weights = np.mean(vectors, 0, np.float64).astype(np.float32)
        self.registry.round += 1
        self.registry.push(self.push(), answered)

    def slice(self) -> tuple[float, float]:
        """Make some rounds; return their seconds, and the seconds of the processor that the server took."""
        began, used = time.perf_counter(), time.process_time()
        for _ in range(ROUNDS):
            self.round()
        return time.perf_counter() - began, time.process_time() - used


def process(role: str, address: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(call(begin, role, address), env=environment, stdout=subprocess.PIPE)


def begin(role: str, address: str) -> None:
    """Say that the process has begun, and play a role."""
    print("begins", flush=True)
    ROLES[role](address)


def compared(kind: str, visited: Server, alone: Server, slices: int) -> dict[str, Any]:
    """Alternate slices of a server that hostile peers visit and one that is alone."""
    hostile = [process(role, visited.address) for role in KINDS[kind]]
    for one in hostile:
        assert one.stdout is not None
        one.stdout.readline()  # it begins
    try:
        deadline = time.perf_counter() + START
        while time.perf_counter() < deadline:
            visited.round()
        pairs = []
        for _ in range(slices):
            with_them = visited.slice()
            stop(hostile, signal.SIGSTOP)
            pairs.append((with_them, alone.slice()))
            stop(hostile, signal.SIGCONT)
    finally:
        stop(hostile, signal.SIGKILL)
        for one in hostile:
            one.wait()
    seconds, used = np.array(pairs).sum(0).T / (slices * ROUNDS)  # of a round: with them, alone
    return {
        "peers": kind, "rounds_per_second": (1 / seconds[0]).round(2), "alone": (1 / seconds[1]).round(2),
        "ratio": (seconds[1] / seconds[0]).round(3), "median_ratio": np.median([one[0] / them[0] for them, one in pairs]).round(3),
        "server_cpu_ms": (1e3 * used[0]).round(2), "server_cpu_ms_alone": (1e3 * used[1]).round(2),
        "refused": visited.registry.server.refused, "joined": visited.registry.joined,
    }  # fmt: skip


def stop(processes: list[subprocess.Popen[bytes]], number: int) -> None:
    for one in processes:
        one.send_signal(number)


def serving(slices: int = 40, kinds: some_of(*KINDS) = tuple(KINDS)) -> dict[str, Any]:
    os.environ[TOKEN] = secrets.token_hex(32)
    servers = [Server(), Server()]
    honest = [process("answer", server.address) for server in servers for _ in range(TRAINERS)]
    for server in servers:
        server.registry.wait_for(TRAINERS, time.monotonic() + 60)
    rows = [compared(kind, *servers, slices) for kind in kinds]
    for server in servers:
        server.registry.end()
    for one in honest:
        one.wait()
    return {"weight_bytes": 4 * WEIGHTS, "trainers": TRAINERS, "pause_seconds": PAUSE, "rows": rows}
