"""Draws on relations: the homogeneous ones on one relation, brute force at full fanout, exact laws, and trees of their own."""

from dataclasses import replace

import numpy as np
import pytest
from bulks import assert_same_minibatches, bulk_of_seeds
from relations_zoo import drawn_edges, edges_of, library, one_relation
from scipy.stats import chisquare
from zoo import ZOO

from bulksample import Graph, LocalAdjacency, Selection, Stream, UsageError, VertexType, backends, samplers
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges
from bulksample.loading.loader import BulkLoader
from bulksample.rng import philox

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
SAMPLERS = {
    "sage": {"name": "sage", "fanouts": (4, 3)},
    "replace": {"name": "sage", "fanouts": (4, 3), "replace": True},
    "labor": {"name": "labor", "fanouts": (4, 3)},
    "same layers": {"name": "labor", "fanouts": (4, 3), "layer_dependent": True},
    "full": {"name": "full", "fanouts": (1, 1)},
    "weighted": {"name": "sage", "fanouts": (4, 3), "weighted": True},
    "weighted, replace": {"name": "sage", "fanouts": (4, 3), "weighted": True, "replace": True},
}
SEEDS = {"paper": [3, 0, 3, 59], "venue": [2, 6], "alone": [4]}


def law(name, **change):
    return samplers.make(**{**SAMPLERS[name], **change})


def sample(graph, sampler, seeds=None, engine="reference", bulk=3, epoch=2):
    """Mini-batches 0, 5, 10, … of the same seeds."""
    listed = SeedList.of(graph, SEEDS if seeds is None else seeds)
    chosen = listed.select([np.arange(len(listed))] * bulk, np.arange(bulk) * 5)
    return sampler.sample_bulk(LocalAdjacency(graph, backends.make(engine), by_type=True), chosen, Stream(7), epoch)


MATRICES = [(m, name) for m in ("random", "weighted", "star", "isolated") for name in SAMPLERS if "weighted" not in name or m == "weighted"]


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("matrix", "name"), MATRICES)
def test_one_relation_draws_what_the_homogeneous_graph_draws(matrix, name, frontier):
    """The definition on relations, and the plain path of both back ends, which one relation takes unless entries are asked for."""
    sampler, a = law(name, frontier=frontier), ZOO[matrix]
    seeds, relation = bulk_of_seeds(a.shape[0]), one_relation(a)
    whole = LocalAdjacency(relation, backends.make("reference"))
    defined = replace(sampler, entries=True).sample_bulk(whole, seeds, Stream(7), 3)
    for engine in ("native", "reference"):
        plain = sampler.sample_bulk(LocalAdjacency(a, backends.make(engine)), seeds, Stream(7), 3)
        assert_same_minibatches([replace(m, by_type=False) for m in defined], plain)
        fused = sampler.sample_bulk(LocalAdjacency(relation, backends.make(engine)), seeds, Stream(7), 3)
        assert [m.digest() for m in fused] == [m.digest() for m in defined]


