"""Seeds drawn by weight: as often as their weights say, the same on any number of ranks, in bulks of any size and from a state."""

import json
from fractions import Fraction

import numpy as np
import pytest
from communities import community_graph
from planted_relations import planted
from test_loader import SEEDS, digests, loader

import bulksample as bs
from bulksample import Stream, UsageError
from bulksample.loading.weighted_seeds import WeightedSeeds, class_weights
from bulksample.rng import Substream, as_u64

WEIGHTS = np.random.default_rng(1).gamma(0.5, size=len(SEEDS)) * (np.arange(len(SEEDS)) % 5 > 0)
GRAPH = community_graph()


def drawn(law, count, epoch=0, seed=3):
    return law.order(Stream(seed), epoch)(np.arange(count))


@pytest.mark.parametrize("weights", [[1, 2, 3, 4], [0.0, 5.0, 0.0, 1.0, 0.0], np.random.default_rng(2).gamma(0.3, size=40)], ids=len)
def test_seeds_come_as_often_as_their_weights_say(weights):
    weights, count = np.asarray(weights, np.float64), 200_000
    found = np.bincount(drawn(WeightedSeeds(weights, len(weights)), count), minlength=len(weights))
    assert (found[weights == 0] == 0).all()
    share = (weights / weights.sum())[weights > 0]
    enough = share * count > 5
    deviation = (found[weights > 0] - count * share)[enough] / np.sqrt(count * share * (1 - share))[enough]
    assert np.abs(deviation).max() < 5


def test_places_and_epochs_draw_apart():
    law = WeightedSeeds(np.ones(1000), 1000)
    one, other = drawn(law, 100_000), drawn(law, 100_000, epoch=1)
    assert abs(np.mean(one == other) * 1000 - 1) < 0.5
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 0.02


def test_a_draw_is_that_of_its_words():
    """The formula, in exact fractions."""
    weights = [3, 0, 1, 7, 0]
    words = as_u64(Stream(5).words(Substream.SEED_WEIGHT.tag(2), np.arange(300))).tolist()
    expected = []
    for word in words:
        left = Fraction(word >> 11, 2**53) * sum(weights)
        expected.append(next(i for i in range(5) if left < sum(weights[: i + 1])))
    assert drawn(WeightedSeeds(weights, 5), 300, epoch=2, seed=5).tolist() == expected


@pytest.mark.parametrize("least", [5e-324, 1e-310, 2.0**-1000])
def test_weights_near_the_least_number_keep_the_law(least):
    """Powers of two as factors change no draw."""
    exact = np.array([3.0, 0.0, 1.0, 7.0])
    assert drawn(WeightedSeeds(exact * least, 4), 1000).tolist() == drawn(WeightedSeeds((exact * least) * 2.0**200, 4), 1000).tolist()
    shares = np.bincount(drawn(WeightedSeeds(exact * least, 4), 100_000), minlength=4) / 100_000
    assert np.abs(shares - exact / 11).max() < 0.01


def test_the_last_seed_with_a_weight_takes_what_rounding_leaves(monkeypatch):
    law = WeightedSeeds([1.0, 2.0, 0.0], 3)
    monkeypatch.setattr("bulksample.loading.weighted_seeds.as_u64", lambda words: np.full(len(words), 2**64 - 1, np.uint64))
    assert set(drawn(law, 5)) == {1}


@pytest.mark.parametrize("option", [{"bulk_size": 1}, {"bulk_size": 7}, {"bulk_size": "auto"}, {"prefetch": False}], ids=str)
def test_bulks_do_not_change_the_draws(option):
    expected, found = loader(sampling_weights=WEIGHTS), loader(sampling_weights=WEIGHTS, **option)
    for _ in range(2):
        assert digests(found) == digests(expected)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_draws(ranks):
    whole = digests(loader(sampling_weights=WEIGHTS))
    shares = [digests(loader(sampling_weights=WEIGHTS, rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert [one for together in zip(*shares, strict=True) for one in together][: len(whole)] == whole


@pytest.mark.parametrize("steps", [None, 4, 13])
def test_an_epoch_draws_from_all_seeds_and_a_state_goes_on(steps):
    made = loader(sampling_weights=WEIGHTS, steps_per_epoch=steps)
    flat = [one for _ in range(3) for one in made]
    seeds = np.concatenate([one.seeds for one in flat])
    assert set(seeds) <= set(SEEDS[WEIGHTS > 0])
    assert len(np.unique(seeds)) < len(seeds)
    first = loader(sampling_weights=WEIGHTS, steps_per_epoch=steps)
    stream = (one for _ in range(3) for one in first)
    for _ in range(3):
        next(stream)
    again = loader(sampling_weights=WEIGHTS, steps_per_epoch=steps, bulk_size=2)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())), onward=True)
    assert [digest for _ in range(3) for digest in digests(again)][: len(flat) - 3] == digests(flat[3:])


