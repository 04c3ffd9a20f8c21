"""Requested ids reach the rank that holds them, fetch by fetch, in one message to each; a request that does not add up is refused."""

import numpy as np
import pytest

from bulksample import PeerLost
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.row_requests import request_rows

BOUNDS = np.array([0, 4, 4, 10])


def wanted(rank, fetches):
    rng = np.random.default_rng([rank, fetches])
    return [np.flatnonzero(rng.random(10) < 0.4).astype(np.int32) for _ in range(fetches)]


@pytest.mark.parametrize("fetches", [1, 2, 5])
def test_every_owner_gets_the_ids_of_each_fetch(fetches):
    everyone = [wanted(rank, fetches) for rank in range(3)]
    found = on_threads(3, lambda comm: request_rows(comm, BOUNDS, everyone[comm.rank]))
    for owner, requests in enumerate(found):
        first, end = BOUNDS[owner], BOUNDS[owner + 1]
        for w, request in enumerate(requests):
            of_rank = [[v for v in own[w].tolist() if first <= v < end] for own in everyone]
            assert request.requested.tolist() == [v for own in of_rank for v in own]
            assert request.requested_counts.tolist() == [len(own) for own in of_rank]
            mine = everyone[owner][w]
            assert request.expected.tolist() == [sum(BOUNDS[q] <= v < BOUNDS[q + 1] for v in mine) for q in range(3)]


def test_nothing_is_sent_where_nothing_is_wanted():
    def rank(comm):
        requests = request_rows(comm, BOUNDS, [np.empty(0, np.int32)] * 3)
        return comm.tally["topology"], [one.requested_counts.sum() for one in requests]

    assert on_threads(3, rank) == [((0, 0), [0, 0, 0])] * 3


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ([1], "shorter than its counts"),
        ([5, 1, 0], "do not add up"),
        ([-1, 1, 3], "do not add up"),
        ([2**31 - 1, 9, 1], "do not add up"),
    ],
)
def test_a_request_that_does_not_add_up_is_refused(message, why):
    """Rank 1 sends words of its own to rank 0, where three fetches are expected."""

    def rank(comm):
        if comm.rank == 0:
            with pytest.raises(PeerLost, match=f"rank 1 sent a request .*{why}"):
                request_rows(comm, np.array([0, 10, 10]), [np.empty(0, np.int32)] * 3)
        else:
            comm.alltoall_rows(np.array(message, np.int32), np.array([len(message), 0]), "topology")

    on_threads(2, rank)
