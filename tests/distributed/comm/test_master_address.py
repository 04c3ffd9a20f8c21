"""A rank whose MASTER_ADDR leads nowhere gives up at its deadline, and at once where the name is unknown."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import trainers
from communities import community_graph
from launch import ROOT
from waiting import PATIENCE

from bulksample import PeerLost, UsageError
from bulksample.distributed.comm import master_address, torch_distributed, watch


@pytest.fixture
def free_port():
    return trainers.free_port()


@pytest.fixture
def second_rank(monkeypatch, free_port):
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(torch_distributed, "rendezvous", lambda *_, **__: pytest.fail("torch was asked, which waits for longer"))


def test_nothing_listens(second_rank, free_port):
    with pytest.raises(
        PeerLost,
        match=rf"did not meet at MASTER_ADDR:MASTER_PORT 127.0.0.1:{free_port} within [1-9]\d* s: .*refused.*; start rank 0 there",
    ):
        torch_distributed.meet(0.3)


def test_an_unknown_name_does_not_wait_for_the_deadline(second_rank, monkeypatch):
    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    monkeypatch.setattr(master_address, "_DEAD_SECONDS", 0.1)
    with pytest.raises(PeerLost, match="Name or service not known; set MASTER_ADDR"):
        torch_distributed.meet(10_000)


def test_the_first_rank_does_not_open_a_store_under_an_unknown_name(second_rank, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "no-such-machine.invalid")
    monkeypatch.setattr(master_address, "_DEAD_SECONDS", 0.1)
    with pytest.raises(PeerLost, match=r"MASTER_PORT no-such-machine.invalid:\d+ within .*; set MASTER_ADDR"):
        torch_distributed.meet(10_000)


@pytest.mark.parametrize(("timeout", "patience"), [(10, 10), (100, 30), (300, 30), (1500, 150)])
def test_a_machine_that_refuses_gets_a_share_of_the_timeout(second_rank, free_port, monkeypatch, capsys, timeout, patience):
    clock = iter(range(10_000))  # a second passes at every look
    monkeypatch.setattr(master_address.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(master_address.time, "sleep", lambda _: None)
    with pytest.raises(ConnectionRefusedError, match="refused"):
        master_address.await_listener("127.0.0.1", free_port, timeout)
    assert patience <= next(clock) <= patience + 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"bulksample: rank 1 of 2: nothing listens at MASTER_ADDR:MASTER_PORT 127.0.0.1:{free_port} (")
    assert said.endswith(f"waiting up to {patience} s for rank 0 to start there\n")


def test_a_wait_for_other_ranks_is_announced(capsys):
    with watch.announce("rank 0 of 2 waits for the others", 300.0, 0.0):
        for timer in threading.enumerate():
            if isinstance(timer, threading.Timer):
                timer.join(PATIENCE)
    assert capsys.readouterr().err == "bulksample: rank 0 of 2 waits for the others, for up to 300 s\n"


@pytest.mark.long
def test_a_command_meets_no_second_time_to_say_that_it_could_not_meet(free_port, tmp_path):
    community_graph(n=20).save(tmp_path / "g")
    rank = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    program = """
import sys
import torch.distributed  # before the alarm that limits how long the ranks may take to meet: on a busy machine that takes longer
from bulksample.cli import main
from bulksample.distributed.comm import world
whole = world._over_torch
def meeting(*given):
    print("meeting", file=sys.stderr)
    return whole(*given)
