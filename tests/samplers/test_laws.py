"""Draws follow their law: they exist, are distinct and uniform, have exact inclusion probabilities, and are unbiased.

Bounds are four standard errors, or a p-value of 1e-4 after Bonferroni. Draws are functions of fixed seeds, so a test
that passes once passes always.
"""

import itertools

import numpy as np
import pytest
from oracles import dense_block, row_mean, sequential_inclusion
from scipy import stats
from sweeps import sweep
from zoo import random_matrix, star

from bulksample import CSR, LocalAdjacency, Selection, Stream, UsageError, backends, samplers
from bulksample.adjacency import LayerLaw
from bulksample.rng import Law
from bulksample.samplers import fastgcn, saint
from bulksample.samplers.arrivals import SharedRow

HUB, DRAWS = 40_000, 20


def fast():
    return backends.make("auto")


def one_row(columns, weights=None):
    """A graph in which vertex 0 has the given neighbours and nobody else has any."""
    n = max(columns) + 1
    return CSR(np.concatenate([[0], np.full(n, len(columns))]), np.array(columns, np.int32), weights, (n, n))


def draw_many(matrix, fanout, law, minibatches, seed=1, backend=None):
    """The draws of vertex 0 in many minibatches."""
    q = Selection(np.arange(minibatches), np.arange(minibatches + 1), np.zeros(minibatches), matrix.shape[0])
    return (backend or fast()).sample_rows(matrix, q, fanout, Stream(seed).draw(law))


def assert_frequencies(counts, trials, probability):
    counts, probability = np.asarray(counts, float), np.asarray(probability, float)
    error = np.sqrt(np.maximum(probability * (1 - probability), 1e-12) / trials)
    worst = np.abs(counts / trials - probability) / error
    at = worst.argmax()
    assert worst[at] <= 4, f"frequency {counts[at] / trials}, expected {probability[at]}: {worst[at]:.1f} standard errors"


@pytest.mark.long
@sweep("law", [Law.RACE, Law.UNIFORM, Law.LABOR])
def test_a_million_rows_draw_distinct_existing_neighbours(law):
    n, s, k = 100_000, 7, 10
    matrix = random_matrix(n, 1_000_000, 3, skew=2.0)
    q = Selection.of([np.arange(n)] * k, n)
    picks = fast().sample_rows(matrix, q, s, Stream(5).draw(law))
    counts = np.diff(picks.pointers)
    assert len(counts) == 1_000_000
    assert np.array_equal(counts, np.minimum(np.tile(matrix.degrees, k), s))
    row = np.repeat(np.arange(len(counts)), counts)
    assert (np.diff(picks.columns)[np.diff(row) == 0] > 0).all(), "a neighbour was drawn twice, or out of order"
    edges = matrix.row_of_entry() * n + matrix.indices
    drawn = (row % n) * n + picks.columns
    assert np.array_equal(edges[np.searchsorted(edges, drawn)], drawn), "an edge that the graph does not have"


@pytest.mark.parametrize("name", backends.available())
def test_draws_by_weight_with_replacement_are_independent(name):
    """A pair of draws has the product of its shares. Neighbours of weight zero are never drawn; a row of zeros draws nothing."""
    weights = np.array([5, 0, 1, 2, 0, 8]) << 40
    row, trials = one_row([1, 2, 4, 6, 7, 9], weights), 4000
    picks = draw_many(row, 2, Law.WEIGHTED, trials, backend=backends.make(name))
    assert np.array_equal(np.diff(picks.pointers), np.full(trials, 2))
    share = dict(zip(row.indices[:6].tolist(), weights / weights.sum(), strict=True))
    pairs = list(itertools.combinations_with_replacement(sorted(share), 2))
    found = [tuple(pair) for pair in picks.columns.reshape(-1, 2).tolist()]
    counts = [found.count(pair) for pair in pairs]
    assert_frequencies(counts, trials, [share[a] * share[b] * (1 + (a != b)) for a, b in pairs])
    assert sum(counts) == trials
    nothing = draw_many(one_row([1, 2], np.zeros(2, np.int64)), 3, Law.WEIGHTED, 5, backend=backends.make(name))
    assert np.array_equal(nothing.pointers, np.zeros(6))


