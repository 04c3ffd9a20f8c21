"""What sampling from relations in block rows sends is what was predicted, and a hop takes at most three collectives."""

from dataclasses import replace

import numpy as np
import pytest
from relation_bulks import bulk, kind_of_times, sampler_of
from relations_zoo import library

from bulksample import Stream
from bulksample.backends.reference import Reference
from bulksample.distributed.comm.base import SentCount
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.costs.collectives import SENT_KINDS, tallies
from bulksample.distributed.costs.relations import HopRecorder, predict_hops, predict_opening
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.relation_blocks import PartitionedRelations, read_blocks
from bulksample.distributed.matrix.type_layouts import TypeLayouts

GRIDS = [(2, 1), (4, 2), pytest.param(4, 1, marks=pytest.mark.long), pytest.param(6, 2, marks=pytest.mark.long)]


def growth(comm, before):
    return {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in SENT_KINDS}


def measured(graph, sampler, seeds, comm, c, partition):
    """The layouts, what opening and what sampling sent, and the collectives of sampling, by kind."""
    blocks = TypeLayouts(ProcessGrid(comm, c), {kind.name: kind.count for kind in graph.types}, partition, 5)
    held, before = read_blocks(graph, blocks), dict(comm.tally)
    made = PartitionedRelations(graph, Reference(), blocks, held)
    opening, before, calls = growth(comm, before), dict(comm.tally), dict(comm.collectives)
    sampler.sample_bulk(made, seeds.parts(comm.rank, comm.rank + 1), Stream(9), 1)
    taken = sum(comm.collectives[kind] - calls[kind] for kind in SENT_KINDS)
    return list(blocks.of.values()), opening, growth(comm, before), taken


def forms(graph, sampler, seeds, p):
    """The hops of the mini-batches of each rank, recorded with the whole graph."""
    recorders = [HopRecorder(graph, Reference()) for _ in range(p)]
    for j, recorder in enumerate(recorders):
        sampler.sample_bulk(recorder, seeds.parts(j, j + 1), Stream(9), 1)
    return [recorder.hops for recorder in recorders]


@pytest.mark.parametrize("entries", [True, False])
@pytest.mark.parametrize(("rule", "name", "fanouts"), [
    ("static", "sage", (4, 3)), ("static", "full", (-1, -1)), ("vertices", "sage", (4, 3)), ("window", "sage", (40, 2)),
    ("moving", "sage", (4, 3)), ("static", "replace", (3, 3)),
])  # fmt: skip
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_bytes_are_those_predicted(p, c, rule, name, fanouts, entries):
    graph = library(kind_of_times(rule))
    sampler = replace(sampler_of(rule, name, fanouts), entries=entries)
    seeds = bulk(graph, rule != "static", k=max(p, 3))
    for partition in ("block", "random"):
        ranks = on_threads(p, lambda comm, how=partition: measured(graph, sampler, seeds, comm, c, how))
        hops = forms(graph, sampler, seeds, p)
        assert [one[1] for one in ranks] == tallies(predict_opening(len(graph.relations), p // c, c))
        assert [one[2] for one in ranks] == tallies(predict_hops(hops, ranks[0][0], c))
        assert sum(one[2]["topology"].bytes for one in ranks) > 0


@pytest.mark.parametrize(("fanouts", "collectives"), [((2, 2), 3), ((40, 40), 4)])
def test_a_hop_of_all_relations_takes_three_collectives_or_four(fanouts, collectives):
    """Lengths of requests, requests, answers; and lengths of answers where a row may draw more than 32 edges."""
    graph = library("edges")
    sampler, seeds = sampler_of("edges", "sage", fanouts), bulk(graph, True)
    taken = [one[3] for one in on_threads(2, lambda comm: measured(graph, sampler, seeds, comm, 1, "block"))]
    assert taken == [2 * collectives] * 2