world._over_torch = meeting
main()
"""
    command = [sys.executable, "-c", program, "sample", str(tmp_path / "g"), "--timeout", "1"]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | rank, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 75
    assert ended.stderr.count("did not meet at MASTER_ADDR:MASTER_PORT") == 1
    assert ended.stderr.count("meeting\n") == 1


def test_a_first_rank_that_comes_late_is_awaited(free_port):
    came = threading.Event()

    def listen():
        with socket.create_server(("127.0.0.1", free_port)) as server:
            server.accept()[0].close()
            came.set()

    threading.Timer(0.3, listen).start()
    master_address.await_listener("127.0.0.1", free_port, PATIENCE)
    assert came.wait(PATIENCE)


def test_two_processes_of_one_rank_are_told_so(monkeypatch, free_port):
    store = torch.distributed.HashStore()
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch_distributed, "rendezvous", lambda *_, **__: iter([(store, 0, 2)]))
    monkeypatch.setattr(torch_distributed, "_WORLDS", itertools.repeat(0))
    torch_distributed.meet(PATIENCE)
    with pytest.raises(UsageError, match="RANK: two processes are rank 0 of 2; give each its own, from 0 to 1"):
        torch_distributed.meet(PATIENCE)


@contextlib.contextmanager
def service(port, says=b"", hangs_up=False):
    """Listen at a port and treat every client alike."""
    with socket.create_server(("127.0.0.1", port)) as server:
        clients = []

        def serve():
            with contextlib.suppress(OSError):  # until the server is shut down
                while True:
                    client = server.accept()[0]
                    clients.append(client)
                    with contextlib.suppress(OSError):  # the client is gone already, as one that only looks whether something listens
                        client.sendall(says)
                        if hangs_up:
                            client.recv(64)
                            client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"says": b"SSH-2.0-OpenSSH_9.2p1\r\n"}, r"it answers b'SSH-2.0-OpenSSH_9.2p1"),
        ({"says": b"hi", "hangs_up": True}, r"it answers b'hi' and hangs up"),
        ({"hangs_up": True}, r"it hangs up"),
        ({}, r"it does not answer"),
    ],
)
def test_another_service_at_the_port_is_named(second_rank, free_port, monkeypatch, answers, found):
    """A service that answers or hangs up has long, because the machine may be busy; the silent one is not waited for so long."""
    for name, seconds in {"TOLD_SECONDS": PATIENCE if answers else 0.1, "_SILENT_SECONDS": 0.1, "_SILENT_SHARE": 0}.items():
        monkeypatch.setattr(master_address, name, seconds)
    with service(free_port, **answers), pytest.raises(
        PeerLost,
        match=rf"did not meet at MASTER_ADDR:MASTER_PORT 127.0.0.1:{free_port} within [1-9]\d* s: another service listens there than a "
        rf"store of torch.distributed: {found}.*; end what listens there, or give all ranks another MASTER_PORT",
    ):  # fmt: skip
        torch_distributed.meet(PATIENCE)


def test_the_last_greeting_has_its_full_time(free_port, monkeypatch):
    """The wait for silent services is over, and still the service has its seconds for an answer."""
    given = []
    for name, value in {"TOLD_SECONDS": 7, "_SILENT_SECONDS": 0.0, "_SILENT_SHARE": 0.0}.items():
        monkeypatch.setattr(master_address, name, value)
    monkeypatch.setattr(master_address, "fault", lambda _, seconds: given.append(seconds) or ("it does not answer", False))
    with service(free_port), pytest.raises(master_address.NoStore, match="it does not answer"):
        master_address.check_store("127.0.0.1", free_port, PATIENCE, lambda: True)
    assert given == [7]


@pytest.mark.parametrize(("received", "found"), [(b"hi", ("it answers b'hi' and hangs up", True)), (b"", ("it hangs up (gone)", False))])
def test_an_answer_before_a_reset_is_told(received, found):
    class Connection:
        answers = iter([received] if received else [])

        def settimeout(self, _):
            pass

        sendall = settimeout

        def recv(self, _):
            for answer in self.answers:
                return answer
            raise ConnectionResetError(104, "gone")

    assert master_address.fault(Connection(), 1.0) == found


def test_a_silent_service_is_told_of_before_the_wait_ends(second_rank, free_port, monkeypatch, capsys):
    clock = itertools.count()  # a second passes at every look
    monkeypatch.setattr(master_address, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=lambda _: None))
    for name in ("TOLD_SECONDS", "_ANSWER_SECONDS"):
        monkeypatch.setattr(master_address, name, 0.1)
    with service(free_port), pytest.raises(PeerLost, match="it does not answer"):
        torch_distributed.meet(5.0)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"bulksample: rank 1 of 2: what listens at MASTER_ADDR:MASTER_PORT 127.0.0.1:{free_port} is no store")
    assert said.endswith("so far: it does not answer; waiting up to 5 s for an answer\n")


@pytest.mark.parametrize("libuv", [True, False])
def test_a_store_of_torch_is_known(free_port, libuv):
    """Both of torch's servers, which the check leaves as they were."""
    store = torch.distributed.TCPStore("127.0.0.1", free_port, 1, True, timedelta(seconds=PATIENCE), False, use_libuv=libuv)
    for _ in range(3):
        master_address.check_store("127.0.0.1", free_port, PATIENCE, lambda: pytest.fail("no store was found"))
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert torch_distributed.own_store_greets()


def test_nothing_is_refused_where_torch_greets_otherwise(free_port):
    with service(free_port, says=b"SSH-2.0"):
        master_address.check_store("127.0.0.1", free_port, PATIENCE, lambda: False)


def test_a_port_in_use_is_said_to_the_first_rank(monkeypatch, free_port):
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}.items():
        monkeypatch.setenv(name, str(value))
    with service(free_port), pytest.raises(PeerLost, match=r"in use.*; end what listens there, or give all ranks another MASTER_PORT"):
        torch_distributed.meet(PATIENCE)
