"""Seeds of a bulk that are hard on samplers, and comparisons of what is drawn for them."""

import numpy as np
from oracles import assert_identical

from bulksample import Selection

K = 12


def bulk_of_seeds(n, k=K, b=8, seed=0):
    """k minibatches: repeated seeds, an empty one, one of vertex 0 alone, the last one short."""
    rng = np.random.default_rng(seed)
    lists = [rng.integers(0, n, b) for _ in range(k)]
    lists[1], lists[2], lists[3], lists[-1] = np.zeros(0, int), np.zeros(1, int), np.repeat(lists[3][:2], 3), lists[-1][:3]
    return Selection.of(lists, n, np.arange(k) * 37 + 5)


def take(seeds, order):
    """The mini-batches of a bulk in another order, or some of them."""
    return Selection.of([seeds.part(j) for j in order], seeds.n, seeds.minibatches[order])


def assert_same_minibatches(got, expected):
    """Fail at the first minibatch, block and entry that differ."""
    for a, b in zip(got, expected, strict=True):
        name = f"minibatch {b.id}"
        assert (a.id, a.epoch, len(a.blocks)) == (b.id, b.epoch, len(b.blocks)), name
        assert_identical((a.seeds, a.seed_rows, a.vertices), (b.seeds, b.seed_rows, b.vertices), name)
        for layer, (x, y) in enumerate(zip(a.blocks, b.blocks, strict=True)):
            assert_identical((x.indptr, x.indices, x.weights), (y.indptr, y.indices, y.weights), f"{name} block {layer}")
            assert x.num_sources == y.num_sources
        assert a.digest() == b.digest()


def mixed_seeds(n, k=9, b=12):
    """Repeated seeds, an empty minibatch, one of a single vertex."""
    rng = np.random.default_rng(3)
    lists = [rng.integers(0, n, rng.integers(1, b)) for _ in range(k)]
    lists[1], lists[2], lists[4] = np.zeros(0, int), np.zeros(1, int), np.repeat(lists[4][:1], 5)
    return Selection.of(lists, n, np.arange(k) * 71 + 2)


def assert_same_hops(got, expected):
    """Fail at the first minibatch and hop that differ."""
    for j, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert list(a.held) == list(b.held), f"minibatch {j}"
        assert_identical((a.seed_rows, a.vertices), (b.seed_rows, b.vertices), f"minibatch {j}")
        for h, (x, y) in enumerate(zip(a.hops, b.hops, strict=True)):
            assert_identical(x[:2], y[:2], f"minibatch {j} hop {h}")
