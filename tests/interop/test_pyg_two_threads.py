"""Two threads of a user on a sampler or a loader of torch_geometric's dialect."""

import pytest
import torch
from pyg_graphs import make_data
from switches import at_every_line, unlock_cached_properties

from bulksample.interop.pyg import BulkSampler, NeighborLoader

DATA = make_data(60, 300)


@pytest.fixture(autouse=True)
def unlocked(monkeypatch):
    unlock_cached_properties(monkeypatch)


def test_no_two_calls_of_a_sampler_are_one_mini_batch():
    def setup():
        sampler = BulkSampler(DATA, [2])

        def check(*found):
            assert sorted(ids for ids, _ in found) == [[0], [1]]

        return sampler._next_name, sampler._next_name, check

    assert at_every_line(setup, ["interop/pyg/seed_sampler.py"]) > 2


def test_an_epoch_that_one_thread_sets_holds_while_another_asks_for_it():
    def setup():
        loader = NeighborLoader(DATA, [2], batch_size=20, input_nodes=torch.arange(60))

        def choose():
            loader.epoch = 7

        def check(*_):
            assert loader.epoch == 7

        return lambda: loader.epoch, choose, check

    assert at_every_line(setup, ["loading/epochs.py"]) > 2
