"""All-to-all and split on threads and on MPI processes: received parts, counted bytes, refused arguments."""

import os
import subprocess
import sys

import numpy as np
import pytest
from launch import ROOT, run_ranks
from waiting import PATIENCE

from bulksample import PeerLost, UsageError
from bulksample.distributed.comm.base import KINDS, SentCount
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.comm.world import SerialComm

DTYPES = (np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_)
SIZES = (1, 2, 3, 4, pytest.param(8, marks=pytest.mark.long))


def random_case(seed, p):
    """Return random parts, parts[from][to], some of them empty."""
    rng = np.random.default_rng([seed, p])
    dtype, shape = DTYPES[seed % len(DTYPES)], [(), (3,), (2, 2), (0,)][seed % 4]
    lengths = rng.integers(0, 7, (p, p)) * (rng.random((p, p)) < 0.7)
    return [[(rng.integers(0, 100, (length, *shape))).astype(dtype) for length in row] for row in lengths]


def exercise(comm, cases=8):
    """Check random all-to-alls on each rank. The MPI tests below run this, too."""
    p, r = comm.size, comm.rank
    for seed in range(cases):
        parts = random_case(seed, p)
        before = dict(comm.tally)
        got = comm.alltoall(parts[r], "activations")
        assert len(got) == p
        for q in range(p):
            assert got[q].dtype == parts[q][r].dtype
            assert got[q].shape == parts[q][r].shape
            assert (got[q] == parts[q][r]).all()
        away = [part.nbytes for q, part in enumerate(parts[r]) if q != r]
        sent = {kind: SentCount(*(np.array(comm.tally[kind]) - before[kind])) for kind in KINDS}
        assert sent.pop("activations") == (np.count_nonzero(away), sum(away))
        assert sent.pop("control") == (p - 1, 8 * (p - 1))
        assert set(sent.values()) == {(0, 0)}


def overlap(comm):
    """Start two all-to-alls, sum in between, and wait in reverse order."""
    p, r = comm.size, comm.rank
    first = comm.start_alltoall([np.full((q + 1, 2), r, np.int32) for q in range(p)], "topology")
    second = comm.start_alltoall([np.full(50_000 * q, r, np.float32) for q in range(p)], "features")
    assert comm.allreduce(np.ones(3), "gradients").tolist() == [p] * 3
    assert [(part.shape, set(part)) for part in second.wait()] == [((50_000 * r,), {q} if r else set()) for q in range(p)]
    assert [part.tolist() for part in first.wait()] == [[[q, q]] * (r + 1) for q in range(p)]
    assert first.wait() is first.wait()


def exercise_split(comm):
    """Split into columns, into reversed columns, and split a split."""
    p, r = comm.size, comm.rank
    column = comm.split(r % 2, r)
    mine = list(range(r % 2, p, 2))
    assert (column.size, column.rank) == (len(mine), mine.index(r))
    assert column.allgather(np.array([r]), "control")[:, 0].tolist() == mine
    assert column.tally is comm.tally
    backwards = comm.split(r % 2, -r)
    assert backwards.gather_control(r) == mine[::-1]
    assert comm.split(0, 0).gather_control(r) == list(range(p))
    alone = column.split(column.rank)
    assert (alone.size, alone.rank) == (1, 0)
    half = column.split(column.rank // 2)
    assert half.gather_control(r) == mine[column.rank // 2 * 2 :][:2]
    exercise(column, 4)
    if r % 2 == 0:  # a communicator's history is its own
        column.barrier()
        column.allreduce(np.ones(2), "model")
    comm.gather_control(None)
    got = half.alltoall([np.array([r])] * half.size, "topology")
    assert [int(part[0]) for part in got] == half.gather_control(r)
    with column:
        column.barrier()


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("body", [lambda comm: exercise(comm, 56), overlap, exercise_split])
def test_on_threads(p, body):
    on_threads(p, body)


def test_alone():
    comm = SerialComm()
    exercise(comm)
    overlap(comm)
    exercise_split(comm)
    assert sum(traffic.bytes for traffic in comm.tally.values()) == 0


@pytest.mark.parametrize("p", [2, *(pytest.param(p, marks=pytest.mark.long) for p in (3, 4))])
def test_over_mpi(p):
    code = """
from test_alltoall import exercise, exercise_split, overlap
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
with world(PATIENCE) as comm:
    exercise(comm)
    exercise_split(comm)
    overlap(comm)
    comm.most_elements = 5
    exercise(comm)
    comm.most_elements = 1000
    overlap(comm)
    exercise_split(comm)
print("done")
"""
    ended = run_ranks(p, code)
    assert ended.code == 0, ended
    assert ended.out.count("done") == p, ended


@pytest.mark.parametrize(
    "odd",
    [
        lambda comm: comm.alltoall([np.zeros(2, np.int64)] * comm.size, "topology"),
        lambda comm: comm.alltoall([np.zeros((2, 1), np.int32)] * comm.size, "topology"),
        lambda comm: comm.alltoall([np.zeros(2, np.int32)] * comm.size, "features"),
    ],
)
def test_ranks_that_pass_different_arguments_all_raise_before_any_part_moves(odd):
    def body(comm):
        with pytest.raises(UsageError, match=r"rank \d passes topology <i4 \(\)|one kind, dtype and shape"):
            odd(comm) if comm.rank == 2 else comm.alltoall([np.zeros(2, np.int32)] * comm.size, "topology")
        assert comm.tally["topology"].bytes == comm.tally["features"].bytes == 0

    on_threads(4, body)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda comm: comm.alltoall([], "topology"), "got 0 parts"),
        (lambda comm: comm.alltoall([np.zeros(2)], "gossip"), "got 'gossip'"),
        (lambda comm: comm.alltoall([np.array([None])], "topology"), "got object"),
        (lambda comm: comm.split(-1), "color must be a number .* got -1"),
    ],
)
def test_misuse_is_refused(call, why):
    with pytest.raises(UsageError, match=why):
        call(SerialComm())


