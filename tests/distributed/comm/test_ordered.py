"""Collectives of two threads start in one order on all ranks, as devices need it that run one collective after the other."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from launch import run_ranks
from waiting import PATIENCE

from bulksample.distributed.comm.ordered import CollectiveOrder
from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import PeerLost


class Device:
    """Runs one collective at a time, and holds up whatever comes next until all ranks have joined that one, as NCCL does."""

    def __init__(self, ranks):
        self._ranks, self._lock, self._joined, self.ran = ranks, threading.Lock(), {}, [[] for _ in range(ranks)]
        self._running = [threading.Lock() for _ in range(ranks)]

    def collective(self, rank, name, seconds=PATIENCE):
        with self._running[rank]:
            with self._lock:
                met = self._joined.setdefault(name, threading.Barrier(self._ranks))
            met.wait(seconds)
            self.ran[rank].append(name)


def both_threads(device, comm, run, rounds=40):
    """Two threads of a rank use the device at once, each with collectives of its own, at random times."""
    dice = random.Random(comm.rank)

    def thread(turns):
        for i in range(rounds):
            time.sleep(dice.random() / 1000)
            run(turns, lambda i=i: device.collective(comm.rank, (turns, i)))

    with ThreadPoolExecutor(1) as beside:
        sampling = beside.submit(thread, 1)
        thread(0)
        sampling.result()


@pytest.mark.parametrize("p", [1, 2, 4])
def test_two_threads_of_all_ranks_share_one_order(p):
    device = Device(p)

    def rank(comm):
        order = CollectiveOrder(comm)
        both_threads(device, comm, order.run)
        order.close()

    on_threads(p, rank)
    assert all(ran == device.ran[0] for ran in device.ran)
    assert [sorted(device.ran[0]), len(device.ran[0])] == [[(turns, i) for turns in (0, 1) for i in range(40)], 80]


def test_without_it_such_a_device_deadlocks():
    """Each rank starts with a collective of another thread."""
    device = Device(2)

    def rank(comm):
        try:
            device.collective(comm.rank, comm.rank, seconds=0.2)
        except threading.BrokenBarrierError:
            return "waited in vain"
        return "ran"

    assert on_threads(2, rank) == ["waited in vain"] * 2


def test_results_and_errors_come_to_the_thread_that_asked():
    def rank(comm):
        order = CollectiveOrder(comm)
        assert order.run(0, lambda: threading.current_thread().name) == "bulksample-collectives"
        with pytest.raises(KeyError, match="boom"):
            order.run(1, fail)
        assert order.run(5, lambda: comm.rank) == comm.rank
        order.close()
        order.close()
        with pytest.raises(PeerLost, match=rf"rank {comm.rank} starts no more collectives: they were closed"):
            order.run(0, lambda: 1)

    on_threads(2, rank)


def fail():
    raise KeyError("boom")


def test_a_rank_that_asks_for_another_order_is_named_at_the_deadline():
    """Rank 0 starts a collective of training, and rank 1 one of sampling alone."""

    def rank(comm):
        order = CollectiveOrder(comm)
        order._comm._board.timeout = 1.0  # of the wait for its own collective; that for the other rank stays long
        if comm.rank == 0:
            assert order.run(0, lambda: "started") == "started"
        else:
            with pytest.raises(PeerLost, match=r"starts no more collectives: rank 1 waited 1 s for its own collective of order 0"):
                order.run(1, lambda: "never")

    on_threads(2, rank)


PROGRAM = """
import threading, torch
from concurrent.futures import ThreadPoolExecutor
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
from bulksample.training.cuda.device_comms import GroupTensorComm

with world(PATIENCE) as comm:
    over = GroupTensorComm(comm, "gloo")
    column, started = over.among(comm.duplicate()), []
    for group, name in ((over, "train"), (column, "sample")):
        inner = group._group
        group._group = type("Noted", (), {
            "allreduce": lambda self, *a, inner=inner, name=name: (started.append(name), inner.allreduce(*a))[1],
            "alltoall_base": lambda self, *a, inner=inner, name=name: (started.append(name), inner.alltoall_base(*a))[1],
        })()

    def sample():
        for i in range(50):
            parts = column.alltoall([torch.full((r + i, 2), comm.rank) for r in range(comm.size)], "topology")
            assert [part.shape[0] for part in parts] == [comm.rank + i] * comm.size
            assert all((part == r).all() for r, part in enumerate(parts))

    with ThreadPoolExecutor(1) as beside:
        ahead = beside.submit(sample)
        for i in range(50):
            gradient = torch.full((5,), float(comm.rank + i))
            over.allreduce(gradient, "gradients")
            assert (gradient == comm.size * i + comm.size * (comm.size - 1) / 2).all()
        ahead.result()
    orders = comm.gather_control(started)
    assert all(order == orders[0] for order in orders) and len(started) == 100, orders
    if comm.rank == 0:
        print("one order")
"""


@pytest.mark.long
@pytest.mark.parametrize("p", [2, 4])
def test_processes_sample_and_train_over_gloo_in_one_order(p):
    pytest.importorskip("torch")
    ended = run_ranks(p, PROGRAM)
    assert (ended.code, ended.out) == (0, "one order\n"), ended
