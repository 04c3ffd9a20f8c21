"""A rank that raises, leaves, dies or stops ends the job within the deadline and is named."""

import os
import re
import signal
import subprocess
import sys

import pytest
from launch import ROOT, Ranks, run_fresh
from waiting import PATIENCE

from bulksample.distributed.comm import mpi as sharedmemory

LOST = 75

OPEN = """
import os, signal, sys, time
import numpy as np
from bulksample.distributed.comm.world import world
comm = world({timeout})
comm.barrier()
def others_wait():
    comm.allreduce(np.ones(3), "gradients")
"""

IN_TURN = """
while len(comm._channel.gone()) < comm.rank:  # the ranks before this one have not all left
    comm._channel.read()
"""

SHARED = """
for line in open("/proc/self/maps"):
    if "mpich_shm_" in line:
        print("name=" + line.split()[5], flush=True)
comm.barrier()
"""


def fault(what, timeout=PATIENCE, after="others_wait()"):
    """Return a program whose rank 1 does `what` while the others enter a collective, by a deadline that holds from then on."""
    return OPEN.format(timeout=PATIENCE) + f"comm.watch.timeout = {timeout}\nif comm.rank == 1:\n    {what}\n{after}\n"


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("raise KeyError('boom on one rank')", "boom on one rank"),
        pytest.param("import nothing_there", "ModuleNotFoundError", marks=pytest.mark.long),
    ],
)
def test_an_exception_ends_all_ranks_with_its_traceback(what, shown):
    ended = run_fresh(3, fault(what))
    assert ended.code == 1, ended
    assert "Traceback" in ended.err, ended
    assert shown in ended.err, ended


@pytest.mark.long
def test_an_early_exit_is_noticed():
    ended = run_fresh(3, fault("sys.exit(0)"))
    assert ended.code == LOST, ended
    assert "rank 1 left early" in ended.err, ended


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9"),
        pytest.param("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by signal 11", marks=pytest.mark.long),
        pytest.param("os._exit(3)", "ended with exit code 3 in the middle of the work", marks=pytest.mark.long),
        # MPICH's mpirun alone may end with code 0 here
        pytest.param("os._exit(0)", "ended with exit code 0 in the middle of the work", marks=pytest.mark.long),
    ],
)
def test_a_rank_whose_process_ends_unexpectedly_is_named(what, said):
    ended = run_fresh(3, fault(what))
    assert ended.code == LOST, ended
    assert re.findall(r"bulksample: rank (\d) of 3 \(process", ended.err) == ["1"], ended
    assert said in ended.err, ended


def test_a_killed_rank_is_named_although_mpirun_finds_it_dead_first():
    """Any output makes mpirun look for dead processes; it kills all ranks as soon as it finds one that a signal ended."""
    printed = """
numbers = comm.gather_control(os.getpid())
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
while "State:\tZ" not in open(f"/proc/{numbers[1]}/status").read():
    pass
print("a line of output", flush=True)
others_wait()
"""
    ended = run_fresh(2, OPEN.format(timeout=PATIENCE) + printed)
    assert ended.code == LOST, ended
    assert "rank 1 of 2 (process" in ended.err, ended


@pytest.mark.long
def test_a_killed_rank_is_named_while_its_child_is_still_running():
    ended = run_fresh(3, fault("os.fork() or (time.sleep(10_000), os._exit(0))\n    os.kill(os.getpid(), signal.SIGKILL)"))
    assert ended.code == LOST, ended
    assert "rank 1 of 3 (process" in ended.err, ended
    assert "was killed by signal 9" in ended.err, ended


STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
AT_ONCE = "import bulksample.distributed.comm.world as own\nown.OUTSIDE_SECONDS = 0\n"


