"""The loader: which minibatches an epoch holds, in which order, and going on from a state."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from zoo import random_matrix

from bulksample import CSR, LocalAdjacency, Selection, UsageError, backends, digest, samplers
from bulksample.loading import bulk_sizes
from bulksample.loading.bulk_sizes import COPIES
from bulksample.loading.loader import BulkLoader

N = 200
SEEDS = np.arange(3, 150)


def loader(**options):
    adjacency = LocalAdjacency(random_matrix(N, 3000, 1), backends.make())
    settings = {"batch_size": 16, "bulk_size": 3, "seed": 5, **options}
    seeds = settings.pop("seeds", SEEDS)
    return BulkLoader(adjacency, samplers.make(settings.pop("sampler", "sage"), (4, 3)), seeds, **settings)


def digests(minibatches):
    return [m.digest() if m is not None else None for m in minibatches]


def test_an_epoch_holds_every_seed_once():
    for epoch in loader(), loader(shuffle=False), loader(seeds=SEEDS[:144]), loader(seeds=SEEDS[:1]):
        seen = np.concatenate([m.seeds for m in epoch])
        assert len(seen) == len(np.unique(seen))
        assert epoch.epoch == 1


def test_the_last_minibatch_is_short_or_dropped():
    assert [len(m.seeds) for m in loader()] == [16] * 9 + [3]
    assert [len(m.seeds) for m in loader(drop_last=True)] == [16] * 9
    assert [len(m.seeds) for m in loader(drop_last=True, seeds=SEEDS[:144])] == [16] * 9
    assert list(loader(drop_last=True, seeds=SEEDS[:5])) == []
    assert list(loader(seeds=[])) == []


@pytest.mark.parametrize("option", [{"bulk_size": 1}, {"bulk_size": 7}, {"bulk_size": 1000}, {"bulk_size": "auto"}, {"prefetch": False}])
def test_bulks_and_prefetching_do_not_change_the_minibatches(option):
    expected, got = loader(), loader(**option)
    for _ in range(2):
        assert digests(got) == digests(expected)


@pytest.mark.parametrize(
    ("option", "sizes"),
    [
        ({"bulk_size": "auto"}, [1, 2, 4, 3]),
        ({"bulk_size": "auto", "prefetch": False}, [10]),
        ({"bulk_size": 4}, [4, 4, 2]),
    ],
)
def test_bulks_that_the_loader_chooses_begin_small(option, sizes):
    """So that the first minibatch of an epoch, and the first after a resumption, waits for no other."""
    bulks = []
    loaded = loader(transform=lambda bulk: bulks.append(len(bulk)) or bulk, **option)
    bulks.clear()  # of the probe
    expected = digests(loaded)
    assert bulks == sizes
    loaded.load_state_dict({**loaded.state_dict(), "epoch": 0, "step": 8})
    bulks.clear()
    assert digests(loaded) == expected[8:]
    assert bulks == ([1, 1] if sizes[0] == 1 else [2])


def test_epochs_differ_and_repeat():
    one, again = loader(), loader()
    first, second = digests(one), digests(one)
    assert first != second
    again.epoch = 1
    assert digests(again) == second


def test_an_older_iterator_goes_on_in_its_own_epoch():
    expected = list(loader(bulk_size=1, prefetch=False))
    shared = loader(bulk_size=1, prefetch=False)
    older = iter(shared)
    taken = [next(older)]
    list(shared)  # a newer iterator finishes the epoch
    assert digests([*taken, *older]) == digests(expected)


@pytest.mark.parametrize("prefetch", [True, False])
def test_every_iteration_is_a_new_epoch(prefetch):
    """Whoever leaves an epoch early does not find the rest of it in the next loop, as with torch's `DataLoader`."""
    epochs = [digests(following) for following in [loader()] * 3]
    left = loader(prefetch=prefetch)
    for steps, expected in zip((3, 1, 99), epochs, strict=True):
        assert digests(m for _, m in zip(range(steps), left, strict=False)) == expected[:steps]
    assert left.epoch == 3


