"""Who takes part in a run whose trainers may die, be late, or join again; the server's side of the frames.

    a trainer         the server
    ASK               INVITE    the configuration                                    (a connection of its own)
    HELLO             WELCOME, MEMBERS    its part and the vertices of it; or REFUSE
    READY             PUSH      the weights of now
                      PULL k        at the end of an interval by the clock; one of steps ends by itself
    ANSWER k          PUSH k + 1    the average; an answer that comes too late is dropped, and PUSH has the weights of now
                      END

A trainer that owes an answer is told nothing and waited for no more until it comes; one that is gone is forgotten, and its part
is given to the next that says HELLO. MEMBERS may also come later, where vertices are dealt again. One thread, and no wait for one trainer holds up another by more than the grace.
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
from .frames import HEAD_BYTES, BadFrame, Frame, Kind, Line

GRACE_SECONDS, GRACE_STEPS = 5.0, 3.0  # to wait for an answer at least, and in steps of the slowest trainer
_TICK = 0.1  # seconds between two looks at the clock
_HELLO_BYTES = 2**16  # of a frame from somebody who has not been welcomed


@dataclass(eq=False)
class Member:
    """One connection."""

    line: Line
    part: int | None = None  # before it was welcomed
    ready: bool = False
    owes: bool = False
    since: float = 0.0  # when it was asked, or came
    told: float = 0.0  # when it had the weights that it goes on from
    step_seconds: float = 0.0  # of its last answer
    answer: Frame | None = None


class Roster:
    """The members of a run.

    Parameters
    ----------
    door : socket.socket
        Listening.
    parts : int
        Of which every member has one.
    invitation : dict
        For those who ask what the run is.
    asked : dict
        What a member must say in its HELLO.
    welcome : callable
        From a part to its frames WELCOME and MEMBERS.
    now : callable
        The weights of now, as PUSH.
    grace : float, optional
        Seconds to wait for an answer. Unless given, three times the step of the slowest member, measured by the last answer of
        each, and at least five seconds.
    timeout : float
        Seconds until a member that owes an answer is forgotten.
    quiet : bool
        Say nothing on standard error about those who come and go.

    Attributes
    ----------
    round : int
        The one under way.
    joined, lost, late : int
        Trainers that came, that were lost, and answers that were not waited for.
    answer_bytes : int
        Of an answer.
    traffic : dict of kind to SentCount
        Frames of both directions: payloads of weights are "model", those of MEMBERS "topology", all else and the headers "control".
    """

    def __init__(
        self, door: socket.socket, parts: int, invitation: dict[str, Any], asked: dict[str, Any],
        welcome: Callable[[int], list[Frame]], now: Callable[[], Frame], grace: float | None, timeout: float, quiet: bool,
    ) -> None:  # fmt: skip
        self._door, self._parts, self._invitation, self._asked = door, parts, invitation, asked
        self._welcome, self._now, self._grace, self._timeout, self._quiet = welcome, now, grace, timeout, quiet
        self._members: list[Member] = []
        self._vacant = dict.fromkeys(range(parts), time.monotonic())  # parts that nobody has, and since when
        self.answer_bytes, self.traffic = _HELLO_BYTES, dict.fromkeys(("model", "topology", "control"), SentCount(0, 0))
        self.round = self.joined = self.lost = self.late = 0

    @property
    def present(self) -> list[Member]:
        """Those who are ready to train, by part."""
        return sorted((member for member in self._members if member.ready), key=lambda member: member.part or 0)

    @property
    def admitted(self) -> list[Member]:
        """Those who have a part."""
        return [member for member in self._members if member.part is not None]

    @property
    def grace(self) -> float:
        """Seconds to wait for an answer."""
        slowest = max((member.step_seconds for member in self.present), default=0.0)
        return self._grace if self._grace is not None else max(GRACE_SECONDS, GRACE_STEPS * slowest)

    def vacant(self, seconds: float) -> list[int]:
        """The parts that nobody has had for so long."""
        return [part for part, since in self._vacant.items() if time.monotonic() - since >= seconds]

    def gather(self, count: int, until: float) -> None:
        """Let trainers join until so many are ready, or the time has come."""
        while len(self.present) < count and time.monotonic() < until:
            self.attend(_TICK)

    def attend(self, seconds: float) -> None:
        """Serve whoever comes or speaks, for at most so long; returns after the first events."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._door, selectors.EVENT_READ)
            for member in self._members:
                selector.register(member.line.socket, selectors.EVENT_READ, member)
            for key, _ in selector.select(max(0.0, seconds)):
                if key.data is None:
                    self._accept()
                else:
                    self._hear(key.data)
        for member in list(self._members):
            if (member.owes or not member.ready) and time.monotonic() - member.since > self._timeout:
                self._drop(member, f"was silent for {self._timeout:g} s")

    def attend_until(self, moment: float) -> None:
        """The same until a moment of the monotonic clock."""
        while (left := moment - time.monotonic()) > 0:
            self.attend(min(left, _TICK))

    def collect(self, number: int, pull: bool) -> list[Member]:
        """The members that answer in a round, by part.

        Parameters
        ----------
        number : int
            Of the round.
        pull : bool
            Ask for answers now, and wait for as long as the grace. Else members answer when they have made their steps, and the
            grace begins with the first of them.
        """
        asked = [member for member in self.present if not member.owes]
        for member in asked:
            member.owes, member.since = True, time.monotonic()
            if pull:
                self.tell(member, Frame(Kind.PULL, round=number))
        until = time.monotonic() + self.grace if pull else None
        while any(member in self._members and member.answer is None for member in asked):
            if until is not None and time.monotonic() > until:
                break
            self.attend(_TICK)
            if until is None and any(member.answer is not None for member in asked):
                until = time.monotonic() + self.grace
        self.late += sum(member in self._members and member.answer is None for member in asked)
        return [member for member in self.present if member.answer is not None]

    def push(self, frame: Frame, members: list[Member]) -> None:
        """Send members the average that they are part of."""
        for member in members:
            member.owes, member.answer = False, None
            self._go_on(member, frame)

    def _go_on(self, member: Member, weights: Frame) -> None:
        member.told = time.monotonic()
        self.tell(member, weights)

    def tell(self, member: Member, frame: Frame) -> None:
        """Send a frame; a member that does not take it within the grace is forgotten."""
        try:
            member.line.send(frame, self.grace)
        except PeerLost as error:
            self._drop(member, str(error))
            return
        self._note(frame)

    def end(self) -> None:
        """Tell all that no more follows, and hear no more."""
        for member in list(self._members):
            self.tell(member, Frame(Kind.END))
        for member in self._members:
            member.line.close()
        self._members.clear()
        self._door.close()

    # ---- what comes

    def _accept(self) -> None:
        try:
            made, _ = self._door.accept()
            self._members.append(Member(Line(made, _HELLO_BYTES), since=time.monotonic()))
        except OSError:  # whoever it was has gone already
            return

    def _hear(self, member: Member) -> None:
        try:
            while member in self._members and (frame := member.line.poll()) is not None:
                self._note(frame)
                self._take(member, frame)
        except BadFrame as error:
            self._say(str(error))
            self._refuse(member, str(error))
        except PeerLost as error:
            self._drop(member, str(error))

    def _take(self, member: Member, frame: Frame) -> None:
        if frame.kind == Kind.ASK and member.part is None:
            self.tell(member, Frame(Kind.INVITE, json.dumps(self._invitation).encode()))
        elif frame.kind == Kind.HELLO and member.part is None:
            self._admit(member, frame.json())
        elif frame.kind == Kind.READY and member.part is not None:
            member.ready = True
            self._go_on(member, self._now())
        elif frame.kind == Kind.ANSWER and member.ready and len(frame.payload) == self.answer_bytes:
            if not np.isfinite(frame.numbers("float32")).all():
                raise BadFrame(f"{member.line.name}: weights that are not finite came; a lower lr would fit")
            member.step_seconds = (time.monotonic() - member.told) / max(1, frame.steps)
            if member.answer is None and frame.round == self.round:
                member.answer = frame
            else:  # too late: on with the weights of now
                member.owes = False
                self._go_on(member, self._now())
        else:
            raise BadFrame(f"{member.line.name}: a frame of kind {frame.kind.name} of {len(frame.payload)} bytes does not belong here")

    def _admit(self, member: Member, told: dict[str, Any]) -> None:
        differing = [key for key, own in self._asked.items() if told.get(key) != own]
        free = sorted(set(range(self._parts)) - {other.part for other in self._members})
        if differing:
            key = differing[0]
            self._refuse(member, f"the {key} of this run is {self._asked[key]!r}; got {told.get(key)!r}")
        elif not free:
            self._refuse(member, f"all {self._parts} parts have a trainer")
        else:
            frames = self._welcome(free[0])
            member.part, member.line.most = free[0], self.answer_bytes
            member.since = time.monotonic()
            self._vacant.pop(free[0], None)
            self.joined += 1
            self._say(f"trainer {free[0]} joined from {member.line.name}")
            for frame in frames:
                self.tell(member, frame)

    def _refuse(self, member: Member, why: str) -> None:
        self.tell(member, Frame(Kind.REFUSE, why.encode()))
        self._drop(member, "was refused")

    def _drop(self, member: Member, why: str) -> None:
        if member not in self._members:
            return
        self._members.remove(member)
        member.line.close()
        if member.part is not None:
            self._vacant[member.part] = time.monotonic()
            self.lost += 1
            self._say(f"trainer {member.part} was lost in round {self.round}: {why}")

    def _note(self, frame: Frame) -> None:
        kind = {Kind.PUSH: "model", Kind.ANSWER: "model", Kind.MEMBERS: "topology"}.get(frame.kind, "control")
        for what, messages, size in ((kind, 1, len(frame.payload)), ("control", 0, HEAD_BYTES)):
            before = self.traffic[what]
            self.traffic[what] = SentCount(before.messages + messages, before.bytes + size)

    def _say(self, what: str) -> None:
        if not self._quiet:
            print(f"bulksample: {what}", file=sys.stderr, flush=True)


def vector_frame(kind: Kind, vector: np.ndarray, number: int, steps: int = 0) -> Frame:
    """float32 numbers as a frame of a round."""
    return Frame(kind, vector.astype("<f4").tobytes(), number, steps)
