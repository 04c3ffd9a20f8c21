"""Edges fetched by their ends: what arrives is what the whole matrix holds, and an edge that a rank does not hold is refused by name."""

import numpy as np
import pytest
from grids import block_row
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
            numbers, features = exchange_of(comm, layout).start(ROWS[asked], MATRIX.indices[asked], numbers=True).wait()
            assert numbers.tolist() == asked.tolist()
            assert np.array_equal(features, FEATURES[asked])

    on_threads(p, rank)


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
