"""The options of trainers that may fail: where the server listens, whom it waits for, and what it does with a part that nobody trains."""

import socket
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from plain import graph, trainer
from trainers import free_port, meanwhile
from waiting import PATIENCE

from bulksample.errors import PeerLost, UsageError
from bulksample.methods.averaging.frames import Kind
from bulksample.methods.averaging.handshake import join
from bulksample.methods.averaging.trainer_registry import TrainerRegistry, vector_frame

ELASTIC = {"method": "random-tma", "tolerate_failures": True, "quiet": True}


def served(**options):
    """A server of trainers that nobody has joined yet, at a free port."""
    return trainer(graph(), **{**ELASTIC, "listen": f"127.0.0.1:{free_port()}", "timeout": 0.05, **options})


def is_open(port):
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_that_tolerates_failures_listens_at_the_given_address():
    port = free_port()
    assert not is_open(port)
    made = served(listen=f"127.0.0.1:{port}")
    assert is_open(port)
    made.method.participant._listener.close()


def test_trainers_is_the_number_of_parts(capsys):
    made = served(trainers=5, quiet=False)
    assert "5 parts keep" in capsys.readouterr().err
    assert sorted(len(made.method.participant._parts.members(part)) for part in range(5)) == [12] * 5


def test_join_goes_to_the_server_at_the_address():
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(PATIENCE)
        came = []

        def turn_away():
            line, peer = door.accept()
            came.append(peer)
            line.close()

        thread = threading.Thread(target=turn_away, daemon=True)
        thread.start()
        join = f"127.0.0.1:{door.getsockname()[1]}"
        try:
            trainer(graph(), method="random-tma", join=join, timeout=PATIENCE, quiet=True)
        except PeerLost:
            thread.join(PATIENCE)
        assert came


def waiting(**options):
    """The server's participant after it has waited, in vain, for trainers."""
    made = served(**options)
    made.method.participant.wait_for_all(made.context)
    return made.method.participant


def test_token_file_holds_what_trainers_prove(tmp_path):
    file = tmp_path / "token"
    file.write_text("f" * 40)
    file.chmod(0o600)
    participant = waiting(token_file=str(file))
    try:
        meanwhile(lambda: participant.registry.attend(0.01), lambda: join(participant.address, b"f" * 40, PATIENCE)).close()
    except UsageError as error:
        pytest.fail(str(error))
    participant.close()


def test_max_update_bounds_the_norm_of_an_update():
    """From weights w to 4 w is an update of 3 |w|, which exceeds 2 |w|."""
    participant = waiting(max_update=2.0)
    pushed = participant.registry._current_weights()
    weights = 10 * np.sign(pushed.numbers("float32") + 0.5)
    fault = participant.registry._fault(vector_frame(Kind.ANSWER, 4 * weights, 0), vector_frame(Kind.PUSH, weights, 0))
    assert "at most 2 x" in fault
    participant.close()


def test_grace_is_what_late_trainers_are_given():
    participant = waiting(grace=0.75)
    assert participant.registry.grace == 0.75
    participant.close()


def test_redivide_after_divides_a_part_without_a_trainer(monkeypatch):
    """Part 1 has had no trainer for eight seconds: its vertices go to the trainer of part 0 if that is long enough."""
    monkeypatch.setattr(TrainerRegistry, "present", property(lambda self: [SimpleNamespace(part=0, step_seconds=0.0)]))
    monkeypatch.setattr(TrainerRegistry, "admitted", property(lambda self: []))
    monkeypatch.setattr(TrainerRegistry, "vacant", lambda self, seconds: [1] if seconds <= 8 else [])
    held = {}
    for seconds in (9.0, 7.0):
        participant = waiting(trainers=2, redivide_after=seconds)
        participant._divide_vacant_parts()
        held[seconds] = len(participant._parts.members(0))
        participant.close()
    assert held == {9.0: 30, 7.0: 60}
