"""Probabilities to be in a mini-batch: against the formula by loops, against enumeration where it is exact, and against draws."""

import itertools
import math

import numpy as np
import pytest
from zoo import random_matrix

from bulksample import CSR, LocalAdjacency, UsageError, backends, samplers
from bulksample.loading.loader import BulkLoader
from bulksample.samplers import inclusion
from bulksample.samplers.inclusion import inclusion_probability
from bulksample.sparse import fixed_point

N = 12


def picked(sampler, fanout, weights, k, weighted):
    """The chance of entry k of a row to be picked, by its weight if `weighted`."""
    if fanout < 0:
        return 1.0
    share = weights[k] / sum(weights)
    if getattr(sampler, "replace", False):
        return 1 - (1 - share) ** fanout
    if weighted:
        return 1.0 if len(weights) <= fanout else 1 - (1 - share) ** fanout
    return min(1.0, fanout / len(weights))


def by_loops(dense, sampler, seeds, batch_size, weighted=False):
    """One vertex after another, one edge after another."""
    held = [min(1.0, batch_size / len(seeds)) if v in set(seeds.tolist()) else 0.0 for v in range(len(dense))]
    frontier = list(held)
    for fanout in sampler.fanouts:
        after = []
        for v in range(len(dense)):
            missed = 1.0
            for u in range(len(dense)):
                row = [w for w in dense[u] if w]
                if dense[u][v]:
                    k = sum(1 for w in dense[u][:v] if w)
                    missed *= 1 - frontier[u] * picked(sampler, fanout, row, k, weighted)
            after.append(1 - (1 - held[v]) * missed)
        frontier = after if sampler.frontier == "all" else [now - then for now, then in zip(after, held, strict=True)]
        held = after
    return held


def tiny(seed, weighted):
    rng = np.random.default_rng(seed)
    dense = (rng.random((N, N)) < 0.25) * (rng.integers(1, 6, (N, N)) if weighted else 1)
    dense[3] = 0  # a vertex without neighbors
    rows, columns = np.nonzero(dense)
    a = CSR.from_edges(rows, columns, (N, N))
    return dense.tolist(), a.with_values(fixed_point(dense[rows, columns].astype(float), N)[0]) if weighted else a


LAWS = [
    ("sage", {}), ("sage", {"replace": True}), ("sage", {"weighted": True}), ("sage", {"weighted": True, "replace": True}), ("labor", {}),
    ("labor", {"weighted": True}),
    ("full", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), LAWS)
@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("piece", [2**24, 3])
def test_probabilities_are_those_of_the_formula(name, options, frontier, piece, monkeypatch):
    """Labor draws by weight wherever there are weights, and has no option for it."""
    monkeypatch.setattr(inclusion, "_ENTRIES", piece)
    weighted = options.get("weighted", False)
    options = {} if name == "labor" else options
    for seed, fanouts in enumerate([(2,), (2, 1), (3, -1, 2)]):
        dense, a = tiny(seed, weighted)
        sampler = samplers.make(name, fanouts, frontier=frontier, **options)
        seeds = np.random.default_rng(seed).permutation(N)[:5].astype(np.int32)
        for batch_size in 1, 3, 9:
            found = inclusion_probability(a, sampler, seeds, batch_size)
            np.testing.assert_allclose(found, by_loops(dense, sampler, seeds, batch_size, weighted), atol=1e-6)


def test_one_seed_and_one_hop_are_exact():
    """All subsets of s neighbors are equally likely: count those that hold a vertex."""
    dense, a = tiny(7, False)
    u = int(np.argmax(a.degrees))
    listed = [v for v in range(N) if dense[u][v]]
    subsets = list(itertools.combinations(listed, 2))
    expected = [max(float(v == u), sum(v in one for one in subsets) / math.comb(len(listed), 2)) for v in range(N)]
    found = inclusion_probability(a, samplers.make("sage", (2,)), np.array([u], np.int32), 1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), [("labor", {}), ("sage", {"weighted": True}), ("sage", {"weighted": True, "replace": True})])
def test_a_row_whose_weights_are_all_zero_picks_nothing(name, options):
    matrix = CSR(np.array([0, 2, 3]), np.array([0, 1, 0], np.int32), np.array([0, 0, 5]), (2, 2))
    sampler, seeds = samplers.make(name, (1, 1), **options), np.zeros(1, np.int32)
    assert inclusion_probability(matrix, sampler, seeds, 1).tolist() == [1, 0]
    (minibatch,) = BulkLoader(LocalAdjacency(matrix, backends.make()), sampler, seeds, batch_size=1)
    assert minibatch.vertices.tolist() == [0]


def test_the_order_is_that_of_counted_minibatches():
    """Half of the vertices by probability hold nearly as many rows as the half that is counted; half by degree holds fewer."""
    n, seeds = 400, np.arange(60, dtype=np.int32)  # seeds that lie together
    a = random_matrix(n, 2400, 3)
    rng = np.random.default_rng(0)
    near = CSR.from_edges(np.repeat(np.arange(n), 4), (np.repeat(np.arange(n), 4) + rng.integers(1, 20, 4 * n)) % n, (n, n))
    sampler = samplers.make("sage", (3, 3))
    for matrix, worse in (near, 0.7), (a, 1.0):
        loader = BulkLoader(LocalAdjacency(matrix, backends.make()), sampler, seeds, batch_size=10, seed=1)
        counts = np.zeros(n)
        for _ in range(10):
            for minibatch in loader:
                counts[minibatch.vertices] += 1
        held = {
            "counted": counts,
            "inclusion": inclusion_probability(matrix, sampler, seeds, 10),
            "degree": np.bincount(matrix.indices, minlength=n),
        }
        hits = {how: counts[np.argsort(-score, kind="stable")[:60]].sum() for how, score in held.items()}
        assert hits["inclusion"] >= 0.93 * hits["counted"]
        assert hits["degree"] <= worse * hits["inclusion"]


@pytest.mark.parametrize("name", ["ladies", "fastgcn", "shadow", "saint"])
def test_other_samplers_are_refused(name):
    with pytest.raises(UsageError, match=f"follows the draws of the samplers sage, labor and full; got {name}"):
        inclusion_probability(random_matrix(9, 20, 0), samplers.make(name, (2, 2)), np.arange(3, dtype=np.int32), 1)
