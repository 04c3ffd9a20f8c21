"""`enable_cpu_affinity` of the loader for DGL: the cores of real threads, in a context, after it and beside it.

DGL is a stand-in: the loader reads a small graph, and in place of a block it returns the arrays of the mini-batch.
"""

import copy
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from waiting import PATIENCE, join
from waiting import until as wait_for

from bulksample import UsageError
from bulksample.interop.dgl import DataLoader, NeighborSampler, affinity, blocks
from bulksample.loading.loader import BulkLoader

USABLE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = pytest.mark.skipif(len(USABLE) < 2, reason="needs Linux and two cores")
FIRST, LAST = {*USABLE[:1]}, {*USABLE[-1:]}
N = 400


def cores():
    return os.sched_getaffinity(0)


def all_cores():
    """The cores of every thread of this process, by its id."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        try:
            found[int(task)] = os.sched_getaffinity(int(task))
        except ProcessLookupError:
            continue
    return found


def moved(before):
    """The threads whose cores are not those they had, of all that still live."""
    now = all_cores()
    return {thread for thread in before if thread in now and now[thread] != before[thread]}


def on_a_thread(call):
    """Makes a call on a thread of its own, and returns its result, or the message of its `UsageError`."""
    found = []

    def run():
        try:
            found.append(call())
        except UsageError as error:
            found.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    join(thread)
    return found[0]


@contextmanager
def parked():
    """A thread that lives, and waits; its id."""
    until, ready, ids = threading.Event(), threading.Event(), []

    def wait():
        ids.append(threading.get_native_id())
        ready.set()
        until.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    try:
        yield ids[0]
    finally:
        until.set()
        join(thread)


@pytest.fixture
def make(monkeypatch):
    """A function that makes a loader, while torch and native code have two threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setitem(sys.modules, "dgl", ModuleType("dgl"))
    monkeypatch.setattr(
        blocks.Blocks, "of", lambda self, made: (
            torch.tensor(made.rows["_N"].vertices), torch.tensor(made.rows["_N"].seeds),
            [[np.array(block["_N", "_E", "_N"].indices), cores()] for block in made.blocks],
        ),
    )  # fmt: skip
    ends = torch.from_numpy(np.random.default_rng(1).integers(0, N, (2, 6000)))
    graph = SimpleNamespace(
        is_homogeneous=True, num_nodes=lambda: N, edges=lambda order: tuple(ends), edata={}, ndata={}, device=torch.device("cpu")
    )

    def made(device=None, seed=3, **options):
        return DataLoader(graph, torch.arange(N), NeighborSampler([5, 5]), device, batch_size=40, shuffle=True, seed=seed, **options)

    yield made
    torch.set_num_threads(threads)


@pytest.fixture
def sampled(monkeypatch):
    """Notes of each call that samples: the id of its thread, its cores, and those of a thread that it starts."""
    seen, sample = [], BulkLoader._sample_bulk

    def noted(self, seeds, epoch):
        made = sample(self, seeds, epoch)
        seen.append((threading.get_native_id(), cores(), on_a_thread(cores), self._adjacency.backend.threads))
        return made

    monkeypatch.setattr(BulkLoader, "_sample_bulk", noted)
    return seen


def read(batches):
    return [[inputs.tolist(), outputs.tolist(), *(indices.tolist() for indices, _ in layers)] for inputs, outputs, layers in batches]


@contextmanager
def unchanged():
    """Threads that live before and after have their cores back, and torch its threads; so has a new thread."""
    before, threads = all_cores(), torch.get_num_threads()
    try:
        yield
    finally:
        assert not moved(before)
        assert all(own == cores() for thread, own in all_cores().items() if thread not in before)
        assert (on_a_thread(cores), torch.get_num_threads()) == (cores(), threads)


