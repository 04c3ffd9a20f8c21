"""Bad input on real ranks: one sentence and an exit code for every rank, nothing hangs, and nothing is left in shared memory."""

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from communities import community_graph
from launch import run_ranks
from waiting import PATIENCE

from bulksample.data import store
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.machines import VARIABLE

pytestmark = pytest.mark.long
TRAIN = ["--fanouts", "3,3", "--batch-size", "16", "--hidden", "8", "--epochs", "1", "--threads", "1", "--quiet"]
SHM = Path("/dev/shm")
PLANTED = "mpich_shm_planted"  # by a test of this file that may run at the same time, maybe of another run of the tests


@pytest.fixture
def place(tmp_path):
    """A graph G of 90 vertices, and the folders P and Q of two partitions into four."""
    store.save(community_graph(n=90), tmp_path / "G")
    write_parts(tmp_path / "G", tmp_path / "P", np.random.default_rng(3).integers(0, 4, 90).astype(np.int32), 4, "random")
    write_parts(tmp_path / "G", tmp_path / "Q", (np.arange(90) % 4).astype(np.int32), 4, "block")
    return tmp_path


def left_in_memory(before):
    """Name the new segments of shared memory that no process uses, as soon as there is none, or at the deadline."""
    deadline = time.monotonic() + PATIENCE / 10
    while True:
        new = {file for file in {*SHM.iterdir()} - before if "mpich" in file.name or "bulksample" in file.name}
        left = [file for file in new if PLANTED not in file.name and not in_use(file)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def in_use(file):
    """Tell whether a living process maps the file: a launch of another test, side by side with this one."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if str(file) in maps.read_text():
                return True
    return False


def assert_refused(ranks, code, sentence, graph, *options, launcher="mpirun", env=None):
    """Train on real ranks; check that all end with the code and the sentence, soon and without anything left behind."""
    before = set(SHM.iterdir())
    ended = run_ranks(ranks, ["-m", "bulksample", "train", str(graph), *TRAIN, *options], launcher=launcher, env=env)
    assert ended.code == (code if launcher == "mpirun" else 1), ended  # torchrun has an exit code of its own
    assert sentence in ended.err, ended
    assert launcher == "torchrun" or "Traceback" not in ended.err, ended
    assert not left_in_memory(before)
    return ended


def change(path, **values):
    """Rewrite fields of a manifest."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_a_part_of_another_partition(place, launcher):
    shutil.rmtree(place / "P/part-00001")
    shutil.copytree(place / "Q/part-00001", place / "P/part-00001")
    assert_refused(4, 65, "part-00001/manifest.json: does not belong to P", place / "P", "--graph", "partitioned", launcher=launcher)


def test_a_part_that_is_missing(place):
    shutil.rmtree(place / "P/part-00002")
    assert_refused(4, 65, "part-00002", place / "P", "--graph", "partitioned")


@pytest.mark.parametrize("manifest", ["P/manifest.json", "P/part-00003/manifest.json"])
def test_parts_of_another_version(place, manifest):
    change(place / manifest, version=2)
    assert_refused(4, 65, "got version 2; this release reads 1: write the store again", place / "P", "--graph", "partitioned")


def test_parts_that_the_ranks_cannot_share(place):
    assert_refused(
        3, 2, "P has 4 parts, which p / c = 3 block rows cannot share evenly; use p / c in {1, 2, 4}", place / "P", "--graph", "partitioned"
    )


def test_a_replication_that_does_not_divide_the_ranks(place):
    assert_refused(3, 2, "replication", place / "G", "--graph", "partitioned", "--replication", "2")


def test_a_machine_with_fewer_ranks_than_the_others(place):
    """Process columns cannot end with machines of 2 and 1 ranks: the order is refused where it is asked for, else it is that of rows."""
    options = ("--graph", "partitioned", "--grid-order", "columns")
    sentence = "--grid-order columns needs machines of equally many ranks; they have 2 and 1"
    assert_refused(3, 2, sentence, place / "G", *options, env={VARIABLE: "2,1"})
    ended = run_ranks(3, ["-m", "bulksample", "train", str(place / "G"), *TRAIN, *options[:2]], env={VARIABLE: "2,1"})
    assert ended.code == 0, ended


def test_machines_that_are_not_those_of_the_launch(place):
    assert_refused(3, 2, "BULKSAMPLE_MACHINES: got '2,2' for 3 ranks", place / "G", env={VARIABLE: "2,2"})


def test_memory_that_a_dead_run_left_is_removed(place):
    left, young = (SHM / f"{PLANTED}{os.getpid()}{which}" for which in ("left", "young"))
    for file in (left, young):
        file.write_bytes(bytes(4096))
    try:
        os.utime(left, (time.time() - 3600,) * 2)
        ended = run_ranks(2, ["-m", "bulksample", "train", str(place / "G"), *TRAIN, "--features", "host", "--topology", "replicated"])
        assert ended.code == 0, ended
        assert not left.exists()
        assert young.exists()  # ranks of another job may be about to open it
    finally:
        for file in (left, young):
            file.unlink(missing_ok=True)
