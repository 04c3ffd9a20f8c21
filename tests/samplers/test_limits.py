"""The edges of what is legal, and what is refused."""

import numpy as np
import pytest
from battery import SETTINGS, make, needs_weights
from oracles import dense_block
from zoo import ZOO, empty, random_matrix

from bulksample import LocalAdjacency, Selection, Stream, UsageError, backends, samplers


def sample(adjacency, lists, setting="sage", **options):
    return make(setting, **options).sample_bulk(adjacency, Selection.of(lists, adjacency.n), Stream(1))


@pytest.fixture(params=[s for s in SETTINGS if not needs_weights(s)])
def setting(request):
    return request.param


def test_isolated_seeds_keep_their_place_and_aggregate_to_zero(setting, backend):
    minibatch = sample(LocalAdjacency(empty(30), backend), [[5, 0, 29]], setting)[0]
    assert minibatch.vertices.tolist() == [5, 0, 29]
    assert minibatch.num_edges == 0
    assert not dense_block(minibatch.blocks[-1]).any()


def test_no_seeds_is_an_empty_minibatch(setting, adjacency):
    minibatch = sample(adjacency, [[]], setting)[0]
    assert len(minibatch.vertices) == len(minibatch.seeds) == minibatch.num_edges == 0
    assert all(block.num_destinations == 0 for block in minibatch.blocks)


def test_no_minibatches_is_an_empty_bulk(setting, adjacency):
    assert sample(adjacency, [], setting) == []


def test_repeated_seeds_share_a_row(backend):
    minibatch = sample(LocalAdjacency(ZOO["random"], backend), [[9, 4, 9, 9, 0]])[0]
    assert minibatch.vertices[:3].tolist() == [9, 4, 0]
    assert minibatch.seed_rows.tolist() == [0, 1, 0, 0, 2]
    assert minibatch.blocks[-1].num_destinations == 3


def test_repeated_shadow_seeds_get_a_subgraph_each(backend):
    minibatch = sample(LocalAdjacency(ZOO["random"], backend), [[9, 9]], "shadow")[0]
    assert minibatch.vertices[:2].tolist() == [9, 9]
    assert len(minibatch.vertices) % 2 == 0


def test_fanout_zero_draws_nothing(adjacency):
    for name in ("sage", "labor", "ladies", "fastgcn"):
        minibatch = samplers.make(name, (0, 0)).sample_bulk(adjacency, Selection.of([[0]], adjacency.n), Stream(1))[0]
        assert minibatch.num_edges == 0
        assert minibatch.vertices.tolist() == [0]


def test_the_rule_new_expands_each_vertex_once(backend):
    adjacency, seeds = LocalAdjacency(ZOO["random"], backend), Selection.of([[1, 2, 5]], 200)
    minibatch = samplers.make("sage", (3, 3, 3), frontier="new").sample_bulk(adjacency, seeds, Stream(1))[0]
    inner, middle, outer = minibatch.blocks
    assert np.array_equal(inner.indices[: middle.num_edges], middle.indices)
    assert np.array_equal(middle.indices[: outer.num_edges], outer.indices)
    assert minibatch.num_edges == inner.num_edges


def test_both_rules_agree_where_all_neighbours_are_taken(backend):
    adjacency, seeds = LocalAdjacency(ZOO["random"], backend), Selection.of([[1, 2, 5]], 200)
    drawn = [samplers.make("full", (1, 1, 1), frontier=rule).sample_bulk(adjacency, seeds, Stream(1))[0] for rule in ("all", "new")]
    for a, b in zip(drawn[0].blocks, drawn[1].blocks, strict=True):
        assert np.array_equal(a.indices, b.indices)
        assert np.array_equal(a.indptr, b.indptr)


def test_shadow_holds_every_edge_among_a_root_and_its_scope(backend):
    matrix = ZOO["random"]
    dense = matrix.to_scipy().toarray()
    adjacency = LocalAdjacency(matrix, backend)
    roots = [1, 2, 5]
    minibatch = sample(adjacency, [roots], "shadow")[0]
    block = dense_block(minibatch.blocks[0]) > 0
    alone = [sample(adjacency, [[root]], "shadow")[0] for root in roots]
    assert len(minibatch.vertices) == sum(len(m.vertices) for m in alone)
    assert block.sum() == sum((dense_block(m.blocks[0]) > 0).sum() for m in alone)
    for m in alone:
        assert np.array_equal(dense_block(m.blocks[0]) > 0, dense[np.ix_(m.vertices, m.vertices)] > 0)
    assert len(minibatch.blocks) == 4


def test_saint_holds_every_edge_among_the_visited(backend):
    matrix = ZOO["random"]
    minibatch = sample(LocalAdjacency(matrix, backend), [[1, 2, 5, 5]], "saint")[0]
    expected = matrix.to_scipy().toarray()[np.ix_(minibatch.vertices, minibatch.vertices)] > 0
    assert np.array_equal(dense_block(minibatch.blocks[0]) > 0, expected)
    assert np.array_equal(minibatch.seeds, minibatch.vertices)
    assert len(minibatch.vertices) <= 4 * 4


def test_saint_walkers_at_one_vertex_walk_apart():
    adjacency = LocalAdjacency(ZOO["complete"], backends.make())
    minibatch = samplers.make("saint", (1,), walk_length=1).sample_bulk(adjacency, Selection.of([[3] * 60], 24), Stream(1))[0]
    assert len(minibatch.vertices) > 15


@pytest.mark.parametrize(
    ("name", "fanouts", "options", "message"),
    [
        ("sgae", (5,), {}, "there is no sampler 'sgae'; did you mean 'sage'"),
        (3, (5,), {}, "there is no sampler 3; use sage"),
        ("sage", (), {}, "1 to 255 hops"),
        ("sage", (-2,), {}, "fanout must be in 1 .. 1048575, or -1 for all neighbors"),
        ("sage", (5,), {"frontier": "old"}, "'all' or 'new'"),
        ("sage", (5,), {"weightd": True}, "did you mean 'weighted'"),
        ("ladies", (5,), {"importance": "sum"}, "sum_of_squares"),
        ("saint", (5,), {"walk_length": 0}, "walk_length"),
        ("shadow", (5,), {"layers": -1}, "layers"),
    ],
)
def test_what_has_no_meaning_is_refused(name, fanouts, options, message):
    with pytest.raises(UsageError, match=message):
        samplers.make(name, fanouts, **options)


def test_weighted_sampling_of_an_unweighted_graph_is_refused(backend):
    with pytest.raises(UsageError, match="no edge weights"):
        sample(LocalAdjacency(ZOO["random"], backend), [[1]], "sage weighted")


@pytest.mark.parametrize("vertex", [-1, 200])
def test_seeds_that_are_no_vertices_are_refused(vertex):
    with pytest.raises(UsageError, match=f"mini-batch 0 names vertex {vertex}; vertices run from 0 to 199"):
        Selection.of([[3, vertex]], 200)


def test_zero_weights_are_never_drawn(backend):
    matrix = random_matrix(100, 3000, 5, weighted=True)
    dense = matrix.to_scipy().toarray()
    for setting in ("sage weighted", "labor", "ladies"):
        for minibatch in sample(LocalAdjacency(matrix, backend), [np.arange(100)], setting):
            block = minibatch.blocks[-1]
            row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
            used = np.ones(block.num_edges, bool) if block.weights is None else block.weights > 0
            assert (dense[minibatch.vertices[row], minibatch.vertices[block.indices]][used] > 0).all()
