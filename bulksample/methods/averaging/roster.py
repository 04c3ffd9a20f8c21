"""The server's side of the protocol with trainers that may die, be late, or join again.

    a trainer         the server
    ASK               INVITE    the configuration                                    (on a connection of its own)
    HELLO             WELCOME, MEMBERS    its part and the vertices of the part; or REFUSE
    READY             PUSH      the current weights
                      PULL k        at the end of an interval in seconds; a trainer ends an interval in steps by itself
    ANSWER k          PUSH k + 1    the average; the server drops a late answer and replies with the current weights
                      END

A late trainer is skipped until it replies. A lost trainer is removed, and the next HELLO gets its part. MEMBERS may also come
later, when the vertices of a part change. One thread serves all trainers, and no trainer delays another by more than the grace period.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...distributed.comm.primitives import SentCount
from ...errors import PeerLost
from .frames import HEAD_BYTES, BadFrame, Connection, Frame, Kind

GRACE_SECONDS, GRACE_STEPS = 5.0, 3.0  # the shortest grace period, and its length in steps of the slowest trainer
_TICK = 0.1  # seconds between two looks at the clock
_HELLO_BYTES = 2**16  # the largest frame of a connection that has not been welcomed


@dataclass(eq=False)
class Member:
    """A connection, and the state of the trainer at its other end."""

    connection: Connection
    part: int | None = None  # None before the welcome
    ready: bool = False
    owes_answer: bool = False
    since: float = 0.0  # time of the last request, or of the connection
    sent_weights: float = 0.0  # time at which it received the weights that it continues from
    step_seconds: float = 0.0  # measured by its last answer
    answer: Frame | None = None


class Roster:
    """The server's connections to all trainers: it admits them, collects their answers and sends averages.

    Parameters
    ----------
    listener : socket.socket
        Listening.
    parts : int
        The number of parts; every member has one.
    invitation : dict
        The configuration that ASK returns.
    expected : dict
        The values that a HELLO must hold.
    welcome : callable
        Returns the frames WELCOME and MEMBERS of a part.
    current_weights : callable
        Returns the current weights as PUSH.
    grace : float, optional
        Seconds to wait for an answer. By default three steps of the slowest member, measured by the last answer of each, and at
        least five seconds.
    timeout : float
        Seconds after which a silent member that owes an answer is removed.
    quiet : bool
        True to print nothing about members that join or are lost.

    Attributes
    ----------
    round : int
        The present round.
    joined, lost, late : int
        Trainers that joined, trainers that were lost, and answers that came too late.
    answer_bytes : int
        The size of an answer.
    traffic : dict of kind to SentCount
        Frames of both directions: payloads of weights are "model", those of MEMBERS "topology", all else and the headers "control".
    """

    def __init__(
        self, listener: socket.socket, parts: int, invitation: dict[str, Any], expected: dict[str, Any],
        welcome: Callable[[int], list[Frame]], current_weights: Callable[[], Frame], grace: float | None, timeout: float, quiet: bool,
    ) -> None:  # fmt: skip
        self._listener, self._parts, self._invitation, self._expected = listener, parts, invitation, expected
        self._welcome, self._current_weights, self._grace, self._timeout, self._quiet = welcome, current_weights, grace, timeout, quiet
        self._members: list[Member] = []
        self._vacant = dict.fromkeys(range(parts), time.monotonic())  # parts without a member, and since when
        self.answer_bytes, self.traffic = _HELLO_BYTES, dict.fromkeys(("model", "topology", "control"), SentCount(0, 0))
        self.round = self.joined = self.lost = self.late = 0

    @property
    def present(self) -> list[Member]:
        """The members that are ready to train, by part."""
        return sorted((member for member in self._members if member.ready), key=lambda member: member.part or 0)

    @property
    def admitted(self) -> list[Member]:
        """The members that have a part."""
        return [member for member in self._members if member.part is not None]

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
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for member in self._members:
                selector.register(member.connection.socket, selectors.EVENT_READ, member)
            for key, _ in selector.select(max(0.0, seconds)):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
        for member in list(self._members):
            if (member.owes_answer or not member.ready) and time.monotonic() - member.since > self._timeout:
                self._drop(member, f"was silent for {self._timeout:g} s")

    def attend_until(self, moment: float) -> None:
        """Serve connections until a time of the monotonic clock."""
        while (left := moment - time.monotonic()) > 0:
            self.attend(min(left, _TICK))

    def collect(self, number: int, pull: bool) -> list[Member]:
        """Return the members that answer in a round, by part.

        Parameters
        ----------
        number : int
            The round.
        pull : bool
            True to request answers now and wait for the grace period. Otherwise members answer after their steps, and the
            grace period begins with the first answer.
        """
        awaited = [member for member in self.present if not member.owes_answer]
        for member in awaited:
            member.owes_answer, member.since = True, time.monotonic()
            if pull:
                self.send(member, Frame(Kind.PULL, round=number))
        until = time.monotonic() + self.grace if pull else None
        while any(member in self._members and member.answer is None for member in awaited):
            if until is not None and time.monotonic() > until:
                break
            self.attend(_TICK)
            if until is None and any(member.answer is not None for member in awaited):
                until = time.monotonic() + self.grace
        self.late += sum(member in self._members and member.answer is None for member in awaited)
        return [member for member in self.present if member.answer is not None]

    def push(self, frame: Frame, members: list[Member]) -> None:
        """Send members the average of their answers."""
        for member in members:
            member.owes_answer, member.answer = False, None
            self._send_weights(member, frame)

    def _send_weights(self, member: Member, weights: Frame) -> None:
        member.sent_weights = time.monotonic()
        self.send(member, weights)

    def send(self, member: Member, frame: Frame) -> None:
        """Send a frame; remove a member that does not accept it within the grace period."""
        try:
            member.connection.send(frame, self.grace)
        except PeerLost as error:
            self._drop(member, str(error))
            return
        self._count(frame)

    def end(self) -> None:
        """Send END to all members and close all connections."""
        for member in list(self._members):
            self.send(member, Frame(Kind.END))
        for member in self._members:
            member.connection.close()
        self._members.clear()
        self._listener.close()

    # ---- frames that arrive

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
            self._members.append(Member(Connection(accepted, _HELLO_BYTES), since=time.monotonic()))
        except OSError:  # the other end has gone already
            return

    def _read(self, member: Member) -> None:
        try:
            while member in self._members and (frame := member.connection.poll()) is not None:
                self._count(frame)
                self._handle(member, frame)
        except BadFrame as error:
            self._print(str(error))
            self._refuse(member, str(error))
        except PeerLost as error:
            self._drop(member, str(error))

    def _handle(self, member: Member, frame: Frame) -> None:
        """Act on one frame; raises `BadFrame` if it is not due."""
        name = member.connection.name
        if frame.kind == Kind.ASK and member.part is None:
            self.send(member, Frame(Kind.INVITE, json.dumps(self._invitation).encode()))
        elif frame.kind == Kind.HELLO and member.part is None:
            self._admit(member, frame.json())
        elif frame.kind == Kind.READY and member.part is not None:
            member.ready = True
            self._send_weights(member, self._current_weights())
        elif frame.kind == Kind.ANSWER and member.ready and len(frame.payload) == self.answer_bytes:
            if not np.isfinite(frame.numbers("float32")).all():
                raise BadFrame(f"{name}: got weights that are not finite; use a lower lr")
            member.step_seconds = (time.monotonic() - member.sent_weights) / max(1, frame.steps)
            if member.answer is None and frame.round == self.round:
                member.answer = frame
            else:  # too late: the trainer continues from the current weights
                member.owes_answer = False
                self._send_weights(member, self._current_weights())
        else:
            raise BadFrame(f"{name}: a frame of kind {frame.kind.name} of {len(frame.payload)} bytes does not belong here")

    def _admit(self, member: Member, hello: dict[str, Any]) -> None:
        """Give a new trainer a free part, or refuse it."""
        differing = [key for key, own in self._expected.items() if hello.get(key) != own]
        free = sorted(set(range(self._parts)) - {other.part for other in self._members})
        if differing:
            key = differing[0]
            self._refuse(member, f"the {key} of this run is {self._expected[key]!r}; got {hello.get(key)!r}")
        elif not free:
            self._refuse(member, f"all {self._parts} parts have a trainer")
        else:
            frames = self._welcome(free[0])
            member.part, member.connection.max_bytes = free[0], self.answer_bytes
            member.since = time.monotonic()
            self._vacant.pop(free[0], None)
            self.joined += 1
            self._print(f"trainer {free[0]} joined from {member.connection.name}")
            for frame in frames:
                self.send(member, frame)

    def _refuse(self, member: Member, reason: str) -> None:
        self.send(member, Frame(Kind.REFUSE, reason.encode()))
        self._drop(member, "was refused")

    def _drop(self, member: Member, reason: str) -> None:
        if member not in self._members:
            return
        self._members.remove(member)
        member.connection.close()
        if member.part is not None:
            self._vacant[member.part] = time.monotonic()
            self.lost += 1
            self._print(f"trainer {member.part} was lost in round {self.round}: {reason}")

    def _count(self, frame: Frame) -> None:
        kind = {Kind.PUSH: "model", Kind.ANSWER: "model", Kind.MEMBERS: "topology"}.get(frame.kind, "control")
        for key, messages, size in ((kind, 1, len(frame.payload)), ("control", 0, HEAD_BYTES)):
            before = self.traffic[key]
            self.traffic[key] = SentCount(before.messages + messages, before.bytes + size)

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(f"bulksample: {text}", file=sys.stderr, flush=True)


def vector_frame(kind: Kind, vector: np.ndarray, number: int, steps: int = 0) -> Frame:
    """Return a frame of a round that holds float32 numbers."""
    return Frame(kind, vector.astype("<f4").tobytes(), number, steps)
