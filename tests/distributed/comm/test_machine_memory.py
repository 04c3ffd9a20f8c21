"""One copy of an array in the memory of each machine: its values, who fills it, and what is left of it."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from launch import Ranks, run_ranks
from waiting import until

from bulksample import DataError, UsageError, free_memory
from bulksample.distributed.comm import machines
from bulksample.distributed.comm.machines import VARIABLE, shared_array
from bulksample.distributed.comm.threads import SerialComm, on_threads


def test_each_rank_of_a_machine_fills_its_share_of_one_copy(monkeypatch):
    monkeypatch.setenv(VARIABLE, "3,1")

    def rank(comm):
        filled = []

        def fill(a, b):
            filled.append((a, b))
            return np.arange(10 * a, 10 * b).reshape(-1, 10)

        array = shared_array(comm, (7, 10), np.dtype(np.int64), fill, "numbers")
        assert array.tolist() == np.arange(70).reshape(7, 10).tolist()
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        return filled

    assert on_threads(4, rank) == [[(0, 2)], [(2, 4)], [(4, 7)], [(0, 7)]]


def test_long_arrays_are_filled_in_chunks(monkeypatch):
    monkeypatch.setattr(machines, "_CHUNK_ROWS", 3)
    array = shared_array(SerialComm(), (8, 2), np.dtype(np.float16), lambda a, b: np.full((b - a, 2), a), "numbers")
    assert array[:, 0].tolist() == [0, 0, 0, 3, 3, 3, 6, 6]
    assert shared_array(SerialComm(), (0, 2), np.dtype(np.float16), lambda a, b: np.empty((0, 2)), "nothing").shape == (0, 2)


def test_ranks_meet_while_a_slow_one_fills(monkeypatch):
    """One that is done waits for the next meeting alone, not for the slowest rank; here ranks meet after each chunk."""
    met, together = [], machines.together
    monkeypatch.setattr(machines, "_CHUNK_ROWS", 1)
    monkeypatch.setattr(machines, "_MEETINGS", 1e30)
    monkeypatch.setattr(machines, "together", lambda comm, call: met.append(comm.rank) or together(comm, call))
    monkeypatch.setenv(VARIABLE, "4,1")  # four ranks share six rows, one fills all of them
    found = on_threads(5, lambda comm: shared_array(comm, (6, 1), np.dtype(int), lambda a, b: np.arange(a, b)[:, None], "numbers").tolist())
    assert found == [[[i] for i in range(6)]] * 5
    assert [met.count(rank) for rank in range(5)] == [2 + 7] * 5  # to make it, to open it, and after each chunk of the last rank


def test_too_little_memory_is_a_sentence_on_every_rank(monkeypatch):
    monkeypatch.setattr(free_memory, "free_memory", lambda: 100)

    def rank(comm):
        with pytest.raises(
            UsageError, match=r"^rank \d: on \S+, rows take 800 bytes of memory, and 100 are free; use features partitioned"
        ):
            shared_array(comm, (100,), np.dtype(np.float64), lambda a, b: 0, "rows")

    on_threads(3, rank)


def test_ranks_that_do_not_see_each_other_are_refused(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 2**30)

    def rank(comm):
        with pytest.raises(UsageError, match=r"opened through /proc/1073741824/fd/\d+ .*start them in one container, or use features"):
            shared_array(comm, (4,), np.dtype(np.float64), lambda a, b: 0, "rows")

    on_threads(2, rank)


def test_a_fault_of_one_rank_is_raised_on_all(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1,1")

    def rank(comm):
        def fill(a, b):
            if comm.rank:
                raise DataError("row 5 is too large")
            return np.zeros(b - a)

        with pytest.raises(DataError, match="rank 1: row 5 is too large"):
            shared_array(comm, (4,), np.dtype(np.float64), fill, "rows")

    on_threads(2, rank)


N = 1_500_000  # large beside the two megabytes that an allocator may keep in each process

PROGRAM = """
import json, os, sys, time
from pathlib import Path
import numpy as np
import bulksample as bs
from bulksample.views.features import Features, StoredFeatures

def proportional():
    line = next(line for line in Path("/proc/self/smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    return 1024 * int(line.split()[1])

comm = bs.init()
x = np.load(sys.argv[1], mmap_mode="r")
Features(StoredFeatures("g", 128, np.ones((9000, 128), np.float32)), sys.argv[2], sys.argv[3], shared_by=comm)  # imports, and chunks
comm.barrier()
before = proportional()
comm.barrier()
features = Features(StoredFeatures("g", x.shape[1], x), sys.argv[2], sys.argv[3], shared_by=comm)
held, scale = features.stored()
checked = float(sum(held[a : a + 1000, 0].astype(np.float64).sum() for a in range(0, len(held), 1000)))  # reads every page
comm.barrier()
grown = proportional() - before
everyone = comm.gather_control([grown, held.nbytes, checked])
if comm.rank == 0:
    print(json.dumps(everyone), flush=True)
if sys.argv[4] == "stay":
    (Path(sys.argv[1]).parent / f"pid-{comm.rank}").write_text(str(os.getpid()))
    time.sleep(10_000)
comm.close()
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "x.npy"
    x = np.lib.format.open_memmap(file, "w+", np.float32, (N, 128))  # zeros take no place on the disk
    x[:: N // 100] = 1
    x.flush()
    return file


@pytest.mark.long
@pytest.mark.parametrize(("norm", "storage"), [("none", "given"), ("none", "fp16"), ("l2", "bf16")])
def test_eight_processes_hold_one_copy(rows, norm, storage):
    """Their proportional set sizes grow by at most 1.05 times the features, as stored."""
    printed = run_ranks(8, ["-c", PROGRAM, str(rows), norm, storage, "leave"]).out
    everyone = json.loads(printed.splitlines()[-1])
    grown, held = sum(rank[0] for rank in everyone), everyone[0][1]
    assert held == N * 128 * (4 if storage == "given" else 2)
    assert 0.9 * held < grown <= 1.05 * held
    assert len({rank[2] for rank in everyone}) == 1


def maps(process):
    """Return the memory map of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{process}/maps").read_text()
    except OSError:
        return ""


@pytest.mark.long
def test_nothing_is_left_when_all_processes_are_killed(rows):
    ranks = Ranks(4, ["-c", PROGRAM, str(rows), "none", "fp16", "stay"])
    files = [rows.parent / f"pid-{rank}" for rank in range(4)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    pids = [int(file.read_text()) for file in files]
    assert all("/memfd:bulksample (deleted)" in maps(pid) for pid in pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert ranks.wait().code != 0
    assert not any("memfd" in maps(pid) for pid in pids)  # memory without a name ends with those who map it
    assert not [file for file in Path("/dev/shm").iterdir() if "bulksample" in file.name]
