"""Relations in block rows: the mini-batches of one rank, under every law and rule of time, on every grid."""

from dataclasses import replace

import numpy as np
import pytest
from relation_bulks import CASES, bulk, kind_of_times, sampler_of
from relations_zoo import COUNTS, library

from bulksample import DataError, Stream, UsageError
from bulksample.backends.reference import Reference
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import TypeLayouts
from bulksample.distributed.matrix.open_graph import open_relations
from bulksample.distributed.matrix.placement import Placement
from bulksample.distributed.matrix.relation_blocks import read_block, read_blocks
from bulksample.graph import Graph, VertexType
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges
from bulksample.local_adjacency import LocalAdjacency
from bulksample.samplers import Ladies

GRIDS = [(2, 1), pytest.param(4, 1, marks=pytest.mark.long), (4, 2)]
EXCHANGES = ("owner", "rows", "rows-oblivious")
FANOUTS = {("paper", "cites", "paper"): (3, -1), ("paper", "about", "venue"): (0, 40), ("word", "in", "paper"): (2, 0)}


def opened(graph, comm, c=1, partition="block", exchange="owner"):
    """The relations in block rows."""
    blocks = TypeLayouts.open(graph, Placement("partitioned", partition=partition), ProcessGrid(comm, c), 5)
    return open_relations(Placement("partitioned", exchange=exchange), graph, Reference(), blocks, read_blocks(graph, blocks))


def parts(seeds, comm):
    """Mini-batches r, r + p, ... of a bulk; some ranks have fewer."""
    own = range(comm.rank, len(seeds), comm.size)
    pieces = [seeds.parts(j, j + 1) for j in own]
    if not pieces:
        return seeds.parts(0, 0)
    joined = [
        None if getattr(seeds, name) is None else np.concatenate([getattr(one, name) for one in pieces])
        for name in ("minibatches", "vertices", "places", "times", "starts")
    ]
    ends = np.concatenate([[0], np.cumsum([len(one.vertices) for one in pieces])])
    return replace(seeds, minibatches=joined[0], pointers=ends, vertices=joined[1], places=joined[2], times=joined[3], starts=joined[4])


def same(a, b, graph):
    """True if two mini-batches have the same arrays and, where they are known, the same entries."""
    known = all(
        (x[relation.key] == y[relation.key]).all()
        for x, y in zip(a.entries or (), b.entries or (), strict=True)
        for relation in graph.relations
    )
    return known and (a.entries is None) == (b.entries is None) and a.digest() == b.digest()


def compare(graph, sampler, seeds, p, c, partition="block", exchanges=EXCHANGES):
    """Assert that p ranks draw together what one rank draws, by every policy."""
    whole = sampler.sample_bulk(LocalAdjacency(graph, Reference(), by_type=True), seeds, Stream(2**63 + 5), 3)

    def sampled(comm):
        return [sampler.sample_bulk(opened(graph, comm, c, partition, how), parts(seeds, comm), Stream(2**63 + 5), 3) for how in exchanges]

    for rank, of_policies in enumerate(on_threads(p, sampled)):
        for how, own in zip(exchanges, of_policies, strict=True):
            for one, alone in zip(own, whole[rank::p], strict=True):
                assert same(one, alone, graph), (how, alone.id)


@pytest.mark.parametrize(("rule", "name"), [*CASES, ("moving", "sage"), ("moving", "weighted, replace")])
def test_every_law_draws_what_one_rank_draws(rule, name):
    graph = library(kind_of_times(rule), weighted=name.startswith("weighted"), parallel=name != "labor")
    compare(graph, sampler_of(rule, name, (4, 3), FANOUTS), bulk(graph, rule not in ("static", "trees")), 2, 1, "random")


@pytest.mark.parametrize(("p", "c"), GRIDS)
@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("rule", ["static", "window", "moving"])
def test_every_grid_draws_what_one_rank_draws(p, c, frontier, rule):
    graph = library(kind_of_times(rule))
    sampler = sampler_of(rule, "sage", (4, 3), FANOUTS, frontier)
    for entries in (True, False):
        compare(graph, replace(sampler, entries=entries), bulk(graph, rule != "static", k=5), p, c)


@pytest.mark.parametrize("fanouts", [(40, 40), (-1, 2)])
def test_rows_of_many_picks_come_without_padding(fanouts):
    """More than 32 picks a row: each row carries its count."""
    graph = library("edges")
    compare(graph, sampler_of("edges", "sage", fanouts), bulk(graph, True), 2, 1)


