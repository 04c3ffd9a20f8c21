"""Ctrl-C, SIGTERM and SIGUSR1: the first lets training finish its step or raises `Stopped`, a later one ends the process."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from waiting import PATIENCE

from bulksample.distributed.comm import process_end
from bulksample.distributed.comm.process_end import RaiseStopped, Stopped, StopSignals, default_actions

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


@pytest.fixture(autouse=True)
def hangups_are_heard():
    """Below nohup they are ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def ended(monkeypatch):
    """The signals by which the process would have ended."""
    found = []
    monkeypatch.setattr(process_end, "_end", found.append)
    return found


@pytest.mark.parametrize("number", ALL)
def test_the_first_is_recorded_and_the_handlers_come_back(number, ended):
    before = [signal.getsignal(one) for one in ALL]
    with StopSignals() as signals:
        assert not signals.received
        signal.raise_signal(number)
        assert signals.received
    assert [signal.getsignal(one) for one in ALL] == before
    assert ended == []


@pytest.mark.parametrize(
    ("second", "seconds", "ends"), [(signal.SIGINT, 1.0, True), (signal.SIGTERM, 1.0, True), (signal.SIGTERM, 0.1, False)]
)
def test_a_later_one_ends_the_command_line_and_a_repeated_one_does_not(second, seconds, ends, ended, monkeypatch):
    now = 100.0
    monkeypatch.setattr(process_end.time, "monotonic", lambda: now)
    with RaiseStopped(), StopSignals():
        signal.raise_signal(signal.SIGINT)
        now += seconds
        signal.raise_signal(second)
    assert ended == [second] * ends


@pytest.mark.parametrize("context", [StopSignals, RaiseStopped])
def test_a_second_ctrl_c_interrupts_python_and_ends_a_command(context, ended, monkeypatch):
    """A notebook keeps its process, and the handlers are those of before."""
    now, asked = 100.0, []
    monkeypatch.setattr(process_end.time, "monotonic", lambda: now)
    monkeypatch.setattr(context, "_act", lambda self, number: asked.append(number))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt), context():
            signal.raise_signal(signal.SIGINT)
            now += 1
            signal.raise_signal(signal.SIGINT)
            asked.append("went on")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (asked, ended) == (([signal.SIGINT], []) if context is StopSignals else ([signal.SIGINT, "went on"], [signal.SIGINT]))


def test_the_notice_of_a_scheduler_is_not_a_first_request(ended, monkeypatch):
    now = 100.0
    monkeypatch.setattr(process_end.time, "monotonic", lambda: now)
    with StopSignals() as signals:
        for _ in range(3):
            signal.raise_signal(signal.SIGUSR1)
            now += 60
        signal.raise_signal(signal.SIGTERM)
        assert ended == []
        now += 60
        signal.raise_signal(signal.SIGTERM)
    assert signals.received
    assert ended == [signal.SIGTERM]


@pytest.mark.parametrize("number", ALL)
def test_outside_of_training_it_raises(number):
    with pytest.raises(Stopped, match=f"^{number.name}$"), RaiseStopped():
        signal.raise_signal(number)


def test_training_inside_a_command_takes_over(ended):
    with RaiseStopped(), StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
    assert signals.received


def test_what_the_parent_ignores_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with RaiseStopped():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("context", [StopSignals, RaiseStopped, default_actions])
def test_a_handler_that_is_not_of_python_stays(context, monkeypatch):
    """Python can neither name nor put back a handler that C code has installed: its own functions give None for it."""
    get, put, installed = signal.getsignal, signal.signal, []
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGUSR1 else get(number))

    def install(number, handler):
        if number == signal.SIGUSR1:
            installed.append(handler)
            return None
        return put(number, handler)

    monkeypatch.setattr(signal, "signal", install)
    with context():
        assert installed == []
    assert installed == []


def test_other_threads_change_nothing():
    def body():
        with RaiseStopped(), StopSignals(), default_actions():
            found.append([signal.getsignal(one) for one in ALL])

    found, before = [], [signal.getsignal(one) for one in ALL]
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [before]


def test_in_a_library_that_does_not_return_the_first_ends_the_process():
    code = """
import os, signal
from bulksample.distributed.comm.process_end import RaiseStopped, default_actions
with RaiseStopped():
    with default_actions():
        pass
    assert callable(signal.getsignal(signal.SIGTERM))
    with default_actions():
        os.kill(os.getpid(), signal.SIGTERM)
"""
    ended = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False, timeout=PATIENCE)
    assert ended.returncode == -signal.SIGTERM