@pytest.mark.long
def test_a_rank_that_never_starts_ends_the_job_at_the_deadline():
    late = f"import os, signal\nif os.environ['PMI_RANK'] == '1':\n    {STOP}\n"
    ended = run_fresh(3, late + AT_ONCE + OPEN.format(timeout=2))
    assert ended.code != 0, ended  # 15 at times: mpirun ends what has not started by SIGTERM
    assert "waited 2 s for the other ranks to start" in ended.err, ended


@pytest.mark.long
def test_a_rank_that_stops_while_leaving_ends_the_job_at_the_deadline():
    """After all ranks have left, MPI_Finalize waits once more; it can be neither polled nor asked."""
    leave = f"comm.close()\ncomm.watch.timeout = 2\nif comm.rank == 1:\n    {STOP}\n"
    ended = run_fresh(3, AT_ONCE + OPEN.format(timeout=PATIENCE) + leave)
    assert ended.code != 0, ended
    assert "waited 2 s for the other ranks to end" in ended.err, ended


@pytest.mark.long
@pytest.mark.parametrize("missing", ["os.environ.pop('HYDI_CONTROL_FD')", "shutil.which = lambda *_, **__: None"])
@pytest.mark.parametrize("what", ["comm.abort(75)", "raise KeyError('boom')"])
def test_without_a_socket_to_the_launcher_or_a_sentinel_mpi_ends_the_job(what, missing):
    ended = run_fresh(3, f"import os, shutil\n{missing}\n{fault(what)}")
    assert ended.code != 0, ended
    assert "MPI_Abort" in ended.err, ended


@pytest.mark.long
def test_a_stopped_rank_is_named_at_the_deadline():
    ended = run_fresh(3, fault("os.kill(os.getpid(), signal.SIGSTOP)", timeout=2))
    assert ended.code == LOST, ended
    assert "no sign of life from rank 1" in ended.err, ended
    assert "allreduce gradients float64 (3,)" in ended.err, ended
    assert "last collectives of rank" in ended.err, ended


@pytest.mark.long
def test_ranks_in_different_collectives_do_not_hang():
    ended = run_fresh(2, fault("comm.gather_control('lost')", timeout=2))
    assert ended.code == LOST, ended  # at the deadline, or at once where the difference is noticed
    assert "same collectives" in ended.err or "allgather control" in ended.err, ended


@pytest.mark.long
@pytest.mark.parametrize("code", [0, 2])
def test_leaving_together_needs_no_close(code):
    ended = run_fresh(3, OPEN.format(timeout=PATIENCE) + IN_TURN + f"sys.exit({code})\n")
    assert ended.code == code, ended
    assert not ended.err, ended


@pytest.mark.long
def test_a_world_may_be_closed_and_opened_again():
    again = f"assert world() is comm\ncomm.close()\nnew = world({PATIENCE})\nassert new is not comm\nnew.barrier()\nnew.close()\n"
    ended = run_fresh(2, OPEN.format(timeout=PATIENCE) + again)
    assert ended.code == 0, ended


@pytest.mark.long
def test_after_closing_the_hooks_of_the_program_are_its_own_also_in_a_fork():
    own = """
comm.close()
def hook(*_):
    pass
sys.excepthook = threading.excepthook = hook
child = os.fork()
if not child:
    os._exit(0 if sys.excepthook is hook and threading.excepthook is hook else 1)
if os.waitpid(child, 0)[1]:
    sys.exit("a fork has lost a hook of the program")
"""
    ended = run_fresh(2, "import threading\n" + OPEN.format(timeout=PATIENCE) + own)
    assert ended.code == 0, ended


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_signals_to_the_launcher_leave_nothing_behind(number):
    ranks = Ranks(2, OPEN.format(timeout=PATIENCE) + "print('up', flush=True)\ntime.sleep(10_000)\n")
    ranks.process.stdout.readline()
    ranks.process.send_signal(number)
    ranks.wait()  # fails if a process is left


