"""Edges as seeds of the loader for DGL, on a stand-in for the graph; `dgl_edge_checks` compares them with DGL's own."""

import json
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bulksample import UsageError
from bulksample.backends import make
from bulksample.interop.dgl import (
    FastGCNSampler,
    LaborSampler,
    LadiesSampler,
    NeighborSampler,
    Uniform,
    as_edge_prediction_sampler,
)
from bulksample.interop.dgl.blocks import read_graph, typed_sampler
from bulksample.interop.dgl.edges import EdgeList
from bulksample.interop.dgl.pairs import PairLoader
from bulksample.interop.edge_graph import EdgeSampler
from bulksample.local_adjacency import LocalAdjacency
from bulksample.rng import Substream, counters, philox

LIKES, BUYS, BOUGHT = ("user", "likes", "user"), ("user", "buys", "item"), ("item", "bought", "user")


class Edges:
    """The attribute `edges` of a DGLGraph: called for the ends, and indexed for the features."""

    def __init__(self, ends):
        self.ends = ends

    def __call__(self, etype=None, order="eid"):
        return self.ends[etype] if etype else next(iter(self.ends.values()))

    def __getitem__(self, key):
        return SimpleNamespace(data={})


def stand_in(counts, ends):
    ends = {key: tuple(torch.tensor(np.array(end)) for end in pair) for key, pair in ends.items()}
    return SimpleNamespace(
        is_homogeneous=len(ends) == 1, ntypes=list(counts), canonical_etypes=list(ends), edata={}, ndata={}, edges=Edges(ends),
        num_nodes=lambda kind=None: counts[kind] if kind else next(iter(counts.values())), num_edges=lambda key: len(ends[key][0]),
        find_edges=lambda ids, etype: tuple(end[ids] for end in ends[etype]), device=torch.device("cpu"), idtype=torch.int64,
        to_canonical_etype=lambda key: key,
    )  # fmt: skip


def plain(m=1500, n=120):
    """Edges and their reverses, of which several are parallel."""
    ends = np.random.default_rng(1).integers(0, n, (2, m))
    return stand_in({"_N": n}, {("_N", "_E", "_N"): (np.r_[ends[0], ends[1]], np.r_[ends[1], ends[0]])}), np.roll(np.arange(2 * m), m)


def typed():
    """Edges of one relation have their reverses in another; none are parallel."""
    rng = np.random.default_rng(2)
    buys, likes = (np.stack(np.divmod(rng.choice(60 * n, m, replace=False), n)) for n, m in ((30, 500), (60, 300)))
    return stand_in({"item": 30, "user": 60}, {BOUGHT: buys[::-1], BUYS: buys, LIKES: likes})


def made(graph, edges, law, batch_size=16, seed=3, backend=None, **options):
    """The loader of mini-batches that the blocks and pair graphs of DGL are made of, and the graph in our form."""
    relations = read_graph(graph, None)
    sampler = as_edge_prediction_sampler(law, **options)
    if graph.is_homogeneous:
        base = EdgeSampler(relations.relations[0], law.sampler)
        adjacency = LocalAdjacency(base.edges.matrix, backend or make(), entries=True)
    else:
        base, adjacency = typed_sampler(graph, law), LocalAdjacency(relations, backend or make(), by_type=True)
    return PairLoader(adjacency, base, relations, EdgeList(graph, edges), sampler, batch_size=batch_size, seed=seed), relations


def pairs_of(batch, relations):
    """The pairs of a mini-batch as vertices: of the edges, and of the negatives, by the name of the relation."""
    vertices = {name: part.vertices for name, part in batch.minibatch.rows.items()}
    keys = [relation.key for relation in relations.relations]
    return [
        {keys[place][1]: np.stack([vertices[keys[place][2 * end]][rows[end]] for end in (0, 1)]) for place, rows in of_graph.items()}
        for of_graph in batch.rows(relations)
    ]


def ids_of(minibatch, layer, relation):
    return relation.ids_of(minibatch.entries[layer][relation.key])


