"""A rank that raises, leaves, dies or stops ends the job within the deadline, and is named."""

import os
import signal
import subprocess
import sys
import time

import pytest
from launch import ROOT, Ranks, alive, run_ranks

KILLED = 9  # mpirun kills all ranks on an abort, and now and then reports that kill instead of the code of the abort
LOST = (75, KILLED)

OPEN = """
import os, signal, sys, time
import numpy as np
from bulksample.dist.comm import world
comm = world({timeout})
comm.barrier()
def others_wait():
    comm.allreduce(np.ones(3), "gradients")
"""


def fault(what, timeout=60, after="others_wait()"):
    """A program whose rank 1 does `what` while the others enter a collective."""
    return OPEN.format(timeout=timeout) + f"if comm.rank == 1:\n    {what}\n{after}\n"


@pytest.mark.parametrize(
    ("what", "shown"), [("raise KeyError('boom on one rank')", "boom on one rank"), ("import nothing_there", "ModuleNotFoundError")]
)
def test_an_exception_ends_all_ranks_with_its_traceback(what, shown):
    ended = run_ranks(3, fault(what), timeout=10)
    assert ended.code in (1, KILLED), ended
    assert "Traceback" in ended.err, ended
    assert shown in ended.err, ended


def test_an_early_exit_is_noticed():
    ended = run_ranks(3, fault("sys.exit(0)"), timeout=20)
    assert ended.code in LOST, ended
    assert ended.seconds < 10, ended
    assert "rank 1 left early" in ended.err, ended


def test_a_hard_exit_ends_all_ranks():
    ended = run_ranks(3, fault("os._exit(3)"), timeout=10)
    assert ended.code != 0, ended


def test_a_killed_rank_ends_all_ranks():
    ended = run_ranks(3, fault("os.kill(os.getpid(), signal.SIGKILL)"), timeout=10)
    assert ended.code != 0, ended


def test_a_stopped_rank_strikes_the_deadline_and_is_named():
    marker = f"stopped-{os.getpid()}"
    ended = run_ranks(3, fault(f"os.kill(os.getpid(), signal.SIGSTOP)  # {marker}", timeout=2), timeout=20)
    assert ended.code in LOST, ended
    assert "no sign of life from rank 1" in ended.err, ended
    assert "allreduce gradients float64 (3,)" in ended.err, ended
    assert "last collectives of rank" in ended.err, ended
    time.sleep(0.2)
    assert not alive(marker)


def test_ranks_in_different_collectives_do_not_hang():
    ended = run_ranks(2, fault("comm.gather_control('lost')", timeout=2), timeout=20)
    assert ended.code in LOST, ended  # at the deadline, or at once where the difference is noticed
    assert "same collectives" in ended.err or "allgather control" in ended.err, ended


def test_leaving_together_needs_no_close():
    ended = run_ranks(3, OPEN.format(timeout=20) + "time.sleep(0.3 * comm.rank)\nsys.exit(0)\n", timeout=20)
    assert ended.code == 0, ended


def test_a_world_may_be_closed_and_opened_again():
    again = "assert world() is comm\ncomm.close()\nnew = world(10)\nassert new is not comm\nnew.barrier()\nnew.close()\n"
    ended = run_ranks(2, OPEN.format(timeout=20) + again, timeout=20)
    assert ended.code == 0, ended


def test_signals_to_the_launcher_leave_nothing_behind():
    marker = f"signalled-{os.getpid()}"
    ranks = Ranks(2, OPEN.format(timeout=60) + f"print('up', flush=True)\ntime.sleep(60)  # {marker}\n")
    time.sleep(1.5)
    ranks.process.send_signal(signal.SIGTERM)
    ranks.wait(15)
    time.sleep(0.2)
    assert not alive(marker)


def alone(code, **env):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PMI_", "SLURM_", "OMPI_"))}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, "PYTHONPATH": str(ROOT), **env}, capture_output=True, text=True, timeout=60, check=False
    )


def test_ranks_that_do_not_see_each_other_are_refused():
    ended = alone("from bulksample.dist.comm import world; world()", SLURM_NTASKS="4", SLURM_PROCID="0")
    assert ended.returncode == 1
    assert "SLURM_NTASKS says that 4 ranks were started" in ended.stderr


def test_alone_needs_no_mpi4py():
    without = "import sys; sys.modules['mpi4py'] = None\nfrom bulksample.dist.comm import world\n"
    ended = alone(without + "assert world().size == 1 and world() is world()")
    assert ended.returncode == 0, ended.stderr
    ended = alone(without + "world()", PMI_SIZE="2")
    assert "pip install mpi4py" in ended.stderr


def test_importing_the_package_loads_neither_torch_nor_mpi4py():
    code = "import sys, bulksample, bulksample.config, bulksample.dist.comm\nassert not {'torch', 'mpi4py'} & set(sys.modules)"
    ended = alone(code)
    assert ended.returncode == 0, ended.stderr
