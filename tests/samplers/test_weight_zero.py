"""An edge of weight 0 is no edge to a sampler that reads weights: it is neither drawn nor among "all" neighbors, anywhere."""

import numpy as np
import pytest
from grids import POLICIES, distributed
from relation_bulks import TIMES, bulk, kind_of_times, sampler_of
from relations_zoo import drawn_edges, edges_of, library

from bulksample import CSR, DataError, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import TypeLayouts
from bulksample.distributed.matrix.open_graph import open_relations
from bulksample.distributed.matrix.placement import Placement
from bulksample.distributed.matrix.relation_blocks import read_blocks
from bulksample.graph import Graph, VertexType
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges
from bulksample.samplers.inclusion import inclusion_probability
from bulksample.sparse import fixed_point

N = 150
LAWS = {
    "sage": ("sage", {"weighted": True}), "sage, replace": ("sage", {"weighted": True, "replace": True}), "labor": ("labor", {}),
    "ladies": ("ladies", {}), "ladies squared_sum": ("ladies", {"importance": "squared_sum"}), "fastgcn": ("fastgcn", {}),
    "shadow": ("shadow", {"weighted": True}),
}  # fmt: skip
NODE_WISE = ("sage", "sage, replace", "labor")
FANOUTS = [(-1, -1), (3, -1), (-1, 2), (40, 40), (4, 3)]


def hidden_edges():
    """A graph that hides every third edge and all edges of every fifth row by the weight 0, and the same graph without these edges."""
    rng = np.random.default_rng(5)
    pairs = np.unique(rng.integers(0, N, (1500, 2)), axis=0)
    rows, columns = pairs.T
    weights = rng.integers(1, 2**20, len(rows)) * (rng.random(len(rows)) > 0.33) * (rows % 5 != 2)
    some = weights > 0
    return CSR.from_edges(rows, columns, (N, N), weights), CSR.from_edges(rows[some], columns[some], (N, N), weights[some])


HIDING, CUT = hidden_edges()


def sampled(adjacency, sampler, ids=range(3)):
    """The digests of some mini-batches, and the minibatches."""
    lists = [np.random.default_rng(i).integers(0, N, 9) for i in ids]
    found = sampler.sample_bulk(adjacency, Selection.of(lists, N, np.array(ids)), Stream(3), 1)
    return [m.digest() for m in found], found


@pytest.mark.parametrize("fanouts", FANOUTS)
@pytest.mark.parametrize("name", LAWS)
def test_hidden_edges_are_sampled_like_absent_ones(name, fanouts, backend):
    law, options = LAWS[name]
    for rule in ("all", "new") if law != "shadow" else ("all",):
        sampler = samplers.make(law, fanouts, frontier=rule, **options)
        expected, _ = sampled(LocalAdjacency(CUT, backends.make("reference")), sampler)
        digests, found = sampled(LocalAdjacency(HIDING, backend, longest_column=CUT.longest_column), sampler)
        assert digests == expected
        if name in NODE_WISE and fanouts == (-1, -1):
            assert_all(found)


def assert_all(minibatches):
    """Assert that blocks hold all edges of positive weight into their rows, read from a dense matrix."""
    dense = HIDING.to_scipy().toarray()
    for minibatch in minibatches:
        for block in minibatch.blocks:
            rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
            expanded = minibatch.vertices[: block.num_destinations] if not minibatch.nested else minibatch.vertices[np.unique(rows)]
            found = set(zip(minibatch.vertices[rows].tolist(), minibatch.vertices[block.indices].tolist(), strict=True))
            assert found == {(v, u) for v in expanded.tolist() for u in np.flatnonzero(dense[v]).tolist()}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fanouts", FANOUTS)
