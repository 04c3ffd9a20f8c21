"""Node-wise sampling of a graph in block rows that stays on devices: rows go to their owners, picks come back; the host sees counts.

Who is asked, what is sent and in which order is that of `distributed.matrix.owner.OwnerAdjacency`, whose minibatches these are to the bit; layer-wise
samplers go its way, over the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ...backends.base import check_fanout
from ...backends.cuda.bulk import Bulk, asked_of, hop_after_hop, most_found
from ...backends.cuda.draws import Drawn, Rows, draw_rows
from ...backends.cuda.numbers import Held, Numbering
from ...backends.hops import Expansion
from ...distributed.matrix.owner import OwnerAdjacency
from ...errors import PeerLost
from ...rng import Draw
from ...selection import Selection
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext
from .device_adjacency import cut, memory_errors


class Routed(NamedTuple):
    """The rows of a frontier, owner by owner; see `distributed.matrix.selection_exchange.RoutedSelection`."""

    order: torch.Tensor  # int64, shape (R,)
    rows: list[int]  # of each owner
    sizes: torch.Tensor  # int64, shape (owners, k): of each minibatch


class DeviceOwnerAdjacency(OwnerAdjacency):
    """Block rows of A on the devices of a process column.

    Parameters
    ----------
    adjacency : OwnerAdjacency
    cuda : CudaContext
    over : TensorComm
        Among the members of the process column.
    """

    def __init__(self, adjacency: OwnerAdjacency, cuda: CudaContext, over: TensorComm) -> None:
        super().__init__(adjacency.grid, adjacency.block, cuda.engine, adjacency.layout)
        self._cuda, self.over = cuda, over
        self._inner_bounds = cuda.put(self.bounds[1:-1].astype(np.int32))
        self._positions = None if self.layout.position is None else cuda.put(self.layout.position)

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        """Bytes a hop as of `OwnerAdjacency.sample_rows`; the host waits for what goes to whom, and comes, three times a hop."""
        with self._cuda.streams.sample.on("expand"), memory_errors():
            bulk = self._bulk(seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new)
            return cut(self._cuda, bulk, seeds, only_new)

    def _bulk(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> Bulk:
        device, k = self._cuda.kernels, len(seeds)
        entries = self.grid.rows * self.block.nnz  # about those of A
        numbering = Numbering(device, k, self.n, most_found(len(seeds.vertices), fanouts, entries, k))
        asked = asked_of(device, seeds)
        minibatches = self._cuda.tensor(asked.minibatches)

        def draw(frontier: Held, hop: int) -> Drawn:
            return self._drawn(minibatches, frontier, fanouts[hop], draws[hop])

        return hop_after_hop(device, numbering, asked, draw, len(fanouts), only_new)

    def _drawn(self, minibatches: torch.Tensor, frontier: Held, fanout: int, draw: Draw) -> Drawn:
        """What the rows of a frontier drew, wherever they lie."""
        cuda, over = self._cuda, self.over
        vertices = cuda.tensor(frontier.vertices)[: frontier.size]
        routed = self._routed(vertices, cuda.tensor(frontier.pointers), len(minibatches))
        tables = torch.stack([minibatches.expand_as(routed.sizes), routed.sizes], dim=2)
        table, _ = over.start_alltoall(list(tables), "topology").whole()
        asked, askers = over.start_alltoall(vertices[routed.order][:, None].split(routed.rows), "topology").whole()
        picks = draw_rows(cuda.kernels, cuda.kernels.matrix(self.block), self._own_rows(table, asked[:, 0]), fanout, draw)
        pointers = cuda.tensor(picks.pointers)
        ends = pointers[torch.tensor([0, *accumulate(askers)], device=pointers.device)].tolist()
        sent = cuda.tensor(picks.columns)[: ends[-1]].split([b - a for a, b in pairwise(ends)])
        counts, columns = over.start_alltoall(pointers.diff().int().split(askers), "topology"), over.start_alltoall(sent, "topology")
        return Drawn(*map(cuda.array, _in_order(routed.order, counts.whole()[0], columns.whole()[0])))

    def _routed(self, vertices: torch.Tensor, pointers: torch.Tensor, k: int) -> Routed:
        """The rows of each block row, and how many of them each minibatch has."""
        owners = len(self.bounds) - 1
        owner = torch.searchsorted(self._inner_bounds, self._places(vertices), right=True)
        minibatch = torch.arange(k, device=vertices.device).repeat_interleave(pointers.diff(), output_size=len(vertices))
        sizes = torch.bincount(owner * k + minibatch, minlength=owners * k).reshape(owners, k)
        return Routed(owner.argsort(stable=True), sizes.sum(1).tolist(), sizes)

    def _own_rows(self, table: torch.Tensor, vertices: torch.Tensor) -> Rows:
        """What all members of the process column ask of this block row."""
        array: Any = self._cuda.array
        minibatches, sizes = table.T.contiguous()
        places, parts = array(self._places(vertices) - self.first), array(_pointers(sizes))
        return Rows(places, array(vertices), parts, array(minibatches), len(vertices), len(table))

    def _places(self, vertices: torch.Tensor) -> torch.Tensor:
        return vertices if self._positions is None else self._positions[vertices.long()]


def _in_order(order: torch.Tensor, counts: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers to routed rows in the order of the frontier; see `distributed.matrix.selection_exchange.in_request_order`."""
    own, start = counts.new_empty(len(order), dtype=torch.int64), counts.new_empty(len(order), dtype=torch.int64)
    own[order], start[order] = counts.long(), _pointers(counts)[:-1]
    ends, entry = _pointers(own), torch.arange(len(columns), device=columns.device)
    if ends[-1] != len(columns):
        raise PeerLost(f"{int(ends[-1])} picks were promised; {len(columns)} came")
    row = torch.arange(len(order), device=columns.device).repeat_interleave(own, output_size=len(columns))
    return ends, columns[start[row] + entry - ends[row]]


def _pointers(counts: torch.Tensor) -> torch.Tensor:
    """Row pointers of counts: int64."""
    ends = counts.new_zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=ends[1:])
    return ends
