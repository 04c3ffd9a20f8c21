"""Graphs distributed over grids of ranks, under each policy of exchange, and an epoch of mini-batches drawn on them."""

import numpy as np

from bulksample import Selection, Stream, backends
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.owner import OwnerAdjacency
from bulksample.distributed.matrix.spgemm15d import RowsAdjacency

GRIDS = [(1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4)]
POLICIES = {
    "owner": OwnerAdjacency,
    "rows": RowsAdjacency,
    "rows-oblivious": lambda *arguments: RowsAdjacency(*arguments, oblivious=True),
}
MINIBATCHES = 10
ALL_GRIDS = [(p, c) for p in (1, 2, 3, 4, 6, 8, 12, 16) for c in range(1, p + 1) if p % c == 0]


def block_row(matrix, layout, i):
    """The rows of block i."""
    return backends.make("reference").extract_rows(matrix, layout.members(i))


def distributed(comm, replication, policy, matrix, layout=None, backend=None):
    """The adjacency of this rank's block row of `matrix`, its rows in blocks of one size unless a layout is given."""
    grid = ProcessGrid(comm, replication)
    layout = layout or Layout.even(matrix.shape[0], grid.rows)
    return POLICIES[policy](grid, block_row(matrix, layout, grid.row), backend or backends.make("auto", 1), layout)


def seeds_of(n):
    """Lists of up to eight seeds, one for each minibatch of an epoch."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, n, rng.integers(0, 9)) for _ in range(MINIBATCHES)]


def epoch(sampler, adjacency, lists, rank=0, ranks=1, bulk=MINIBATCHES):
    """Digests of this rank's minibatches, `bulk` of them in each call; all ranks make as many calls."""
    own = np.arange(len(lists))[rank::ranks]
    calls = -(-len(lists) // (ranks * bulk))
    drawn = []
    for call in range(calls):
        ids = own[call * bulk : (call + 1) * bulk]
        drawn += sampler.sample_bulk(adjacency, Selection.of([lists[i] for i in ids], adjacency.n, ids), Stream(3), epoch=1)
    return [(m.id, m.digest()) for m in drawn]
