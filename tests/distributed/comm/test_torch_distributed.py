"""The contract of a communicator under torchrun, and the end of a job in which a rank fails."""

import re

import pytest
import torch.distributed
from launch import run_fresh, run_ranks
from test_comm import sums
from test_failures import IN_TURN, OPEN, fault
from test_two_threads import OPEN as THREADS
from waiting import PATIENCE

from bulksample.distributed.comm.threads import on_threads

LONG = pytest.mark.long  # a launch imports torch in every process
pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch was built without gloo")
FAILED = 1  # exit code of torchrun, whatever the codes of its ranks


def run(n, what):
    return run_ranks(n, what, launcher="torchrun")


def run_to_fail(n, what):
    return run_fresh(n, what, launcher="torchrun")


@pytest.mark.parametrize("p", [2, *(pytest.param(p, marks=LONG) for p in (3, 5))])
def test_the_battery_of_collectives(p):
    code = f"""
import sys, test_alltoall, test_comm
from bulksample.distributed.comm.world import world
with world({PATIENCE}) as comm:
    assert type(comm).__name__ == "TorchComm" and comm.size == {p}
    for most in (2**30, 5):
        comm.most_elements = most
        test_comm.exercise(comm)
        test_alltoall.exercise(comm)
        test_alltoall.overlap(comm)
        test_alltoall.exercise_split(comm)
    bits = comm.gather_control(test_comm.sums(comm))
    if comm.rank == 0:  # two ranks that print may cut each other short
        print("sums", *bits)
assert "mpi4py.MPI" not in sys.modules
print("done")
"""
    ended = run(p, code)
    assert ended.code == 0, ended
    assert ended.out.count("done") == p, ended
    assert re.search(r"sums ((\w{64} ?)+)", ended.out)[1].split() == on_threads(p, sums), ended


@LONG
def test_two_threads_do_not_disturb_each_other():
    ended = run(3, THREADS.format(timeout=PATIENCE, before="") + """
sampled = pool.submit(mixed, side, 200, 1)
mixed(comm, 200, 2)
sampled.result()
print("done")
""")  # fmt: skip
    assert ended.code == 0, ended
    assert ended.out.count("done") == 3, ended


@LONG
@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("raise KeyError('boom on one rank')", 1, "boom on one rank"),
        ("sys.exit(0)", 75, "rank 1 left early"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", 75, "no sign of life from rank 1"),
    ],
)
def test_a_rank_that_fails_ends_all(what, code, said):
    ended = run_to_fail(3, fault(what, timeout=8 if "STOP" in what else PATIENCE))
    assert ended.code == FAILED, ended
    assert said in ended.err, ended
    assert re.search(rf"exitcode +: {code}\b", ended.err), ended  # torchrun's own account of a rank


@LONG
def test_a_killed_rank_is_named():
    ended = run_to_fail(3, fault("os.kill(os.getpid(), signal.SIGKILL)"))
    assert ended.code == FAILED, ended
    assert re.search(r"rank +: 1 \(local_rank: 1\)\s+exitcode +: -9", ended.err), ended


@LONG
def test_ranks_in_different_collectives_do_not_hang():
    ended = run_to_fail(2, fault("comm.gather_control('lost')", timeout=5))
    assert ended.code == FAILED, ended
    assert "allreduce gradients" in ended.err or "allgather control" in ended.err or "same collectives" in ended.err, ended


@LONG
def test_leaving_together_needs_no_close():
    ended = run(3, OPEN.format(timeout=PATIENCE) + IN_TURN + "sys.exit(0)\n")
    assert ended.code == 0, ended


@LONG
def test_a_world_may_be_closed_and_opened_again():
    again = f"assert world() is comm\ncomm.close()\nnew = world({PATIENCE})\nassert new is not comm\nnew.barrier()\nnew.close()\n"
    ended = run(2, OPEN.format(timeout=PATIENCE) + again)
    assert ended.code == 0, ended