def test_rows_draw_more_edges_than_they_have_with_replacement():
    """Six of three: answers of equal length have room for six."""
    node, v = VertexType("node", 40), np.repeat(np.arange(40), 3)
    graph = Graph.of((node,), (relation_from_edges(node, "to", node, (v * 7 + np.tile([1, 2, 3], 40)) % 40, v),)).validate()
    seeds = SeedList.of(graph, np.arange(40)).select([np.arange(30, 40), np.arange(20)])
    compare(graph, sampler_of("static", "replace", (6, 2)), seeds, 2, 1)


def test_parallel_edges_of_one_rank_count_on_all():
    """A race names neighbors by their positions if the relation has parallel edges anywhere, here in row 0."""
    rng = np.random.default_rng(1)
    v, u = np.repeat(np.arange(40), 12), np.concatenate([np.sort(rng.permutation(40)[:12]) for _ in range(40)])
    u[1] = u[0]
    node = VertexType("node", 40)
    graph = Graph.of((node,), (relation_from_edges(node, "to", node, u, v, weights=rng.integers(1, 9, len(u))),)).validate()
    seeds = SeedList.of(graph, np.arange(40)).select([np.arange(30, 40), np.arange(20)])
    compare(graph, sampler_of("static", "weighted", (3, 3)), seeds, 2, 1)


def test_a_vertex_that_a_tree_meets_at_two_times_keeps_its_names():
    """Its later meetings have names of their own, which travel with the rows."""
    rng = np.random.default_rng(1)
    u, v = rng.integers(0, 8, (2, 400))
    node = VertexType("node", 8)
    graph = Graph.of((node,), (relation_from_edges(node, "to", node, u, v, times=rng.integers(0, 1000, 400)),)).validate()
    seeds = SeedList.of(graph, np.arange(8), np.full(8, 900)).select([np.arange(4), np.arange(8)])
    compare(graph, sampler_of("moving", "sage", (3, 3, 3)), seeds, 2, 1)


def test_a_rank_reads_and_holds_its_rows_alone():
    graph = library("edges", weighted=True)

    def held(comm):
        made = opened(graph, comm)
        return {relation.key: matrix.matrix for relation, matrix in zip(graph.relations, made.relations("edges"), strict=True)}

    blocks = on_threads(4, held)
    for relation in graph.relations:
        rows = np.concatenate([block[relation.key].degrees for block in blocks])
        assert (rows == relation.adjacency.degrees).all()
        assert max(block[relation.key].shape[0] for block in blocks) == -(-COUNTS[relation.destination] // 4)
        for name in ("indices", "values"):
            pieces, whole = [getattr(block[relation.key], name) for block in blocks], getattr(relation.adjacency, name)
            assert (whole is None and pieces == [None] * 4) or (np.concatenate(pieces) == whole).all()


def test_damaged_rows_are_refused_by_the_rank_that_reads_them():
    graph = library()
    relation = graph.relations[0]
    indptr = relation.adjacency.indptr.copy()
    indptr[40:50] = indptr[40:50][::-1]
    damaged = replace(relation, adjacency=type(relation.adjacency)(indptr, relation.adjacency.indices, None, (60, 60)))
    assert read_block(damaged, np.arange(30)).matrix.nnz == indptr[30]
    with pytest.raises(DataError, match=r"relation paper:cites:paper: row pointers run from"):
        read_block(damaged, np.arange(30, 60))


def test_rows_apart_whose_entries_overlap_are_refused():
    graph = library()
    relation = graph.relations[0]
    indptr, members = np.array(relation.adjacency.indptr), np.array([3, 20, 41])
    shift = int(indptr[3]) + 1 - int(indptr[20])
    indptr[20:22] += shift  # the row keeps its length, and lies within row 3
    assert indptr[20] < indptr[4]
    damaged = replace(relation, adjacency=type(relation.adjacency)(indptr, relation.adjacency.indices, None, (60, 60)))
    with pytest.raises(DataError, match=r"relation paper:cites:paper: row pointers run from"):
        read_block(damaged, members)


def test_layerwise_samplers_are_refused_by_name():
    graph = library()
    with pytest.raises(UsageError, match="got a topology in block rows: use sage, labor or full"):
        on_threads(2, lambda comm: Ladies((4,)).sample_bulk(opened(graph, comm), bulk(graph, False), Stream(0), 0))
