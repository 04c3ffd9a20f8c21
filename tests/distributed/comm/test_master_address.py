"""A rank whose MASTER_ADDR leads nowhere gives up at its deadline, and at once where the name is unknown."""

import itertools
import os
import socket
import subprocess
import sys
import threading

import pytest
import torch
from communities import community_graph
from launch import ROOT

from bulksample import PeerLost, UsageError
from bulksample.distributed.comm import torch_distributed


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def second_rank(monkeypatch, free_port):
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(torch_distributed, "rendezvous", lambda *_, **__: pytest.fail("torch was asked, which waits for longer"))


def test_nothing_listens(second_rank, free_port):
    with pytest.raises(PeerLost, match=rf"did not meet at MASTER_ADDR:MASTER_PORT 127.0.0.1:{free_port} within 0.3 s: .*refused"):
        torch_distributed.meet(0.3)


def test_an_unknown_name_does_not_wait_for_the_deadline(second_rank, monkeypatch):
    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    monkeypatch.setattr(torch_distributed, "_NAME_SECONDS", 0.1)
    with pytest.raises(PeerLost, match="Name or service not known"):
        torch_distributed.meet(10_000)


@pytest.mark.long
def test_a_command_ends_soon_after_its_deadline(free_port, tmp_path):
    """The ranks do not try to meet a second time to say that they could not meet; the bound is far below that wait of 300 s."""
    community_graph(n=20).save(tmp_path / "g")
    rank = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    command = [sys.executable, "-m", "bulksample", "sample", str(tmp_path / "g"), "--timeout", "1"]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | rank, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 75
    assert ended.stderr.count("did not meet at MASTER_ADDR:MASTER_PORT") == 1


def test_a_first_rank_that_comes_late_is_awaited(free_port):
    came = threading.Event()

    def listen():
        with socket.create_server(("127.0.0.1", free_port)) as server:
            server.accept()[0].close()
            came.set()

    threading.Timer(0.3, listen).start()
    torch_distributed.await_listener("127.0.0.1", free_port, 60)
    assert came.wait(60)


def test_two_processes_of_one_rank_are_told_so(monkeypatch, free_port):
    store = torch.distributed.HashStore()
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch_distributed, "rendezvous", lambda *_, **__: iter([(store, 0, 2)]))
    monkeypatch.setattr(torch_distributed, "_WORLDS", itertools.repeat(0))
    torch_distributed.meet(1.0)
    with pytest.raises(UsageError, match="RANK: two processes are rank 0 of 2; give each its own, from 0 to 1"):
        torch_distributed.meet(1.0)
