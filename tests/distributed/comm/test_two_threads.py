"""Two threads of every rank communicate at once, each over its own communicator; then one of them fails."""

import re

import pytest
from communities import community_graph
from launch import run_ranks
from waiting import PATIENCE

LOST = 75

OPEN = """
import os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
{before}
from bulksample.distributed.comm.world import world

def mixed(comm, rounds, seed, fault=lambda i: None):
    '''Call collectives of all kinds in an order drawn from the seed, and check every result.'''
    rng, p, r = np.random.default_rng(seed), comm.size, comm.rank
    for i in range(rounds):
        fault(i)
        kind, n = rng.integers(6), int(rng.integers(1, 3000))
        if kind == 0:
            assert (comm.allreduce(np.full(n, r + i), "gradients") == p * i + p * (p - 1) // 2).all()
        elif kind == 1:
            for q, part in enumerate(comm.alltoall([np.full(n + q, 100 * r + q) for q in range(p)], "features")):
                assert len(part) == n + r and (part == 100 * q + r).all()
        elif kind == 2:
            assert comm.gather_control([i, r]) == [[i, q] for q in range(p)]
        elif kind == 3:
            assert (comm.allgather(np.array([i, r]), "control") == [[i, q] for q in range(p)]).all()
        elif kind == 4:
            assert (comm.broadcast(np.full(n, r), "model", root=i % p) == i % p).all()
        else:
            comm.barrier()

comm = world({timeout})
side = comm.split(0)
pool = ThreadPoolExecutor(1, thread_name_prefix="sampler")

def at(round, act):
    '''Return a fault: rank 1 calls `act` in a round.'''
    return lambda i: act() if (comm.rank, i) == (1, round) else None

def boom():
    raise KeyError("boom beside")
"""


def run(p, then, timeout=PATIENCE, before=""):
    """Run a program on p ranks; the deadline holds once all have connected."""
    return run_ranks(p, OPEN.format(timeout=PATIENCE, before=before) + f"comm.barrier()\ncomm.watch.timeout = {timeout}\n" + then)


@pytest.mark.parametrize(
    ("p", "rounds"), [(2, 300), *(pytest.param(*more, marks=pytest.mark.long) for more in ((2, 1500), (3, 500), (4, 5000)))]
)
def test_two_threads_do_not_disturb_each_other(p, rounds):
    """Run hundreds of collectives on both threads at once; their common tally equals that of running them in turn."""
    ended = run(p, f"""
tallies = [np.array(list(comm.tally.values()))]
sampled = pool.submit(mixed, side, {rounds}, 1)
mixed(comm, {rounds}, 2)
sampled.result()
tallies.append(np.array(list(comm.tally.values())))
mixed(side, {rounds}, 1)
mixed(comm, {rounds}, 2)
tallies.append(np.array(list(comm.tally.values())))
together, apart = np.diff(tallies, axis=0)
assert (together == apart).all() and together.any(), (together, apart)
print("done")
""")  # fmt: skip
    assert ended.code == 0, ended
    assert ended.out.count("done") == p, ended


@pytest.mark.long
def test_threads_may_split_and_close_what_is_theirs():
    ended = run(
        4,
        """
half = comm.split(comm.rank % 2)
sampled = pool.submit(mixed, half, 100, 1)
mixed(side.split(comm.rank // 2), 100, 2)
sampled.result()
""",
    )
    assert ended.code == 0, ended


@pytest.mark.long
def test_an_exception_of_a_pool_thread_ends_all_ranks_when_its_result_is_taken():
    ended = run(
        3,
        """
sampled = pool.submit(mixed, side, 1000, 1, at(50, boom))
mixed(comm, 200, 2)  # these go on meanwhile
sampled.result()
comm.barrier()
""",
    )
    assert ended.code == 1, ended
    assert "rank 1 of 3 failed" in ended.err, ended
    assert "boom beside" in ended.err, ended


@pytest.mark.long
def test_an_exception_whose_result_is_not_taken_ends_the_job_at_the_deadline_naming_both_threads():
    """Rank 1 waits for the other ranks, which wait for the thread of rank 1 that failed."""
    ended = run(
        3,
        """
sampled = pool.submit(mixed, side, 1000, 1, at(50, boom))
if comm.rank != 1:
    sampled.result()
comm.allreduce(np.ones(3), "gradients")
""",
        timeout=2,
    )
    assert ended.code == LOST, ended
    assert re.search(r"rank 1 (is at #\d+|of 3: waited 2 s for) allreduce gradients float64 \(3,\)", ended.err), ended
    assert "on thread sampler_0: not finished" in ended.err, ended


