"""Iterations over one loader in two threads: refused in words, whichever line they switch at; one thread may begin as many as it likes."""

import os
import threading

import numpy as np
import pytest
from communities import community_graph
from relations_zoo import library
from sweep.child import in_fork
from switches import at_every_line, unlock_cached_properties
from waiting import PATIENCE, join

import bulksample as bs
from bulksample import UsageError
from bulksample.distributed.comm.threads import SerialComm

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


def shared(stored):
    return bs.Loader(bs.load(stored / "plain", world=SerialComm()), fanouts=[3], batch_size=40, bulk_size=2, seeds="train", threads=1)


OPTIONS = {"fanouts": [3], "bulk_size": 2, "threads": 1}
MADE = {
    "plain": lambda _: bs.Loader(community_graph(60), batch_size=15, seeds="all", **OPTIONS),
    "tensors": lambda _: bs.Loader(community_graph(60), batch_size=15, seeds="all", **OPTIONS).to("cpu"),
    "typed": lambda _: bs.HeteroLoader(library(), batch_size=15, seeds="paper", **OPTIONS),
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

    assert at_every_line(setup, ["position.py", "loader.py", "interop/pyg/epochs.py"]) > 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_iterates_though_a_thread_of_its_parent_did(made):
    loader, on, off = made(), threading.Event(), threading.Event()

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
        if "Shared" in type(getattr(loader, "_shared", None)).__name__:
            return  # a communicator is refused in a forked process
        assert in_fork(lambda: {"good": len(names(loader)) == len(loader)}, PATIENCE) == {"good": True}
    finally:
        off.set()
        join(thread)