def test_parts_of_different_dtypes_are_refused():
    def body(comm):
        with pytest.raises(UsageError, match="one dtype"):
            comm.alltoall([np.zeros(2), np.zeros(2, np.int32)], "topology")

    on_threads(2, body)


def test_an_error_frees_the_ranks_of_every_split():
    def body(comm):
        part = comm.split(comm.rank % 2).split(0)
        if comm.rank == 3:
            raise KeyError("boom")
        part.barrier()
        part.barrier()
        comm.barrier()

    with pytest.raises(KeyError, match="boom"):
        on_threads(4, body)


def test_parts_of_another_length_than_agreed_raise():
    def body(comm):
        if comm.rank == 1:
            comm._agree_on_counts = lambda counts, made_of: type(comm)._agree_on_counts(comm, np.array([9, 4]), made_of)
        comm.alltoall([np.zeros(4)] * 2, "topology")

    with pytest.raises(PeerLost, match="rank 1 sent 32 bytes to rank 0; 72 were agreed"):
        on_threads(2, body)


LIE = """
import numpy as np
from bulksample.distributed.comm.world import world
comm = world({PATIENCE})
if comm.rank == 1:
    agree = comm._agree_on_counts
    comm._agree_on_counts = lambda counts, made_of: agree(np.array([{said}, 4]), made_of)
comm.alltoall([np.zeros(4)] * 2, "topology")
comm.barrier()
"""


@pytest.mark.parametrize("said", [3, pytest.param(9, marks=pytest.mark.long)])
def test_a_process_that_sends_another_length_than_agreed_ends_the_job(said):
    ended = run_ranks(2, LIE.format(said=said, PATIENCE=PATIENCE))
    assert ended.code in (75, 9), ended
    assert "sent 32 bytes where 72 were agreed" in ended.err or "failed" in ended.err, ended


STOP = """
import os, signal
import numpy as np
from bulksample.distributed.comm.world import world
comm = world({PATIENCE})
part = comm.split(comm.rank % 2)
comm.barrier()
comm.watch.timeout = {seconds}
if comm.rank == 2:
    {what}
{then}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("then", "where"),
    [
        ("part.alltoall([np.ones(9)] * part.size, 'features')", "alltoall counts among ranks 0, 2"),
        ("comm.split(0)", "allgather control"),
        ("comm.alltoall([np.ones(9)] * comm.size, 'features')", "alltoall counts"),
    ],
)
def test_a_rank_that_stops_is_named_in_a_split_too(then, where):
    code = STOP.format(what="os.kill(os.getpid(), signal.SIGSTOP)", then=then, seconds=2, PATIENCE=PATIENCE)
    ended = run_ranks(4, code)
    assert ended.code in (75, 9), ended
    assert "no sign of life from rank 2" in ended.err, ended
    assert where in ended.err, ended


@pytest.mark.long
def test_a_rank_that_leaves_ends_the_wait_of_its_own_column_only():
    then = """
import time
from bulksample.distributed.comm import processes
if part.rank == 0 and comm.rank == 1:
    time.sleep(processes.GRACE_SECONDS + 1)
part.barrier()
"""
    ended = run_ranks(4, STOP.format(what="pass", then=then, seconds=PATIENCE, PATIENCE=PATIENCE))
    assert ended.code == 0, ended  # ranks 0 and 2 are leaving while 3 waits for 1 longer than the grace
    ended = run_ranks(4, STOP.format(what="raise SystemExit(0)", then=then, seconds=PATIENCE, PATIENCE=PATIENCE))
    assert ended.code in (75, 9), ended
    assert "rank 2 left early" in ended.err, ended


def test_a_block_that_cannot_be_polled_has_a_deadline_too():
    code = "import time; from bulksample.distributed.comm.watch import deadline\nwith deadline(0.2, 'the others'): time.sleep(10_000)"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 75
    assert "waited 0 s for the others" in ended.stderr