@pytest.mark.parametrize(("ours", "theirs"), [(FIRST, LAST), (LAST, FIRST)])
def test_threads_that_sample_and_all_others_are_bound_and_restored(make, sampled, ours, theirs):
    expected, loader, torch_threads = read(make(bulk_size=2)), make(bulk_size=2), set(all_cores())
    threads = loader._backend.threads
    torch.rand(400, 400) @ torch.rand(400, 400)
    torch_threads = all_cores().keys() - torch_threads
    sampled.clear()
    with parked() as other, unchanged():
        with loader.enable_cpu_affinity(list(ours), list(theirs), verbose=False):
            assert (cores(), on_a_thread(cores), all_cores()[other], torch.get_num_threads()) == (theirs, theirs, theirs, 1)
            assert all(all_cores().get(thread, theirs) == theirs for thread in torch_threads)
            found = []
            for one in loader:
                found.append(one)
                assert cores() == theirs
        assert read(found) == expected
        assert all(made_on == theirs for _, _, layers in found for _, made_on in layers)
        assert len(sampled) == 5  # bulks
        for thread, *seen in sampled:
            assert thread != threading.get_native_id()
            assert seen == [ours, ours, 1]
    sampled.clear()
    assert len(read(loader)) == 10
    assert all(seen[1:] == (cores(), cores(), threads) for seen in sampled)


def test_by_default_the_first_core_samples_and_the_second_computes(make, sampled, monkeypatch, capsys):
    monkeypatch.setattr(affinity, "near_cores", lambda usable: USABLE[:2])
    with make().enable_cpu_affinity():
        assert cores() == {USABLE[1]}
    said = capsys.readouterr().out
    assert said == f"bulksample: sampling on cores {USABLE[0]}; other threads on cores {USABLE[1]}, torch with 1\n"
    loader = make(num_workers=0)
    with loader.enable_cpu_affinity(verbose=False):
        sampled.clear()
        read(loader)
        assert all(seen[1] == {USABLE[0]} for seen in sampled)
    assert capsys.readouterr().out == ""


def test_an_error_restores_all(make):
    loader = make(bulk_size=1)

    def fail():
        with loader.enable_cpu_affinity(verbose=False):
            for _ in loader:
                raise ZeroDivisionError("in the loop")

    with unchanged(), pytest.raises(ZeroDivisionError, match="in the loop"):
        fail()
    assert len(read(loader)) == 10


def test_an_iteration_may_outlive_the_context(make, sampled):
    loader = make(bulk_size=2)
    with unchanged():
        with loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
            batches = iter(loader)
            next(batches)
        last = len(sampled)
        assert len(read(batches)) == 9
    assert sampled[-1][1] == cores()
    assert len(sampled) > last


def test_an_iteration_from_before_samples_on_the_cores_to_compute(make, sampled):
    loader = make(bulk_size=2)
    batches = iter(loader)
    next(batches)
    with unchanged(), loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        read(batches)
    assert sampled[-1][1] == LAST


def test_contexts_nest(make, sampled):
    """Threads of the outer loader stay where they are; the inner one may use all cores that the outer one had."""
    outer, inner = make(bulk_size=2), make(bulk_size=2)
    with unchanged(), outer.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        batches = iter(outer)
        next(batches)
        wait_for(lambda: len(sampled) == 2)  # the next bulk lies ready: the outer loader samples nothing more until it is used
        sampler = sampled[0][0]
        with unchanged(), inner.enable_cpu_affinity(USABLE[-1:], USABLE[:1], verbose=False):
            assert (cores(), all_cores()[sampler]) == (FIRST, FIRST)
            sampled.clear()
            read(inner)
            assert all(seen[1] == LAST for seen in sampled)
        assert cores() == LAST
        sampled.clear()
        read(batches)
        assert all(seen[1] == FIRST for seen in sampled)


def test_contexts_that_end_in_another_order_restore_all_when_the_last_ends(make, sampled):
    outer, inner = make(), make()
    with unchanged():
        first, second = outer.enable_cpu_affinity(USABLE[:1], USABLE[-1:], False), inner.enable_cpu_affinity(USABLE[-1:], USABLE[:1], False)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert cores() == FIRST
        second.__exit__(None, None, None)
    sampled.clear()
    read(outer)
    assert all(seen[1] == cores() for seen in sampled)


