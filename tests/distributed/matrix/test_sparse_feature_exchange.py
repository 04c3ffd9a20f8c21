"""Sparse rows in block rows: what is fetched is the rows of the matrix, and no more travels than they are."""

import numpy as np
import pytest
from zoo import random_matrix

from bulksample import CSR, UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.feature_exchange import SparseRowExchange
from bulksample.distributed.matrix.partition import block_bounds

N = 60


def matrix(seed=0):
    pattern = random_matrix(N, 400, seed)
    return pattern.with_values(np.random.default_rng(seed).random(pattern.nnz).astype(np.float32))


def asked(rank):
    return np.random.default_rng(rank).integers(0, N, 25 * (rank != 1))  # repeated ids; rank 1 wants nothing


def assert_rows(got, expected):
    for one, other in ((got.indptr, expected.indptr), (got.indices, expected.indices), (got.entries(), expected.entries())):
        assert (one == other).all()


@pytest.mark.parametrize("p", [1, 2, 3, 7])
@pytest.mark.parametrize("empty", [False, True])
def test_fetched_rows_are_those_of_the_matrix(p, empty):
    whole, bounds = matrix(), block_bounds(N, p)
    if empty and p > 1:
        bounds[1] = 0

    def rank(comm):
        own = whole.take(np.arange(bounds[comm.rank], bounds[comm.rank + 1]))
        exchange = SparseRowExchange(comm, bounds, own)
        before = {kind: traffic.bytes for kind, traffic in comm.tally.items()}
        first, second = (exchange.ask([ids])[0]() for ids in (asked(comm.rank), asked(comm.rank)[:3]))  # two under way at once
        assert_rows(second.wait(), whole.take(asked(comm.rank)[:3]))
        assert_rows(first.wait(), whole.take(asked(comm.rank)))
        sent = {kind: comm.tally[kind].bytes - before[kind] for kind in before}
        for begin, ids in zip(
            exchange.ask([asked(comm.rank), asked(comm.rank)[:3]]), (asked(comm.rank), asked(comm.rank)[:3]), strict=True
        ):
            assert_rows(begin().wait(), whole.take(ids))
        return sent

    sent = on_threads(p, rank)
    owner = np.searchsorted(bounds, np.arange(N), side="right") - 1
    away = [np.unique(ids)[owner[np.unique(ids)] != r] for r in range(p) for ids in (asked(r), asked(r)[:3])]
    rows = sum(len(ids) for ids in away)
    assert sum(own["topology"] for own in sent) == 4 * rows
    assert sum(own["features"] for own in sent) == 4 * rows + 8 * sum(int(whole.degrees[ids].sum()) for ids in away)


def test_what_does_not_fit_is_refused():
    whole = matrix()

    def rank(comm):
        with pytest.raises(UsageError, match="holds rows"):
            SparseRowExchange(comm, block_bounds(N, 2), whole)
        with pytest.raises(UsageError, match="matrix with values"):
            SparseRowExchange(comm, block_bounds(N, 2), CSR(whole.indptr[:31], whole.indices[: whole.indptr[30]], None, (30, N)))
        own = whole.take(np.arange(*block_bounds(N, 2)[comm.rank : comm.rank + 2]))
        with pytest.raises(UsageError, match="0 to 59; got 0 to 60"):
            SparseRowExchange(comm, block_bounds(N, 2), own).ask([np.array([0, 60])])

    on_threads(2, rank)
