"""Node-wise sampling on GPUs of a graph in block rows: row ids go to the ranks that own them, drawn neighbors come back.

Tensors stay on the GPUs; the host reads only counts. Messages, their order and the mini-batches are those of
`distributed.matrix.owner.OwnerAdjacency`, bit for bit. Layer-wise samplers use that class, over the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ...backends.base import check_fanout
from ...backends.cuda.bulk import DeviceBulk, close, hop_after_hop, put_seeds
from ...backends.cuda.draws import DrawnEdges, FrontierRows, draw_rows
from ...backends.cuda.numbering import Numbering
from ...backends.cuda.predicted import most_found
from ...backends.cuda.tables import HeldVertices
from ...backends.hops import Expansion
from ...distributed.matrix.owner import OwnerAdjacency
from ...errors import PeerLost
from ...rng import Draw
from ...selection import Selection
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext
from .device_adjacency import memory_errors, split_bulk


class DeviceRouting(NamedTuple):
    """The rows of a frontier, grouped by owner; see `distributed.matrix.selection_exchange.RoutedSelection`."""

    order: torch.Tensor  # int64, shape (R,): groups the rows
    rows: list[int]  # number of rows of each owner
    sizes: torch.Tensor  # int64, shape (owners, k): number of rows by owner and mini-batch


class DeviceOwnerAdjacency(OwnerAdjacency):
    """An adjacency whose block rows lie on the GPUs of the ranks of a process column; each draws from its own rows.

    Parameters
    ----------
    adjacency : OwnerAdjacency
    cuda : CudaContext
    over : TensorComm
        The communicator of the process column.
    """

    def __init__(self, adjacency: OwnerAdjacency, cuda: CudaContext, over: TensorComm) -> None:
        super().__init__(adjacency.grid, adjacency.block, cuda.engine, adjacency.layout)
        self._cuda, self.over = cuda, over
        self._inner_bounds = cuda.put(self.bounds[1:-1].astype(np.int32))
        self._positions = None if self.layout.position is None else cuda.put(self.layout.position)

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        """Expand with the bytes per hop of `OwnerAdjacency.sample_rows`; the host waits for counts three times a hop."""
        with self._cuda.streams.sample.on("expand"), memory_errors():
            bulk = self._bulk(seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new)
            return split_bulk(self._cuda, bulk, seeds, only_new)

    def _bulk(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> DeviceBulk:
        device, k = self._cuda.kernels, len(seeds)
        entries = self.grid.rows * self.block.nnz  # about nnz(A)
        numbering = Numbering(device, k, self.n, most_found(len(seeds.vertices), fanouts, entries, k))
        rows = put_seeds(device, seeds)
        minibatches = self._cuda.tensor(rows.minibatches)

        def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
            return self._drawn(minibatches, frontier, fanouts[hop], draws[hop])

        return close(device, hop_after_hop(device, numbering, rows, draw, len(fanouts), only_new))

    def _drawn(self, minibatches: torch.Tensor, frontier: HeldVertices, fanout: int, draw: Draw) -> DrawnEdges:
        """Have the owners of a frontier's rows draw their neighbors; return the picks in the order of the frontier."""
        cuda, over = self._cuda, self.over
        vertices = cuda.tensor(frontier.vertices)[: frontier.size]
        routing = self._routing(vertices, cuda.tensor(frontier.pointers), len(minibatches))
        tables = torch.stack([minibatches.expand_as(routing.sizes), routing.sizes], dim=2)
        table, _ = over.start_alltoall(list(tables), "topology").whole()
        requested, from_each = over.start_alltoall(vertices[routing.order][:, None].split(routing.rows), "topology").whole()
        picks = draw_rows(cuda.kernels, cuda.kernels.matrix(self.block), self._own_rows(table, requested[:, 0]), fanout, draw)
        pointers = cuda.tensor(picks.pointers)
        ends = pointers[torch.tensor([0, *accumulate(from_each)], device=pointers.device)].tolist()
        sent = cuda.tensor(picks.columns)[: ends[-1]].split([b - a for a, b in pairwise(ends)])
        counts, columns = over.start_alltoall(pointers.diff().int().split(from_each), "topology"), over.start_alltoall(sent, "topology")
        return DrawnEdges(*map(cuda.array, _in_order(routing.order, counts.whole()[0], columns.whole()[0])))

    def _routing(self, vertices: torch.Tensor, pointers: torch.Tensor, k: int) -> DeviceRouting:
        """Group the rows of a frontier by owner, and count those of each mini-batch."""
        owners = len(self.bounds) - 1
        owner = torch.searchsorted(self._inner_bounds, self._rows_of(vertices), right=True)
        minibatch = torch.arange(k, device=vertices.device).repeat_interleave(pointers.diff(), output_size=len(vertices))
        sizes = torch.bincount(owner * k + minibatch, minlength=owners * k).reshape(owners, k)
        return DeviceRouting(owner.argsort(stable=True), sizes.sum(1).tolist(), sizes)

    def _own_rows(self, table: torch.Tensor, vertices: torch.Tensor) -> FrontierRows:
        """Describe to the kernel the rows that the members of the process column request."""
        array: Any = self._cuda.array
        minibatches, sizes = table.T.contiguous()
        rows, parts = array(self._rows_of(vertices) - self.first), array(_pointers(sizes))
        return FrontierRows(rows, array(vertices), parts, array(minibatches), len(vertices), len(table))

    def _rows_of(self, vertices: torch.Tensor) -> torch.Tensor:
        """Return the row of each vertex in the order of the layout."""
        return vertices if self._positions is None else self._positions[vertices.long()]


def _in_order(order: torch.Tensor, counts: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Put the owners' picks into the order of the frontier; see `distributed.matrix.selection_exchange.in_request_order`."""
    own, start = counts.new_empty(len(order), dtype=torch.int64), counts.new_empty(len(order), dtype=torch.int64)
    own[order], start[order] = counts.long(), _pointers(counts)[:-1]
    ends, entry = _pointers(own), torch.arange(len(columns), device=columns.device)
    if ends[-1] != len(columns):
        raise PeerLost(f"{int(ends[-1])} picks were promised; {len(columns)} came")
    row = torch.arange(len(order), device=columns.device).repeat_interleave(own, output_size=len(columns))
    return ends, columns[start[row] + entry - ends[row]]


def _pointers(counts: torch.Tensor) -> torch.Tensor:
    """Compute row pointers from counts: int64."""
    ends = counts.new_zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=ends[1:])
    return ends