def test_a_loaded_state_goes_on_once():
    whole, shared = loader(), loader()
    first, second = digests(whole), digests(whole)
    for _ in zip(range(4), shared, strict=False):
        pass
    state = shared.state_dict()
    assert (state["epoch"], state["step"]) == (0, 4)
    shared.load_state_dict(state)
    assert digests(m for _, m in zip(range(3), shared, strict=False)) == first[4:7]
    assert digests(shared) == second  # the rest of the first epoch was left


def test_an_epoch_that_is_set_is_taken_from_its_start():
    whole, shared = loader(), loader()
    first, second = digests(whole), digests(whole)
    next(iter(shared))
    shared.epoch = 1
    assert digests(shared) == second
    shared.epoch = 0
    assert digests(shared) == first


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 12])
def test_ranks_share_the_minibatches_of_one_epoch(ranks):
    whole = list(loader())
    parts = [list(loader(rank=rank, ranks=ranks, bulk_size=2)) for rank in range(ranks)]
    assert {len(part) for part in parts} == {loader(ranks=ranks).steps} == {-(-10 // ranks)}
    dealt = [m for step in zip(*parts, strict=True) for m in step if m is not None]
    assert digests(dealt) == digests(whole)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_counts_the_minibatches_of_all_ranks(ranks, drop_last):
    yielded = [m for rank in range(ranks) for m in loader(rank=rank, ranks=ranks, drop_last=drop_last) if m is not None]
    assert len(loader(ranks=ranks, drop_last=drop_last)) == len(yielded)


@pytest.mark.parametrize("stop", [0, 1, 3, 5, 9, 10])
def test_a_state_goes_on_mid_epoch_with_the_same_minibatches(stop):
    first = loader()
    taken, state = [], first.state_dict()
    if stop:
        for minibatch in first:
            taken.append(minibatch)
            state = first.state_dict()
            if len(taken) == stop:
                break
    second = loader(bulk_size=4)
    second.load_state_dict(json.loads(json.dumps(state)))
    rest = list(second)
    assert digests([*taken, *rest]) == digests(loader())
    assert digests(second) == digests(following_epoch())


def test_coefficients_of_saint_are_the_same_bits_everywhere():
    """They are counted when a loader is made: by any back end, at any bulk size and rank. Another batch size has others."""

    def made(name="native", **options):
        adjacency = LocalAdjacency(random_matrix(N, 3000, 1), backends.make(name))
        return BulkLoader(
            adjacency, samplers.make("saint", (1,), coverage=2), SEEDS, seed=5, **{"batch_size": 16, "bulk_size": 3} | options
        )

    whole = list(made())
    assert all(m.seed_weights is not None for m in whole)
    assert digests(made("reference", bulk_size=2)) == digests(whole) == digests(made(bulk_size="auto"))
    assert digests(made(rank=1, ranks=3)) == [*digests(whole)[1::3], *[None] * (len(whole) % 3 == 1)]
    weights = {int(v): float(w) for m in whole for v, w in zip(m.seeds, m.seed_weights, strict=True)}
    other = {int(v): float(w) for m in made(batch_size=40) for v, w in zip(m.seeds, m.seed_weights, strict=True)}
    assert any(weights[v] != other[v] for v in weights.keys() & other.keys())
    state = made().state_dict()
    made().load_state_dict(state)
    with pytest.raises(UsageError, match="sampler was"):
        loader(sampler="saint").load_state_dict(state)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize(("before", "steps", "after"), [(1, 3, 2), (3, 2, 1), (3, 2, 4), (2, 5, 3), (4, 3, 3), (3, 0, 2)])
def test_a_state_continues_on_another_number_of_ranks(before, steps, after, even):
    """Oracle: the whole epoch on one rank, minus what was used; what is left is dealt in turn."""
    whole, following = digests(loader()), digests(following_epoch())
    first = loader(ranks=before, even=even)
    for _ in zip(range(steps), first if steps else (), strict=False):
        pass
    state = json.loads(json.dumps(first.state_dict()))
    used = min(before * steps, len(whole))
    again = None
    for rank in range(after):
        second = loader(rank=rank, ranks=after, even=even, bulk_size=4)
        second.load_state_dict(state)
        expected = [whole[i % len(whole)] if i < len(whole) or even else None for i in numbers(used, len(whole), rank, after)]
        assert digests(second) == expected
        second.load_state_dict(state)
        for _ in zip(range(1), second, strict=False):
            again = second.state_dict()
        assert [digest for digest in digests(second) if digest][:1] == following[rank : rank + 1]  # the next epoch is dealt as always
    if again is not None and used < len(whole):  # and once more, from a state whose mini-batches two numbers of ranks have used
        third = loader()
        third.load_state_dict(again)
        assert digests(third) == whole[used + after :]


def numbers(used, minibatches, rank, ranks):
    return range(used + rank, used + rank + ranks * -(-(minibatches - used) // ranks), ranks)


def test_drop_last_leaves_out_what_the_new_ranks_cannot_share():
    whole = digests(loader(drop_last=True))  # nine
    first = loader(drop_last=True, even=True, ranks=2)
    next(iter(first))
    for rank in range(3):
        second = loader(drop_last=True, even=True, rank=rank, ranks=3)
        second.load_state_dict(first.state_dict())
        assert digests(second) == whole[2 + rank : 8 : 3]


def following_epoch():
    later = loader()
    later.epoch = 1
    return later


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"batch_size": 8}, "batch_size"),
        ({"seed": 6}, "random_seed"),
        ({"sampler": "labor"}, "sampler"),
        ({"shuffle": False}, "shuffle"),
    ],
)
def test_a_state_of_another_run_is_refused(change, named):
    with pytest.raises(UsageError, match=f"{named} was"):
        loader(**change).load_state_dict(loader().state_dict())


