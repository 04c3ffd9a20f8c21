"""Iterations over one loader: those of two threads are refused in words, one thread may begin as many as it likes, a left one is in no
one's way, and the position is that of the newest, or the one that was chosen since."""

import copy
import gc
import os
import pickle
import sys
import threading
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from communities import community_graph
from relations_zoo import library
from sweep.child import in_fork
from switches import at_every_line, unlock_cached_properties
from waiting import PATIENCE, join

import bulksample as bs
from bulksample import LocalAdjacency, UsageError, backends, samplers
from bulksample.distributed.comm.threads import SerialComm
from bulksample.loading.loader import BulkLoader

pyg = pytest.importorskip("bulksample.interop.pyg", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")


@pytest.fixture(autouse=True)
def unlocked(monkeypatch):
    unlock_cached_properties(monkeypatch)


def drop_in(kind, **options):
    import torch
    from torch_geometric.data import Data

    rng = np.random.default_rng(1)
    data = Data(x=torch.arange(60.0)[:, None], edge_index=torch.from_numpy(rng.integers(0, 60, (2, 300))))
    return getattr(pyg, kind)(data, [3], batch_size=20, shuffle=True, bulk_size=2, **options)


def shared(stored, **options):
    graph = bs.load(stored / "plain", world=SerialComm())
    return bs.Loader(graph, fanouts=[3], batch_size=40, bulk_size=2, seeds="train", threads=1, **options)


OPTIONS = {"fanouts": [3], "bulk_size": 2, "threads": 1}
MADE = {
    "plain": lambda _: bs.Loader(community_graph(60), batch_size=15, seeds="all", **OPTIONS),
    "tensors": lambda _: bs.Loader(community_graph(60), batch_size=15, seeds="all", **OPTIONS).to("cpu"),
    "typed": lambda _: bs.Loader(library(), batch_size=15, seeds="paper", **OPTIONS),
    "shared": shared,
    "bulks": lambda _: bs.Loader(community_graph(60), batch_size=15, seeds="all", **OPTIONS).bulks,
    "neighbors": lambda _: drop_in("NeighborLoader"),
    "links": lambda _: drop_in("LinkNeighborLoader"),
}


@pytest.fixture(params=MADE)
def made(request, stored):
    return lambda: MADE[request.param](stored)


def names(batches):
    """Return a name for each batch that tells it from the others."""
    return [batch.digest() if hasattr(batch, "digest") else batch.n_id.tolist() for batch in batches]


def in_thread(call):
    """The result of a call in another thread, or what it raised."""
    found = []

    def run():
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, name="another")
    thread.start()
    join(thread)
    return found[0]


def test_another_thread_is_refused_while_an_iteration_goes_on(made):
    alone = made()
    expected = [names(alone), names(alone)]
    loader = made()
    batches = iter(loader)
    begun = [next(batches)]
    state = loader.state_dict()
    refused = in_thread(lambda: list(loader))
    assert isinstance(refused, UsageError)
    assert str(refused) == (
        "thread another begins to iterate over a loader while thread MainThread does, and both would get the same mini-batches; "
        "make a loader for each thread, with rank and ranks to share an epoch, or close the first iterator"
    )
    assert loader.state_dict() == state
    assert names([*begun, *batches]) == expected[0]
    assert in_thread(lambda: names(loader)) == expected[1]


@pytest.mark.parametrize("end", ["close", "drop", "error", "end of its thread"])
def test_an_iteration_that_is_no_more_is_in_no_ones_way(made, end):
    loader, kept = made(), []

    def begin():
        batches = iter(loader)
        next(batches)
        if end == "close":
            batches.close()
            kept.append(batches)
        if end == "end of its thread":
            kept.append(batches)
        if end == "error":
            for _ in batches:
                raise KeyError(end)

    outcome = in_thread(begin)
    assert isinstance(outcome, KeyError) == (end == "error")
    del outcome
    assert len(names(loader)) == len(loader) > 1


def test_an_iterator_may_be_handed_to_another_thread(made):
    expected, loader = names(made()), made()
    batches = iter(loader)
    begun = names([next(batches)])
    assert begun + in_thread(lambda: names(batches)) == expected


def test_a_thread_may_begin_anew(made):
    alone, loader = made(), made()
    expected = [names(alone), names(alone)]
    first = iter(loader)
    assert names([next(first)]) == expected[0][:1]
    assert names(loader) == expected[1]  # as after a break: the next epoch


@pytest.mark.parametrize("kind", ["plain", "neighbors"])
def test_no_epoch_is_given_out_twice_whichever_line_threads_switch_at(kind):
    alone = MADE[kind](None)
    epochs = [names(alone), names(alone)]

    def setup():
        loader = MADE[kind](None)

        def check(*found):
            taken = [one for one in found if not isinstance(one, Exception)]
            assert taken in ([epochs[0]], epochs, epochs[::-1])
            assert all(isinstance(one, UsageError) for one in found if isinstance(one, Exception))

        return lambda: names(loader), lambda: names(loader), check

    assert at_every_line(setup, ["loading/position.py", "loading/epochs.py", "interop/pyg/drop_in.py"]) > 30


@pytest.mark.parametrize("kind", ["plain", "shared"])
def test_a_traceback_that_is_kept_is_in_no_ones_way(kind, stored):
    """Its frames are those of an iteration that was interrupted while it waited for a mini-batch."""
    strikes = []

    @contextmanager
    def profile(name):
        yield
        if strikes:
            raise KeyError(strikes.pop())

    options = {"profile": profile}
    loader = (
        shared(stored, **options) if kind == "shared" else bs.Loader(community_graph(60), batch_size=15, seeds="all", **OPTIONS, **options)
    )
    batches = iter(loader)
    next(batches)
    strikes.append("struck")
    with pytest.raises(KeyError, match="struck") as kept:
        list(batches)
    assert len(in_thread(lambda: names(loader))) == len(loader) > 1
    assert kept.tb is not None


