"""Loaders of ranks that share a graph draw seeds by weight, and make epochs of so many steps, as loaders of the whole graph do."""

import numpy as np
import pytest
from shared_graphs import PLACES, assert_refused, digests, loader, opened, shares

from bulksample.distributed.comm.threads import on_threads

OPTIONS = [{"sampling_weights": "class"}, {"steps_per_epoch": 3}, {"sampling_weights": "class", "steps_per_epoch": 5, "drop_last": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("topology", "features"), PLACES)
def test_minibatches_are_those_of_one_process(stored, topology, features, options):
    folder, graphs = stored

    def on_rank(comm):
        made = loader(opened(folder / "plain", comm, topology=topology, features=features), **options)
        return [digests(made) for _ in range(2)]

    assert on_threads(2, on_rank) == shares(graphs["plain"], 2, epochs=2, **options)


def test_weights_as_numbers(stored):
    folder, graphs = stored
    whole = graphs["plain"]
    seeds = whole.seeds("train")
    weights = np.random.default_rng(1).gamma(0.5, size=len(seeds))
    found = on_threads(2, lambda comm: [digests(loader(opened(folder / "plain", comm, topology="partitioned"), sampling_weights=weights))])
    assert found == shares(whole, 2, sampling_weights=weights)


def test_ranks_with_other_weights_are_refused(stored):
    folder, graphs = stored
    count = len(graphs["plain"].seeds("train"))

    def act(comm):
        weights = np.ones(count)
        weights[-1] += comm.rank
        loader(opened(folder / "plain", comm), sampling_weights=weights)

    assert_refused(2, act, "do not agree on sampling_weights")
    assert_refused(
        2, lambda comm: loader(opened(folder / "plain", comm), sampling_weights=np.ones(count + 1)), "use one weight for each of the"
    )
    assert_refused(2, lambda comm: loader(opened(folder / "plain", comm), steps_per_epoch=2 + comm.rank), "agree on steps_per_epoch: 2 on")