def test_a_killed_job_leaves_no_shared_memory():
    ended = run_fresh(2, OPEN.format(timeout=PATIENCE) + SHARED + "os.kill(os.getpid(), signal.SIGKILL)\n")
    names = set(re.findall(r"name=(\S+)", ended.out))
    assert names, "MPICH keeps its shared memory elsewhere: there is nothing to test"
    assert not [name for name in names if os.path.exists(name)], ended


def test_shared_memory_that_no_process_maps_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(sharedmemory, "SHARED_MEMORY", tmp_path)
    names = [tmp_path / f"mpich_shm_{name}" for name in ("lost", "held", "young")]
    for name in names:
        name.write_bytes(bytes(4096))
    (tmp_path / "other").write_bytes(bytes(4096))
    for name in [*names[:2], tmp_path / "other"]:
        os.utime(name, (0, 0))
    monkeypatch.setattr(sharedmemory, "_mapped", lambda process: {names[1]} if process.name == str(os.getpid()) else set())
    assert sharedmemory.sweep() == [names[0]]
    assert not names[0].exists()
    assert all(name.exists() for name in [*names[1:], tmp_path / "other"])


def alone(code, **env):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PMI_", "SLURM_", "OMPI_"))}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


PROGRAM = "import bulksample as bs; world = bs.init(); bs.init(); print('rank', world.rank, 'of', world.size)"
TORCH_RANK = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
JOB_SCRIPT = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, "PMI_SIZE says that 4 ranks were started, but MPI sees one"),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"},
            "OMPI_COMM_WORLD_SIZE says that 2 ranks were started, but MPI sees one",
        ),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, "SLURM_STEP_NUM_TASKS says that 4 ranks were started, but MPI sees one"),
        ({"FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "0"}, "FLUX_JOB_SIZE says that 4 ranks were started, but MPI sees one"),
        ({"PALS_RANKID": "2"}, "PALS_RANKID says that at least 3 ranks were started, but MPI sees one"),
    ],
)
def test_ranks_that_do_not_see_each_other_are_refused(env, said):
    ended = alone(PROGRAM, **env)
    assert ended.returncode == 1, ended.stderr
    assert said in ended.stderr


def test_a_rank_of_torch_that_lacks_a_variable_says_that_it_runs_alone():
    ended = alone(PROGRAM, **TORCH_RANK)
    assert (ended.returncode, ended.stdout) == (0, "rank 0 of 1\n"), ended.stderr
    assert ended.stderr.count("this process runs alone, as rank 0 of 1") == 1, ended.stderr
    assert "set MASTER_PORT to run together, or unset RANK, WORLD_SIZE, MASTER_ADDR to run alone" in ended.stderr


def test_the_script_of_a_job_runs_alone():
    ended = alone(PROGRAM, **JOB_SCRIPT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "rank 0 of 1\n", "")


def test_ranks_of_a_launcher_without_known_variables_connect_if_the_program_has_begun_mpi():
    hidden = "import os; from mpi4py import MPI; [os.environ.pop(name) for name in list(os.environ) if name.startswith(('PMI_', 'HYD'))]\n"
    ended = run_fresh(2, hidden + PROGRAM)
    assert ended.code == 0, ended
    assert sorted(ended.out.split("\n")) == ["", "rank 0 of 2", "rank 1 of 2"], ended


def test_alone_needs_no_mpi4py():
    without = "import sys; sys.modules['mpi4py'] = None\nfrom bulksample.distributed.comm.world import world\n"
    ended = alone(without + "assert world().size == 1 and world() is world()")
    assert ended.returncode == 0, ended.stderr
    ended = alone(without + "world()", PMI_SIZE="2")
    assert "pip install mpi4py" in ended.stderr


def test_importing_the_package_loads_neither_torch_nor_mpi4py():
    code = "import sys, bulksample, bulksample.config, bulksample.distributed.comm.world\nassert not {'torch', 'mpi4py'} & set(sys.modules)"
    ended = alone(code)
    assert ended.returncode == 0, ended.stderr