@pytest.mark.parametrize("name", LAWS)
def test_ranks_that_share_a_graph_hide_the_same_edges(name, fanouts, policy):
    law, options = LAWS[name]
    sampler = samplers.make(law, fanouts, **options)
    expected = [sampled(LocalAdjacency(CUT, backends.make("native")), sampler, [rank])[0] for rank in range(4)]
    longest = CUT.longest_column

    def rank(comm):
        adjacency = distributed(comm, 2, policy, HIDING)
        adjacency._longest_column = lambda: longest  # the zeros count in the unit of squares
        return sampled(adjacency, sampler, [comm.rank])[0]

    assert on_threads(4, rank) == expected


def test_uniform_samplers_read_no_weights(backend):
    """Graphs whose weights mean something else keep all their edges."""
    pattern = HIDING.with_values(None)
    for name in ("sage", "full", "saint", "shadow"):
        sampler = samplers.make(name, (-1, 3))
        assert sampled(LocalAdjacency(HIDING, backend), sampler)[0] == sampled(LocalAdjacency(pattern, backend), sampler)[0]


@pytest.mark.parametrize("rule", ["static", "trees", "vertices", "edges", "window"])
@pytest.mark.parametrize("name", ["weighted", "weighted, replace", "labor"])
def test_all_neighbors_of_relations_are_those_of_positive_weight(name, rule, backend):
    """Each of several parallel edges counts for itself, also in windows of time, and beside hops and relations that draw."""
    graph = library(kind_of_times(rule), weighted=True, parallel=name != "labor")
    mixed = {("paper", "cites", "paper"): (-1, 3), ("word", "in", "paper"): (4, -1)}
    seeds, into = bulk(graph, kind_of_times(rule) is not None), {r.key: edges_of(graph, r) for r in graph.relations}
    for entries in (True, False):
        sampler = sampler_of(rule, name, (-1, -1), mixed, "new" if entries else "all")
        expected = sampler.sample_bulk(LocalAdjacency(graph, backends.make("reference"), by_type=True), seeds, Stream(4), 3)
        got = sampler.sample_bulk(LocalAdjacency(graph, backend, by_type=True), seeds, Stream(4), 3)
        assert [m.digest() for m in got] == [m.digest() for m in expected]
    sampler = sampler_of(rule, name, (-1,))
    for minibatch in sampler.sample_bulk(LocalAdjacency(graph, backend, by_type=True), seeds, Stream(4), 3):
        for relation in graph.relations:
            weights, found = relation.adjacency.values, drawn_edges(minibatch, 0, relation.key)
            expected = []
            rows = minibatch.rows[relation.destination]
            trees = np.zeros(len(rows.vertices), int) if rows.trees is None else rows.trees
            for tree, v in list(zip(trees.tolist(), rows.vertices.tolist(), strict=True))[: rows.sizes[0]]:
                end = None if TIMES[rule] is None else time_of(minibatch, tree)
                for entry, u, time in into[relation.key].get(v, []):
                    if (weights is None or weights[entry] > 0) and (end is None or time is None or within(TIMES[rule], time, end)):
                        expected.append((tree, v, u, entry))
            assert sorted(found) == sorted(expected)


def time_of(minibatch, tree):
    """The time of the seed of a tree."""
    own = [rows for rows in minibatch.rows.values() if tree in rows.seed_trees]
    return int(own[0].seed_times[own[0].seed_trees.tolist().index(tree)])


def within(rule, time, end):
    late = time < end if rule.strict else time <= end
    return late and (rule.window is None or time >= end - rule.window)


@pytest.mark.parametrize("exchange", ["owner", "rows", "rows-oblivious"])
@pytest.mark.parametrize("rule", ["static", "vertices", "edges"])
@pytest.mark.parametrize("name", ["weighted", "weighted, replace", "labor"])
def test_relations_in_block_rows_hide_the_same_edges(name, rule, exchange):
    graph = library(kind_of_times(rule), weighted=True, parallel=name != "labor")
    seeds, sampler = bulk(graph, kind_of_times(rule) is not None), sampler_of(rule, name, (-1, -1))
    expected = [m.digest() for m in sampler.sample_bulk(LocalAdjacency(graph, backends.make("native"), by_type=True), seeds, Stream(4), 3)]

    def rank(comm):
        blocks = TypeLayouts.open(graph, Placement(), ProcessGrid(comm, 1), 5)
        held = read_blocks(graph, blocks)
        adjacency = open_relations(Placement("partitioned", exchange=exchange), graph, backends.make("reference"), blocks, held)
        return [m.digest() for m in sampler.sample_bulk(adjacency, seeds, Stream(4), 3)]

    assert on_threads(2, rank) == [expected, expected]