@pytest.mark.parametrize("frontier", ["all", "new"])
def test_all_neighbors_are_those_of_a_breadth_first_search(frontier):
    graph = library()
    known = {r.key: edges_of(graph, r) for r in graph.relations}
    for minibatch in sample(graph, law("full", fanouts=(1, 1, 1), frontier=frontier)):
        frontiers = [{(t, v) for t, part in minibatch.rows.items() for v in part.seeds.tolist()}]
        for layer in (2, 1, 0):
            reached = set(frontiers[-1])
            for key, rows in known.items():
                expected = {(v, u, e) for t, v in frontiers[-1] if t == key[2] for e, u, _ in rows.get(v, [])}
                found = [edge[1:] for edge in drawn_edges(minibatch, layer, key)]
                assert len(found) == len(set(found))
                assert set(found) == expected
                reached |= {(key[0], u) for _, u, _ in expected}
            frontiers.append(reached)
        assert {(t, v) for t, part in minibatch.rows.items() for v in part.vertices.tolist()} == frontiers[-1]


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("name", ["sage", "replace", "labor"])
def test_vertices_stand_in_the_order_in_which_they_are_met(name, frontier, disjoint):
    """By hop, relation, row and position; a plain dict per type numbers them."""
    graph = library(parallel=False)
    for minibatch in sample(graph, replace(law(name, frontier=frontier), disjoint=disjoint, stride=9)):
        known = {t: {} for t in minibatch.rows}
        for t, part in minibatch.rows.items():
            for v, tree, row in zip(part.seeds.tolist(), part.seed_trees.tolist(), part.seed_rows.tolist(), strict=True):
                assert known[t].setdefault((tree if disjoint else 0, v), len(known[t])) == row
        for hop, layer in enumerate((1, 0)):
            sizes = {t: len(met) for t, met in known.items()}
            assert sizes == {t: int(part.sizes[hop]) for t, part in minibatch.rows.items()}
            for relation in graph.relations:
                skip = int(minibatch.rows[relation.destination].sizes[hop - 1]) if frontier == "new" and hop else 0
                block = minibatch.blocks[layer][relation.key]
                assert block.num_destinations == sizes[relation.destination]
                edges = drawn_edges(minibatch, layer, relation.key)[block.indptr[skip] :]
                numbers = [known[relation.source].setdefault((tree, u), len(known[relation.source])) for tree, _, u, _ in edges]
                assert numbers == block.indices[block.indptr[skip] :].tolist()
        for t, part in minibatch.rows.items():
            assert [v for _, v in known[t]] == part.vertices.tolist()
            assert (part.trees is None) == (not disjoint)
            assert not disjoint or [tree for tree, _ in known[t]] == part.trees.tolist()


def test_fanouts_count_per_relation_row_and_hop():
    graph = library()
    fanouts = {CITES: (2, -1), WRITES: (0, 3)}
    minibatch = sample(graph, replace(law("sage"), of_relations=fanouts))[0]
    for layer, hop in ((1, 0), (0, 1)):
        for relation in graph.relations:
            s = fanouts.get(relation.key, (4, 3))[hop]
            degrees = relation.adjacency.degrees[minibatch.rows[relation.destination].vertices]
            block = minibatch.blocks[layer][relation.key]
            wanted = degrees[: block.num_destinations]
            assert (np.diff(block.indptr) == (wanted if s < 0 else np.minimum(wanted, s))).all()
            edges = drawn_edges(minibatch, layer, relation.key)
            assert len({e for *_, e in edges}) == len(edges)  # no edge twice
            known = edges_of(graph, relation)
            assert all((e, u) in [(a, b) for a, b, _ in known[v]] for _, v, u, e in edges)


@pytest.mark.parametrize("name", ["sage", "labor", "weighted", "replace"])
def test_an_appended_relation_or_type_changes_no_draw(name):
    graph = library(weighted=True, parallel=False)
    extra = VertexType("tag", 30)
    more = relation_from_edges(extra, "of", graph.type("paper"), np.arange(60) % 30, np.arange(60), weights=np.ones(60))
    larger = Graph.of((*graph.types, extra), (*graph.relations, more), graph.name)
    sampler = law(name, fanouts=(3,))
    for a, b in zip(sample(graph, sampler), sample(larger, sampler), strict=True):
        for relation in graph.relations:
            assert drawn_edges(a, 0, relation.key) == drawn_edges(b, 0, relation.key)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_minibatch_depends_on_no_other(name):
    graph, sampler = library(weighted=True, parallel=False), law(name)
    together = sample(graph, sampler, bulk=4)
    listed, adjacency = SeedList.of(graph, SEEDS), LocalAdjacency(graph, backends.make("reference"), by_type=True)
    for minibatch in together:
        alone = sampler.sample_bulk(adjacency, listed.select([np.arange(7)], np.array([minibatch.id])), Stream(7), 2)[0]
        assert alone.digest() == minibatch.digest()
    assert len({m.digest() for m in together}) == 4


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("name", ["sage", "labor", "weighted"])
def test_a_tree_depends_on_its_name_alone(name, frontier):
    """Seed i of mini-batch m, alone in mini-batch m * stride + i of one seed, and in larger mini-batches."""
    graph = library(weighted=True, parallel=False)
    sampler = replace(law(name, frontier=frontier), disjoint=True, stride=9)
    listed, adjacency = SeedList.of(graph, SEEDS), LocalAdjacency(graph, backends.make("reference"), by_type=True)
    for minibatch in sample(graph, sampler, bulk=2)[1:]:
        for i in range(7):
            of_one = replace(sampler, disjoint=False)
            alone = of_one.sample_bulk(adjacency, listed.select([np.array([i])], np.array([minibatch.id * 9 + i])), Stream(7), 2)[0]
            for layer in (0, 1):
                for relation in graph.relations:
                    own = [edge[1:] for edge in drawn_edges(minibatch, layer, relation.key) if edge[0] == i]
                    single = [edge[1:] for edge in drawn_edges(alone, layer, relation.key)]
                    assert own == single if frontier == "new" else sorted(own) == sorted(single)
            for t, part in minibatch.rows.items():
                assert part.vertices[part.trees == i].tolist() == alone.rows[t].vertices.tolist()


