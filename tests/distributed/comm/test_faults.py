"""Training and sampling with a fault on one rank: the job ends in time, names the rank, and leaves no process behind.

`run_ranks` fails if a job does not end or leaves a process. `make test` runs one fault of each command, because every launch of a
training imports torch. `make test-long` runs two faults in each phase, every fault in several phases and ways to sample, and kills
and stops ranks at a few random points; with `BULKSAMPLE_SWEEP` it runs all pairs, and many points.
"""

import itertools
import random

import pytest
from communities import community_graph
from faults import ACTS
from faulty_jobs import killed_at_any_time, launch, run_with_fault, sampling, stopped_at_any_time, training
from sweeps import cases, thinned

from bulksample.data import store
from bulksample.distributed.comm.ledger import PHASES

SEED = 2024  # of the random points
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    place = tmp_path_factory.mktemp("graph") / "g"
    store.save(community_graph(), place)
    return str(place)


# ---- every phase of training


def a_third_of_the_faults(places, quick):
    """Pairs of a place and a fault: each place has two faults, and the faults change from place to place. All but `quick` are long."""
    pairs = [(place, act) for i, place in enumerate(places) for act in thinned(ACTS, 3, first=2 - i)]
    assert quick in pairs
    return [pytest.param(*pair, marks=[] if pair == quick else LONG) for pair in pairs]


@pytest.mark.parametrize(("phase", "act"), a_third_of_the_faults(PHASES, ("reduce", "kill")))
def test_a_fault_in_a_phase_of_training(stored, tmp_path, phase, act):
    rank = 0 if phase == "checkpoint" else 1  # only rank 0 writes it
    launch(2, rank, act, ["phase", phase, 2], training(stored, "--checkpoint", str(tmp_path)))


@LONG
@pytest.mark.parametrize("act", thinned(ACTS, 2))
def test_a_fault_on_the_thread_that_samples(stored, act):
    launch(2, 1, act, ["thread", 12], training(stored, "--graph", "partitioned"))


# ---- sampling from block rows

LAYOUTS = [(2, 1), (3, 1), (4, 2), (4, 1)]  # ranks, replication
WAYS = list(itertools.product(["owner", "rows", "rows-oblivious"], ["sage", "ladies"]))


@pytest.mark.parametrize(("way", "act"), a_third_of_the_faults(WAYS, (WAYS[0], "_exit 0")))
def test_a_fault_in_sampling(stored, way, act):
    launch(2, 1, act, ["collective", 40], sampling(stored, 1, *way))


# ---- random points


def draw(kind, i):
    """Return random numbers, ranks, replication and the rank with the fault for the i-th launch of a kind."""
    rng = random.Random(f"{SEED} {kind} {i}")
    p, replication = (8, 2) if i % 12 == 11 else LAYOUTS[i % len(LAYOUTS)]
    return rng, p, replication, rng.randrange(p)


@LONG
@pytest.mark.parametrize("i", cases(6))
def test_sigkill_while_sampling(stored, i):
    rng, p, replication, rank = draw("sample", i)
    launch(p, rank, "kill", ["collective", rng.randint(1, 100)], sampling(stored, replication, *WAYS[i % 6]))


@LONG
@pytest.mark.parametrize("i", cases(4))
def test_sigkill_while_training(stored, i):
    rng, p, replication, rank = draw("train", i)
    where = ["collective", rng.randint(1, 300)] if i % 3 else ["thread", rng.randint(1, 60)]
    placement = [] if i % 3 == 1 else ["--graph", "partitioned", "--replication", str(replication)]
    launch(p, rank, "kill", where, training(stored, *placement))


@LONG
@pytest.mark.parametrize("i", cases(4))
def test_sigkill_at_any_time(stored, i):
    """Times count from the start of the process, so imports, the start of MPI and loading the graph are hit as well."""
    rng, p, replication, rank = draw("seconds", i)
    where = ["seconds", round(rng.uniform(0, 8), 2)]
    placement = ["--graph", "partitioned", "--replication", str(replication)] if i % 2 else []
    killed_at_any_time(run_with_fault(p, rank, "kill", where, training(stored, *placement)), rank, p)


@LONG
@pytest.mark.parametrize("i", cases(2))
def test_sigstop_while_sampling(stored, i):
    rng, p, replication, rank = draw("stop sample", i)
    launch(p, rank, "stop", ["collective", rng.randint(1, 100)], sampling(stored, replication, *WAYS[i % 6]))


@LONG
@pytest.mark.parametrize("i", cases(2))
def test_sigstop_while_training(stored, i):
    rng, p, replication, rank = draw("stop train", i)
    where = ["collective", rng.randint(1, 300)] if i % 2 else ["thread", rng.randint(1, 60)]
    launch(p, rank, "stop", where, training(stored, "--graph", "partitioned", "--replication", str(replication)))


@LONG
@pytest.mark.parametrize("i", cases(2))
def test_sigstop_at_any_time(stored, i):
    rng, p, _, rank = draw("stop seconds", i)
    where = ["seconds", round(rng.uniform(0, 8), 2)]
    stopped_at_any_time(run_with_fault(p, rank, "stop", where, training(stored)), rank, p)