LAWS = {
    "sage": lambda: NeighborSampler([4, 5]), "labor": lambda: LaborSampler([4, 5]), "ladies": lambda: LadiesSampler([30, 30]),
    "fastgcn": lambda: FastGCNSampler([60, 60]),
}  # fmt: skip


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_excluded_edges_leave_after_the_draws(kind, law):
    """The others keep their place, ids and weights, all vertices stay, and nothing else changes."""
    if kind == "plain":
        graph, reverse = plain()
        edges, options = torch.arange(0, 3000, 3), {"exclude": "reverse_id", "reverse_eids": torch.from_numpy(reverse)}
    else:
        graph = typed()
        edges, options = {BUYS: torch.arange(0, 500, 2)}, {"exclude": "reverse_types", "reverse_etypes": {"buys": "bought"}}
    (loader, relations), (whole, _), gone = made(graph, edges, LAWS[law](), **options), made(graph, edges, LAWS[law]()), 0
    for batch, other in zip(loader, whole, strict=True):
        mine, theirs = batch.minibatch, other.minibatch
        for name, part in theirs.rows.items():
            assert all(np.array_equal(array, getattr(mine.rows[name], column)) for column, array in part.arrays().items())
        (own,) = batch.edges.values()
        excluded = {"_E": [*own, *reverse[own]]} if kind == "plain" else {"buys": own, "bought": own}
        for layer in range(2):
            for relation in relations.relations:
                block, full = mine.layers[layer][relation.key], theirs.layers[layer][relation.key]
                kept = [i for i, one in enumerate(ids_of(theirs, layer, relation)) if one not in excluded.get(relation.name, ())]
                gone += full.num_edges - len(kept)
                assert ids_of(mine, layer, relation).tolist() == ids_of(theirs, layer, relation)[kept].tolist()
                assert np.array_equal(block.indices, full.indices[kept])
                rows = [np.repeat(np.arange(one.num_destinations), np.diff(one.indptr)) for one in (block, full)]
                assert np.array_equal(rows[0], rows[1][kept])
                assert full.weights is None or np.array_equal(block.weights, full.weights[kept])
                assert block.num_sources == full.num_sources
    assert gone > 20


@pytest.mark.parametrize("edges", [{"likes": [5, 9, 5, 70], "buys": [3, 3, 8]}, {BUYS: [1, 2, 3], "bought": [4, 4, 9]}])
def test_pairs_are_the_edges_in_order_and_vertices_are_numbered_as_they_occur(edges):
    """Every vertex among the first of its type is an end of a pair: of each relation in turn the sources, then the destinations."""
    graph = typed()
    loader, relations = made(graph, edges, NeighborSampler([2]), batch_size=4, negative_sampler=Uniform(2))
    for batch in loader:
        (positive, negative), met = pairs_of(batch, relations), {"item": [], "user": []}
        keys = {relation.name: relation.key for relation in relations.relations}
        for place, ids in batch.edges.items():
            key = relations.relations[place].key
            assert np.array_equal(positive[key[1]], np.stack([end[torch.from_numpy(ids)] for end in graph.edges(etype=key)]))
            assert np.array_equal(negative[key[1]][0], np.repeat(positive[key[1]][0], 2))
        for of_graph in (positive, negative):
            for name, ends in of_graph.items():
                met[keys[name][0]] += ends[0].tolist()
                met[keys[name][2]] += ends[1].tolist()
        for name, vertices in met.items():
            part = batch.minibatch.rows[name]
            assert part.vertices[: part.sizes[0]].tolist() == list(dict.fromkeys(vertices))


def test_every_edge_comes_as_often_as_it_was_given():
    graph, given = typed(), {"likes": [5, 9, 5, 70], "buys": [3, 3, 8]}
    loader, _ = made(graph, given, NeighborSampler([2]), batch_size=3)
    for _ in range(2):
        batches = list(loader)
        assert [sum(map(len, batch.edges.values())) for batch in batches] == [3, 3, 1]
        for place, name in ((2, "likes"), (1, "buys")):
            assert sorted(i for batch in batches for i in batch.edges.get(place, ())) == sorted(given[name])


