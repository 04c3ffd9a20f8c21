"""Ends and negatives of links in block rows are those of whole relations, and what travels for them is what was predicted."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.collectives import SENT_KINDS, tallies
from oracles.opening import predict_link_opening
from oracles.relations import predict_links
from planted_relations import shop

from bulksample import DataError, relation_from_edges
from bulksample.backends.reference import Reference
from bulksample.data.held_out_links import EdgeEnds
from bulksample.data.link_examples import LinkExamples
from bulksample.distributed.comm.base import SentCount
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import TypeLayouts
from bulksample.distributed.matrix.owner import OwnerRelations
from bulksample.distributed.matrix.placement import Placement
from bulksample.distributed.matrix.relation_blocks import read_blocks
from bulksample.distributed.matrix.relation_links import PartitionedLinks

BUYS, KNOWS = ("user", "buys", "item"), ("user", "knows", "user")
KINDS = [{}, {"times": True}, {"edge_times": True}]
GRIDS = [(3, 1), (4, 2), pytest.param(4, 1, marks=pytest.mark.long), pytest.param(6, 2, marks=pytest.mark.long)]


def opened(graph, key, timed, comm, c, partition):
    blocks = TypeLayouts.open(graph, Placement("partitioned", partition=partition), ProcessGrid(comm, c), 5)
    relations = OwnerRelations(graph, Reference(), blocks, read_blocks(graph, blocks))
    return PartitionedLinks(relations, graph.relation(key), timed), blocks


def growth(comm, before):
    return {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in SENT_KINDS}


def with_loops_and_a_source_of_all(graph):
    """User 0 buys every item, so its negatives are any that exist; users 3 and 5 know themselves."""
    user, item = graph.types
    by, bought = np.append(np.zeros(item.count, int), np.arange(60)), np.append(np.arange(item.count), np.arange(60) % 7)
    when = None if graph.relation(BUYS).times is None else np.arange(len(by)) % 50
    one, other = np.append([3, 5], np.arange(50)), np.append([3, 5], np.arange(50)[::-1])
    known = None if graph.relation(KNOWS).times is None else np.arange(len(one))
    buys = relation_from_edges(user, "buys", item, by, bought, times=when)
    knows = relation_from_edges(user, "knows", user, one, other, times=known)
    return replace(graph, relations=(buys, graph.relations[1], knows)).validate()


@pytest.mark.parametrize("key", [BUYS, KNOWS])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_ends_and_negatives_are_those_of_whole_relations(p, c, kind, key):
    graph = with_loops_and_a_source_of_all(shop(**kind))
    whole = LinkExamples(graph, graph.relation(key), bool(kind))
    whole.prepare()
    a = graph.relation(key).adjacency
    joined = a.indices != a.row_of_entry()
    assert (whole.edges == np.flatnonzero(joined if key == KNOWS else joined | True)).all()
    rng = np.random.default_rng(3)
    bulks = [[rng.choice(whole.edges, size) for size in (17, 0, 40)] for _ in range(p)]
    bulks[1][2] = bulks[1][2][:0]  # a rank that asks for nothing still answers
    words = rng.integers(0, 2**32, 40).astype(np.uint32)

    def rank(comm, partition):
        links, blocks = opened(graph, key, bool(kind), comm, c, partition)
        assert (links.edges == whole.edges).all()
        before = dict(comm.tally)
        links.prepare()
        opening, before, found = growth(comm, before), dict(comm.tally), []
        for edges in bulks[comm.rank]:
            ends = links.ends(edges)
            found.append((ends, links.negatives(ends, words[: len(edges)])))
        return found, opening, growth(comm, before), blocks.of

    for partition in ("block", "random"):
        ranks = on_threads(p, lambda comm, how=partition: rank(comm, how))
        for own, (found, *_) in zip(bulks, ranks, strict=True):
            for edges, (ends, negatives) in zip(own, found, strict=True):
                expected = whole.ends(edges)
                assert (ends.sources == a.indices[edges]).all()
                assert (ends.destinations == a.row_of_entry()[edges]).all()
                assert (ends.times is None) == (not kind)
                assert ends.times is None or (ends.times == expected.times).all()
                assert (negatives == whole.negatives(expected, words[: len(edges)])).all()
        layouts = ranks[0][3][key[0]], ranks[0][3][key[2]]
        asked = [[whole.ends(edges) for edges in own] for own in bulks]
        assert [one[1] for one in ranks] == tallies(predict_link_opening(a.indices, a.row_of_entry(), *layouts, c))
        assert [one[2] for one in ranks] == tallies(predict_links(asked, *layouts, "edge_times" in kind, c))


def test_negatives_are_no_neighbors_wherever_they_are_known():
    """Against the dense adjacency; a source of all destinations gets any."""
    graph = with_loops_and_a_source_of_all(shop())
    dense = np.zeros((60, 40), bool)
    a = graph.relation(BUYS).adjacency
    dense[a.indices, a.row_of_entry()] = True

    def rank(comm):
        links, _ = opened(graph, BUYS, False, comm, 1, "random")
        links.prepare()
        sources = np.repeat(np.arange(60), 30) if comm.rank else np.empty(0, np.int64)
        words = np.random.default_rng(1).integers(0, 2**32, len(sources)).astype(np.uint32)
        return sources, links.negatives(EdgeEnds(sources, sources, None), words)

    sources, negatives = on_threads(3, rank)[1]
    assert not dense[sources, negatives][sources > 0].any()
    assert len(np.unique(negatives[sources == 0])) > 10
    assert all(len(np.unique(negatives[sources == u])) > 8 for u in range(60))


def test_edges_before_all_destinations_are_refused_on_every_rank():
    graph = shop(edge_times=True)
    user, item = graph.types
    late = replace(graph, types=(user, replace(item, times=np.full(item.count, 9))))
    with pytest.raises(DataError, match=r"edges of relation user:buys:item have times before 9"):
        on_threads(2, lambda comm: opened(late, BUYS, True, comm, 1, "block"))
