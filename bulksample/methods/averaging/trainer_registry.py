"""The server's side of the protocol with trainers that may die, be late, or join again.

    a trainer         the server                                                     (both have proved the token, see `handshake`)
    ASK               INVITE    the configuration                                    (on a connection of its own)
    HELLO             WELCOME, MEMBERS    its part and the vertices of the part; or REFUSE
    READY             PUSH      the current weights
                      PULL k        at the end of an interval in seconds; a trainer ends an interval in steps by itself
    ANSWER k          PUSH k + 1    the average; the server drops a late answer and replies with the current weights
                      END

A late trainer is skipped until it replies. A lost trainer is removed, and the next HELLO gets its part. MEMBERS may also come
later, when the vertices of a part change: its round numbers the lists of a trainer. One thread serves all trainers in turns (see
`frame_server`), and no trainer delays another by more than the grace period.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .frame_server import FrameServer, Peer
from .frames import BadFrame, Frame, Kind

GRACE_SECONDS, GRACE_STEPS = 5.0, 3.0  # the shortest grace period, and its length in steps of the slowest trainer
_TICK = 0.1  # seconds between two looks at the clock
_END_SECONDS = 5.0  # for trainers to read the last frames
_LONGEST = 80  # characters of a trainer's words that a message repeats


@dataclass(eq=False)
class Member:
    """A trainer that has a part."""

    peer: Peer
    part: int
    since: float  # time of the last request, or of the welcome
    ready: bool = False
    owes_answer: bool = False
    pushed: Frame | None = None  # the weights that it continues from
    sent_weights: float = 0.0  # and the time at which they were sent
    step_seconds: float = 0.0  # measured by its last answer
    answer: Frame | None = None


class TrainerRegistry:
    """The server's trainers: it admits them, collects their answers and sends averages. Each of `parts` parts has one member.

    ASK and HELLO are answered with `invitation`, a configuration, and checked against the text values of `expected`. `welcome` returns the
    frames WELCOME and MEMBERS of a part, `current_weights` the weights as PUSH, and `fault` the reason to refuse an answer, given it and
    the PUSH that its trainer continued from; an empty string accepts it. `grace` seconds are waited for an answer: by default three steps
    of the slowest member, by the last answer of each, and at least five. A silent member that owes an answer is removed after `timeout`
    seconds. `joined`, `lost`, `late` and `refused` count trainers, late answers and refused ones.
    """

    def __init__(
        self, listener: socket.socket, token: bytes, parts: int, invitation: dict[str, Any], expected: dict[str, str],
        welcome: Callable[[int], list[Frame]], current_weights: Callable[[], Frame], fault: Callable[[Frame, Frame], str],
        grace: float | None, timeout: float, quiet: bool,
    ) -> None:  # fmt: skip
        self._parts, self._invitation, self._expected, self._welcome = parts, invitation, expected, welcome
        self._current_weights, self._fault, self._grace, self._timeout, self._quiet = current_weights, fault, grace, timeout, quiet
        self._members: dict[Peer, Member] = {}
        self._vacant = dict.fromkeys(range(parts), time.monotonic())  # parts without a member, and since when
        self.answer_bytes = self.round = self.joined = self.lost = self.late = self.refused = 0
        self.server = FrameServer(listener, token, parts, self._handle, self._lose, self._print)

    @property
    def present(self) -> list[Member]:
        """The members that are ready to train, by part."""
        return [member for member in self.admitted if member.ready]

    @property
    def admitted(self) -> list[Member]:
        """The members, by part."""
        return sorted(self._members.values(), key=lambda member: member.part)

    @property
    def grace(self) -> float:
        """Seconds to wait for an answer."""
        slowest = max((member.step_seconds for member in self.present), default=0.0)
        return self._grace if self._grace is not None else max(GRACE_SECONDS, GRACE_STEPS * slowest)

    def vacant(self, seconds: float) -> list[int]:
        """Return the parts that have had no member for the given seconds."""
        return [part for part, since in self._vacant.items() if time.monotonic() - since >= seconds]

    def wait_for(self, count: int, until: float) -> None:
        """Let trainers join until the given number are ready, or until a time of the monotonic clock."""
        while len(self.present) < count and time.monotonic() < until:
            self.attend(_TICK)

    def attend(self, seconds: float) -> None:
        """Serve connections for at most so many seconds; return after the first events."""
        self.server.turn(seconds)
        for member in self.admitted:
            if (member.owes_answer or not member.ready) and time.monotonic() - member.since > self._timeout:
                self.server.drop(member.peer, f"was silent for {self._timeout:g} s")

    def attend_until(self, moment: float) -> None:
        """Serve connections until a time of the monotonic clock."""
        while (left := moment - time.monotonic()) > 0:
            self.attend(min(left, _TICK))

    def collect(self, number: int, pull: bool) -> list[Member]:
        """Return the members that answer in a round, by part.

        With `pull`, answers are requested now, for the grace period. Else members answer after their steps, and it begins with the first.
        """
        awaited = [member for member in self.present if not member.owes_answer]
        for member in awaited:
            member.owes_answer, member.since = True, time.monotonic()
            if pull:
                self.send(member, Frame(Kind.PULL, round=number))
        until = time.monotonic() + self.grace if pull else None
        while any(member.peer in self._members and member.owes_answer and member.answer is None for member in awaited):
            self.attend(_TICK)  # first: an answer that has arrived is in time, however busy this machine was
            if until is None and any(member.answer is not None for member in awaited):
                until = time.monotonic() + self.grace
            elif until is not None and time.monotonic() > until:
                break
        self.late += sum(member.peer in self._members and member.answer is None for member in awaited)
        return [member for member in self.present if member.answer is not None]

    def push(self, frame: Frame, members: list[Member]) -> None:
        """Send members the average of their answers."""
        for member in members:
            member.owes_answer, member.answer = False, None
            self._send_weights(member, frame)

    def _send_weights(self, member: Member, weights: Frame) -> None:
        member.pushed, member.sent_weights = weights, time.monotonic()
        self.send(member, weights)

    def send(self, member: Member, frame: Frame) -> None:
        """Send a frame; remove a member that leaves too much unread."""
        self.server.send(member.peer, frame)

    def end(self) -> None:
        """Send END to all members and close all connections."""
        for member in self.admitted:
            self.send(member, Frame(Kind.END))
        self._members.clear()
        self.server.close(_END_SECONDS)

    # ---- frames that arrive

    def _handle(self, peer: Peer, frame: Frame) -> None:
        """Act on one frame of a peer that has proved the token; raises `BadFrame` if it is not due."""
        member = self._members.get(peer)
        if member is None and frame.kind == Kind.ASK:
            self.server.send(peer, Frame(Kind.INVITE, json.dumps(self._invitation).encode()))
        elif member is None and frame.kind == Kind.HELLO:
            self._admit(peer, frame.json())
        elif member and frame.kind == Kind.READY and not member.ready:
            member.ready = True
            self._send_weights(member, self._current_weights())
        elif member and member.pushed and frame.kind == Kind.ANSWER and len(frame.payload) == self.answer_bytes:
            self._take(member, member.pushed, frame)
        else:
            raise BadFrame(f"{peer.connection.name}: a frame of kind {frame.kind.name} of {len(frame.payload)} bytes does not belong here")

    def _take(self, member: Member, pushed: Frame, answer: Frame) -> None:
        """Keep an answer of this round. A trainer whose answer is too late continues from the current weights."""
        if fault := self._fault(answer, pushed):
            self.refused += 1
            raise BadFrame(fault)
        member.step_seconds = (time.monotonic() - member.sent_weights) / max(1, answer.steps)
        if member.answer is None and answer.round == self.round:
            member.answer = answer
        else:
            member.owes_answer = False
            self._send_weights(member, self._current_weights())

    def _admit(self, peer: Peer, hello: dict[str, Any]) -> None:
        """Give a new trainer a free part, or refuse it."""
        differing = [key for key, value in self._expected.items() if hello.get(key) != value]
        free = sorted(self._vacant)
        if differing:
            key = differing[0]
            received = str(hello.get(key))[:_LONGEST] if isinstance(hello.get(key), str) else "no text"
            self.server.refuse(peer, f"the {key} of this run is {self._expected[key]!r}; got {received!r}")
        elif not free:
            self.server.refuse(peer, f"all {self._parts} parts have a trainer")
        else:
            frames = self._welcome(free[0])
            self._members[peer] = member = Member(peer, free[0], time.monotonic())
            self.server.welcome(peer, self.answer_bytes)
            self._vacant.pop(free[0])
            self.joined += 1
            self._print(f"trainer {free[0]} joined from {peer.connection.name}")
            for frame in frames:
                self.send(member, frame)

    def _lose(self, peer: Peer, reason: str) -> None:
        """Take back the part of a member whose connection was closed."""
        member = self._members.pop(peer, None)
        if member is not None:
            self._vacant[member.part] = time.monotonic()
            self.lost += 1
            self._print(f"trainer {member.part} ({peer.connection.name}) was lost in round {self.round}: {reason}")

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(f"bulksample: {text}", file=sys.stderr, flush=True)


def vector_frame(kind: Kind, vector: np.ndarray, number: int, steps: int = 0) -> Frame:
    """Return a frame of a round that holds float32 numbers."""
    return Frame(kind, vector.astype("<f4").tobytes(), number, steps)
