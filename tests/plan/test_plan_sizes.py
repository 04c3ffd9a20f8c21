"""Expected mini-batches, compared with arithmetic by hand and with sampled ones."""

from math import exp

import numpy as np
import pytest
from uniform import N, digraph, papers, request

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.plan.sizes import expected_sizes, union


def drawn(sampler, fanouts, frontier, batch_size, minibatches=16):
    seeds = np.random.default_rng(1).permutation(N)[: batch_size * minibatches].reshape(minibatches, batch_size)
    adjacency = LocalAdjacency(digraph(), backends.make("auto", 1))
    return samplers.make(sampler, fanouts, frontier=frontier).sample_bulk(adjacency, Selection.of(list(seeds), N), Stream(3))


def test_papers100m_by_hand():
    """n = 111,059,956, d = 14.548: the first hop draws whole rows, later hops 10 and 5 of each."""
    n, d = 111_059_956, 1_615_685_872 / 111_059_956
    assert d == pytest.approx(14.548, abs=1e-3)
    first = 1024 * d  # 14,897 edges, nearly all to new vertices
    after_one = n - (n - 1024) * exp(-first / n)  # 1,024 + 14,896
    assert after_one == pytest.approx(15_920, abs=1)
    distinct = 1024 * d + (after_one - 1024) * 10  # seeds have drawn whole rows already: their 10 draws are nothing new
    after_two = n - (n - 1024) * exp(-distinct / n)
    assert after_two == pytest.approx(164_758, abs=1)
    # the third hop: a vertex that drew 10 of its 14.548 before draws 5 afresh, so 1 - (1 - 10/d) (1 - 5/d) of its row is drawn
    distinct = 1024 * d + (after_one - 1024) * d * (1 - (1 - 10 / d) * (1 - 5 / d)) + (after_two - after_one) * 5
    sizes = expected_sizes(papers())
    assert [hop.rows for hop in sizes.hops] == pytest.approx([1024, after_one, after_two])
    assert [hop.edges for hop in sizes.hops] == pytest.approx([first, 10 * after_one, 5 * after_two])
    assert sizes.inputs == pytest.approx(n - (n - 1024) * exp(-distinct / n))
    assert sizes.inputs == pytest.approx(928_449, abs=1)
    assert sizes.edges == pytest.approx(14_897 + 159_200 + 823_788, abs=5)
    # 8 b + 4 U + 8 per row and 4 per edge of each block
    by_hand = 8 * 1024 + 4 * 928_449 + 8 * (1024 + 15_920 + 164_758 + 3) + 4 * 997_883
    assert sizes.nbytes == pytest.approx(by_hand, abs=100)


@pytest.mark.parametrize(
    ("sampler", "fanouts", "frontier", "tolerance"),
    [
        ("sage", (8, 5, 3), "all", 0.01),
        ("sage", (8, 5, 3), "new", 0.01),
        ("sage", (25, 10, 30), "all", 0.01),
        ("sage", (-1, 4), "all", 0.01),
        ("ladies", (300, 300), "all", 0.03),
        ("ladies", (300, 200), "new", 0.03),
        ("ladies", (5000, -1), "all", 0.03),
        ("fastgcn", (3000, 2000), "all", 0.05),
        ("fastgcn", (3000, 2000), "new", 0.05),
    ],
)
def test_sampled_minibatches_have_the_expected_size(sampler, fanouts, frontier, tolerance):
    sizes = expected_sizes(request(sampler=sampler, fanouts=fanouts, frontier=frontier, batch_size=100))
    bulk = drawn(sampler, fanouts, frontier, 100)
    for name, expected in (("num_edges", sizes.edges), ("num_inputs", sizes.inputs), ("nbytes", sizes.nbytes)):
        found = np.mean([len(m.vertices) if name == "num_inputs" else m.nbytes() if name == "nbytes" else m.num_edges for m in bulk])
        assert found == pytest.approx(expected, rel=tolerance), name
    for hop, expected in enumerate(sizes.hops):
        assert np.mean([m.blocks[-1 - hop].num_destinations for m in bulk]) == pytest.approx(expected.destinations, rel=tolerance)
        assert np.mean([m.blocks[-1 - hop].num_edges for m in bulk]) == pytest.approx(expected.block_edges, rel=tolerance)


def test_no_minibatch_holds_more_than_the_graph():
    sizes = expected_sizes(request(fanouts=(-1, -1, -1, -1), batch_size=5000))
    assert all(hop.sources <= N for hop in sizes.hops)
    assert sizes.inputs == pytest.approx(N)
    everything = expected_sizes(request(vertices=10, edges=30, batch_size=1024))
    assert everything.hops[0].rows == everything.inputs == 10


@pytest.mark.parametrize("sampler", ["sage", "ladies", "fastgcn"])
def test_a_graph_without_edges_leaves_the_seeds(sampler):
    sizes = expected_sizes(request(edges=0, batch_size=100, sampler=sampler))
    assert sizes.edges == 0
    assert sizes.inputs == 100


def test_the_rule_new_draws_fewer_edges_and_none_at_first():
    every, new = (expected_sizes(request(frontier=rule, batch_size=100)) for rule in ("all", "new"))
    assert new.hops[0] == every.hops[0]
    assert new.edges < every.edges
    assert new.hops[-1].block_edges == pytest.approx(new.edges)


def test_a_union_is_no_larger_than_its_parts_and_than_the_whole():
    assert union(10, 1000, 1) == pytest.approx(10)
    assert union(10, 1000, 2) == pytest.approx(19.9)  # 20 less 10 * 10 / 1000
    assert union(1000, 1000, 3) == 1000
    assert union(900, 1000, 50) == pytest.approx(1000)


def test_measured_sizes_replace_the_expected_ones():
    sizes = expected_sizes(request(batch_size=100))
    half = sizes.scaled_to(sizes.edges / 2, 1234.0)
    assert half.edges == pytest.approx(sizes.edges / 2)
    assert half.inputs == 1234.0
    assert half.hops[0].rows == 100
    assert half.hops[1].rows == sizes.hops[1].rows / 2
