"""HGSampling: budgets against a dense product, draws against the enumerated law, and every edge among the vertices."""

from itertools import permutations

import numpy as np
import pytest
from relations_zoo import drawn_edges, library
from scipy.stats import chisquare

import bulksample as bs
from bulksample import Stream, UsageError, backends
from bulksample.graph import Graph, VertexType
from bulksample.graph.seed_list import SeedList
from bulksample.graph.selection import Selection
from bulksample.graph.types import relation_from_edges
from bulksample.local_adjacency import LocalAdjacency
from bulksample.samplers.hgt import HGSampler, _grown

SEEDS = {"paper": [3, 0, 3, 59], "venue": [2, 6], "alone": [4]}
COUNTS = {"paper": (6, 4, 2), "author": (5, 0, 3), "venue": (-1, 1, 1), "word": (2, 2, 30), "alone": (1, 1, 1)}


def sample(graph, sampler, seeds=None, engine="native", bulk=3, epoch=2):
    """Mini-batches 0, 5, 10, … of the same seeds, each in an order of its own."""
    listed = SeedList.of(graph, SEEDS if seeds is None else seeds)
    chosen = listed.select([np.roll(np.arange(len(listed)), -j) for j in range(bulk)], np.arange(bulk) * 5)
    return sampler.sample_bulk(LocalAdjacency(graph, backends.make(engine), by_type=True), chosen, Stream(7), epoch)


def dense(relation):
    """The number of edges at each place."""
    counts = np.zeros(relation.adjacency.shape)
    np.add.at(counts, (relation.adjacency.row_of_entry(), relation.adjacency.indices), 1)
    return counts


def budgets_of(graph, sampled, held):
    """The budget of each vertex by dense products of real numbers: {type: (n,)}."""
    out = {kind.name: np.zeros(kind.count) for kind in graph.types}
    for relation in graph.relations:
        counts = dense(relation)
        rows = np.zeros(counts.shape[0])
        rows[list(sampled.get(relation.destination, ()))] = 1
        out[relation.source] += (rows / np.maximum(counts.sum(1), 1)) @ counts
    for name, vertices in held.items():
        out[name][list(vertices)] = 0
    return out


def test_budgets_are_dense_products_with_the_inverse_degrees():
    graph = library(weighted=True)
    held = {"paper": [3, 0, 59, 11], "author": [1], "venue": [2, 6]}
    parts = [Selection.of([held.get(kind.name, [])] * 2, kind.count) for kind in graph.types]
    adjacency = LocalAdjacency(graph, backends.make("native"), by_type=True)
    none = [part.none_of().per_minibatch(np.empty(0, np.int64)) for part in parts]
    expected = budgets_of(graph, held, held)
    found = _grown(adjacency, none, parts, parts)
    for kind, budget in zip(graph.types, found, strict=True):
        assert budget.indptr[2] == 2 * budget.indptr[1]
        assert (budget.entries() > 0).all()
        whole = budget.to_scipy().toarray()[1].astype(float)
        assert (whole.max() > 0) == (expected[kind.name].max() > 0)
        np.testing.assert_allclose(whole * expected[kind.name].sum(), expected[kind.name] * whole.sum(), rtol=1e-9)
    twice = _grown(adjacency, found, parts, parts)  # what was drawn before counts on
    assert all((b.entries() == 2 * a.entries()).all() for a, b in zip(found, twice, strict=True))


def drawn_law(weights, s):
    """The probability of each set of s vertices drawn one by one without replacement, by enumeration."""
    law = {}
    there = np.flatnonzero(weights)
    for order in permutations(there, min(s, len(there))):
        left, p = weights.sum(), 1.0
        for v in order:
            p, left = p * weights[v] / left, left - weights[v]
        law[frozenset(order)] = law.get(frozenset(order), 0) + p
    return law


