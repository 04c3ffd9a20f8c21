"""Loaders over graphs that ranks share: repeated batches, states, other numbers of ranks, and seeds that a rank holds."""

import json

import numpy as np
import pytest
from communities import community_graph
from shared_graphs import digests, loader, opened, shares

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads


@pytest.mark.parametrize("topology", ["partitioned", "replicated"])
@pytest.mark.parametrize("together", [1, 2])
def test_batches_that_do_not_repeat_have_every_seed_once(stored, topology, together):
    folder, graphs = stored
    val = graphs["plain"].seeds("val")

    def seeds(batches):
        return np.concatenate([np.empty(0, np.int32), *(batch.seeds for batch in batches.to() if not batch.repeated)])

    def rank(comm):
        batches = loader(opened(folder / "plain", comm, topology=topology), seeds="val", batch_size=7, fetch_together=together)
        assert len(batches) * 3 == -(-len(val) // 7) + 2, "two ranks repeat a batch"
        whole = seeds(batches)
        next(iter(batches))
        state = batches.state_dict()
        batches.load_state_dict(state)
        return whole, seeds(batches)

    found, rests = zip(*on_threads(3, rank), strict=True)
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), val)
    assert len(np.concatenate(rests)) == len(val) - 3 * 7
    alone = [loader(graphs["plain"], seeds="val", batch_size=7, rank=r, ranks=3) for r in range(3)]
    np.testing.assert_array_equal(np.sort(np.concatenate([seeds(one) for one in alone])), val)


def test_an_iteration_left_early_is_followed_by_the_next_epoch(stored):
    folder, graphs = stored

    def rank(comm):
        batches = loader(opened(folder / "plain", comm))
        first = [batch.digest() for batch, _ in zip(batches, range(2), strict=False)]
        return [first, digests(batches)]

    expected = shares(graphs["plain"], 2, epochs=2)
    assert on_threads(2, rank) == [[first[:2], second] for first, second in expected]


@pytest.mark.parametrize("together", [1, 3])
def test_a_state_is_the_position_of_the_batch_in_use(stored, together):
    """The loader is ahead of its user; a state names the batch that was yielded last."""
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "plain", comm)
        first, again = (loader(graph, fetch_together=together) for _ in range(2))
        taken = []
        for batch in first:
            taken.append(batch.digest())
            if len(taken) == 2:
                state = json.loads(json.dumps(first.state_dict()))
                break
        again.load_state_dict(state)
        return [taken + digests(again), digests(again)]

    assert on_threads(2, rank) == shares(graphs["plain"], 2, epochs=2)


@pytest.mark.parametrize("together", [1, 2])
def test_a_state_after_the_last_batch_begins_the_next_epoch(stored, together):
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "plain", comm)
        first, again = (loader(graph, fetch_together=together) for _ in range(2))
        for _ in zip(range(len(first)), first, strict=False):
            pass
        again.load_state_dict(first.state_dict())
        return [again.epoch, digests(again)]

    assert on_threads(2, rank) == [[1, share[1]] for share in shares(graphs["plain"], 2, epochs=2)]


def test_a_state_continues_on_another_number_of_ranks(stored):
    """Ranks that take over in the middle of an epoch take the mini-batches that the others have left."""
    folder, graphs = stored

    def begin(comm):
        batches = loader(opened(folder / "plain", comm))
        return next(iter(batches)).digest(), batches.state_dict()

    used, states = zip(*on_threads(2, begin), strict=True)
    assert states[0] == states[1]

    def go_on(comm):
        batches = loader(opened(folder / "plain", comm))
        batches.load_state_dict(states[0])
        return digests(batches)

    rest = [digest for rank in on_threads(3, go_on) for digest in rank]
    every = digests(loader(graphs["plain"]))
    assert {*used, *rest} == set(every)
    assert len(rest) == 3 * -(-(len(every) - 2) // 3)  # even: the first ones repeat at the end


def test_a_state_of_another_store_is_refused(stored, tmp_path):
    """Its seeds and sizes may be the same; no rank holds the matrix that tells the graphs apart."""
    folder, _ = stored
    community_graph(seed=1).save(tmp_path / "other")
    seeds = np.arange(100)
    state = on_threads(2, lambda comm: bs.Loader(opened(tmp_path / "other", comm), fanouts=[2], batch_size=10, seeds=seeds).state_dict())[0]

    def rank(comm):
        bs.Loader(opened(folder / "plain", comm), fanouts=[2], batch_size=10, seeds=seeds).load_state_dict(state)

    with pytest.raises(bs.UsageError, match="the state does not fit this loader: it was saved with another store; use"):
        on_threads(2, rank)


def test_seed_locality_draws_the_seeds_that_a_rank_holds(stored):
    """Rank r of 2 holds half of the ids, and about half of the seeds; one process draws the same mini-batches."""
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "plain", comm, topology="replicated", features="partitioned")
        batches = list(loader(graph, seed_locality=2, batch_size=8))
        return [(batch.minibatch.id, batch.digest()) for batch in batches if not batch.repeated], np.concatenate([b.seeds for b in batches])

    found = on_threads(2, rank)
    alone = [(batch.minibatch.id, batch.digest()) for batch in loader(graphs["plain"], seed_locality=2, batch_size=8)]
    assert sorted(found[0][0] + found[1][0]) == sorted(alone)
    assert np.mean(found[0][1] < 150) > 0.95
    assert np.mean(found[1][1] >= 150) > 0.95
    with pytest.raises(bs.UsageError, match="seed_locality 2 does not fit steps of 3 mini-batches"):
        loader(graphs["plain"], seed_locality=2, ranks=3)


def test_a_loader_with_seed_locality_goes_on_in_the_middle(stored):
    folder, _ = stored

    def rank(comm):
        graph = opened(folder / "plain", comm, topology="replicated", features="partitioned")
        one, other = (loader(graph, seed_locality=4, batch_size=8) for _ in range(2))
        rows = iter(one)
        for _ in range(3):
            next(rows)
        state = json.loads(json.dumps(one.state_dict()))
        rest = digests(rows)
        other.load_state_dict(state)
        assert digests(other) == rest

    on_threads(2, rank)
