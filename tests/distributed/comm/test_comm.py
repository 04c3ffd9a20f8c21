"""Collectives return and count the same on threads and on MPI processes."""

import hashlib

import numpy as np
import pytest
from launch import run_ranks

from bulksample import PeerLost, UsageError
from bulksample.distributed.comm.base import KINDS
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.comm.world import SerialComm


def exercise(comm):
    """Call every collective once and check it on each rank. The MPI test below runs this, too."""
    p, r = comm.size, comm.rank
    for dtype in (np.int32, np.int64, np.uint64, np.float32, np.float64):
        array = np.arange(7, dtype=dtype).reshape(7, 1) + dtype(r)
        assert comm.allreduce(array, "gradients") is array
        assert array[:, 0].tolist() == [p * i + p * (p - 1) // 2 for i in range(7)]
    rows = np.full((r % 3, 2), r, np.float16)
    gathered = comm.allgather_rows(rows, np.arange(p) % 3, "features")
    assert gathered.tolist() == [[q, q] for q in range(p) for _ in range(q % 3)]
    assert comm.allgather(np.array([[r, r + 1]], np.int8), "control").tolist() == [[[q, q + 1]] for q in range(p)]
    flag = np.array([r == p - 1])
    assert comm.broadcast(flag, "model", root=p - 1)[0]
    assert comm.broadcast(np.empty((0, 3), np.float32), "model").shape == (0, 3)
    assert comm.gather_control({"rank": r, "text": "é" * r}) == [{"rank": q, "text": "é" * q} for q in range(p)]
    comm.barrier()


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("most", [2**30, 4])
def test_collectives_on_threads(p, most):
    def body(comm):
        comm.most_elements = most
        exercise(comm)

    on_threads(p, body)


def test_collectives_alone():
    comm = SerialComm()
    exercise(comm)
    assert sum(traffic.bytes for traffic in comm.tally.values()) == 0


@pytest.mark.parametrize("p", [2, *(pytest.param(p, marks=pytest.mark.long) for p in (1, 3, 4))])
def test_collectives_over_mpi(p):
    code = f"""
from test_comm import exercise
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
with world(PATIENCE) as comm:
    assert comm.size == {p}
    exercise(comm)
    if comm.size > 1:
        comm.most_elements = 4
        exercise(comm)
print("done")
"""
    ended = run_ranks(p, code)
    assert ended.code == 0, ended
    assert ended.out.count("done") == p, ended


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_bytes_follow_the_table(p):
    def body(comm):
        comm.allreduce(np.zeros(10, np.float32), "gradients")
        comm.allgather_rows(np.zeros((comm.rank, 3)), np.arange(p), "activations")
        comm.broadcast(np.zeros(5, np.float32), "model", root=p - 1)
        comm.barrier()
        return comm.tally

    tallies = on_threads(p, body)
    total = {kind: sum(tally[kind].bytes for tally in tallies) for kind in KINDS}
    assert total["gradients"] == 2 * (p - 1) * 40
    assert total["activations"] == (p - 1) * sum(range(p)) * 24
    assert total["model"] == (p - 1) * 20
    assert total["topology"] == total["features"] == total["control"] == 0
    assert sum(tally["model"].messages for tally in tallies) == p - 1


def sums(comm):
    """Return a hash of float sums whose bits depend on the order of their terms."""
    parts = np.random.default_rng(comm.rank).standard_normal((2, 1001)) * 10.0 ** np.arange(-7, 4, 11 / 1001)
    single, double = (comm.allreduce(part.astype(dtype), "gradients") for part, dtype in zip(parts, (np.float32, np.float64), strict=True))
    return hashlib.sha256(single.tobytes() + double.tobytes()).hexdigest()


@pytest.mark.parametrize("p", [2, *(pytest.param(p, marks=pytest.mark.long) for p in (3, 4))])
def test_a_sum_has_the_same_bits_on_all_ranks_over_threads_and_mpi(p):
    alike = set(on_threads(p, sums))
    assert len(alike) == 1
    code = """
from test_comm import sums
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
with world(PATIENCE) as comm:
    bits = comm.gather_control(sums(comm))
    if comm.rank == 0:  # two ranks that print may cut each other short
        print(*bits)
"""
    ended = run_ranks(p, code)
    assert ended.code == 0, ended
    assert ended.out.split() == [*alike] * p, ended


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda comm: comm.allreduce(np.zeros(3), "gossip"), "got 'gossip'"),
        (lambda comm: comm.allreduce(np.zeros(3, np.float16), "gradients"), "got float16"),
        (lambda comm: comm.allreduce(np.zeros((4, 4))[:, :2], "gradients"), "C-contiguous and writable"),
        (lambda comm: comm.allgather_rows(np.zeros((2, 2)), np.array([1]), "features"), "counts must be 1 numbers with 2 at rank 0"),
        (lambda comm: comm.broadcast(np.zeros(3), "model", root=1), "root must be a rank, 0 to 0; got 1"),
    ],
)
def test_misuse_is_refused_before_anything_moves(call, why):
    with pytest.raises(UsageError, match=why):
        call(SerialComm())


def test_threads_report_the_first_error_and_free_the_others():
    def body(comm):
        if comm.rank == 1:
            raise KeyError("boom")
        comm.barrier()

    with pytest.raises(KeyError, match="boom"):
        on_threads(3, body)


def test_threads_notice_that_ranks_are_in_different_collectives():
    with pytest.raises(PeerLost, match="barrier"):
        on_threads(2, lambda comm: comm.barrier() if comm.rank else comm.allreduce(np.zeros(2), "gradients"))


def test_a_duplicate_counts_into_a_tally_of_its_own():
    def rank(comm):
        other = comm.duplicate()
        before = dict(comm.tally)
        other.allreduce(np.ones(4), "topology")
        other.split(comm.rank % 2).broadcast(np.ones(3), "model")
        assert comm.tally == before
        assert other.tally["topology"].bytes > 0
        return other.rank, other.tally["model"].bytes

    ranks, sent = zip(*on_threads(4, rank), strict=True)
    assert ranks == (0, 1, 2, 3)
    assert sent == (24, 24, 0, 0)