def small():
    """Two relations into `a`, with parallel edges and rows of different degrees; and one out of `b` that a second hop meets."""
    a, b, c = VertexType("a", 3), VertexType("b", 4), VertexType("c", 5)
    one = relation_from_edges(b, "one", a, [0, 0, 1, 2, 3, 2], [0, 0, 0, 1, 1, 2])
    two = relation_from_edges(b, "two", a, [1, 2, 3, 3], [0, 1, 1, 1])
    back = relation_from_edges(c, "to", b, [0, 1, 2, 2, 3, 4, 1], [0, 0, 1, 2, 3, 3, 2])
    within = relation_from_edges(c, "near", a, [0, 4], [0, 1])
    return Graph.of((a, b, c), (one, two, back, within)).validate()


@pytest.mark.parametrize(("s", "hops"), [(2, 1), (1, 2), (2, 2)])
def test_sets_are_drawn_with_the_enumerated_probabilities(s, hops):
    """The sets that hops draw of three types, 3000 mini-batches: by B^2, budgets summed over relations and hops, held vertices left out."""
    graph, times = small(), 3000
    seeds = {"a": [0, 1]}
    drawn = sample(graph, HGSampler({"a": [1] * hops, "b": [s] * hops, "c": [s] * hops}), seeds, bulk=times)
    held = {"a": {0, 1}}
    histories = {((), (), ()): 1.0}  # sets of a, b, c, hop by hop, and their probability
    for _ in range(hops):
        nxt = {}
        for history, p in histories.items():
            own = {name: set(held.get(name, ())).union(*sets) for name, sets in zip("abc", history, strict=True)}
            laws = [drawn_law(budgets_of(graph, own, own)[name] ** 2, s if name != "a" else 1) or {frozenset(): 1.0} for name in "abc"]
            for x, px in laws[0].items():
                for y, py in laws[1].items():
                    for z, pz in laws[2].items():
                        key = tuple((*sets, new) for sets, new in zip(history, (x, y, z), strict=True))
                        nxt[key] = nxt.get(key, 0) + p * px * py * pz
        histories = nxt
    found = dict.fromkeys(histories, 0)
    for minibatch in drawn:
        parts = [minibatch.rows[name] for name in "abc"]
        key = tuple(tuple(frozenset(part.vertices[part.sizes[h] : part.sizes[h + 1]].tolist()) for h in range(hops)) for part in parts)
        found[key] += 1  # a set that the law excludes is a KeyError
    expected = np.array(list(histories.values())) * times
    counts, order = np.array(list(found.values())), np.argsort(-expected)
    many = order[expected[order] >= 10]
    rest = [counts.sum() - counts[many].sum()], [times - expected[many].sum()]
    pairs = [np.append(counts[many], rest[0]), np.append(expected[many], rest[1])] if rest[1][0] > 5 else [counts[many], expected[many]]
    assert len(pairs[0]) >= 6
    assert chisquare(pairs[0], pairs[1] * pairs[0].sum() / pairs[1].sum()).pvalue > 1e-3


def hub():
    """A row of 300 edges, most of them parallel, of which few columns are selected."""
    a, b = VertexType("a", 6), VertexType("b", 100)
    rng = np.random.default_rng(3)
    ends, into = np.concatenate([rng.integers(0, 100, 300), [1, 2, 2]]), np.concatenate([np.zeros(300, int), [1, 1, 2]])
    return Graph.of((a, b), (relation_from_edges(b, "to", a, ends, into), relation_from_edges(a, "of", b, into, ends))).validate()


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("made", ["library", "hub"])
def test_every_edge_among_the_vertices_is_kept(made, engine):
    graph, seeds = (library(weighted=True), SEEDS) if made == "library" else (hub(), {"a": [0, 2], "b": [7]})
    counts = COUNTS if made == "library" else (2, 2)
    for minibatch in sample(graph, HGSampler(counts), seeds, engine):
        for name, part in minibatch.rows.items():
            assert len(set(part.vertices.tolist())) == len(part.vertices)
            assert (part.vertices[part.seed_rows] == part.seeds).all()
            if made == "library":
                assert all(new <= s or s == -1 for new, s in zip(part.num_sampled[1:], COUNTS[name], strict=True))
        for relation in graph.relations:
            matrix = relation.adjacency
            into, outof = (set(minibatch.rows[end].vertices.tolist()) for end in (relation.destination, relation.source))
            ends = zip(matrix.row_of_entry().tolist(), matrix.indices.tolist(), range(matrix.nnz), strict=True)
            expected = sorted((v, u, e) for v, u, e in ends if v in into and u in outof)
            for layer in range(len(minibatch.blocks)):
                assert sorted(edge[1:] for edge in drawn_edges(minibatch, layer, relation.key)) == expected


