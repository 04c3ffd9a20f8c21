"""The ledger separates messages from bytes, training from evaluation, and computing from waiting."""

import numpy as np
import pytest

from bulksample.distributed.comm.ledger import Ledger, balance, combine
from bulksample.distributed.comm.threads import SerialComm, on_threads


def both(body):
    """Combine the ledgers of two ranks that are threads."""
    return combine(on_threads(2, body))


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets itself, [wall clock, processor], instead of those of the machine."""
    seconds = [100.0, 10.0]
    monkeypatch.setattr("bulksample.distributed.comm.ledger._now", lambda: tuple(seconds))
    return seconds


def test_messages_follow_the_table_of_comm():
    def body(comm):
        ledger = Ledger(comm)
        comm.broadcast(np.zeros(4, np.float32), "model")
        with ledger.phase("reduce"):
            comm.allreduce(np.zeros(10, np.float32), "gradients")
        with ledger.phase("fetch"):
            comm.alltoall([np.zeros(comm.rank * (r != comm.rank), np.uint8) for r in range(2)], "features")
        return ledger.total()

    found = both(body)
    assert found["messages_sent"] == {
        "total": 1 + 4 + 1 + 2, "topology": 0, "features": 1, "activations": 0, "gradients": 4, "model": 1, "control": 2,
    }  # fmt: skip
    assert found["bytes_sent"] == {
        "total": 16 + 80 + 1 + 16, "topology": 0, "features": 1, "activations": 0, "gradients": 80, "model": 16, "control": 16,
    }  # fmt: skip
    assert found["training_bytes"] == found["bytes_sent"]
    assert found["training_messages"] == found["messages_sent"]


@pytest.mark.parametrize("aside", ["evaluate", "checkpoint"])
def test_bytes_beside_training_are_not_training_bytes(aside):
    def body(comm):
        ledger = Ledger(comm)
        with ledger.phase("forward"):
            comm.allreduce(np.zeros(2, np.int64), "activations")
        with ledger.phase(aside):
            comm.allgather(np.zeros(3, np.int64), "activations")
        return ledger.total()

    found = both(body)
    assert found["bytes_sent"]["activations"] == 2 * 16 + 2 * 24
    assert found["training_bytes"]["activations"] == found["training_bytes"]["total"] == 2 * 16
    assert found["messages_sent"]["total"] == found["training_messages"]["total"] + 2


@pytest.mark.parametrize("aside", ["evaluate", "checkpoint"])
def test_seconds_beside_training_are_not_computing(clock, aside):
    ledger = Ledger(SerialComm())
    for name, wall, processor in (("forward", 2, 1), (aside, 5, 4)):
        with ledger.phase(name):
            clock[:] = clock[0] + wall, clock[1] + processor
    found = combine([ledger.take()])
    assert found["phases"]["forward"] == 2
    assert found["phases"][aside] == 5
    assert found["compute_seconds"] == 1


def test_the_busiest_rank_is_the_one_that_sends_most():
    def body(comm):
        ledger = Ledger(comm)
        comm.broadcast(np.zeros(100, np.uint8), "model", root=1)
        comm.allgather(np.zeros(7, np.uint8), "control")
        return ledger.total()

    found = both(body)
    assert found["busiest_rank"] == {"messages": 2, "bytes": 107}
    assert found["training_bytes"]["total"] == 114


def test_bytes_of_the_sampling_thread_are_training():
    def body(comm):
        sampling = comm.duplicate()
        ledger = Ledger(comm, sampling)
        sampling.allreduce(np.zeros(5, np.int32), "topology")
        return ledger.take()

    found = both(body)
    assert found["training_bytes"]["topology"] == found["bytes_sent"]["topology"] == found["phase_bytes"]["sample"] == 40
    assert found["training_messages"]["topology"] == 4


def test_waiting_is_not_computing(clock):
    ledger = Ledger(SerialComm())
    with ledger.phase("forward"):
        clock[:] = clock[0] + 2, clock[1] + 0.5
    found = combine([ledger.take()])
    assert found["phases"]["forward"] == 2
    assert found["compute_seconds"] == 0.5


def test_the_share_of_training_spent_waiting_for_samples(clock):
    ledger = Ledger(SerialComm())
    for name, wall in (("sample", 3), ("forward", 7), ("evaluate", 10)):
        with ledger.phase(name):
            clock[0] += wall
    assert combine([ledger.take()])["waiting_share"] == {"sample": pytest.approx(0.3), "fetch": 0}


def test_computing_counts_from_the_first_phase_on_and_each_second_once(clock):
    ledger = Ledger(SerialComm())
    clock[:] = clock[0] + 4, clock[1] + 4  # set-up
    assert combine([ledger.take()])["compute_seconds"] == 0
    with ledger.phase("forward"):
        pass
    clock[:] = clock[0] + 2, clock[1] + 1
    assert [combine([ledger.take()])["compute_seconds"] for _ in range(2)] == [1, 0]
    assert combine([ledger.total()])["compute_seconds"] == 1


def test_balance_gives_minimum_median_and_maximum_over_ranks():
    def body(comm):
        ledger = Ledger(comm)
        with ledger.phase("fetch"):
            comm.alltoall([np.zeros(8 * (comm.rank == 1 and r != 1), np.uint8) for r in range(3)], "features")
        return ledger.total()

    ledgers = on_threads(3, body)
    for rank, seconds in enumerate((3.0, 1.0, 2.0)):
        ledgers[rank]["seconds"]["forward"] = seconds
    found = balance(ledgers)
    assert found["seconds"]["forward"] == {"min": 1.0, "median": 2.0, "max": 3.0, "rank": 0}
    control = ledgers[0]["sent"]["control"][5]
    assert found["bytes"] == {"min": control, "median": control, "max": control + 16, "rank": 1}


def test_seconds_of_some_phases(clock):
    ledger = Ledger(SerialComm())
    for name, spent in (("sample", 1.0), ("forward", 2.0), ("sample", 4.0)):
        with ledger.phase(name):
            clock[0] += spent
    assert (ledger.seconds("sample"), ledger.seconds("sample", "forward"), ledger.seconds()) == (5.0, 7.0, 0)