def test_an_iteration_that_is_collected_on_its_own_thread_is_in_no_ones_way(monkeypatch):
    """The collector of garbage runs on any thread; on the one that samples ahead it cannot wait for that thread."""
    go, done, raised = threading.Event(), threading.Event(), []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)

    def transform(bulk):
        if bulk[0].id == 1 and not done.is_set():
            go.wait(PATIENCE)
            gc.collect()
            done.set()
        return list(bulk)

    adjacency = LocalAdjacency(community_graph(60).adjacency, backends.make("reference"))
    loader = BulkLoader(
        adjacency, samplers.make("sage", (3,)), np.arange(60), batch_size=15, bulk_size=1, shuffle=False, transform=transform
    )
    batches = iter(loader)
    next(batches)  # mini-batch 1 is under way
    gc.disable()
    try:
        cycle = [batches]
        cycle.append(cycle)
        del batches, cycle
        go.set()
        assert done.wait(PATIENCE)
    finally:
        gc.enable()
    assert not raised
    assert len(in_thread(lambda: names(loader))) == len(loader) > 1


@pytest.mark.parametrize("way", ["a state", "an epoch"])
def test_a_position_that_is_chosen_holds_while_an_iteration_goes_on(made, way):
    alone, loader = made(), made()
    expected = names(alone)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    next(batches)
    if way == "a state":
        loader.load_state_dict(state)
    else:
        loader.epoch = 0
    refused = pytest.raises(UsageError, match="iterate anew") if hasattr(getattr(loader, "graph", None), "comm") else nullcontext()
    with refused:  # of a graph that ranks share: nothing is fetched for it any more
        list(batches)
    assert names(loader) == expected[way == "a state" :]


def test_an_epoch_that_is_none_is_refused_before_the_loader_moves(made):
    loader = made()
    next(iter(loader))
    state = loader.state_dict()
    for epoch in (-1, True, 1.5, "1", 2**20):
        with pytest.raises(UsageError, match=r"epoch must be a whole number in 0 \.\. 1048575; got"):
            loader.epoch = epoch
        assert loader.state_dict() == state


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_in_the_middle_of_an_epoch_has_a_position_of_its_own(made, copied):
    alone, loader = made(), made()
    expected = [names(alone), names(alone)]
    batches = iter(loader)
    begun = [next(batches)]
    state = loader.state_dict()
    if getattr(loader, "_shared", None) is not None:
        with pytest.raises(UsageError, match="on every rank"):
            copied(loader)
        return
    own = copied(loader)
    assert names(own) == expected[0][1:]
    assert loader.state_dict() == state
    assert names([*begun, *batches]) == expected[0]
    assert names(loader) == names(own) == expected[1]


def test_two_iterators_in_turn_have_an_epoch_each(made):
    alone, loader = made(), made()
    epochs = [names(alone) for _ in range(3)]
    if getattr(loader, "_shared", None) is not None:
        with pytest.raises(UsageError, match="a newer iteration of this loader has begun and ended this one"):
            list(zip(loader, loader, strict=True))
        return
    assert [names(column) for column in zip(*zip(loader, loader, strict=False), strict=True)] == epochs[:2]
    assert names(loader) == epochs[2]


def test_the_state_of_the_newest_iteration_knows_its_own_order():
    """Two iterators over a sampler of the user, whose order differs from epoch to epoch."""
    import torch

    orders = [list(map(int, order)) for order in np.random.default_rng(2).permuted(np.tile(np.arange(60), (3, 1)), axis=1)]

    class Given(torch.utils.data.Sampler):
        begun = 0

        def __init__(self, first=0):
            self.begun = first

        def __len__(self):
            return 60

        def __iter__(self):
            self.begun += 1
            return iter(orders[self.begun - 1])

    def loader(first):
        return pyg.NeighborLoader(drop_in("NeighborLoader").data, [3], batch_size=20, sampler=Given(first), bulk_size=1)

    one = loader(0)
    older, newer = iter(one), iter(one)
    next(older)
    begun = [next(newer)]
    next(older)
    state = one.state_dict()
    other = loader(1)
    other.load_state_dict(state)
    assert names([*begun, *other]) == names([*begun, *newer])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_fork_in_the_middle_of_an_epoch_is_a_copy_like_a_pickle(made):
    alone, loader = made(), made()
    if getattr(loader, "_shared", None) is not None:
        pytest.skip("loaders that share a graph are neither pickled nor forked")
    expected = [names(alone), names(alone)]

    def both(copy):
        return [names(copy), names(copy)]

    begun = next(iter(loader))  # and left
    rest = [expected[0][1:], expected[1]]
    assert names([begun]) == expected[0][:1]
    assert both(pickle.loads(pickle.dumps(loader))) == rest
    assert in_fork(lambda: {"good": both(loader) == rest}, PATIENCE) == {"good": True}
    assert names(loader) == expected[1]  # here as after a break


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_iterates_though_a_thread_of_its_parent_did(made):
    loader, on, off = made(), threading.Event(), threading.Event()
    if getattr(loader, "_shared", None) is not None:
        pytest.skip("loaders that share a graph are refused in a forked process")

    def begin():
        batches = iter(loader)
        next(batches)
        on.set()
        off.wait(PATIENCE)
        del batches

    thread = threading.Thread(target=begin)
    thread.start()
    try:
        assert on.wait(PATIENCE)
        assert in_fork(lambda: {"good": len(names(loader)) == len(loader) - 1}, PATIENCE) == {"good": True}
    finally:
        off.set()
        join(thread)
