"""Coverage is what counting gives, and weights made of it keep their promises."""

import numpy as np
import pytest
from communities import community_graph, dense_adjacency

from bulksample.graph import EDGE, NODE
from bulksample.methods.config import TrainConfig
from bulksample.methods.grappa.method import fresh_chunks, seen_chunks
from bulksample.methods.grappa.seed_weights import batch_scalar, capped, effective_share, shrunk, walk_coverage
from bulksample.training.loaders import equal_steps
from bulksample.views.local import PartRelation, local_graph


def induced(graph, inside):
    """The subgraph of some vertices: their ids, and its matrix."""
    seen = np.flatnonzero(inside).astype(np.int32)
    return local_graph(seen, graph.adjacency.take(seen), 0)


def coverage(matrix, degrees, hops):
    return walk_coverage([PartRelation((NODE, EDGE, NODE), matrix, degrees)], hops)[NODE]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_coverage_is_the_counted_share_of_neighbours(share):
    graph = community_graph(n=120)
    inside = np.random.default_rng(1).random(120) < share
    seen, matrix = induced(graph, inside)
    counted = []
    for v in seen:
        neighbours = graph.adjacency.indices[graph.adjacency.indptr[v] : graph.adjacency.indptr[v + 1]]
        counted.append(np.mean([inside[u] for u in neighbours]) if len(neighbours) else 1.0)
    found = coverage(matrix, graph.adjacency.degrees[seen], 1)
    np.testing.assert_allclose(found, counted, rtol=1e-15)
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("hops", [1, 2, 4])
def test_coverage_of_hops_is_that_of_walks(hops):
    graph = community_graph(n=90)
    inside = np.random.default_rng(2).random(90) < 0.5
    a, d = dense_adjacency(graph), graph.adjacency.degrees
    steps = np.where(d[:, None] > 0, a / np.maximum(d, 1)[:, None], np.eye(90)) * inside[None, :]
    expected = np.linalg.matrix_power(steps, hops).sum(1)
    seen, matrix = induced(graph, inside)
    np.testing.assert_allclose(coverage(matrix, d[seen], hops), expected[seen], rtol=1e-12)


def test_a_whole_view_covers_everything_exactly():
    graph = community_graph(n=100)
    assert (coverage(graph.adjacency, graph.adjacency.degrees, 3) == 1.0).all()


def test_shrinkage_goes_from_uniform_to_the_weights_as_they_are():
    weights = np.random.default_rng(0).random(50) * 3
    assert (shrunk(weights, 0.0) == 1.0).all()
    assert (shrunk(weights, 1.0) == weights).all()
    np.testing.assert_allclose(shrunk(weights, 0.25).mean(), 0.75 + 0.25 * weights.mean())


def test_effective_share_is_one_for_equal_weights_and_that_of_the_only_one():
    assert effective_share(7, 7, 7) == 1.0
    assert effective_share(8, 3, 9) == 1 / 8
    assert effective_share(5, 0, 0) == 0.0


def test_a_cap_cuts_and_says_how_much():
    weights = np.array([1.0, 2.0, 3.0, 10.0])
    cut, beyond = capped(weights, 0.75)
    assert cut.tolist() == [1, 2, 3, 3]
    assert beyond == 7.0
    assert capped(weights, 1.0)[0] is weights
    assert len(capped(weights[:0], 0.5)[0]) == 0


def test_one_scalar_for_a_batch_is_the_mean_and_no_other_is_nearer():
    weights = np.random.default_rng(3).random(40)
    scalar = batch_scalar(weights)
    np.testing.assert_allclose(scalar, weights.mean())
    distance = np.square(weights - scalar).sum()
    assert all(np.square(weights - c).sum() > distance for c in scalar[0] + np.array([-0.1, -0.01, 0.01, 0.1]))


@pytest.mark.parametrize(("ranks", "count"), [(1, 2), (4, 2), (5, 3), (8, 2), (3, 9)])
def test_every_chunk_is_seen_as_often_as_any_other_and_a_sweep_meets_every_pair(ranks, count):
    met = np.zeros((ranks, ranks), int)
    for turn in range(max(1, ranks - 1)):
        seen = seen_chunks(ranks, count, turn)
        assert seen.diagonal().all()
        assert (seen.sum(0) == min(count, ranks)).all()
        assert (seen.sum(1) == min(count, ranks)).all()
        met += seen
    assert (met > 0).all()


def test_the_chunks_of_a_turn_follow_the_own_one_in_a_cycle():
    """A rank that sees three of six chunks adds the next two in each turn, and begins again after the last."""
    for turn, others in enumerate([(1, 2), (3, 4), (5, 1), (2, 3), (4, 5), (1, 2)]):
        assert [set(np.flatnonzero(row)) for row in seen_chunks(6, 3, turn)] == [{r, *((r + d) % 6 for d in others)} for r in range(6)]


def test_fresh_chunks_are_even_independent_and_named_by_vertex_and_turn():
    part = fresh_chunks(3, 0, 60_000, 4)
    assert abs(np.bincount(part, minlength=4) / 15_000 - 1).max() < 0.03
    assert (fresh_chunks(3, 0, 100, 4) == part[:100]).all()
    other = fresh_chunks(3, 1, 60_000, 4)
    assert abs(np.mean(part == other) - 0.25) < 0.01
    assert abs(np.mean(part[1:] == part[:-1]) - 0.25) < 0.01
    assert (fresh_chunks(3, 5, 100, 1) == 0).all()


@pytest.mark.parametrize("seeds", [[10, 10], [1, 57, 0, 20], [0, 0, 0], [999, 1000, 1001]])
@pytest.mark.parametrize("b", [1, 7, 1000])
def test_all_ranks_make_as_many_steps_and_no_seed_is_left_out(seeds, b):
    steps, sizes = equal_steps(seeds, TrainConfig.of(batch_size=b))
    assert steps == max(-(-n // b) for n in seeds)
    assert all(0 < size <= b for size in sizes)
    assert all(-(-n // size) <= steps for n, size in zip(seeds, sizes, strict=True))