def test_back_ends_and_bulks_give_the_same_bits():
    graph, sampler = library(weighted=True), HGSampler(COUNTS)
    together = [m.digest() for m in sample(graph, sampler, bulk=4)]
    assert together == [m.digest() for m in sample(graph, sampler, engine="reference", bulk=4)]
    listed, adjacency = SeedList.of(graph, SEEDS), LocalAdjacency(graph, backends.make("native", 1), by_type=True)
    for place, digest in enumerate(together):
        chosen = listed.select([np.roll(np.arange(7), -place)], np.array([place * 5]))
        assert sampler.sample_bulk(adjacency, chosen, Stream(7), 2)[0].digest() == digest
        assert sampler.sample_bulk(adjacency, chosen, Stream(7), 3)[0].digest() != digest
        assert sampler.sample_bulk(adjacency, chosen, Stream(8), 2)[0].digest() != digest
    assert len(set(together)) == 4


def test_types_are_drawn_apart():
    """Two types whose vertices have the same ids and budgets do not draw the same vertices."""
    a, b, c = VertexType("a", 1), VertexType("b", 60), VertexType("c", 60)
    relations = [relation_from_edges(kind, "to", a, np.arange(60), np.zeros(60, int)) for kind in (b, c)]
    graph = Graph.of((a, b, c), tuple(relations))
    both = [m.rows for m in sample(graph, HGSampler((20,)), {"a": [0]}, bulk=20)]
    shared = [len(set(rows["b"].vertices.tolist()) & set(rows["c"].vertices.tolist())) for rows in both]
    assert 4 < np.mean(shared) < 10  # 20 of 60 and 20 of 60 share 6.7


def test_the_loader_gives_features_and_continues_from_a_state():
    graph = library()
    options = {"sampler": HGSampler(COUNTS), "seeds": "paper", "batch_size": 16, "seed": 4}
    whole = list(bs.Loader(graph, bulk_size=1, **options))
    first = bs.Loader(graph, bulk_size=2, **options)
    for _ in zip(range(2), first, strict=False):
        pass
    again = bs.Loader(graph, backend="reference", **options)
    again.load_state_dict(first.state_dict())
    assert [b.digest() for b in again] == [b.digest() for b in whole[2:]]
    assert all(b.edge_index_dict[key].shape[1] == len(ids) for b in whole for key, ids in b.e_id_dict.items())
    other = bs.Loader(graph, **(options | {"sampler": HGSampler((1, 1, 1))}))
    with pytest.raises(UsageError, match="sampler"):
        other.load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ((), "1 to 255 hops"),
        ({"paper": (1, 2), "author": (1,)}, "as many for each type"),
        ({"paper": (1,)}, "name every type"),
        (dict.fromkeys([*COUNTS, "papers"], (1,)), "name every type"),
        ((-2,), "fanout"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts, says):
    with pytest.raises(UsageError, match=says):
        sample(library(), HGSampler(counts))


@pytest.mark.parametrize(("given", "what"), [(5, "num_samples"), ({"a": 5}, "num_samples of type 'a'"), ([1.5], "num_samples")])
def test_counts_that_are_no_list_of_whole_numbers_are_refused(given, what):
    with pytest.raises(UsageError, match=f"^{what} must be a list of whole numbers, one for each hop; got"):
        HGSampler(given)
