"""Simulated hosts: refused with a reason where they cannot be, and gone when the script is."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import netlab
import pytest
from communities import community_graph
from harness import RUNNER
from launch import MPIRUN
from waiting import PATIENCE, until

from bulksample.data import store

SLOW_NETWORK = [sys.executable, RUNNER, "slow-network"]
SMALL = ["--quick", "--vertices", "600", "--commands", "sample", "--fanouts", "3,2"]


@pytest.fixture
def possible():
    """Skips where no lab can be built."""
    reason = netlab.refusal() if MPIRUN else "no mpirun"
    if reason:
        pytest.skip(reason)


def test_users_without_rights_get_the_reason(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root" in netlab.refusal()


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    assert re.search(r"ip \(Debian package iproute2\), tc \(Debian package iproute2\)", netlab.refusal())


def test_the_script_refuses_with_code_2():
    done = subprocess.run(
        [*SLOW_NETWORK, *SMALL], env={**os.environ, "PATH": ""}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(r"slow-network: .*(root|iproute2).*\n", done.stderr)


@pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, (*netlab._TOOLS, "setpriv"))), reason="needs root and the tools")
def test_root_without_the_right_gets_the_error_of_the_kernel():
    fewer = ["setpriv", "--bounding-set", "-sys_admin"]
    done = subprocess.run([*fewer, *SLOW_NETWORK, *SMALL], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2, done.stderr
    assert "refuses what it takes: unshare" in done.stderr


@pytest.mark.parametrize(("rate", "expected"), [("100mbit", 12.5e6), ("1gbit", 125e6), ("8kbit", 1e3), ("none", float("inf"))])
def test_rates(rate, expected):
    assert netlab.bytes_per_second(rate) == expected


@pytest.mark.parametrize("rate", ["", "100", "0mbit", "fast", "1.5gbit", "10mbps"])
def test_what_is_no_rate(rate):
    with pytest.raises(ValueError, match="100mbit"):
        netlab.bytes_per_second(rate)


@pytest.fixture
def heard():
    """Let started processes hear SIGINT; the shell ignores it for tests that run in its background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left(possible, heard, tmp_path, number):
    before = _network()
    process = subprocess.Popen([*SLOW_NETWORK, *SMALL, "--work", tmp_path], stderr=subprocess.PIPE, text=True)
    assert "none: sample, c = 1, owner" in process.stderr.readline()
    assert len(_alive(tmp_path)) > 2
    process.send_signal(number)
    assert process.wait(PATIENCE) in (-number, 128 + number)
    until(lambda: not _alive(tmp_path))
    assert _network() == before


@pytest.mark.long
def test_every_byte_is_as_predicted_and_on_the_links(possible, tmp_path):
    done = subprocess.run([*SLOW_NETWORK, *SMALL, "--work", tmp_path], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "every byte as predicted" in done.stdout


@pytest.mark.long
def test_a_server_and_its_trainers_stand_on_hosts_as_ranks_do(possible, tmp_path):
    store.save(community_graph(), tmp_path / "g")
    methods = "sync:epochs=2,random-tma:tolerate-failures=true:interval=0.3s:epochs=3"
    words = ["--methods", methods, "-o", tmp_path / "o", "--rates", "100mbit", "--only-shaped", "--hosts", "2", "--speed", "0.5"]
    small = ["--json", tmp_path / "found.json", "--", "--eval-every", "1", "--fanouts", "3,2", "--hidden", "8", "--batch-size", "32"]
    command = [sys.executable, RUNNER, "slow-compare", tmp_path / "g", *words, *small]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads((tmp_path / "found.json").read_text())["lines"]
    assert [len(line["courses"][0]) for line in lines] == [2, 3]
    assert all(line["reached"][0][0] > 0 for line in lines)


def _alive(folder):
    """Processes that name a folder in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def _network():
    """The links and named namespaces of this machine."""
    links = subprocess.run(["ip", "-o", "link", "show"], capture_output=True, text=True, check=True).stdout
    return links, sorted(Path("/run/netns").glob("*")), sorted(Path("/etc/netns").glob("*"))
