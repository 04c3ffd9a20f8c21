"""Loaders in the worker processes of torch's `DataLoader`: which mini-batches each yields, and what the user is told of those that come
twice. The mini-batches expected are those of a loader in this process."""

import multiprocessing
import warnings

import pytest
from communities import community_graph
from pyg_graphs import make_data
from relations_zoo import library
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from waiting import PATIENCE

import bulksample as bs
from bulksample.interop import pyg

METHODS = multiprocessing.get_all_start_methods()
OPTIONS = {"fanouts": [3], "batch_size": 15, "threads": 1}
MADE = {
    "plain": lambda **share: bs.Loader(community_graph(60), seeds="all", **OPTIONS, **share),
    "tensors": lambda **share: bs.Loader(community_graph(60), seeds="all", **OPTIONS, **share).to("cpu"),
    "typed": lambda **share: bs.Loader(library(), seeds="paper", **OPTIONS, **share),
    "neighbors": lambda: pyg.NeighborLoader(make_data(60, 300), [3], batch_size=15, shuffle=True, seed=0),
    "trees": lambda: pyg.ShaDowKHopSampler(make_data(60, 300), 1, 2, batch_size=15, shuffle=True, seed=0),
}
AGAIN, WHOLE = "set the loader's epoch before each", "each worker samples all mini-batches"


def name(batch):
    """Return a name of a batch that tells it from the others."""
    if hasattr(batch, "n_id"):
        return str(batch.n_id.tolist())
    return batch.digest() if hasattr(batch, "digest") else str([batch.edge_index.tolist(), batch.root_n_id.tolist()])


class Batches(IterableDataset):
    """The names of the batches of a loader, and at the end what the worker was warned of."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield from map(name, self.here())
        yield [str(one.message) for one in caught if "bulksample" in str(one.message)]

    def here(self):
        return self.loader


class Shares(Batches):
    """A loader that each worker makes for its share of the epoch of its copy."""

    def here(self):
        worker = get_worker_info()
        own = MADE[self.loader](rank=worker.id, ranks=worker.num_workers)
        own.epoch = 2
        return own


class Every(Batches):
    """A loader of which each worker skips what others yield."""

    def here(self):
        worker = get_worker_info()
        return (batch for i, batch in enumerate(self.loader) if i % worker.num_workers == worker.id)


def workers(dataset, count=1, **options):
    return DataLoader(dataset, batch_size=None, num_workers=count, timeout=PATIENCE, multiprocessing_context="fork", **options)


def epoch(loader):
    """The names of the batches that workers yield in an iteration, and the warnings."""
    found = list(loader)
    return [one for one in found if isinstance(one, str)], [text for one in found if isinstance(one, list) for text in one]


def epochs(kind, count):
    loader = MADE[kind]()
    return [[name(batch) for batch in loader] for _ in range(count)]


pytestmark = pytest.mark.skipif("fork" not in METHODS, reason="processes do not fork here")


@pytest.mark.parametrize("kind", MADE)
def test_workers_that_do_not_persist_begin_one_epoch_again_and_say_so(kind):
    loader = workers(Batches(MADE[kind]()))
    for _ in range(2):
        batches, said = epoch(loader)
        assert batches == epochs(kind, 1)[0]
        (text,) = said
        assert text == (
            "a loader of bulksample runs in worker 0 of 1 of torch's DataLoader; it begins epoch 0, and so do the workers of a later "
            "iteration of the DataLoader unless they persist: set the loader's epoch before each; or iterate over the loader itself, "
            "which samples ahead on a thread"
        )


@pytest.mark.parametrize("kind", MADE)
def test_an_epoch_that_is_set_reaches_the_workers(kind):
    own = MADE[kind]()
    loader = workers(Batches(own))
    for number, expected in enumerate(epochs(kind, 3)):
        own.epoch = number
        assert epoch(loader) == (expected, [])


def test_workers_that_persist_take_one_epoch_after_another():
    loader = workers(Batches(MADE["plain"]()), persistent_workers=True)
    first, second = epochs("plain", 2)
    batches, said = epoch(loader)
    assert batches == first
    assert len(said) == 1  # a worker does not know that it will persist
    assert epoch(loader) == (second, [])


@pytest.mark.parametrize("kind", ["plain", "neighbors"])
def test_several_workers_that_yield_all_mini_batches_say_so(kind):
    own = MADE[kind]()
    own.epoch = 0
    (expected,) = epochs(kind, 1)
    batches, said = epoch(workers(Batches(own), 2))
    assert sorted(batches) == sorted(2 * expected)
    assert len(said) == 2
    assert all(WHOLE in text and AGAIN not in text for text in said)
    batches, said = epoch(workers(Every(own), 2))
    assert sorted(batches) == sorted(expected)


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_several_workers_share_an_epoch(kind):
    batches, said = epoch(workers(Shares(kind), 2))
    assert sorted(batches) == sorted(epochs(kind, 3)[2])
    assert not said


@pytest.mark.parametrize("method", METHODS)
def test_a_loader_whose_first_batch_was_taken_goes_on_in_its_worker(method):
    own = MADE["plain"]()
    next(iter(own))
    loader = DataLoader(Batches(own), batch_size=None, num_workers=1, timeout=PATIENCE, multiprocessing_context=method)
    batches, (said,) = epoch(loader)
    assert batches == epochs("plain", 1)[0][1:]
    assert AGAIN in said


def test_nothing_is_said_in_the_process_of_the_user():
    loader = MADE["plain"]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [name(batch) for batch in loader] == epochs("plain", 1)[0]