def test_every_slot_of_a_hub_is_drawn_alike():
    """50 seeds, a hub of degree 40,000. Drawing positions from 16 random bits modulo the degree favours the low 25,536 slots."""
    hub = one_row(range(HUB))
    p_values = []
    for seed in range(50):
        picks = draw_many(hub, DRAWS, Law.UNIFORM, 2000, seed)
        counts = np.bincount(picks.columns // 400, minlength=HUB // 400)
        p_values.append(stats.chisquare(counts).pvalue)
        low = (picks.columns < 2**16 - HUB).sum()
        assert abs(low / len(picks.columns) - (2**16 - HUB) / HUB) < 4.5 * 0.5 / np.sqrt(len(picks.columns))
    assert min(p_values) * len(p_values) > 1e-4
    assert stats.kstest(p_values, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("law", [Law.UNIFORM, Law.RACE, Law.LABOR])
@pytest.mark.parametrize(("degree", "s"), [(6, 3), (5, 1), (7, 6), (9, 2)])
def test_every_subset_is_equally_likely(law, degree, s, backend):
    trials = 8000
    picks = draw_many(one_row(range(degree)), s, law, trials, seed=degree, backend=backend)
    subsets = {subset: i for i, subset in enumerate(itertools.combinations(range(degree), s))}
    seen = np.bincount([subsets[tuple(row)] for row in picks.columns.reshape(trials, s).tolist()], minlength=len(subsets))
    assert stats.chisquare(seen).pvalue > 1e-4 / 24


def test_draws_with_replacement_are_independent_and_uniform(backend):
    degree, s, trials = 5, 3, 10_000
    picks = draw_many(one_row(range(degree)), s, Law.REPLACEMENT, trials, backend=backend)
    rows = np.sort(picks.columns.reshape(trials, s), axis=1)
    seen = {combo: 0 for combo in itertools.combinations_with_replacement(range(degree), s)}
    for row in rows.tolist():
        seen[tuple(row)] += 1
    orders = [len(set(itertools.permutations(combo))) for combo in seen]
    assert stats.chisquare(list(seen.values()), np.array(orders) * trials / degree**s).pvalue > 1e-4


@pytest.mark.parametrize("law", [Law.RACE, Law.LABOR])
@sweep("s", [2, 5, 1, 3], quick=2)
def test_weighted_draws_have_the_enumerated_inclusion_probabilities(law, s, backend):
    weights = np.array([1, 2, 3, 4, 10, 0, 7], np.int64) * 2**40
    trials = 12_000
    picks = draw_many(one_row(range(7), weights), s, law, trials, seed=s, backend=backend)
    expected = np.zeros(7)
    expected[weights > 0] = sequential_inclusion(weights[weights > 0], s)
    assert_frequencies(np.bincount(picks.columns, minlength=7), trials, expected)


SMALL = CSR.from_edges([0, 0, 0, 1, 1, 2, 2, 2, 2, 3], [1, 2, 5, 0, 5, 1, 3, 4, 6, 6], (7, 7))
FRONTIER = [0, 1, 2]


def draw_layer(sampler, adjacency, frontier, s, draw):
    """The vertices that one hop of a layer-wise sampler draws."""
    drawn = sampler.law(adjacency, frontier, [draw])
    return adjacency.sample_layer(frontier, *drawn, s, draw) if isinstance(drawn, LayerLaw) else drawn[0]


def layer_frequencies(sampler, trials, s):
    adjacency = LocalAdjacency(SMALL, fast())
    frontier = Selection.of([FRONTIER] * trials, 7)
    drawn = draw_layer(sampler, adjacency, frontier, s, Stream(3).layer_draw())
    return np.bincount(drawn.columns, minlength=7)


@pytest.mark.parametrize(("importance", "power"), [("sum_of_squares", 1), ("squared_sum", 2)])
@pytest.mark.parametrize("s", [1, 2, 4])
def test_ladies_draws_have_the_enumerated_inclusion_probabilities(importance, power, s):
    dense = SMALL.to_scipy().toarray()[FRONTIER].astype(float)
    weight = (dense / dense.sum(axis=1, keepdims=True)) ** 2 if power == 1 else dense
    weight = weight.sum(axis=0) ** power
    expected = np.zeros(7)
    expected[weight > 0] = sequential_inclusion(weight[weight > 0], s)
    trials = 20_000
    sampler = samplers.make("ladies", (s,), importance=importance)
    assert_frequencies(layer_frequencies(sampler, trials, s), trials, expected)


@pytest.mark.parametrize("s", [1, 2, 4])
def test_fastgcn_draws_have_the_enumerated_inclusion_probabilities(s):
    dense = SMALL.to_scipy().toarray().astype(float)
    weight = ((dense / np.maximum(dense.sum(axis=1, keepdims=True), 1)) ** 2).sum(axis=0)
    expected = np.zeros(7)
    expected[weight > 0] = sequential_inclusion(weight[weight > 0], s)
    trials = 20_000
    assert_frequencies(layer_frequencies(samplers.make("fastgcn", (s,)), trials, s), trials, expected)


@pytest.mark.long
@pytest.mark.parametrize("s", [3, 1])
def test_a_long_row_drawn_by_arrivals_has_the_law_of_the_race(s, monkeypatch):
    weights = np.array([1, 2, 3, 4, 10, 0, 7, 6, 6, 5, 3, 2], np.int64) * 2**59  # their sum does not fit 62 bits
    row = SharedRow(one_row(range(12), weights))
    trials, draw = 12_000, Stream(5).layer_draw()
    assert not row._few_arrivals_do(s)  # short: every column has a word
    monkeypatch.setattr(row, "_by_arrivals", lambda fanout: True)
    drawn = row.draw(fast(), s, np.arange(trials), draw)
    assert (np.diff(drawn.columns.reshape(trials, s)) > 0).all()
    expected = np.zeros(12)
    expected[weights > 0] = sequential_inclusion(weights[weights > 0], s)
    assert_frequencies(np.bincount(drawn.columns, minlength=12), trials, expected)
    estimate = np.bincount(drawn.columns, 1 / drawn.inclusion, minlength=12) / trials  # each column once, in the mean
    if s > 1:  # of one draw the variance is infinite
        np.testing.assert_allclose(estimate[weights > 0], 1, rtol=0.15)


def test_a_shared_row_keeps_every_positive_weight():
    row = SharedRow(CSR(np.array([0, 3]), np.array([2, 4, 7], np.int32), np.array([1, 0, 5]), (1, 8)))
    assert (row.columns.tolist(), row.weights.tolist()) == ([2, 7], [1, 5])


def test_weights_of_a_shared_row_are_shortened_to_a_sum_of_62_bits():
    weights = np.array([2**61 + 2**31, 3, 2**61 - 2**31], np.int64)
    assert SharedRow(one_row(range(3), weights)).weights.tolist() == [2**60 + 2**30, 1, 2**60 - 2**30]  # the sum is 2^62 + 3
    weights[1] = 0
    assert SharedRow(one_row(range(3), weights - [1, 0, 0])).weights.tolist() == [2**61 + 2**31 - 1, 2**61 - 2**31]  # 2^62 - 1


def test_only_long_rows_without_a_heavy_few_are_drawn_by_arrivals():
    even = np.full(1000, 2**40)
    assert SharedRow(one_row(range(1000), even))._few_arrivals_do(50)
    assert not SharedRow(one_row(range(1000), even))._few_arrivals_do(62)
    heavy = np.where(np.arange(1000) < 3, 2**55, 2**40)
    assert not SharedRow(one_row(range(1000), heavy))._few_arrivals_do(5)
    assert SharedRow(one_row(range(1000), heavy))._few_arrivals_do(1)


def test_arrivals_are_the_same_on_every_back_end_and_in_every_bulk():
    row, draw = SharedRow(one_row(range(1000), np.arange(1, 1001) * 2**40)), Stream(5).layer_draw(layer=1, epoch=2)
    whole = row.draw(fast(), 20, np.arange(9), draw)
    alone = [row.draw(backends.make("reference"), 20, np.array([j]), draw) for j in range(9)]
    assert np.array_equal(whole.columns, np.concatenate([one.columns for one in alone]))
    assert np.array_equal(whole.inclusion, np.concatenate([one.inclusion for one in alone]))


def test_fastgcn_and_ladies_differ_on_a_star():
    """From one leaf, LADIES can only draw the centre; FastGCN draws the centre by its share and most leaves in vain."""
    adjacency = LocalAdjacency(star(50), fast())
    frontier = Selection.of([[7]] * 400, 51)
    draw = Stream(1).layer_draw()
    ladies = draw_layer(samplers.make("ladies", (1,)), adjacency, frontier, 1, draw)
    assert (ladies.columns == 0).all()
    fast_gcn = draw_layer(samplers.make("fastgcn", (3,)), adjacency, frontier, 3, draw)
    assert (fast_gcn.columns != 0).mean() > 0.6
    p = fastgcn.importance(adjacency).given
    assert p[0] == pytest.approx(50 * 50**2 * p[1], rel=1e-6)  # 50 rows of weight 1, against one row of weight 1 / 50


@pytest.mark.parametrize(
    ("weighted", "name"), [*((False, name) for name in ("sage", "labor", "ladies", "fastgcn")), (True, "ladies"), (True, "fastgcn")]
)  # node-wise samplers take the plain mean of what they draw
def test_debiased_aggregation_is_unbiased(weighted, name):
    """2,000 draws of one layer: their mean is the full aggregation, within four standard errors."""
    matrix = random_matrix(60, 900, 12, weighted=weighted)
    x = np.random.default_rng(0).normal(size=(60, 4))
    some = np.arange(0, 60, 3)  # of all vertices, FastGCN and LADIES would be one and the same
    expected = row_mean(matrix, x)[some]
    options = {"renormalise": False} if name in ("ladies", "fastgcn") else {}
    sampler = samplers.make(name, (6,), **options)
    trials = 2000
    bulk = sampler.sample_bulk(LocalAdjacency(matrix, fast()), Selection.of([some] * trials, 60), Stream(8))
    results = np.stack([dense_block(m.blocks[0]) @ x[m.vertices] for m in bulk])
    error = results.std(axis=0, ddof=1) / np.sqrt(trials)
    z = np.abs(results.mean(axis=0) - expected) / np.maximum(error, 1e-6)
    assert z.max() <= 4
    assert results.std(axis=0).max() > 0.05, "nothing was random"


def test_dividing_by_the_probability_is_what_removes_the_bias():
    matrix = random_matrix(60, 900, 12)
    x = np.random.default_rng(0).normal(size=(60, 4))
    sampler = samplers.make("ladies", (6,), debias=False, renormalise=False)
    bulk = sampler.sample_bulk(LocalAdjacency(matrix, fast()), Selection.of([np.arange(60)] * 500, 60), Stream(8))
    results = np.stack([dense_block(m.blocks[0]) @ x[m.vertices] for m in bulk])
    z = np.abs(results.mean(axis=0) - row_mean(matrix, x)) / np.maximum(results.std(axis=0) / np.sqrt(500), 1e-6)
    assert z.max() > 10


@pytest.mark.parametrize("name", ["sage", "labor", "ladies", "fastgcn"])
@pytest.mark.parametrize("fanout", [1000, -1])
def test_a_fanout_beyond_every_degree_is_the_full_neighbourhood(name, fanout, backend):
    matrix = random_matrix(80, 900, 13)
    adjacency, seeds = LocalAdjacency(matrix, backend), Selection.of([np.arange(80)], 80)
    x = np.random.default_rng(1).normal(size=(80, 3))
    for minibatch in samplers.make(name, (fanout, fanout)).sample_bulk(adjacency, seeds, Stream(1)):
        for block in minibatch.blocks:
            sources = minibatch.vertices[: block.num_sources]
            expected = row_mean(matrix, x)[minibatch.vertices[: block.num_destinations]]
            assert np.allclose(dense_block(block) @ x[sources], expected, atol=1e-6)


def test_labor_rows_agree_on_their_neighbours():
    columns = np.arange(10, 40)
    rows = np.repeat(np.arange(5), len(columns))
    matrix = CSR.from_edges(rows, np.tile(columns, 5), (40, 40))
    adjacency = LocalAdjacency(matrix, fast())
    seeds = Selection.of([np.arange(5)], 40)
    together = samplers.make("labor", (4,)).sample_bulk(adjacency, seeds, Stream(1))[0]
    apart = samplers.make("sage", (4,)).sample_bulk(adjacency, seeds, Stream(1))[0]
    assert len(together.vertices) == 5 + 4
    assert len(apart.vertices) > 5 + 8


def test_layer_dependent_labor_repeats_itself_in_every_layer():
    matrix = random_matrix(200, 8000, 4)
    adjacency, seeds = LocalAdjacency(matrix, fast()), Selection.of([np.arange(30)], 200)
    inner, outer = samplers.make("labor", (5, 5), layer_dependent=True).sample_bulk(adjacency, seeds, Stream(1))[0].blocks
    rows = outer.num_destinations
    assert np.array_equal(inner.indices[: inner.indptr[rows]], outer.indices)
    inner, outer = samplers.make("labor", (5, 5)).sample_bulk(adjacency, seeds, Stream(1))[0].blocks
    assert not np.array_equal(inner.indices[: inner.indptr[rows]], outer.indices)


def test_the_inclusion_probability_is_the_frequency_given_the_other_keys():
    """Rank conditioning: the mean of 1 / inclusion over the draws of a vertex estimates one per minibatch."""
    weights = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    trials = 30_000
    drawn = fast().smallest_keys(np.array([0, 5]), np.arange(5, dtype=np.int32), weights, 2, np.arange(trials), Stream(6).layer_draw())
    for column in range(5):
        terms = np.zeros(trials)
        terms[: (drawn.columns == column).sum()] = 1 / drawn.inclusion[drawn.columns == column]
        assert abs(terms.mean() - 1) < 4 * terms.std() / np.sqrt(trials)


def test_saint_coefficients_are_those_of_enumeration():
    """Seeds in shuffled pairs, walks of two steps: p_v and p_uv by enumeration; weighted sums over a subgraph are unbiased."""
    into = [[1, 2, 3], [2], [0, 4], [2, 4], [3], [5]]  # row v: the vertices that v aggregates; 5 alone has a loop
    indptr = np.cumsum([0, *map(len, into)])
    matrix = CSR(indptr, np.concatenate(into).astype(np.int32), None, (6, 6))
    walks = [[{v, a, b} for a in into[v] for b in into[a]] for v in range(6)]
    shares = [[1 / len(into[v]) / len(into[a]) for a in into[v] for b in into[a]] for v in range(6)]
    held: dict[frozenset[int], float] = {}
    for u, v in itertools.permutations(range(6), 2):
        for (one, p), (other, q) in itertools.product(zip(walks[u], shares[u], strict=True), zip(walks[v], shares[v], strict=True)):
            held[frozenset(one | other)] = held.get(frozenset(one | other), 0) + p * q / 30
    p = np.array([sum(q for visited, q in held.items() if v in visited) for v in range(6)])
    row = matrix.row_of_entry()
    both = np.array([sum(q for visited, q in held.items() if {u, v} <= visited) for v, u in zip(row, matrix.indices, strict=True)])
    adjacency, stream = LocalAdjacency(matrix, fast()), Stream(4)
    sampler = samplers.make("saint", (1,), coverage=3000).prepared(adjacency, np.arange(6, dtype=np.int32), 2, stream)
    np.testing.assert_allclose(sampler.counted.vertices, 1 / (6 * p), rtol=0.05)
    np.testing.assert_allclose(sampler.counted.edges, p[row] / both, rtol=0.08)
    size = sum(q * len(visited) for visited, q in held.items())
    for minibatch in sampler.sample_bulk(adjacency, Selection.of([[0, 3], [5, 1]], 6), stream):
        (block,) = minibatch.blocks
        np.testing.assert_allclose(minibatch.seed_weights, size / (6 * p[minibatch.seeds]), rtol=0.05)
        at = np.repeat(minibatch.vertices, np.diff(block.indptr))
        expected = [
            p[v] / sum(q for held_, q in held.items() if {u, v} <= held_) / len(into[v])
            for v, u in zip(at, minibatch.vertices[block.indices], strict=True)
        ]
        np.testing.assert_allclose(block.weights, expected, rtol=0.08)
    plain = samplers.make("saint", (1,)).sample_bulk(adjacency, Selection.of([[0, 3], [5, 1]], 6), stream)
    assert all(minibatch.seed_weights is None and minibatch.blocks[0].weights is None for minibatch in plain)


def test_coefficients_of_saint_follow_from_the_counts():
    """32 subgraphs hold vertex 0, 16 of them vertex 1 and 8 the edge to it; no subgraph holds vertex 2 or another edge."""

    def draw(ids):
        return np.concatenate([0 * ids, 0 * ids[ids % 2 == 0] + 1]), 0 * ids[ids % 4 == 0]

    found = saint.count(draw, 3, np.array([1, 0, 2]), 16)
    np.testing.assert_allclose(found.vertices, [32 / (3 * 32), 32 / (3 * 16), 32 / (3 * 0.1)], rtol=1e-6)
    np.testing.assert_allclose(found.edges, [16 / 8, 1e4, 0.1], rtol=1e-6)
    assert found.size == 48 / 32


def test_walks_of_saint_have_at_most_255_steps():
    assert samplers.make("saint", (1,), walk_length=255).walk_length == 255
    for length in (0, 256):
        with pytest.raises(UsageError, match=rf"walk_length must be in 1 .. 255; got {length}"):
            samplers.make("saint", (1,), walk_length=length)


@pytest.mark.parametrize("name", ["ladies", "fastgcn"])
def test_bytes_are_predicted_for_the_seeds_of_all_minibatches_of_a_bulk(name, monkeypatch):
    adjacency, asked = LocalAdjacency(random_matrix(60, 400, 2), fast()), []
    sampler, seeds = samplers.make(name, (5, 4)), Selection.of([np.arange(8)], 60)
    (minibatch,) = sampler.sample_bulk(adjacency, seeds, Stream(0))
    monkeypatch.setattr(LocalAdjacency, "layer_bytes", lambda self, *given: asked.append(given) or 12345)
    assert sampler.table_bytes(adjacency, 3, minibatch) == 12345
    assert asked == [(3, 24, (5, 4), sampler.frontier == "new", name == "ladies")]