def test_an_error_of_the_system_restores_all(make, monkeypatch):
    bind, loader = affinity._bind, make()

    def refuse(threads):
        monkeypatch.setattr(affinity, "_bind", bind)
        bind(dict([*threads.items()][:1]))
        raise PermissionError("not these")

    monkeypatch.setattr(affinity, "_bind", refuse)
    with unchanged(), pytest.raises(PermissionError, match="not these"), loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        pass
    assert loader._loader.sampling_cores is None
    with unchanged(), loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        assert cores() == LAST


def test_a_context_may_end_on_another_thread(make):
    loader = make()

    def loop():
        with loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
            yield from loader

    batches, before = loop(), all_cores()
    thread = threading.Thread(target=next, args=(batches,))
    thread.start()
    thread.join()
    batches.close()
    assert not moved(before)
    with unchanged(), loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        assert cores() == LAST


def test_a_forked_process_has_no_open_context(make):
    """A process that forks while another thread is in a context."""
    program = f"""
import os, threading
from bulksample.backends import make
from bulksample.interop.dgl.affinity import bound

def context():
    return bound(make("reference"), lambda cores: None, {USABLE[:1]}, {USABLE[-1:]}, 0, False)

entered, left = threading.Event(), threading.Event()
def hold():
    with context():
        entered.set()
        left.wait()
thread = threading.Thread(target=hold)
thread.start()
entered.wait()
if (child := os.fork()) == 0:
    os.sched_setaffinity(0, {USABLE})
    with context():
        os._exit(len(os.sched_getaffinity(0)))
print("cores of the child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
left.set()
thread.join()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.stdout == "cores of the child: 1\n", ended.stderr


def test_a_thread_that_somebody_has_bound_stays(make):
    """Until somebody binds it anew in the context, whose end restores it too."""
    with parked() as other:
        os.sched_setaffinity(other, FIRST)
        with unchanged(), make().enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
            assert all_cores()[other] == FIRST
            os.sched_setaffinity(other, USABLE)


def test_one_thread_at_a_time_is_in_a_context(make):
    loader = make()

    def enter():
        with loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
            return cores()

    with loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        before = all_cores()
        assert "another thread of this process is in such a context" in on_a_thread(enter)
        assert not moved(before)
    assert on_a_thread(enter) == LAST


def test_a_thread_has_the_cores_that_it_was_bound_to(make):
    """Not those of a context that has ended."""
    loader = make()
    with loader.enable_cpu_affinity(verbose=False):
        pass

    def enter():
        os.sched_setaffinity(0, FIRST)
        with loader.enable_cpu_affinity(verbose=False):
            pass

    assert f"others to compute; got {USABLE[0]};" in on_a_thread(enter)


def test_a_state_of_another_seed_keeps_the_cores(make, sampled):
    state = make(seed=5).state_dict()
    loader = make(seed=None)
    with loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        loader.load_state_dict(state)
        sampled.clear()
        read(loader)
    assert all(seen[1] == FIRST for seen in sampled)
    assert loader._loader.sampling_cores is None


def test_a_copy_takes_no_cores_along(make):
    loader = make()
    with loader.enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):
        assert copy.copy(loader._loader).sampling_cores is None
        assert loader._loader.__getstate__()["sampling_cores"] is None


def test_on_a_gpu_nothing_changes(make):
    before = all_cores()
    with make(device="cuda").enable_cpu_affinity([77777]):
        assert not moved(before)


A, B = [*USABLE, 0][0], [0, *USABLE][-1]
REFUSED = {
    "loader_cores names core 77777, which": ([77777], [A]),
    "compute_cores names core 77777, which": ([A], [77777]),
    "compute_cores must be a list of one or more distinct whole numbers; got [": ([A], [B, B]),
    "loader_cores must be a list of one or more distinct whole numbers; got []": ([], [A]),
    "distinct whole numbers; got '0'": ("0", [A]),
    "distinct whole numbers; got [True]": ([True], [A]),
    "distinct whole numbers; got [0.0]": ([0.0], [A]),
    "distinct whole numbers; got [-1]": ([-1], [A]),
    "compute_cores must be a list of one or more distinct whole numbers; got 0": (None, 0),
    f"both name core {B}": ([A, B], [B]),
    f"{len(USABLE)} to sample (loader_cores or num_workers), others to compute": (USABLE, None),
    f"1 to sample (loader_cores or num_workers), {len(USABLE)} to compute": (None, USABLE),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_has_no_meaning_is_refused_before_anything_changes(make, says):
    before, entered = all_cores(), False
    with pytest.raises(UsageError, match=re.escape(says)), make().enable_cpu_affinity(*REFUSED[says]):
        entered = True
    assert not entered
    assert not moved(before)
    with make().enable_cpu_affinity(USABLE[:1], USABLE[-1:], verbose=False):  # which nothing keeps closed
        pass


def test_other_values_are_refused(make):
    for options, verbose, says in (({"num_workers": "4"}, True, "num_workers must be a whole number"), ({}, "no", "verbose must be true")):
        with pytest.raises(UsageError, match=says), make(**options).enable_cpu_affinity(verbose=verbose):
            pass


@pytest.mark.parametrize("lacks", ["sched_setaffinity", "/proc"])
def test_other_systems_are_refused(make, monkeypatch, tmp_path, lacks):
    if lacks == "/proc":
        monkeypatch.setattr(affinity, "_THREADS", tmp_path / "none")
    else:
        monkeypatch.delattr(os, lacks)
    with pytest.raises(UsageError, match="of Linux"), make().enable_cpu_affinity():
        pass


def machine(folder, nodes, siblings):
    """Files as Linux describes a machine by: lists of the cores of each node, and of each core's siblings."""
    for node, listed in enumerate(nodes):
        path = folder / f"node/node{node}/cpulist"
        path.parent.mkdir(parents=True)
        path.write_text(f"{listed}\n")
    for core, listed in siblings.items():
        path = folder / f"cpu/cpu{core}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(f"{listed}\n")


