"""Jobs with a fault on one rank, and what must be seen of each fault."""

import json
import re

from launch import ROOT, run_fresh
from waiting import PATIENCE

LOST = 75
DEADLINE = 3  # seconds, where a job ends by it: when a rank stops, or leaves on a thread alone


def training(graph, *more, epochs=1000):
    """Return arguments that train in small steps."""
    options = {"fanouts": "3,3", "hidden": 8, "batch-size": 16, "epochs": epochs, "threads": 1}
    return ["train", graph, "--quiet", *(str(word) for name, value in options.items() for word in (f"--{name}", value)), *more]


def sampling(graph, replication, exchange, sampler):
    """Return arguments that sample enough bulks for 150 collectives on each rank."""
    options = {
        "graph": "partitioned", "replication": replication, "exchange": exchange, "sampler": sampler, "fanouts": "5,5", "seeds": "all",
        "batch-size": 1, "bulk-size": 1, "threads": 1,
    }  # fmt: skip
    return ["sample", graph, *(str(word) for name, value in options.items() for word in (f"--{name}", value))]


def run_with_fault(p, rank, act, where, command):
    """Run a command on p ranks with a fault on one of them."""
    fault = {"rank": rank, "act": act, "where": where}
    command = [*command, "--timeout", str(DEADLINE if act in ("stop", "exit") else PATIENCE)]
    print(p, fault, command)
    return run_fresh(p, [str(ROOT / "tests" / "faults.py"), json.dumps(fault), *command])


def launch(p, rank, act, where, command):
    """Run a command on p ranks with a fault on one of them; the error must name that rank."""
    WITNESS[act.split()[0]](run_with_fault(p, rank, act, where, command), rank, p)


def raised(ended, rank, p):
    assert ended.code == 1, ended
    assert f"rank {rank} of {p} failed; ending all ranks" in ended.err, ended
    assert "Traceback" in ended.err, ended
    assert "boom on one rank" in ended.err, ended


def left(ended, rank, p):
    assert ended.code == LOST, ended
    assert re.search(rf"rank {rank} left|rank {rank} of {p}: waited \d+ s for the other ranks to leave", ended.err), ended


def died(ended, rank, p):
    assert ended.code == LOST, ended
    assert re.findall(r"bulksample: rank (\d+) of (\d+) \(process", ended.err) == [(str(rank), str(p))], ended


def stopped(ended, rank, p):
    assert ended.code == LOST, ended
    missed = [ranks.split(", ") for ranks in re.findall(r"no sign of life from ranks? ([\d, ]+)", ended.err)]
    assert missed, ended
    assert all(str(rank) in ranks for ranks in missed), ended


def killed_at_any_time(ended, rank, p):
    """Judge a kill that may hit a rank before it has connected."""
    assert ended.code != 0, ended
    if "EXIT CODE: 9" not in ended.out:  # mpirun prints this if the rank had not connected yet
        died(ended, rank, p)


def stopped_at_any_time(ended, rank, p):
    assert ended.code != 0, ended
    if "for the other ranks to start" not in ended.err:  # a rank that has not connected cannot be named
        stopped(ended, rank, p)


WITNESS = {"raise": raised, "exit": left, "_exit": died, "kill": died, "stop": stopped}
