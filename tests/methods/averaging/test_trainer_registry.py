"""Trainers that a server admits: they get parts, answer in rounds, may be late or lost, and strangers disturb nobody."""

import contextlib
import json
import re
import socket
from types import SimpleNamespace

import numpy as np
import pytest
from trainers import RUN_TOKEN, meanwhile, packed
from waiting import PATIENCE, until

from bulksample.errors import PeerLost
from bulksample.methods.averaging import handshake, trainer_registry
from bulksample.methods.averaging.frames import Frame, Kind, listen
from bulksample.methods.averaging.trainer_registry import GRACE_SECONDS, GRACE_STEPS, TrainerRegistry, vector_frame
from bulksample.methods.averaging.trainer_server import fault_of

SIZE = 7  # three weights and four scalars


class Served:
    """A registry that serves while the test says so, and the trainers that join it."""

    def __init__(self, parts=2, grace=1.0, timeout=PATIENCE):
        listener = listen("127.0.0.1:0")
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        push = vector_frame(Kind.PUSH, np.arange(SIZE, dtype=np.float32), 0)
        self.registry = TrainerRegistry(
            listener, RUN_TOKEN.encode(), parts, {"method": "random-tma"}, {"version": "1"},
            lambda part: [Frame(Kind.WELCOME, b'{"part": %d}' % part)], lambda: push._replace(round=self.registry.round),
            lambda answer, pushed: fault_of(answer, pushed, 3, 100.0), grace, timeout, quiet=True,
        )  # fmt: skip
        self.registry.answer_bytes = 4 * SIZE

    def turn(self):
        self.registry.attend(0.01)

    def proved(self):
        """A connection whose ends have proved the token to each other."""
        return meanwhile(self.turn, lambda: handshake.join(self.address, RUN_TOKEN.encode(), PATIENCE))

    def joined(self, ready=True):
        """A trainer, once the registry has it."""
        line = self.proved()
        answer = self.answered(line, Frame(Kind.HELLO, b'{"version": "1"}'))
        if ready and answer.kind == Kind.WELCOME:
            assert self.answered(line, Frame(Kind.READY)).kind == Kind.PUSH
        return line, answer

    def answered(self, line, frame):
        """Send a frame; return what the server says to it."""
        line.send(frame, PATIENCE)
        return meanwhile(self.turn, lambda: line.receive(PATIENCE))

    def until(self, happened):
        """Take turns until something has happened."""
        until(lambda: self.turn() or happened())


@pytest.fixture
def served():
    made = Served()
    yield made
    made.registry.end()


def answer(number, value=0.0):
    return vector_frame(Kind.ANSWER, np.full(SIZE, value, np.float32), number, 5)


def test_trainers_get_parts_and_a_free_one_is_given_again(served):
    (one, first), (two, second) = served.joined(), served.joined()
    assert [first.json()["part"], second.json()["part"]] == [0, 1]
    refused = served.joined()[1]
    assert refused.kind == Kind.REFUSE
    assert b"all 2 parts have a trainer" in refused.payload
    one.close()
    served.until(lambda: served.registry.lost)
    assert [member.part for member in served.registry.present] == [1]
    assert served.joined()[1].json()["part"] == 0
    assert (served.registry.joined, served.registry.lost) == (3, 1)
    two.close()


def test_an_answer_is_collected_and_a_late_one_is_dropped(served):
    (one, _), (two, _) = served.joined(), served.joined()
    one.send(answer(0, 1.0), PATIENCE)
    answered = served.registry.collect(0, pull=True)
    assert [(member.part, member.answer) for member in answered] == [(0, answer(0, 1.0))]
    assert served.registry.late == 1
    served.registry.round = 1
    served.registry.push(vector_frame(Kind.PUSH, np.zeros(SIZE, np.float32), 1), answered)
    assert [one.receive(PATIENCE).kind for _ in range(2)] == [Kind.PULL, Kind.PUSH]
    assert two.receive(PATIENCE).kind == Kind.PULL
    one.send(answer(1, 2.0), PATIENCE)
    assert [member.part for member in served.registry.collect(1, pull=True)] == [0]
    assert served.registry.late == 1  # who owes an answer is not asked again
    served.registry.round = 2
    push = served.answered(two, answer(0, 9.0))
    assert (push.kind, push.round) == (Kind.PUSH, 2)
    assert all(member.answer is None or member.part == 0 for member in served.registry.present)
    one.close()
    two.close()


