"""LADIES and FastGCN on the union of relations: the mini-batches of the union, cut by relation without losing an edge or a weight."""

from dataclasses import replace

import numpy as np
import pytest
from relations_zoo import drawn_edges, library, one_relation
from zoo import ZOO

import bulksample as bs
from bulksample import LocalAdjacency, Stream, backends, samplers
from bulksample.graph.seed_list import SeedList
from bulksample.local_adjacency import union_of

SEEDS = {"paper": [3, 0, 3, 59], "venue": [2, 6], "alone": [4]}


def sample(graph, base, bulk=3):
    listed = SeedList.of(graph, SEEDS)
    seeds = listed.select([np.arange(len(listed))] * bulk, np.arange(bulk) * 5)
    engine = backends.make("native")
    drawn = base.sample_bulk(LocalAdjacency(graph, engine), seeds, Stream(7), 2)
    return drawn, base.sample_bulk(LocalAdjacency(union_of(graph), engine), seeds, Stream(7), 2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("name", ["ladies", "fastgcn"])
def test_blocks_of_relations_add_up_to_those_of_the_union(name, frontier, weighted):
    graph = library(weighted=weighted)
    for cut, whole in zip(*sample(graph, samplers.make(name, (20, 15), frontier=frontier)), strict=True):
        assert sum(len(part.vertices) for part in cut.rows.values()) == len(whole.vertices)
        for layer, block in enumerate(whole.blocks):
            rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
            expected = dict(zip(zip(whole.vertices[rows], whole.vertices[block.indices], strict=True), block.weights, strict=True))
            found, real = {}, {}
            for relation in graph.relations:
                into, outof = (graph.offsets[graph.place(end)] for end in (relation.destination, relation.source))
                weights = cut.blocks[layer][relation.key].weights
                assert cut.blocks[layer][relation.key].num_sources <= len(cut.rows[relation.source].vertices)
                for (_, v, u, e), weight in zip(drawn_edges(cut, layer, relation.key), weights, strict=True):
                    matrix = relation.adjacency
                    assert matrix.indptr[v] <= e < matrix.indptr[v + 1]
                    assert matrix.indices[e] == u
                    place = into + v, outof + u
                    found[place] = found.get(place, 0.0) + float(weight)
                    real.setdefault(place, []).append((matrix.entries()[e] * relation.weight_unit, float(weight)))
            assert found.keys() == expected.keys()
            assert np.allclose([found[place] for place in expected], list(expected.values()), rtol=1e-5)
            for edges in real.values():  # edges of one entry share its weight in proportion to their own
                own, given = np.array(edges).T
                assert np.allclose(given * own.sum(), own * given.sum(), rtol=1e-5)
            assert max(len(edges) for edges in real.values()) > 1


@pytest.mark.parametrize("name", ["ladies", "fastgcn"])
def test_one_relation_draws_what_the_homogeneous_graph_draws(name):
    a = ZOO["weighted"]
    options = {"sampler": name, "fanouts": [30, 20], "batch_size": 16, "seed": 9}
    expected = [batch.minibatch for batch in bs.Loader(bs.Graph(a), seeds="all", **options)]
    made = bs.Loader(one_relation(a), seeds=("node", "all"), **options)
    for batch, plain in zip(made, expected, strict=True):
        own = replace(batch.minibatch, by_type=False)
        weights = [block.weights for block in own.blocks], [block.weights for block in plain.blocks]
        assert all(np.allclose(x, y, rtol=1e-6) for x, y in zip(*weights, strict=True))
        pairs = zip(own.layers, plain.blocks, strict=True)
        same = tuple({key: replace(block, weights=other.weights) for key, block in layer.items()} for layer, other in pairs)
        assert replace(own, layers=same).digest() == plain.digest()