@pytest.mark.long
def test_an_exception_on_a_separate_thread_ends_all_ranks():
    ended = run(
        3,
        """
thread = threading.Thread(target=mixed, args=(side, 1000, 1, at(50, boom)))
thread.start()
mixed(comm, 100000, 2)
""",
    )
    assert ended.code == 1, ended
    assert "rank 1 of 3 failed" in ended.err, ended
    assert "boom beside" in ended.err, ended


@pytest.mark.long
def test_a_thread_that_does_not_communicate_may_fail():
    ended = run(
        2,
        """
thread = threading.Thread(target=boom)
thread.start()
thread.join()
mixed(comm, 10, 2)
""",
    )
    assert ended.code == 0, ended
    assert ended.err.count("boom beside") == 2, ended


@pytest.mark.long
@pytest.mark.parametrize(
    ("act", "code", "said"),
    [
        ("os._exit(0)", LOST, r"rank 1 of 3 \(process \d+ on \S+\) ended with exit code 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", LOST, r"rank 1 of 3 \(process \d+ on \S+\) was killed by signal 9"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", LOST, "no sign of life from rank 1"),
        ("sys.exit(0)", LOST, "rank 1 left"),
    ],
)
@pytest.mark.parametrize("where", ["beside", "ahead"])
def test_faults_while_two_threads_communicate(act, code, said, where):
    faults = {where: f"at(50, lambda: {act})"}
    ended = run(
        3,
        f"""
sampled = pool.submit(mixed, side, 1000, 1, {faults.get("beside", "at(-1, boom)")})
mixed(comm, 200, 2, {faults.get("ahead", "at(-1, boom)")})
sampled.result()
mixed(comm, 100000, 2)
""",
        timeout=3 if "no sign" in said else PATIENCE,  # a rank leaves when its other thread is done
    )
    assert ended.code == code, ended
    assert re.search(said, ended.err), ended


def test_two_threads_on_one_communicator_are_refused():
    ended = run(
        2,
        """
if comm.rank == 1:
    pool.submit(comm.barrier)  # waits for rank 0, which does not come
    while not (comm.watch.now().count("barrier") and "not finished" in comm.watch.now()):
        time.sleep(0.001)  # the deadline of the barrier ends this loop, too
    comm.barrier()
side.barrier()
""",
    )
    assert ended.code == 1, ended
    assert "two threads use one communicator at once" in ended.err, ended


@pytest.mark.long
def test_an_mpi_library_for_one_thread_is_refused_where_there_are_two():
    ended = run(
        2,
        """
mixed(comm, 10, 2)
pool.submit(mixed, side, 10, 1).result()
""",
        before="import mpi4py\nmpi4py.rc.thread_level = 'funneled'",
    )
    assert ended.code == 1, ended
    assert "this MPI library serves one thread only" in ended.err, ended


@pytest.mark.long
@pytest.mark.parametrize(("options", "code"), [((), 2), (("--sampling-threads", "0"), 0)])
def test_training_says_what_sampling_ahead_needs_of_an_mpi_library_before_it_reads_the_graph(tmp_path, options, code):
    """The library gives SERIALIZED, so block rows are sampled in turns or not at all."""
    community_graph().save(tmp_path / "g")
    arguments = [
        "train",
        str(tmp_path / "g"),
        "--graph",
        "partitioned",
        "--fanouts",
        "3",
        "--hidden",
        "4",
        "--epochs",
        "1",
        "--threads",
        "1",
    ]
    ended = run_ranks(
        2,
        "import mpi4py, sys\n"
        "mpi4py.rc.thread_level = 'serialized'\n"
        f"sys.argv = ['bulksample', *{[*arguments, *options]!r}]\n"
        "from bulksample.cli import main\n"
        "main()\n",
    )
    assert ended.code == code, ended
    assert ("needs MPI_THREAD_MULTIPLE: leave mpi4py.rc.thread_level at 'multiple'" in ended.err) == (code == 2), ended
    assert ("--sampling-threads 0" in ended.err) == (code == 2), ended


@pytest.mark.long
def test_a_loader_of_block_rows_says_so_too(tmp_path):
    community_graph().save(tmp_path / "g")
    ended = run_ranks(
        2,
        "import mpi4py\n"
        "mpi4py.rc.thread_level = 'serialized'\n"
        "import bulksample as bs\n"
        f"graph = bs.load({str(tmp_path / 'g')!r}, world=bs.init())\n"
        "print(sum(1 for batch in bs.Loader(graph, fanouts=[3], batch_size=16, prefetch=False)) > 0)\n"
        "bs.Loader(graph, fanouts=[3], batch_size=16)\n",
    )
    assert ended.code != 0, ended
    assert ended.out.split() == ["True", "True"], ended
    assert "needs MPI_THREAD_MULTIPLE" in ended.err, ended
