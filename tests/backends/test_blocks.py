"""Memory that native sampling uses again: nothing that is still looked at is overwritten, and none is hoarded."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from engines import engine
from waiting import PATIENCE
from zoo import random_matrix

from bulksample import LocalAdjacency, Selection, Stream, digest, samplers

N = 40_000


@pytest.fixture(scope="module")
def large():
    """A graph whose minibatches have arrays of some hundred kilobytes, and how to sample bulks of it."""
    adjacency, sampler = LocalAdjacency(random_matrix(N, 600_000, 1), engine("native 2")), samplers.make("sage", (10, 10))

    def bulk(epoch, k=4):
        lists = [np.arange(j * 1000, (j + 1) * 1000) for j in range(k)]
        return sampler.sample_bulk(adjacency, Selection.of(lists, N), Stream(1), epoch)

    return bulk


def test_arrays_that_are_kept_stay_as_they_are(large):
    """One mini-batch of each bulk is kept while the memory of the others is used again."""
    kept = [large(epoch)[epoch % 4] for epoch in range(12)]
    assert kept[0].vertices.nbytes > 2**16
    for epoch in (0, 5, 11):
        assert digest([kept[epoch]]) == digest([large(epoch)[epoch % 4]])


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_bulks_one_after_the_other_take_the_memory_of_one(large):
    size = sum(minibatch.nbytes() for minibatch in large(0))
    for epoch in range(3):
        large(epoch)
    before = resident()
    for epoch in range(30):
        large(epoch, 4 if epoch % 3 else 2)
    assert resident() - before < size


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit on memory is one of Linux")
def test_memory_that_runs_out_is_an_error_after_which_less_fits():
    """Also when it is kept blocks that take the room of a larger array."""
    script = """
        import resource, sys
        import numpy as np
        from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
        from zoo import random_matrix

        adjacency = LocalAdjacency(random_matrix(40_000, 600_000, 1), backends.make("native", 1))

        def edges(k, fanouts):
            seeds = Selection.of([np.arange(20_000)] * k, 40_000)
            bulk = samplers.make("sage", fanouts).sample_bulk(adjacency, seeds, Stream(1))
            return sum(minibatch.num_edges for minibatch in bulk)

        small = edges(2, (5, 5))
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**25,) * 2)
        for _ in range(3):
            try:
                edges(40, (-1, -1))
            except MemoryError:
                print("out of memory")
            print(edges(2, (5, 5)) == small)
    """
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=PATIENCE, env=where)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == ["out of memory", "True"] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_samples_on(large):
    """On one thread, in memory that it has of its parent, which goes on using its own."""
    matrix, sampler = random_matrix(N, 600_000, 1), samplers.make("sage", (10, 10))
    seeds, alone = Selection.of([np.arange(3000)], N), LocalAdjacency(matrix, engine("native 1"))
    expected = [digest(sampler.sample_bulk(alone, seeds, Stream(1), epoch)) for epoch in range(4)]
    kept = large(3)
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        same = [digest(sampler.sample_bulk(alone, seeds, Stream(1), epoch)) for epoch in range(4)] == expected
        os._exit(0 if same else 1)
    assert [digest(sampler.sample_bulk(alone, seeds, Stream(1), epoch)) for epoch in range(4)] == expected
    assert os.waitpid(child, 0)[1] == 0
    assert digest(kept) == digest(large(3))
