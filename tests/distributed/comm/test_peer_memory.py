"""A collective in which a rank of this machine died never counts as complete, whatever the MPI library says."""

import os
import subprocess
import sys

import pytest
from launch import run_fresh

from bulksample.distributed.comm.peer_memory import PeerMemory

LOST = 75
# Rank 1 sends its part of a sum, and dies once rank 2 has the sum, before rank 0 copies it.
# A parent keeps the launcher from noticing, and no sentinel reports.
DYING = """
import os, sys, time
from pathlib import Path
child = os.fork()
if child:
    ended = os.waitpid(child, 0)[1]
    time.sleep(15)
    os._exit(os.waitstatus_to_exitcode(ended))
import numpy as np
from bulksample.distributed.comm.world import world

comm = world(30)
comm.barrier()
array = np.full(1500, comm.rank + 1)
summed = Path(os.environ["SUMMED"])  # rank 2 has the sum

def begin():
    request = comm._comm.Iallreduce(comm._mpi.IN_PLACE, array, op=comm._mpi.SUM)
    request.Test()
    until = time.monotonic() + 20
    while comm.rank == 0 and not summed.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(comm.rank == 0)
    return request.Test

if comm.rank == 1:
    comm._sentinel.report("reported")
    done, until = begin(), time.monotonic() + 20
    while not summed.exists() and time.monotonic() < until:
        done()
    os._exit(0)
comm._complete("a sum", begin)
summed.touch()
print("rank", comm.rank, "goes on with", np.unique(array), flush=True)
time.sleep(20)
"""


@pytest.mark.long
def test_a_sum_does_not_complete_without_a_rank_that_died(tmp_path):
    ended = run_fresh(3, DYING, {"SUMMED": str(tmp_path / "summed")})
    assert ended.code == LOST, ended
    assert "rank 0 of 3: rank 1 ended while this rank is in" in ended.err, ended
    assert "rank 2 goes on with [6]" in ended.out, ended
    assert "rank 0 goes on" not in ended.out, ended


def test_a_process_has_lost_its_memory_before_and_after_its_parent_is_told():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    memory = PeerMemory({0: os.getpid(), 3: child.pid})
    assert memory.lost([0, 1, 3]) == []  # rank 1 has no process here
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has died, and its parent has not been told
    assert memory.lost([0, 1, 3]) == [3]
    assert memory.lost([0, 1]) == []
    child.communicate()
    assert memory.lost([0, 1, 3]) == [3]
