"""Back ends and loaders that were used before a fork work in the child, with the same bits; a communicator says why it does not."""

import multiprocessing
import os

import numpy as np
import pytest
import torch
from communities import community_graph
from engines import engine
from launch import run_fresh
from sweep.child import in_fork
from waiting import PATIENCE

import bulksample as bs
from bulksample import LocalAdjacency, Selection, Stream, samplers
from bulksample.loading.loader import BulkLoader

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")


@pytest.fixture(scope="module")
def graph():
    return community_graph()


def in_child(body):
    """Run `body` in a forked child; the test fails if it returns False, raises or hangs."""
    assert in_fork(lambda: {"good": bool(body())}, PATIENCE) == {"good": True}


def digests(adjacency, name="sage", fanouts=(5, 5), epoch=0):
    """The digests of a bulk of mini-batches, more than there are threads."""
    seeds = Selection.of([np.arange(i, adjacency.n, 6) for i in range(6)], adjacency.n)
    return [one.digest() for one in samplers.make(name, fanouts).sample_bulk(adjacency, seeds, Stream(1), epoch)]


@pytest.mark.parametrize("name", ["sage", "ladies", "labor"])
def test_a_back_end_with_threads_works_in_a_forked_process(graph, name):
    adjacency = LocalAdjacency(graph.adjacency, engine("native 3"))
    expected = digests(adjacency, name)
    in_child(lambda: digests(adjacency, name) == expected)
    assert digests(adjacency, name) == expected


def test_a_child_of_a_child_works_as_well(graph):
    adjacency = LocalAdjacency(graph.adjacency, engine("native 3"))
    expected = digests(adjacency)

    def body():
        in_child(lambda: digests(adjacency) == expected)
        return digests(adjacency) == expected

    in_child(body)


@pytest.mark.parametrize("prefetch", [True, False])
def test_a_loader_goes_on_in_a_forked_process(graph, prefetch):
    adjacency = LocalAdjacency(graph.adjacency, engine("native 2"))
    loader = BulkLoader(
        adjacency, samplers.make("sage", (4, 4)), np.arange(adjacency.n), batch_size=10, bulk_size=3, seed=3, prefetch=prefetch
    )
    expected = [[one.digest() for one in loader] for _ in range(2)]
    loader.epoch = 0
    batches = iter(loader)
    begun = [next(batches).digest() for _ in range(4)]

    def body():
        rest = [one.digest() for one in batches]  # of the iterator that the parent began
        return [begun + rest, [one.digest() for one in loader]] == expected

    in_child(body)
    assert begun + [one.digest() for one in batches] == expected[0]


def _epoch(numbers):
    return [batch.digest() for batch in bs.Loader(LOADED, fanouts=[4, 4], batch_size=16, seed=numbers)]


class Epoch(torch.utils.data.IterableDataset):
    """A loader in the worker processes of torch: each takes the mini-batches whose number it is due."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        for i, batch in enumerate(self.loader):
            if i % worker.num_workers == worker.id:
                yield batch.digest(), torch.from_numpy(np.asarray(batch.x))


def test_a_pool_of_forked_processes(graph):
    global LOADED
    LOADED = graph
    expected = [_epoch(i) for i in range(3)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_epoch, range(3)).get(PATIENCE) == expected


def test_workers_of_torch(graph):
    loader = bs.Loader(graph, fanouts=[4, 4], batch_size=16, seed=5)
    start = loader.state_dict()
    expected = [(batch.digest(), np.asarray(batch.x)) for batch in loader]
    loader.load_state_dict(start)
    workers = torch.utils.data.DataLoader(Epoch(loader), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=PATIENCE)
    found = dict(workers)
    assert len(expected) > 3
    assert found.keys() == {digest for digest, _ in expected}
    assert all(np.array_equal(found[digest], x) for digest, x in expected)


def test_a_communicator_is_refused_in_a_forked_process():
    code = """
import os
import numpy as np
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
comm = world(PATIENCE)
comm.barrier()
if os.fork() == 0:
    try:
        comm.allreduce(np.ones(2), "gradients")
    except ValueError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
comm.barrier()
"""
    ended = run_fresh(2, code)
    assert ended.code == 0, ended
    assert ended.out.count("a forked process cannot use the communicator of process ") == 2, ended