def test_a_state_of_other_seeds_names_what_to_use():
    """A hash of the seeds tells nobody anything."""
    with pytest.raises(UsageError, match="does not fit: it was saved with other seeds; use those of the run that saved it, or start a new"):
        loader(seeds=SEEDS[1:]).load_state_dict(loader().state_dict())


@pytest.mark.parametrize(
    "change",
    [{"step": 11}, {"step": -1}, {"step": None}, {"epoch": -1}, {"epoch": "x"}, {"first": 11}, {"first": 8, "step": 3}, {"ranks": 0}],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change):
    one = loader()
    with pytest.raises(UsageError, match="the loader's state is damaged: epoch"):
        one.load_state_dict(one.state_dict() | change)
    assert one.state_dict() == loader().state_dict()


def test_what_is_no_state_is_refused():
    with pytest.raises(UsageError, match="must be what state_dict returned; got NoneType"):
        loader().load_state_dict(None)
    with pytest.raises(UsageError, match="must be what state_dict returned; got a dict without epoch, step, seeds, sampler"):
        loader().load_state_dict({})


@pytest.mark.parametrize("name", ["batch_size", "bulk_size", "seed", "rank", "ranks", "memory_budget"])
def test_true_is_no_number(name):
    with pytest.raises(UsageError, match=rf"{name} must be .*got True"):
        loader(**{name: True})


def test_numpy_numbers_leave_the_state_plain_json():
    state = loader(batch_size=np.int64(4), seed=np.int64(5)).state_dict()
    assert json.loads(json.dumps(state)) == loader(batch_size=4, seed=5).state_dict()