def test_uniform_negatives_are_the_words_of_their_place():
    """floor(n w / 2**32), w the first word at (position, relation, mini-batch, epoch)."""
    loader, relations = made(typed(), {"likes": range(40), "buys": range(40)}, NeighborSampler([2]), negative_sampler=Uniform(3), seed=9)
    for epoch in (0, 1):
        for batch in loader:
            positive, negative = pairs_of(batch, relations)
            for place, name, n in ((1, "buys", 30), (2, "likes", 60)):
                if name not in positive:
                    continue
                count, tag = negative[name].shape[1], Substream.DGL_NEGATIVE.tag(epoch)
                assert count == 3 * positive[name].shape[1]
                for i in range(count):
                    (word,) = philox(counters(np.array([i]), place, batch.minibatch.id, tag), 9)[:, 0]
                    assert negative[name][:, i].tolist() == [positive[name][0, i // 3], int(word) * n >> 32]


@pytest.mark.parametrize("edges", [torch.arange(3000) % 7 == 0, [6, 3, 6, 6]])
def test_masks_and_repeated_ids(edges):
    loader, _ = made(plain()[0], edges, NeighborSampler([2]))
    found = sorted(i for batch in loader for ids in batch.edges.values() for i in ids)
    assert found == (np.flatnonzero(edges).tolist() if hasattr(edges, "dtype") else [3, 6, 6, 6])


def test_no_back_end_changes_a_batch(backend):
    def read(backend):
        options = {"exclude": "self", "negative_sampler": Uniform(2), "backend": backend}
        loader, relations = made(plain()[0], torch.arange(200), NeighborSampler([4, 4]), **options)
        return [(batch.minibatch.digest(), [one["_E"].tolist() for one in pairs_of(batch, relations)]) for batch in loader]

    assert read(backend) == read(make("reference"))


@pytest.mark.parametrize("turned", [{"buys": "bought", "bought": "buys"}, {"bought": "buys", "buys": "bought"}, {"buys": "bought"}])
@pytest.mark.parametrize("edges", [{1: [4, 5]}, {0: [9], 1: [4, 5]}])
def test_edges_leave_from_both_types(turned, edges):
    """Which of two types comes first does not matter; a type that is named no reverse keeps those of its own."""
    loader, _ = made(typed(), {BUYS: [4, 5], BOUGHT: [9]}, NeighborSampler([2]), exclude="reverse_types", reverse_etypes=turned)
    gone = loader._exclusion.ids({place: np.array(ids) for place, ids in edges.items()})
    every = sorted({one for ids in edges.values() for one in ids})
    assert {place: sorted({*ids.tolist()}) for place, ids in gone.items()} == {0: every, 1: every if len(turned) > 1 else [4, 5]}


def test_functions_exclude_edges_and_draw_negatives_on_the_thread_that_iterates():
    """They get a tensor, or a dict if the indices were one; nothing else stays on that thread."""
    graph, seen = typed(), []

    def draw(of, edges):
        seen.append((threading.current_thread(), of is graph, {key: ids.tolist() for key, ids in edges.items()}))
        return {"likes": ([7, 8], [8, 9]), BOUGHT: (torch.tensor([1]), torch.tensor([2]))}

    def exclude(edges):
        return {"buys": edges[BUYS] + 1}

    loader, relations = made(graph, {"buys": [4, 5, 6]}, NeighborSampler([-1]), 3, negative_sampler=draw, exclude=exclude)
    seen.clear()
    (batch,) = loader
    assert seen == [(threading.current_thread(), True, {BUYS: [4, 5, 6]})]
    assert {name: ends.tolist() for name, ends in pairs_of(batch, relations)[1].items()} == {
        "bought": [[1], [2]],
        "likes": [[7, 8], [8, 9]],
    }
    drawn = ids_of(batch.minibatch, 0, relations.relation(BUYS))
    assert not np.isin(drawn, [5, 6, 7]).any()
    assert 4 in drawn
    tensors = []
    alone, _ = made(plain()[0], [3, 4], NeighborSampler([1]), 2, negative_sampler=lambda _, edges: tensors.append(edges) or ([0], [1]))
    list(alone)
    assert tensors[-1].tolist() == [3, 4]


def test_a_state_names_the_edges_the_exclusion_and_the_negatives():
    graph, reverse = plain()
    reverse = torch.from_numpy(reverse)
    own = reverse.clone()
    own[7] = 7

    def one(edges=range(100), exclude="reverse_id", reverse=reverse, negatives=2):
        options = {"exclude": exclude, "reverse_eids": reverse if exclude == "reverse_id" else None, "negative_sampler": Uniform(negatives)}
        return made(graph, [*edges], NeighborSampler([3]), **options)[0]

    state = json.loads(json.dumps(one().state_dict()))
    one().load_state_dict(state)
    for other in ({"edges": range(1, 101)}, {"edges": range(101)}, {"exclude": "self"}, {"reverse": own}, {"negatives": 3}):
        with pytest.raises(UsageError, match="does not fit"):
            one(**other).load_state_dict(state)


REFUSED = {
    "did you mean 'reverse_id'": {"exclude": "reverse_ids"},
    "exclude: got a Tensor; use self, reverse_id, reverse_types; or give a function": {"exclude": torch.arange(3)},
    "exclude='reverse_id' needs reverse_eids": {"exclude": "reverse_id"},
    "exclude='reverse_types' needs reverse_etypes": {"exclude": "reverse_types"},
    "reverse_eids was given, and exclude is 'self'; use exclude='reverse_id'": {"exclude": "self", "reverse_eids": torch.arange(3)},
    "reverse_etypes was given, and exclude is None": {"reverse_etypes": {"a": "b"}},
    "negative_sampler: got a int; use Uniform": {"negative_sampler": 3},
}


@pytest.mark.parametrize("says", REFUSED)
def test_options_without_a_meaning_are_refused(says):
    with pytest.raises(UsageError, match=re.escape(says)):
        as_edge_prediction_sampler(NeighborSampler([2]), **REFUSED[says])


M = 3000
PLAIN = {
    f"indices: entry 1 is edge {M}; use 0 to {M - 1}": ([0, M], {}),
    "edge 3 of ('_N', '_E', '_N') runs from": (
        [2, 3],
        {"exclude": "reverse_id", "reverse_eids": [M // 2 + i + (i == 3) for i in range(9)]},
    ),
    "reverse_eids: got 4 ids, and none for edge 4": ([2, 4], {"exclude": "reverse_id", "reverse_eids": [M // 2 + i for i in range(4)]}),
    "negative_sampler: destinations: entry 0 is vertex 120": ([0], {"negative_sampler": lambda *_: ([0], [120])}),
    "negative_sampler returned 1 sources and 2 destinations": ([0], {"negative_sampler": lambda *_: ([0], [0, 1])}),
    "negative_sampler returned a Tensor; return (sources, destinations)": ([0], {"negative_sampler": lambda *_: torch.zeros(2, 3)}),
    f"exclude: entry 0 is edge {M}": ([0], {"exclude": lambda _: [M]}),
}
TYPED = {
    "indices: got a list; the graph has edge types": ([0], {}),
    "indices names the edge type 'reads'; use ('item', 'bought', 'user')": ({"reads": [0]}, {}),
    "indices names the edge type ('user', 'buys', 'item') twice": ({"buys": [0], BUYS: [1]}, {}),
    "indices of type ('user', 'buys', 'item'): entry 0 is edge 500": ({"buys": [500]}, {}),
    "is no reverse of ('user', 'buys', 'item'); use one from 'item' to 'user'": ({"buys": [2]}, {"reverse_etypes": {"buys": "likes"}}),
    "reverse_etypes has no reverse of ('user', 'likes', 'user')": ({"likes": [2]}, {"reverse_etypes": {"buys": "bought"}}),
    "reverse_etypes: got a str": ({"likes": [2]}, {"reverse_etypes": "buys"}),
    "negative_sampler returned a tuple; return a dict of": ({"likes": [2]}, {"negative_sampler": lambda *_: ([0], [0])}),
}  # fmt: skip


@pytest.mark.parametrize("says", [*PLAIN, *TYPED])
def test_edges_and_reverses_that_do_not_exist_are_refused(says):
    edges, options = {**PLAIN, **TYPED}[says]
    options = {**options, **({"exclude": "reverse_types"} if "reverse_etypes" in options else {})}
    with pytest.raises(UsageError, match=re.escape(says)):
        list(made(plain()[0] if says in PLAIN else typed(), edges, NeighborSampler([2]), **options)[0])


@pytest.mark.parametrize("k", [0, -1, 2.5, True, None])
def test_a_number_of_negatives_is_whole(k):
    with pytest.raises(UsageError, match="negatives for each edge; use a whole number, 1 or more"):
        Uniform(k)


def test_other_samplers_are_refused():
    with pytest.raises(UsageError, match=r"sampler must be one of bulksample\.interop\.dgl; got list"):
        as_edge_prediction_sampler([2, 2])