def test_states_name_the_weights():
    state = loader(sampling_weights=WEIGHTS).state_dict()
    for other in ({}, {"sampling_weights": WEIGHTS + 1}):
        with pytest.raises(UsageError, match="it was saved with other weights of seeds; use those of the run that saved it"):
            loader(**other).load_state_dict(state)
    with pytest.raises(UsageError, match="it was saved with other weights of seeds"):
        loader(sampling_weights=WEIGHTS).load_state_dict(loader().state_dict())


@pytest.mark.parametrize(("weights", "told"), [
    (np.ones(3), r"sampling_weights: got the shape \(3,\); use one weight for each of the 147 seeds"),
    (np.ones((147, 1)), r"sampling_weights: got the shape \(147, 1\)"),
    (np.zeros(147), "sampling_weights add up to 0.0; use weights with a"),
    (np.full(147, 1e308), "sampling_weights add up to inf"), (np.arange(147) - 3.0, "finite, and 0 or larger; got -3.0 for seed number 0"),
    (np.where(np.arange(147) == 9, np.nan, 1), "got nan for seed number 9"),
    (np.ones(147, bool), "sampling_weights: got bool; use numbers"),
    (["a"] * 147, "sampling_weights: got <U1; use numbers, one for each seed, or 'class'"),
])  # fmt: skip
def test_weights_that_are_none_are_refused(weights, told):
    with pytest.raises(UsageError, match=told):
        loader(sampling_weights=weights)


@pytest.mark.parametrize(("options", "told"), [
    ({"shuffle": False}, "got shuffle False: leave one out"), ({"seed_locality": 2}, "got seed_locality 2: leave one out"),
    ({"sampling_weights": "classes"}, "sampling_weights: got 'classes'; use 'class', or numbers, one for each seed"),
    ({"sampler": "saint", "fanouts": [-1, -1]}, "seeds are drawn by weight, and saint adds seeds of its own"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(options, told):
    with pytest.raises(UsageError, match=told):
        bs.Loader(GRAPH, **{"sampling_weights": "class", **options})


def test_class_weights_are_one_over_the_size_of_a_class():
    assert class_weights(np.array([0, 2, 2, -1, 2, 0])).tolist() == [0.5, 1 / 3, 1 / 3, 0, 1 / 3, 0.5]
    with pytest.raises(UsageError, match="none of the 2 seeds has a label"):
        class_weights(np.array([-1, -1]))
    with pytest.raises(UsageError, match=r"got labels of float32 and shape \(2, 3\): use one class a vertex"):
        class_weights(np.zeros((2, 3), np.float32))


def rare(graph, share=0.02):
    """Only some of the seeds of class 0 are seeds."""
    seeds = np.arange(graph.n)
    labels = graph.labels
    return np.concatenate([seeds[labels == 0][: max(1, int(share * graph.n))], seeds[labels > 0]])


def test_class_draws_all_classes_equally_often():
    seeds = rare(GRAPH)
    made = bs.Loader(GRAPH, fanouts=[2], batch_size=50, seeds=seeds, sampling_weights="class", steps_per_epoch=200, seed=3, out="numpy")
    counts = np.bincount(GRAPH.labels[np.concatenate([batch.seeds for batch in made])], minlength=3)
    assert counts.sum() > 5000
    assert np.abs(counts - counts.sum() / 3).max() < 5 * np.sqrt(counts.sum() * 2 / 9)
    assert np.abs(np.bincount(GRAPH.labels[seeds]) / len(seeds) - 1 / 3).max() > 0.2


def test_class_of_types_draws_all_classes_equally_often():
    graph = planted()
    made = bs.Loader(
        graph, fanouts=[2, 2], batch_size=50, seeds=("paper", "all"), sampling_weights="class", steps_per_epoch=80, out="numpy"
    )
    seeds = np.concatenate([batch.minibatch.seeds["paper"] for batch in made])
    counts = np.bincount(graph.type("paper").labels[seeds])
    expected = counts.sum() / len(counts)
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    with pytest.raises(UsageError, match="needs one class a vertex, and type 'author' has none"):
        bs.Loader(graph, fanouts=[2, 2], seeds={"author": None}, sampling_weights="class")
