"""Sampling from relations in block rows sends the predicted bytes; a hop takes three collectives, or four in windows without padding."""

from dataclasses import replace

import numpy as np
import pytest
from engines import engine
from oracles.collectives import SENT_KINDS, tallies
from oracles.opening import predict_opening
from oracles.relations import HopRecorder, predict_counts, predict_hops, predict_row_hops
from relation_bulks import bulk, kind_of_times, sampler_of
from relations_zoo import library

from bulksample import Stream
from bulksample.distributed.comm.base import SentCount
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import TypeLayouts
from bulksample.distributed.matrix.open_graph import open_relations
from bulksample.distributed.matrix.placement import Placement
from bulksample.distributed.matrix.relation_blocks import read_blocks

GRIDS = [(2, 1), (4, 2), pytest.param(4, 1, marks=pytest.mark.long), pytest.param(6, 2, marks=pytest.mark.long)]


def growth(comm, before):
    return {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in SENT_KINDS}


def measured(graph, sampler, seeds, comm, c, partition, exchange="owner"):
    """The layouts, what opening and what sampling sent, and the collectives of sampling once more."""
    blocks = TypeLayouts.open(graph, Placement("partitioned", partition=partition), ProcessGrid(comm, c), 5)
    held, before = read_blocks(graph, blocks), dict(comm.tally)
    made = open_relations(Placement("partitioned", exchange=exchange), graph, engine("native"), blocks, held)
    opening, before = growth(comm, before), dict(comm.tally)
    sampler.sample_bulk(made, seeds.parts(comm.rank, comm.rank + 1), Stream(9), 1)
    sampling, calls = growth(comm, before), dict(comm.collectives)
    sampler.sample_bulk(made, seeds.parts(comm.rank, comm.rank + 1), Stream(9), 1)
    taken = sum(comm.collectives[kind] - calls[kind] for kind in SENT_KINDS)
    return list(blocks.of.values()), opening, sampling, taken


def forms(graph, sampler, seeds, p):
    """The hops of the mini-batches of each rank, recorded with the whole graph."""
    recorders = [HopRecorder(graph, engine("native")) for _ in range(p)]
    for j, recorder in enumerate(recorders):
        sampler.sample_bulk(recorder, seeds.parts(j, j + 1), Stream(9), 1)
    return [recorder.hops for recorder in recorders]


@pytest.mark.parametrize(("partition", "entries"), [("block", True), ("random", False)])
@pytest.mark.parametrize(("rule", "name", "fanouts"), [
    ("static", "sage", (4, 3)), ("static", "full", (-1, -1)), ("vertices", "sage", (4, 3)), ("window", "sage", (40, 2)),
    ("moving", "sage", (4, 3)), ("moving", "sage", (32, 32)), ("static", "replace", (3, 40)),
    ("static", "weighted", (40, -1)), ("edges", "weighted", (4, 3)), ("last", "sage", (4, 0)),
])  # fmt: skip
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_bytes_are_those_predicted(p, c, rule, name, fanouts, partition, entries):
    graph = library(kind_of_times(rule), weighted=name == "weighted")
    sampler = replace(sampler_of(rule, name, fanouts), entries=entries)
    seeds = bulk(graph, rule != "static", k=max(p, 3))
    hops = forms(graph, sampler, seeds, p)
    ranks = on_threads(p, lambda comm: measured(graph, sampler, seeds, comm, c, partition))
    layouts = ranks[0][0]
    assert [one[1] for one in ranks] == tallies(predict_opening(len(graph.relations), p // c, c))
    assert [one[2] for one in ranks] == tallies(predict_hops(hops, layouts, c) + predict_counts(hops[0], layouts, c))
    assert sum(one[2]["topology"].bytes for one in ranks) > 0
    for exchange in ("rows", "rows-oblivious"):
        ranks = on_threads(p, lambda comm, by=exchange: measured(graph, sampler, seeds, comm, c, partition, by))
        foreseen = predict_row_hops(hops, graph, layouts, c, exchange == "rows-oblivious")
        assert [one[2] for one in ranks] == tallies(foreseen)


@pytest.mark.parametrize(("rule", "fanouts", "collectives"), [
    ("edges", (2, 2), 3), ("edges", (32, 32), 4), ("edges", (40, 40), 4), ("last", (-1, -1), 4), ("static", (40, 40), 3),
    ("static", (-1, -1), 3), ("trees", (-1, 40), 3),
])  # fmt: skip
def test_a_hop_of_all_relations_takes_three_collectives_or_four(rule, fanouts, collectives):
    """Lengths of requests, requests, answers; and lengths of answers where rows in windows are not padded: s above 2 (1 + d)."""
    graph = library(kind_of_times(rule))
    assert max(one.adjacency.degrees.max() for one in graph.relations) > 40
    sampler, seeds = sampler_of(rule, "sage", fanouts), bulk(graph, rule not in ("static", "trees"))
    taken = [one[3] for one in on_threads(2, lambda comm: measured(graph, sampler, seeds, comm, 1, "block"))]
    assert taken == [2 * collectives] * 2


@pytest.mark.parametrize("exchange", ["owner", "rows"])
def test_messages_of_a_hop_do_not_grow_with_the_number_of_relations(exchange):
    """Seven relations, and the first of them alone, between papers."""
    graph, messages = library(), []
    for relations in (graph.relations, graph.relations[:1]):
        some, sampler = replace(graph, relations=relations), sampler_of("static", "sage", (4,))
        ranks = on_threads(2, lambda comm, g=some, s=sampler: measured(g, s, bulk(g, False), comm, 1, "block", exchange))
        messages.append([(one[2]["topology"].messages, one[3]) for one in ranks])
    assert messages[0] == messages[1]