def test_defaults_are_one_thread_of_each_core_of_the_first_node(monkeypatch, tmp_path):
    """Node 0 has memory alone; nodes 1 and 2 have four cores of two threads each: c and c + 8."""
    machine(tmp_path, ["", "0-3,8-11", "4-7,12-15"], {core: f"{core % 8},{core % 8 + 8}" for core in range(16)})
    monkeypatch.setattr(affinity, "_SYSTEM", tmp_path)
    everything = set(range(16))
    assert affinity.divided(everything, None, None, 0) == ([0], [1, 2, 3])
    assert affinity.divided(everything, None, None, 3) == ([0, 1, 2], [3])
    assert affinity.divided(everything, None, None, 4) == ([0, 1, 2, 3], [*range(4, 16)])  # too many for a node
    assert affinity.divided(everything, [2, 9], None, 1) == ([2, 9], [0, 1, 3])
    assert affinity.divided(everything, None, [0, 1], 1) == ([2], [0, 1])
    assert affinity.divided(everything, [0, 1, 2, 3], None, 1) == ([0, 1, 2, 3], [*range(4, 16)])
    assert affinity.divided(everything, np.array([5]), range(6, 8), 1) == ([5], [6, 7])
    assert affinity.divided({5, 6, 13}, None, None, 1) == ([5], [6])
    assert affinity.divided({2, 10}, None, None, 1) == ([2], [10])  # two threads of one core
    for usable, workers in (({3}, 0), ({3, 4}, 2)):
        with pytest.raises(UsageError, match=r"needs cores: . to sample .*; got 3.*leave it out"):
            affinity.divided(usable, None, None, workers)


def test_a_machine_that_is_not_described_has_all_cores_alike(monkeypatch, tmp_path):
    monkeypatch.setattr(affinity, "_SYSTEM", tmp_path)
    assert affinity.near_cores({4, 2, 7}) == [2, 4, 7]
    machine(tmp_path, ["0-7"], {2: "", 4: "4", 7: "7"})
    assert affinity.near_cores({4, 2, 7}) == [2, 4, 7]