def test_auto_fits_the_budget_and_says_what_it_expects():
    small, large = loader(bulk_size="auto", memory_budget=1), loader(bulk_size="auto", memory_budget=2**30)
    assert small.bulk_size == 1
    assert large.bulk_size == 10
    assert large.predicted_bytes <= 2**30
    middle = loader(bulk_size="auto", memory_budget=large.predicted_bytes // 2)
    assert 1 < middle.bulk_size < 10
    assert middle.predicted_bytes <= large.predicted_bytes // 2


@pytest.mark.parametrize("shuffle", [False, True])
def test_auto_takes_the_largest_bulk_whose_copies_fit_the_budget(shuffle, monkeypatch):
    """Two and a half bulks, to the byte: the order of an epoch takes nothing. The reference has no tables."""
    adjacency, drawn = LocalAdjacency(random_matrix(N, 3000, 1), backends.make("reference")), samplers.make("sage", (4, 3))

    def auto(budget):
        return BulkLoader(adjacency, drawn, SEEDS, batch_size=8, shuffle=shuffle, memory_budget=budget, prefetch=False)

    size = next(iter(auto(2**40))).nbytes()
    for k in (2, 7, 13):
        needed = math.ceil(2.5 * k * size)
        assert (auto(needed).bulk_size, auto(needed - 1).bulk_size) == (k, k - 1)
        assert auto(needed).predicted_bytes == int(2.5 * k * size)
        monkeypatch.setattr(bulk_sizes, "free_memory", lambda free=4 * needed: free)  # a quarter of it, unless a budget is given
        assert auto(None).bulk_size == k


def test_the_prediction_covers_what_two_bulks_hold():
    bulks = loader(bulk_size="auto")
    held = sum(m.nbytes() for m in bulks)
    assert held / 2 < bulks.predicted_bytes < 8 * held


@pytest.mark.parametrize("sampler", ["sage", "ladies"])
def test_the_prediction_counts_the_tables_of_each_thread(sampler):
    """On one thread as many as minibatches; k is chosen so that they fit, too."""
    if "native" not in backends.available():
        pytest.skip(backends.why_not("native"))
    adjacencies = [LocalAdjacency(random_matrix(20_000, 60_000, 1), backends.make("native", threads)) for threads in (1, 8)]

    def made(adjacency, budget):
        drawn = samplers.make(sampler, (15, 15, 15))
        return BulkLoader(adjacency, drawn, np.arange(20_000), batch_size=64, shuffle=False, memory_budget=budget)

    one, eight = (made(adjacency, 2**40) for adjacency in adjacencies)
    assert one.bulk_size == eight.bulk_size == 32
    tables = one.predicted_bytes - int(COPIES * 32 * one.bytes_per_minibatch)
    assert tables >= 4 * 20_000
    assert eight.predicted_bytes - one.predicted_bytes == 7 * tables
    fits = made(adjacencies[1], one.predicted_bytes)
    assert 1 < fits.bulk_size < made(adjacencies[0], one.predicted_bytes).bulk_size == 32
    assert fits.predicted_bytes <= one.predicted_bytes


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size must be positive, and a whole number; got 2.5"),
        ({"seed": 1.5}, "seed must be a 64-bit number: got 1.5"),
        ({"bulk_size": 0}, "bulk_size"),
        ({"shuffle": 1}, "^shuffle must be true or false; got 1$"),
        ({"drop_last": "no"}, "^drop_last must be true or false; got 'no'$"),
        ({"prefetch": None}, "^prefetch must be true or false; got None$"),
        ({"rank": 2, "ranks": 2}, "rank must be"),
        ({"seeds": [0, N]}, f"vertex {N}"),
        ({"seeds": [-1]}, "vertex -1"),
    ],
)
def test_what_has_no_meaning_is_refused(option, message):
    with pytest.raises(UsageError, match=message):
        loader(**option)


def test_an_error_on_the_sampling_thread_reaches_the_consumer():
    broken = loader()
    broken._sampler = None
    with pytest.raises(AttributeError, match="has no attribute 'sample_bulk'"):
        next(iter(broken))


