"""Mini-batches from groups of near seeds: against lists made by hand, and the same for every number of ranks."""

import numpy as np
import pytest
from zoo import random_matrix

from bulksample import LocalAdjacency, Stream, UsageError, backends, samplers
from bulksample.loading.division import SeedGroups
from bulksample.loading.loader import BulkLoader
from bulksample.rng import Substream, as_u64

N, SEEDS = 200, np.arange(3, 150)  # 147 seeds
PLACES = np.random.default_rng(7).permutation(N)


def loader(count=4, places=PLACES, **options):
    adjacency = LocalAdjacency(random_matrix(N, 3000, 1), backends.make())
    settings = {"batch_size": 8, "bulk_size": 3, "seed": 5, **options}
    seeds = settings.pop("seeds", SEEDS)
    groups = None if count is None else SeedGroups(count, places[seeds])
    return BulkLoader(adjacency, settings.pop("sampler", samplers.make("sage", (4, 3))), seeds, groups=groups, **settings)


def by_hand(count, batch_size, epoch, drop_last=False, shuffle=True):
    """The seeds of every mini-batch by number: sort by place, deal 147 = 37 + 37 + 37 + 36, sort each group by keys of its own."""
    near = sorted(SEEDS.tolist(), key=lambda v: PLACES[v])
    tag = Substream.SEED_ORDER.tag(epoch)
    made, start = {}, 0
    for g in range(count):
        size = len(near) // count + (g < len(near) % count)
        own = near[start : start + size]
        start += size
        if shuffle:
            keys = as_u64(Stream(5).words(tag, np.arange(size), minibatch=g)).tolist()
            own = [v for _, v in sorted(zip(keys, own, strict=True))]
        batches = [own[i : i + batch_size] for i in range(0, size, batch_size)]
        for t, batch in enumerate(batches):
            if len(batch) == batch_size or not drop_last:
                made[t * count + g] = batch
    return [made[i] for i in range(len(made))]  # the numbers have no gap


@pytest.mark.parametrize(("count", "batch_size"), [(1, 8), (4, 8), (4, 12), (4, 36), (4, 37), (7, 1), (7, 21), (147, 2)])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"shuffle": False}])
def test_minibatches_are_those_made_by_hand(count, batch_size, options):
    made = loader(count, batch_size=batch_size, **options)
    for epoch in range(2):
        expected = by_hand(count, batch_size, epoch, **options)
        assert len(made) == len(expected)
        found = list(made)
        assert [m.seeds.tolist() for m in found] == expected
        assert [m.id for m in found] == list(range(len(expected)))
        if not options.get("drop_last"):
            assert sorted(v for batch in expected for v in batch) == SEEDS.tolist()


def test_one_group_in_the_order_of_ids_is_no_group():
    one, none = loader(1, np.arange(N)), loader(None)
    for _ in range(2):
        assert [m.digest() for m in one] == [m.digest() for m in none]


def taken(ranks, count=4, virtual=None, **options):
    """Return the mini-batches of every rank, slot by slot."""
    made = [loader(count, rank=r, ranks=ranks, virtual_ranks=virtual, **options) for r in range(ranks)]
    assert len({(one.steps, one.slots) for one in made}) == 1
    return [list(one) for one in made]


@pytest.mark.parametrize(
    ("ranks", "virtual"), [(1, None), (2, None), (4, None), (8, None), (1, 4), (3, 4), (4, 8), (2, 8), (3, 8), (6, 8), (16, None)]
)
@pytest.mark.parametrize("batch_size", [4, 9, 37])
def test_ranks_share_the_same_minibatches_and_keep_to_their_groups(ranks, virtual, batch_size):
    """Rank r of p holds the places from r / p to (r + 1) / p of part order, to which its groups belong."""
    expected = {m.id: m.digest() for m in loader(batch_size=batch_size)}
    found, together = taken(ranks, virtual=virtual, batch_size=batch_size), virtual or ranks
    own = [[m for m in each if m is not None] for each in found]
    assert sorted((m.id, m.digest()) for each in own for m in each) == sorted(expected.items())
    for r, each in enumerate(own):
        first, last = r * together // ranks, (r + 1) * together // ranks
        assert {m.id % 4 for m in each} <= {g for v in range(first, last) for g in range(4 * v // together, -(-4 * (v + 1) // together))}


def test_even_loaders_have_a_minibatch_at_every_step():
    for ranks in 1, 2, 4, 8:
        found = taken(ranks, even=True)
        assert all(m is not None for each in found for m in each)
        assert {m.id for each in found for m in each} == set(range(20))
        made = loader(rank=ranks - 1, ranks=ranks, even=True)
        state = made.state_dict()
        repeated = [made.repeats({**state, "step": t}) for t in range(1, 1 + made.steps)]
        ids = [[m.id for m in each] for each in found]
        assert sum(map(len, ids)) - 20 == sum(
            loader(rank=r, ranks=ranks, even=True).repeats({**state, "step": t}) for r in range(ranks) for t in range(1, 1 + made.steps)
        )
        assert not any(repeated[:-1])


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (4, 4), (8, 8), (4, 2), (4, 1), (8, 4), (2, 4), (1, 8)])
def test_a_state_goes_on_with_the_same_minibatches(before, after):
    """After a round of all groups on any number of ranks; on the same number anywhere."""
    used = {1: 8, 2: 4, 4: 2, 8: 1}[before] if before != after else 3 if before < 8 else 1
    first = [loader(rank=r, ranks=before) for r in range(before)]
    seen = [m for one in first for _, m in zip(range(used), one, strict=False)]
    rest = []
    for r in range(after):
        one = loader(rank=r, ranks=after)
        one.load_state_dict(first[0].state_dict())
        rest += list(one)
    expected = {m.id: m.digest() for m in loader()}
    assert sorted((m.id, m.digest()) for m in seen + rest if m is not None) == sorted(expected.items())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: loader(0), "seed_locality must be a positive whole number; got 0"),
        (lambda: loader(148), "seed_locality 148 needs as many seeds; got 147"),
        (lambda: loader(ranks=3), "seed_locality 4 does not fit steps of 3 mini-batches.*use 1, 2, 4 of them or a multiple of 4"),
        (lambda: loader(virtual_ranks=6), "does not fit steps of 6"),
        (lambda: loader(60, ranks=7), "fit steps of 7 .*; use 6 or 10 of them, another divisor or a multiple of 60$"),
        (lambda: loader(sampler=samplers.make("saint", (2, 2), coverage=2)), "coverage counts subgraphs .* use coverage=0"),
        (
            lambda: loader(None).load_state_dict(loader().state_dict()),
            "saved with other groups of seeds; use the",
        ),
        (
            lambda: loader().load_state_dict(loader(None).state_dict()),
            "saved with other groups of seeds; use the",
        ),
        (
            lambda: loader().load_state_dict(loader(places=np.arange(N)).state_dict()),
            "saved with other groups of seeds; use the",
        ),
        (lambda: loader(ranks=4).load_state_dict({**loader(ranks=2).state_dict(), "step": 1}), "lies among steps that share the 4 groups"),
    ],
)
def test_what_does_not_fit_is_refused(made, message):
    with pytest.raises(UsageError, match=message):
        made()