def many_rows(names, rows, **options):
    """A graph whose relations `names` give each of `rows` vertices the same edges, and its mini-batch of all of them."""
    u, weights = options.pop("ends"), options.pop("weights", None)
    kinds = VertexType("a", rows), VertexType("b", 4)
    ends, into = np.tile(u, rows), np.repeat(np.arange(rows), len(u))
    real = None if weights is None else np.tile(weights, rows)
    graph = Graph.of(kinds, tuple(relation_from_edges(kinds[1], name, kinds[0], ends, into, weights=real) for name in names))
    return sample(graph, samplers.make("sage", **options), {"a": range(rows)}, "native", bulk=1)[0]


def test_every_subset_of_a_row_is_equally_likely_and_relations_are_independent():
    """Rows of degree 4 in two relations, s = 2: 6 x 6 pairs of subsets."""
    drawn = many_rows("xy", 7200, ends=[0, 1, 2, 3], fanouts=(2,))
    pairs = [drawn.entries[0]["b", name, "a"].reshape(-1, 2) % 4 @ [4, 1] for name in "xy"]
    _, counts = np.unique(pairs, axis=1, return_counts=True)
    assert len(counts) == 36
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("replace", [False, True])
def test_parallel_edges_are_drawn_by_weight_each_on_its_own(replace):
    """Two edges from one vertex, of weights 3 and 1, and one of weight 4 from another: each is drawn first by its share."""
    drawn = many_rows("x", 4000, ends=[0, 0, 1], weights=[3, 1, 4], fanouts=(1,), weighted=True, replace=replace)
    counts = np.bincount(drawn.entries[0]["b", "x", "a"] % 3, minlength=3)
    assert chisquare(counts, [1500, 500, 2000]).pvalue > 1e-3


def test_relations_and_types_have_keys_of_their_own():
    key = philox(np.array([[5, 0, 0, 11 << 28]], np.uint32), 2**60 + 9)[0].astype(object)
    assert Stream(2**60 + 9).of_relation(5).seed == key[0] | key[1] << 32
    assert Stream(3).of_relation(0) == Stream(3) == Stream(3).of_type(0)
    seeds = [Stream(3).of_relation(r).seed for r in range(300)] + [Stream(3).of_type(t).seed for t in range(1, 300)]
    assert len(set(seeds)) == 599


