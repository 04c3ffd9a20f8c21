"""A wait ends when its collective is done, or at the deadline with a record of earlier collectives."""

import threading
from types import SimpleNamespace

import pytest
from waiting import PATIENCE

from bulksample.distributed.comm import watch as module
from bulksample.distributed.comm.watch import REMEMBERED, Watch


class Struck(Exception):
    pass


def strike(report):
    raise Struck(report)


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by what is slept, and by a little at each look."""
    made = SimpleNamespace(now=100.0)

    def monotonic():
        made.now += 1e-5
        return made.now

    def sleep(seconds):
        made.now += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic, sleep=sleep))
    return made


def test_a_wait_ends_when_it_is_done():
    watch, polls = Watch(PATIENCE, strike), iter([False] * 40 + [True])
    watch.wait(lambda: next(polls), "a sum")
    assert "a sum" in watch.now()
    assert "not finished" not in watch.now()


def test_a_wait_strikes_at_the_deadline_and_names_the_collective(clock):
    watch = Watch(2.7, strike)
    with pytest.raises(Struck, match="waited 3 s for a sum"):
        watch.wait(lambda: False, "a sum")
    assert "not finished" in watch.now()


def test_glance_is_called_about_every_50_ms_of_waiting(clock):
    seen = []
    with pytest.raises(Struck, match="for a sum"):
        Watch(0.3, strike, seen.append).wait(lambda: False, "a sum")
    assert 5 <= len(seen) <= 6
    assert seen == sorted(seen)


def test_the_ring_keeps_the_last_64():
    watch = Watch(PATIENCE, strike)
    for i in range(100):
        watch.wait(lambda: True, f"sum {i}")
    lines = watch.history().splitlines()
    assert len(lines) == REMEMBERED == 64
    assert "sum 99" in lines[-1]
    assert "sum 36" in lines[0]


def test_the_record_shows_every_thread_that_waits():
    """An unfinished wait stays in the record after 64 newer ones."""
    watch, beside = Watch(PATIENCE, strike), threading.Event()
    thread = threading.Thread(target=watch.wait, args=(beside.is_set, "a product"), name="sampler_0")
    thread.start()
    while "a product" not in watch.now():
        pass
    waits = []
    for i in range(100):
        watch.wait(lambda: not waits.append(watch.now()), f"sum {i}")
    assert "#1 a product on thread sampler_0: not finished" in waits[-1]
    assert "#101 sum 99: not finished" in waits[-1]
    assert watch.history().splitlines()[0] == "  #1 a product on thread sampler_0: not finished"
    assert len(watch.history().splitlines()) == 1 + REMEMBERED
    beside.set()
    thread.join()
    assert "not finished" not in watch.history()


def test_equal_collectives_in_a_row_share_a_line():
    watch = Watch(PATIENCE, strike)
    for what in ("counts", "counts", "counts", "rows", "counts"):
        watch.wait(lambda: True, what)
    lines = watch.history().splitlines()
    assert [line.split(" ")[3] for line in lines] == ["counts:", "rows:", "counts:"]
    assert lines[0].endswith(" s, the slowest of #1 to #3")
    assert lines[2].startswith("  #5 counts: ")


def test_a_slow_collective_stands_for_equal_ones(clock):
    watch, polls = Watch(PATIENCE, strike), iter([True, False, True, True])
    for _ in range(3):
        watch.wait(lambda: next(polls) or module.time.sleep(0.02), "counts")
    assert watch.history().startswith("  #2 counts: 0.02")