def test_the_grace_follows_the_slowest_trainer_unless_it_is_given(served, monkeypatch):
    monkeypatch.setattr(trainer_registry, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # a clock that stands still
    assert served.registry.grace == 1.0
    adaptive = Served(grace=None)
    assert adaptive.registry.grace == GRACE_SECONDS
    (one, _), (two, _) = adaptive.joined(), adaptive.joined()
    first, second = adaptive.registry.present
    first.sent_weights -= 40.0  # its five steps took eight seconds each
    one.send(answer(0), PATIENCE)
    two.send(answer(0), PATIENCE)
    assert len(adaptive.registry.collect(0, pull=True)) == 2
    assert (first.step_seconds, second.step_seconds) == (8.0, 0.0)
    assert adaptive.registry.grace == GRACE_STEPS * first.step_seconds
    one.close()
    adaptive.until(lambda: adaptive.registry.lost)
    assert adaptive.registry.grace == GRACE_SECONDS  # who is gone does not count
    two.close()
    adaptive.registry.end()


def test_parts_without_a_trainer_are_known(served):
    assert served.registry.vacant(0.0) == [0, 1]
    assert served.registry.vacant(1e9) == []
    line, _ = served.joined()
    assert served.registry.vacant(0.0) == [1]
    line.close()
    served.until(lambda: served.registry.lost)
    assert sorted(served.registry.vacant(0.0)) == [0, 1]


def test_a_trainer_that_is_gone_is_not_waited_for():
    served = Served(grace=PATIENCE)
    (one, _), (two, _) = served.joined(), served.joined()
    one.send(answer(0), PATIENCE)
    two.close()
    assert [member.part for member in served.registry.collect(0, pull=True)] == [0]  # long before the grace has passed
    served.registry.end()
    assert [one.receive(PATIENCE).kind for _ in range(2)] == [Kind.PULL, Kind.END]
    one.close()


def test_who_is_silent_is_forgotten():
    served = Served(timeout=0.3)
    line, _ = served.joined(ready=False)
    served.until(lambda: served.registry.lost)
    with pytest.raises(PeerLost, match="is gone"):
        line.receive(PATIENCE)
    served.registry.end()


@pytest.mark.parametrize(("sent", "message"), [
    (answer(0), "a frame of kind ANSWER of 28 bytes does not belong here"), (Frame(Kind.HELLO, b"[]"), "must hold a JSON object"),
    (Frame(Kind.HELLO, b"[" * 60_000), "must hold a JSON object"), (Frame(Kind.HELLO, bytes(2**16 + 1)), "at most 65536 are allowed"),
    (Frame(Kind.HELLO, b'{"version": "0"}'), "the version of this run is '1'; got '0'"),
    (Frame(Kind.HELLO, b'{"version": [[[]]]}'), "the version of this run is '1'; got 'no text'"),
    (Frame(Kind.HELLO, b'{"version": "%s"}' % (b"0" * 9000)), r"got '0{80}'$"),
])  # fmt: skip
def test_who_knows_the_token_is_told_why_it_is_refused(served, sent, message):
    member, _ = served.joined()
    refusal = served.answered(served.proved(), sent)
    assert refusal.kind == Kind.REFUSE
    assert re.search(message, refusal.payload.decode())
    member.send(answer(0), PATIENCE)
    assert len(served.registry.collect(0, pull=True)) == 1
    member.close()


@pytest.mark.parametrize(("sent", "message"), [
    (Frame(Kind.ANSWER, bytes(8), 0, 1), "8 bytes does not belong here"), (Frame(Kind.READY), "READY of 0 bytes does not belong here"),
    (answer(0, float("nan")), "weights that are not finite"), (answer(0, -float("inf")), "weights that are not finite"),
    (answer(0, 1e6), "an update of norm 1.73e+06; at most 100 x 2.24 is accepted"),
])  # fmt: skip
def test_an_answer_that_is_refused_ends_the_connection_and_its_sender_is_named(served, capfd, sent, message):
    served.registry._quiet = False
    line, _ = served.joined()
    refusal = served.answered(line, sent)
    assert refusal.kind == Kind.REFUSE
    assert message in refusal.payload.decode()
    assert not served.registry.present
    assert served.registry.refused == (sent.kind == Kind.ANSWER and len(sent.payload) == 4 * SIZE)
    said = capfd.readouterr().err
    assert "trainer 0 (127.0.0.1:" in said
    assert message in said
    line.close()


def test_a_trainer_whose_answer_came_too_late_is_not_awaited_again_in_that_round():
    served = Served(grace=PATIENCE)
    (one, _), (two, _) = served.joined(), served.joined()
    served.registry.round = 1
    two.send(answer(0), PATIENCE)  # of the round before: it gets the current weights
    one.send(answer(1), PATIENCE)
    assert [member.part for member in served.registry.collect(1, pull=False)] == [0]  # long before the grace has passed
    assert served.registry.late == 1
    served.registry.end()
    one.close()
    two.close()


def test_a_trainer_that_asks_gets_the_configuration(served):
    line = served.proved()
    assert json.loads(served.answered(line, Frame(Kind.ASK)).payload) == {"method": "random-tma"}
    line.close()


def test_a_trainer_that_floods_and_reads_nothing_is_dropped_and_delays_nobody():
    served = Served(grace=PATIENCE)
    (flooding, _), (honest, _) = served.joined(), served.joined()
    served.registry.server.max_queued_bytes = 10_000
    flooding.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    served.registry.present[0].peer.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    late, at, rounds = packed(answer(2**31)) * 1000, 0, 0
    while served.registry.lost == 0:
        with contextlib.suppress(BlockingIOError):
            at = (at + flooding.socket.send(late[at:])) % len(late)
        honest.send(answer(rounds), PATIENCE)
        answered = served.registry.collect(rounds, pull=False)
        assert [member.part for member in answered] == [1]
        rounds += 1
        served.registry.round = rounds
        served.registry.push(vector_frame(Kind.PUSH, np.zeros(SIZE, np.float32), rounds), answered)
        assert honest.receive(PATIENCE).round == rounds
    served.registry.end()
    honest.close()
    flooding.close()