@pytest.mark.parametrize("name", ["ladies", "fastgcn"])
def test_hidden_edges_of_a_union_of_relations(name):
    """Vertex 0 has from 1 an edge of weight 0 and one of weight 2 by one relation, one of weight 0 by another; from 2 one of weight 0."""
    node = VertexType("node", 3)
    ends = ([1, 1, 2, 1], [0, 0, 0, 2]), ([1, 2], [0, 0])
    relations = [
        relation_from_edges(node, f"r{i}", node, *(np.array(part) for part in both), weights=np.array(weights))
        for i, (both, weights) in enumerate(zip(ends, ([0.0, 2.0, 0.0, 1.0], [0.0, 0.0]), strict=True))
    ]
    graph = Graph.of((node,), tuple(relations)).validate()
    seeds = SeedList.of(graph, {"node": [0]}).select([np.arange(1)], np.arange(1))
    (minibatch,) = samplers.make(name, (-1,)).sample_bulk(LocalAdjacency(graph, backends.make("native"), by_type=True), seeds, Stream(1), 0)
    first, second = (drawn_edges(minibatch, 0, relation.key) for relation in graph.relations)
    ((_, v, u, entry),) = first
    assert (v, u) == (0, 1)
    assert relations[0].adjacency.values[entry] > 0
    assert second == []


@pytest.mark.parametrize("name", ["sage", "labor"])
def test_hidden_edges_do_not_include_vertices(name):
    law, options = LAWS[name]
    for fanout in (-1, 2, 6):
        sampler = samplers.make(law, (fanout, fanout), **options)
        expected = inclusion_probability(CUT, sampler, np.arange(20), 5)
        assert inclusion_probability(HIDING, sampler, np.arange(20), 5) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("name", LAWS)
def test_the_least_weights_are_drawn(name, backend):
    """Weights that differ by 2**50 are all positive: the square of the least one's share is not 0."""
    row = CSR.from_edges([0, 0, 0], [1, 2, 3], (4, 4), np.array([2**50, 1, 0]))
    law, options = LAWS[name]
    for fanout in (-1, 3):
        if name == "sage, replace" and fanout == 3:
            continue
        sampler = samplers.make(law, (fanout,), **options)
        (minibatch,) = sampler.sample_bulk(LocalAdjacency(row, backend), Selection.of([[0]], 4), Stream(1))
        (block,) = minibatch.blocks
        assert minibatch.vertices[block.indices[: block.indptr[1]]].tolist() == [1, 2]


def test_weights_of_any_size_are_positive_or_refused():
    """float32 holds 1e-42 and float64 1e-310 as subnormal numbers. A unit below float64's normal ones would lose or zero real weights."""
    for small in (float(np.float32(1e-42)), 1e-280):
        integers, unit = fixed_point(np.array([small, 0, 2 * small, small / 2**20]), 4)
        assert (integers > 0).tolist() == [True, False, True, True]
        assert integers * unit == pytest.approx([small, 0, 2 * small, small / 2**20], rel=1e-6)
    integers, _ = fixed_point(np.array([1.0, 1e-310, 0.0]), 3)
    assert (integers > 0).tolist() == [True, True, False]
    with pytest.raises(DataError, match="largest weight is 1e-310"):
        fixed_point(np.array([1e-310, 0.0]), 2)
    assert fixed_point(np.zeros(3), 3)[0].tolist() == [0, 0, 0]