def test_labor_shares_the_number_of_a_neighbor_among_relations():
    """Two relations with one adjacency draw the same neighbors by LABOR, others by GraphSAGE."""
    kinds = VertexType("a", 1), VertexType("b", 30)
    graph = Graph.of(kinds, tuple(relation_from_edges(kinds[1], name, kinds[0], range(30), [0] * 30) for name in ("x", "y")))
    same = {}
    for name in ("labor", "sage"):
        drawn = sample(graph, samplers.make(name, (5,)), {"a": [0]}, bulk=20)
        same[name] = [np.array_equal(*(m.entries[0][r.key] for r in graph.relations)) for m in drawn]
    assert all(same["labor"])
    assert not any(same["sage"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"of_relations": {CITES: (3,)}}, r"fanouts of relation paper:cites:paper name 1 hops; those of the sampler name 2"),
        ({"of_relations": {("paper", "cites", "author"): (3, 2)}}, r"has no relation\(s\) 'paper:cites:author'"),
        ({"of_relations": {CITES: (3, -2)}}, r"fanout must be in 1 .. 1048575, or -1 for all neighbors"),
        ({"disjoint": True, "stride": 3}, r"a mini-batch has 7 seeds with trees of their own; stride is 3"),
        ({"disjoint": True}, r"stride is 0"),
        ({"disjoint": True, "stride": 2**31}, r"tree 21474836486 of mini-batch 10 does not fit 32 bits"),
        ({"weighted": True}, r"no relation has edge weights"),
    ],
)
def test_what_does_not_fit_is_refused(change, says):
    with pytest.raises(UsageError, match=says):
        sample(library(), replace(law("sage"), **change))


def test_samplers_that_draw_otherwise_take_no_options_of_relations():
    with pytest.raises(UsageError, match=r"^relation paper:cites:paper has parallel edges"):
        sample(library(), law("labor"))
    for kind in (samplers.Shadow, samplers.Saint):
        for options in ({"disjoint": True}, {"entries": False}, {"of_relations": {CITES: (1, 1)}}):
            with pytest.raises(UsageError, match="sampled node by node"):
                kind((4, 3), **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"of_relations": {("a", "ab"): (1, 1)}}, r"of_relations: got relation \('a', 'ab'\); use \(source, name, destination\)"),
        ({"of_relations": 3}, "of_relations: got 3; give a dict"),
        ({"entries": "no"}, "entries must be true or false"),
    ],
)
def test_options_of_relations_are_checked_when_a_sampler_is_made(options, says):
    with pytest.raises(UsageError, match=says):
        samplers.Sage((3, 2), **options)
    with pytest.raises(UsageError, match="sampler 'sage' has no option"):
        samplers.make("sage", (3, 2), **options)


def test_samplers_with_options_of_relations_are_told_apart():
    """By their hashes, and by the states of loaders, also on a plain graph."""
    whole, base = LocalAdjacency(Graph(ZOO["random"]), backends.make("reference")), law("sage")
    others = [replace(base, disjoint=True), replace(base, of_relations={("node", "to", "node"): (1, 1)})]
    assert len({base, *others, law("sage")}) == 3
    states = [BulkLoader(whole, one, np.arange(20), batch_size=7).state_dict() for one in (base, *others)]
    assert len({state["sampler"] for state in states}) == 3


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        ({"book": [1]}, r"no type 'book'; use paper, author, venue, word, alone"),
        ({"venue": [7]}, r"^seeds of type 'venue': entry 0 is vertex 7; use 0 to 6"),
        ([1, 2], r"name their type"),
        ({"venue": "train"}, r"^type 'venue' has no 'train' split"),
    ],
)
def test_seeds_that_are_not_there_are_refused(seeds, says):
    with pytest.raises(UsageError, match=says):
        SeedList.of(library(), seeds)


def test_seeds_are_named_by_type_split_mask_or_ids():
    graph = library()
    train = np.arange(60) % 3 == 0
    paper = replace(graph.types[0], masks={"train": train, "test": ~train}, labels=np.zeros(60, np.int64), num_classes=1)
    graph = replace(graph, types=(paper, *graph.types[1:]))
    for seeds in ("paper", ("paper", "train"), {"paper": train}, {"paper": np.flatnonzero(train)}):
        assert (SeedList.of(graph, seeds).vertices == np.arange(0, 60, 3)).all()
    both = SeedList.of(graph, {"venue": None, "paper": "test"})
    assert (both.vertices == [*range(100, 107), *np.flatnonzero(~train)]).all()
    assert (both.places == [*range(7), *range(40)]).all()
    assert (SeedList.of(one_relation(ZOO["star"])).vertices == np.arange(61)).all()
    assert isinstance(both.select([[1, 2]]), Selection)
