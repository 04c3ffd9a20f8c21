"""The store that a run writes of a graph in memory: gone with the run, and after a kill with the next one."""

import os
import subprocess
import sys

from waiting import PATIENCE

RUN = """
import os, signal, sys
from communities import community_graph
from bulksample.distributed.comm.threads import SerialComm
from bulksample.training.source import readable
path, folder = readable(community_graph(), True, SerialComm())
print(path, flush=True)
os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == "killed" else None
"""


def test_what_killed_runs_left_is_removed_and_what_others_use_is_not(tmp_path):
    def run(how):
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", RUN, how], env=environment, capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout.strip(), [name for name in os.listdir(tmp_path) if "graph" in name]

    (tmp_path / "graph of somebody").mkdir()
    first, left = run("killed")
    assert len(left) == 2
    assert os.path.isfile(f"{first}/manifest.json")
    second, left = run("killed")
    assert len(left) == 2
    assert not os.path.exists(first)
    assert os.path.exists(second)
    assert run("ends")[1] == ["graph of somebody"]
