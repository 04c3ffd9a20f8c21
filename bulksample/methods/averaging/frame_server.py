"""Turns over the connections of a server: no peer costs another more than one frame, whatever it sends or leaves unread.

    a stranger        has not proved the token, or has no part yet: at most 64, ten seconds a step; the oldest without a proof makes room
    a turn            reads at most one frame and about 1 MiB of each peer
    connections       at most one is accepted in 2 ms
    frames to send    are queued; a peer that leaves too much unread is dropped
    descriptors       one for each part without a trainer is held back, so that trainers can join when files run out

Before the proof a frame has at most 32 bytes, and every refusal has the same words.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...distributed.comm.primitives import SentCount
from ...errors import PeerLost, UsageError
from .frames import HEAD_BYTES, BadFrame, Connection, Frame, Kind
from .handshake import NONCE_BYTES, REFUSAL, TEXT_BYTES, Handshake, nonce

MOST_STRANGERS, STRANGER_SECONDS = 64, 10.0
TURN_BYTES = 2**20
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BETWEEN, _PAUSE = 0.002, 1.0  # seconds between two connections, and without any where no descriptor is left
_KINDS = {Kind.PUSH: "model", Kind.ANSWER: "model", Kind.MEMBERS: "topology"}


@dataclass(eq=False)
class Peer:
    """A connection, and how far its other end has come: it knocks, proves the token, and is welcomed."""

    connection: Connection
    since: float
    handshake: Handshake | None = None
    proved: bool = False


class FrameServer:
    """The connections of a server with places for so many trainers, who prove its token first.

    `on_frame` takes a peer that has proved the token and a frame of it, and may raise `BadFrame` to refuse the peer; `on_drop` takes a peer
    whose connection was closed, and the reason. `traffic` counts the frames of both directions by kind: payloads of weights are "model",
    those of MEMBERS "topology", all else and the headers "control". At most `max_queued_bytes` bytes may wait for a peer.
    """

    def __init__(
        self, listener: socket.socket, token: bytes, places: int, on_frame: Callable[[Peer, Frame], None],
        on_drop: Callable[[Peer, str], None], say: Callable[[str], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._listener, self._token, self._places = listener, token, places
        self._on_frame, self._on_drop, self._say, self._clock = on_frame, on_drop, say, clock
        self._peers: set[Peer] = set()
        self._strangers: dict[Peer, None] = {}  # by age
        self._reserve: list[int] = []
        self._paused_until: float | None = None
        self.refused, self.max_queued_bytes = 0, 4 * TEXT_BYTES
        self.traffic = dict.fromkeys(("model", "topology", "control"), SentCount(0, 0))
        try:
            self._selector = selectors.DefaultSelector()
            self._selector.register(listener, selectors.EVENT_READ)
            self._hold_back()
        except OSError as error:
            raise UsageError(f"cannot hold {places} descriptors for trainers: {error.strerror}; raise `ulimit -n`") from error

    # ---- turns

    def turn(self, seconds: float) -> None:
        """Wait at most so many seconds for events, and take one turn."""
        if self._paused_until is not None:
            seconds = min(seconds, self._paused_until - self._clock())
            if seconds <= 0:
                self._paused_until = None
                self._selector.register(self._listener, selectors.EVENT_READ)
        for key, events in self._selector.select(max(0.0, seconds)):
            if key.data is None:
                self._accept()
            elif key.data in self._peers:  # it may have been dropped in this turn
                self._serve(key.data, events)
        for stranger in [one for one in self._strangers if self._clock() - one.since > STRANGER_SECONDS]:
            self.drop(stranger, f"took no step for {STRANGER_SECONDS:g} s")

    def _serve(self, peer: Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(peer)
            frame = peer.connection.poll(TURN_BYTES) if events & selectors.EVENT_READ else None
            if frame is not None:
                self._count(frame)
                (self._on_frame if peer.proved else self._greet)(peer, frame)
        except BadFrame as error:
            self.refuse(peer, str(error)) if peer.proved else self._refuse_stranger(peer)
        except PeerLost as error:
            self.drop(peer, str(error))

    def _greet(self, peer: Peer, frame: Frame) -> None:
        """Take the next step of the handshake; raises `BadFrame` if the frame is not that step."""
        peer.since = self._clock()
        if peer.handshake is None and frame.kind == Kind.KNOCK and len(frame.payload) == NONCE_BYTES:
            peer.handshake = Handshake(frame.payload, nonce())
            self.send(peer, Frame(Kind.CHALLENGE, peer.handshake.of_server))
        elif peer.handshake is not None and peer.handshake.is_proved(self._token, "trainer", frame):
            peer.proved, peer.connection.reader.max_bytes = True, TEXT_BYTES
            self.send(peer, Frame(Kind.PROOF, peer.handshake.proof(self._token, "server")))
        else:
            raise BadFrame("no step of the handshake")

    # ---- connections that come and go

    def _accept(self) -> None:
        """Accept a connection, and no other for a short while. A stranger makes room for it."""
        self._pause(_BETWEEN)
        try:
            accepted, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._make_room()
            return  # the other end has gone already, or the next turn accepts it
        try:
            peer = Peer(Connection(accepted, NONCE_BYTES), self._clock())
        except OSError:
            accepted.close()
            return
        first = self._first_to_go()
        if first is not None and len(self._strangers) >= MOST_STRANGERS:
            self.drop(first, "made room for another")
        self._peers.add(peer)
        self._strangers[peer] = None
        self._selector.register(peer.connection.socket, selectors.EVENT_READ, peer)

    def _pause(self, seconds: float) -> None:
        """Accept nobody for so many seconds."""
        if self._paused_until is None:
            self._selector.unregister(self._listener)
        self._paused_until = self._clock() + seconds

    def _make_room(self) -> None:
        """Free a descriptor: a stranger's, or one held back before that of a proved peer. Without any, accept nobody for a while."""
        first = self._first_to_go()
        if first is not None and not (first.proved and self._reserve):
            self.drop(first, "made room for another", hold_back=False)
        elif self._reserve:
            os.close(self._reserve.pop())
        else:
            self._pause(_PAUSE)

    def _first_to_go(self) -> Peer | None:
        """Return the oldest stranger that has not proved the token, or the oldest of all if every one has proved it."""
        return min(self._strangers, key=lambda peer: peer.proved, default=None)  # the first of equals

    def _hold_back(self) -> None:
        """Hold one descriptor for each place that no peer has."""
        taken = len(self._peers) - len(self._strangers)
        while len(self._reserve) > self._places - taken:
            os.close(self._reserve.pop())
        while len(self._reserve) < self._places - taken:
            self._reserve.append(os.dup(self._listener.fileno()))

    def _hold_back_if_possible(self) -> None:
        """Hold back as many descriptors as there are; where files have run out, the next trainer that joins or leaves tries again."""
        with contextlib.suppress(OSError):
            self._hold_back()

    def welcome(self, peer: Peer, max_bytes: int) -> None:
        """Take a peer for a trainer that has a place, whose frames have at most the given payload."""
        del self._strangers[peer]
        peer.connection.reader.max_bytes = max_bytes
        self._hold_back_if_possible()

    def drop(self, peer: Peer, reason: str, hold_back: bool = True) -> None:
        """Close the connection of a peer."""
        if peer not in self._peers:
            return
        self._peers.remove(peer)
        self._strangers.pop(peer, None)
        self._selector.unregister(peer.connection.socket)
        peer.connection.close()
        if hold_back:
            self._hold_back_if_possible()
        self._on_drop(peer, reason)

    def refuse(self, peer: Peer, reason: str) -> None:
        """Tell a peer why it is refused, and close its connection."""
        self.send(peer, Frame(Kind.REFUSE, reason.encode()))
        self.drop(peer, reason)

    def _refuse_stranger(self, peer: Peer) -> None:
        """Refuse a peer that has not proved the token, with words that tell nothing; one message for the user per doubling."""
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:
            self._say(f"{peer.connection.name} did not prove the token of the run; {self.refused} refused so far")
        self.refuse(peer, REFUSAL)

    # ---- frames to send

    def send(self, peer: Peer, frame: Frame) -> None:
        """Queue a frame for a peer; drop a peer that leaves too much unread."""
        if peer not in self._peers:
            return
        peer.connection.max_queued_bytes = self.max_queued_bytes
        try:
            peer.connection.post(frame)
            self._flush(peer)
        except PeerLost as error:
            self.drop(peer, str(error))
            return
        self._count(frame)

    def _flush(self, peer: Peer) -> None:
        peer.connection.flush()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.connection.queued_bytes else 0)
        if self._selector.get_key(peer.connection.socket).events != events:
            self._selector.modify(peer.connection.socket, events, peer)

    def _count(self, frame: Frame) -> None:
        for key, messages, size in ((_KINDS.get(frame.kind, "control"), 1, len(frame.payload)), ("control", 0, HEAD_BYTES)):
            before = self.traffic[key]
            self.traffic[key] = SentCount(before.messages + messages, before.bytes + size)

    def close(self, seconds: float) -> None:
        """Send what is queued for trainers within so many seconds, and close all connections."""
        deadline = time.monotonic() + seconds
        for peer in self._peers:
            if peer not in self._strangers:
                with contextlib.suppress(PeerLost):  # it has not read what came before, either
                    peer.connection.finish(max(0.0, deadline - time.monotonic()))
            peer.connection.close()
        for descriptor in self._reserve:
            os.close(descriptor)
        for collection in (self._peers, self._strangers, self._reserve):
            collection.clear()
        self._selector.close()
        self._listener.close()
