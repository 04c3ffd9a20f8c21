"""Epochs of a fixed number of steps: seeds go on across epochs, pass after pass, on any number of ranks and from any state."""

import json

import numpy as np
import pytest
from communities import community_graph
from planted_relations import planted
from test_loader import SEEDS, digests, loader

import bulksample as bs
from bulksample import UsageError

PASS = 10  # mini-batches of 16 of the 147 seeds
GRAPH = community_graph()


def seeds_of(made, epochs):
    return [one.seeds.tolist() for _ in range(epochs) for one in made if one is not None]


def passes(count, **options):
    """The seeds of mini-batches of an ordinary loader, pass after pass."""
    made = loader(**options)
    return [one.seeds.tolist() for _ in range(count) for one in made]


@pytest.mark.parametrize("steps", [1, 3, PASS, 14, 25])
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"drop_last": True}, {"bulk_size": "auto"}], ids=str)
def test_seeds_go_on_where_the_epoch_before_ended(steps, options):
    epochs = 5
    found = seeds_of(made := loader(steps_per_epoch=steps, **options), epochs)
    assert (made.steps, len(made), made.epoch) == (steps, steps, epochs)
    assert len(found) == steps * epochs
    assert found == passes(1 + len(found) // 9, **options)[: len(found)]


def test_epochs_of_a_pass_are_those_without_a_number():
    made, plain = loader(steps_per_epoch=PASS), loader()
    for _ in range(3):
        assert digests(made) == digests(plain)


def test_minibatches_of_an_epoch_draw_apart():
    """Also if they have the same seeds: one seed, of which three steps are three passes."""
    drawn = [one.digest() for one in loader(seeds=SEEDS[:1], steps_per_epoch=8)]
    assert len(set(drawn)) > 4


@pytest.mark.parametrize(("ranks", "virtual"), [(2, None), (3, None), (2, 4), (1, 3), (3, 4)])
def test_ranks_share_every_step(ranks, virtual):
    steps, w = 7, virtual or ranks
    shares = [loader(steps_per_epoch=steps, rank=rank, ranks=ranks, virtual_ranks=virtual) for rank in range(ranks)]
    expected = passes(6)
    for epoch in range(2):
        taken = [list(share) for share in shares]
        assert all(len(one) == steps * shares[0].slots for one in taken)
        by_id = {one.id: one.seeds.tolist() for of_rank in taken for one in of_rank if one is not None}
        assert [by_id[i] for i in range(steps * w)] == expected[epoch * steps * w :][: steps * w]


@pytest.mark.parametrize("used", [1, 4, 7, 9])
def test_a_state_goes_on_in_the_middle_of_an_epoch(used):
    whole, first = loader(steps_per_epoch=7), loader(steps_per_epoch=7)
    expected, stream = [digest for _ in range(3) for digest in digests(whole)], (one for _ in range(3) for one in first)
    assert digests(next(stream) for _ in range(used)) == expected[:used]
    state = json.loads(json.dumps(first.state_dict()))
    again = loader(steps_per_epoch=7, bulk_size=2, prefetch=False)
    again.load_state_dict(state, onward=True)
    assert [digest for _ in range(3 - again.epoch) for digest in digests(again)] == expected[used:]


def test_states_name_the_steps():
    state = loader(steps_per_epoch=7).state_dict()
    assert state["steps_per_epoch"] == 7
    for other, told in (({}, "7 and is None"), ({"steps_per_epoch": 8}, "7 and is 8")):
        with pytest.raises(UsageError, match=f"steps_per_epoch was {told} now; use steps_per_epoch=7$"):
            loader(**other).load_state_dict(state)
    with pytest.raises(UsageError, match=r"steps_per_epoch was None and is 7 now; leave it out$"):
        loader(steps_per_epoch=7).load_state_dict(loader().state_dict())


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, "3"])
def test_steps_are_a_positive_whole_number(steps):
    with pytest.raises(UsageError, match="steps_per_epoch must be a positive whole number; got"):
        bs.Loader(GRAPH, steps_per_epoch=steps)


def test_groups_of_seeds_are_refused():
    with pytest.raises(UsageError, match="steps_per_epoch goes on in the order of all seeds; got seed_locality 2: leave one out"):
        bs.Loader(GRAPH, steps_per_epoch=3, seed_locality=2)


@pytest.mark.parametrize(("ranks", "steps", "told"), [
    (2, 4, "minibatches was 12 and is 8 now"), (1, 4, "minibatches was 12 and is 4 now"), (2, 6, "steps_per_epoch was 4 and is 6 now"),
])  # fmt: skip
def test_a_state_of_other_ranks_says_on_how_many_it_goes_on(ranks, steps, told):
    """Also where as many mini-batches of an epoch would be asked for."""
    options = {"fanouts": [4], "batch_size": 16, "out": "numpy"}
    saved = bs.Loader(GRAPH, steps_per_epoch=4, rank=1, ranks=3, **options).state_dict()
    fits = "use steps_per_epoch=4 on 3 ranks, where it was saved, as a step has a mini-batch of each"
    with pytest.raises(UsageError, match=f"^the loader's state does not fit: {told}; {fits}$"):
        bs.Loader(GRAPH, steps_per_epoch=steps, rank=0, ranks=ranks, **options).load_state_dict(saved)
    bs.Loader(GRAPH, steps_per_epoch=4, rank=0, ranks=3, **options).load_state_dict(saved)


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_rank_of_a_loader_yields_so_many(ranks):
    options = {"fanouts": [4, 3], "batch_size": 16, "seed": 5, "out": "numpy"}
    whole = bs.Loader(GRAPH, **options)
    seeds = [batch.seeds.tolist() for _ in range(3) for batch in whole]
    shares = [bs.Loader(GRAPH, steps_per_epoch=4, rank=rank, ranks=ranks, **options) for rank in range(ranks)]
    for epoch in range(2):
        batches = [list(share) for share in shares]
        assert [len(share) for share in shares] == [len(one) for one in batches] == [4] * ranks
        assert not any(batch.repeated for of_rank in batches for batch in of_rank)
        found = [batch.seeds.tolist() for together in zip(*batches, strict=True) for batch in together]
        assert found == seeds[epoch * 4 * ranks :][: 4 * ranks]


def test_seeds_of_a_type_go_on_too():
    graph = planted()
    options = {"fanouts": [3, 3], "batch_size": 30, "seeds": "paper", "out": "numpy", "seed": 2}
    whole, made = bs.Loader(graph, **options), bs.Loader(graph, steps_per_epoch=3, **options)
    expected = [np.concatenate([np.ravel(part) for part in batch.minibatch.seeds.values()]).tolist() for _ in range(3) for batch in whole]
    found = [np.concatenate([np.ravel(part) for part in batch.minibatch.seeds.values()]).tolist() for _ in range(2) for batch in made]
    assert found == expected[:6]