def test_the_digest_of_an_epoch_does_not_depend_on_its_order():
    epoch = list(loader())
    assert digest(epoch) == digest(reversed(epoch)) == digest((m.epoch, m.id, m.digest()) for m in epoch)
    assert digest(epoch[1:]) != digest(epoch)


class Tight:
    """A sampler on a machine with memory for `most` minibatches at once."""

    def __init__(self, sampler, most):
        self._sampler, self._most, self.calls = sampler, most, []

    def check(self, adjacency):
        self._sampler.check(adjacency)

    def sample_bulk(self, adjacency, seeds, stream, epoch):
        self.calls.append(len(seeds))
        if len(seeds) > self._most:
            raise MemoryError(f"{len(seeds)} of {self._most} fit")
        return self._sampler.sample_bulk(adjacency, seeds, stream, epoch)


def tight(most, **options):
    given = loader(bulk_size=8, prefetch=False, **options)
    given._sampler = Tight(given._sampler, most)
    return given


def test_a_bulk_that_takes_too_much_memory_is_halved_once_and_says_so():
    got = tight(4)
    with pytest.warns(UserWarning, match=r"out of memory with 8 mini-batches in a bulk \(8 of 4 fit\): going on with 4"):
        assert digests(got) == digests(loader())
    assert got._sampler.calls == [8, 4, 4, 2]
    assert digests(got) == digests(loader_of_the_next_epoch())
    assert got._sampler.calls[4:] == [4, 4, 2]


def loader_of_the_next_epoch():
    given = loader()
    given.epoch = 1
    return given


def test_memory_that_runs_out_twice_is_an_error():
    with pytest.warns(UserWarning, match="going on with 4"), pytest.raises(MemoryError, match="4 of 3 fit"):
        list(tight(3))


def test_ranks_that_sample_together_do_not_halve_alone():
    given = tight(4)
    given._adjacency = SimpleNamespace(collective=True)
    with pytest.raises(MemoryError, match="8 of 4 fit"):
        given._sample_bulk(Selection.of([[j] for j in range(8)], N), 0)


def of_matrix(matrix):
    return BulkLoader(LocalAdjacency(matrix, backends.make()), samplers.make("sage", (4, 3)), SEEDS, batch_size=16)


@pytest.mark.parametrize(
    "other",
    [
        random_matrix(N, 3000, 2),
        random_matrix(N, 2999, 1),
        random_matrix(N + 1, 3000, 1),
        random_matrix(N, 3000, 1).with_values(np.ones(random_matrix(N, 3000, 1).nnz, np.int64)),
    ],
    ids=["other edges", "fewer edges", "more vertices", "weights"],
)
def test_a_state_of_another_graph_is_refused(other):
    state = of_matrix(random_matrix(N, 3000, 1)).state_dict()
    with pytest.raises(UsageError, match="the loader's state does not fit: it was saved with another graph; use that"):
        of_matrix(other).load_state_dict(state)
    of_matrix(random_matrix(N, 3000, 1)).load_state_dict(state)  # an equal graph fits
    del state["graph"]  # as earlier versions wrote it
    of_matrix(other).load_state_dict(state)


def test_the_fingerprint_of_a_large_graph_changes_with_one_edge(monkeypatch):
    """Only some elements are hashed, but an edge more or less moves all later row pointers."""
    monkeypatch.setattr("bulksample.sparse._FINGERPRINT", 16)
    matrix = random_matrix(N, 3000, 1)
    rows, columns = matrix.row_of_entry(), matrix.indices
    for gone in (0, matrix.nnz // 2, matrix.nnz - 1):
        kept = np.arange(matrix.nnz) != gone
        moved = CSR.from_edges(np.append(rows[kept], 7), np.append(columns[kept], 7), (N, N))
        assert moved.fingerprint != CSR.from_edges(rows, columns, (N, N)).fingerprint == matrix.fingerprint
