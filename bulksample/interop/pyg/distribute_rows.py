"""The adjacency of a loader in block rows over several ranks."""

from __future__ import annotations

from ...backends.base import Backend
from ...distributed.comm.base import Comm
from ...distributed.matrix.grid import ProcessGrid
from ...distributed.matrix.layout import Layout
from ...distributed.matrix.owner import OwnerAdjacency
from ...sparse import CSR


def distribute_rows(matrix: CSR, comm: Comm, replication: int, backend: Backend) -> OwnerAdjacency:
    """Distribute A in even block rows on a p/c x c grid, with the `owner` policy. Collective; each rank samples its own rows."""
    grid = ProcessGrid(comm, replication)
    layout = Layout.even(matrix.shape[0], grid.rows)
    first, last = (int(bound) for bound in layout.bounds[grid.row : grid.row + 2])
    rows = slice(matrix.indptr[first], matrix.indptr[last])
    values = None if matrix.values is None else matrix.values[rows]
    block = CSR(matrix.indptr[first : last + 1] - matrix.indptr[first], matrix.indices[rows], values, (last - first, matrix.shape[1]))
    return OwnerAdjacency(grid, block, backend, layout)
