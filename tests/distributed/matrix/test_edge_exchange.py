"""Edges fetched by their ends: what arrives is what the whole matrix holds, and an edge that a rank does not hold is refused by name."""

import numpy as np
import pytest
from grids import block_row
from oracles.fetches import predict_edge_fetches
from zoo import random_matrix

from bulksample import CSR, PeerLost
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.edge_exchange import EdgeExchange
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.partition import random

MATRIX = random_matrix(30, 200, 4)
ROWS, FEATURES = MATRIX.row_of_entry(), np.random.default_rng(0).standard_normal((MATRIX.nnz, 2)).astype(np.float32)


def exchange_of(comm, layout):
    own = np.concatenate([np.flatnonzero(v == ROWS) for v in layout.members(comm.rank)])
    return EdgeExchange(comm, layout, block_row(MATRIX, layout, comm.rank), MATRIX.indptr[layout.members(comm.rank)], FEATURES[own])


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("shuffled", [False, True])
def test_fetched_edges_are_those_of_the_whole_matrix(p, shuffled):
    layout = Layout.of(random(30, p, 1)) if shuffled else Layout.even(30, p)

    def rank(comm):
        for count in (0, 1, 40):
            asked = np.random.default_rng([comm.rank, count]).integers(0, MATRIX.nnz, 0 if comm.rank == 1 else count)  # some more than once
            numbers, features = exchange_of(comm, layout).ask([(ROWS[asked], MATRIX.indices[asked])], numbers=True)[0]().wait()
            assert numbers.tolist() == asked.tolist()
            assert np.array_equal(features, FEATURES[asked])

    on_threads(p, rank)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("counts", [[5], [30, 0, 12], [0, 0]])
def test_several_fetches_ask_at_once_and_send_what_is_predicted(counts, numbers):
    """Two collectives carry the requests; each fetch begun takes one for each thing it wants."""
    layout = Layout.of(random(30, 3, 1))
    lists = [[np.random.default_rng([r, w]).integers(0, MATRIX.nnz, count) for w, count in enumerate(counts)] for r in range(3)]

    def rank(comm):
        exchange = exchange_of(comm, layout)
        before, calls = dict(comm.tally), dict(comm.collectives)
        begins = exchange.ask([(ROWS[asked], MATRIX.indices[asked]) for asked in lists[comm.rank]], numbers)
        for begin, asked in zip(begins, lists[comm.rank], strict=True):
            found, features = begin().wait()
            assert np.array_equal(features, FEATURES[asked])
            assert found.tolist() == asked.tolist() if numbers else found is None
        sent = {kind: (one.messages - before[kind].messages, one.bytes - before[kind].bytes) for kind, one in comm.tally.items()}
        return sent, {kind: comm.collectives[kind] - calls[kind] for kind in calls}

    ends = [[np.stack([layout.places(ROWS[one]), MATRIX.indices[one]], axis=1) for one in own] for own in lists]
    for (sent, calls), expected in zip(on_threads(3, rank), predict_edge_fetches(ends, layout.bounds, 8, numbers), strict=True):
        assert {kind: sent[kind] for kind in expected} == {kind: tuple(one) for kind, one in expected.items()}
        assert (calls["topology"], calls["control"], calls["features"]) == (1 + numbers * len(counts), 1, len(counts))


@pytest.mark.parametrize("edge", [(9, 0), (20, 0), (29, 0), (12, 1)])
def test_an_edge_of_another_rank_or_of_none_is_refused(edge):
    """Rank 1 of three holds the rows 10 .. 19, and each of them sees vertex 0 alone."""
    block = CSR(np.arange(11), np.zeros(10, np.int32), None, (10, 30))

    def rank(comm):
        exchange = EdgeExchange(comm, Layout.even(30, 3), block, np.arange(10) + 10 * comm.rank, None)
        if comm.rank == 1:
            assert [part.tolist() for part in exchange._entries(np.array([[10, 0], [19, 0]], np.int32))] == [[0, 9], [0, 9]]
            assert [len(part) for part in exchange._entries(np.empty((0, 2), np.int32))] == [0, 0]
            with pytest.raises(PeerLost, match="rank 1 was asked for an edge that it does not hold"):
                exchange._entries(np.array([[10, 0], edge], np.int32))

    on_threads(3, rank)
