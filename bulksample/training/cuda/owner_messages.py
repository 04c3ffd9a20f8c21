"""Messages between the GPUs of a process column: selections to the owners of their rows or to all members, and ragged answers.

Tensors stay on the GPUs; the host reads only counts. Messages, their order and their bytes are those of
`distributed.matrix.selection_exchange`.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ...backends.cuda.draws import FrontierRows
from ...distributed.matrix.layout import Layout
from ...errors import PeerLost
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext


class DeviceSelection(NamedTuple):
    """Rows of k mini-batches, on the device; see `Selection`."""

    minibatches: torch.Tensor  # int64, shape (k,)
    pointers: torch.Tensor  # int64, shape (k + 1,)
    vertices: torch.Tensor  # int32, shape (R,)


class Requests(NamedTuple):
    """The selections that all members of a process column have sent, one after the other."""

    selection: DeviceSelection
    minibatches_of: list[int]  # by sender
    rows_of: list[int]  # by sender


class OwnerMessages:
    """The exchanges of a process column whose members own block rows.

    Parameters
    ----------
    cuda : CudaContext
    over : TensorComm
        The communicator of the process column.
    layout : Layout
    """

    def __init__(self, cuda: CudaContext, over: TensorComm, layout: Layout) -> None:
        self._cuda, self.over, self._members = cuda, over, layout.blocks
        self._inner_bounds = cuda.put(layout.bounds[1:-1].astype(np.int32))
        self._positions = None if layout.position is None else cuda.put(layout.position)

    def places(self, vertices: torch.Tensor) -> torch.Tensor:
        """Return the place of each vertex in the layout: int32."""
        return vertices if self._positions is None else self._positions[vertices.long()]

    def to_owners(self, q: DeviceSelection) -> tuple[torch.Tensor, Requests]:
        """Send rows to their owners; return the order that groups them by owner (int64, shape (R,)), and what others ask of this rank."""
        owners, k = self._members, len(q.minibatches)
        owner = torch.searchsorted(self._inner_bounds, self.places(q.vertices), right=True)
        minibatch = torch.arange(k, device=owner.device).repeat_interleave(q.pointers.diff(), output_size=len(q.vertices))
        sizes = torch.bincount(owner * k + minibatch, minlength=owners * k).reshape(owners, k)
        order, rows = owner.argsort(stable=True), sizes.sum(1).tolist()
        return order, self._exchange(q.minibatches, list(sizes), torch.split(q.vertices[order], rows))

    def to_all(self, q: DeviceSelection) -> Requests:
        """Send a selection to every member; return theirs."""
        return self._exchange(q.minibatches, [q.pointers.diff()] * self._members, (q.vertices,) * self._members)

    def _exchange(self, minibatches: torch.Tensor, sizes: list[torch.Tensor], vertices: tuple[torch.Tensor, ...]) -> Requests:
        tables = [torch.stack([minibatches, own], dim=1) for own in sizes]
        table, minibatches_of = self.over.start_alltoall(tables, "topology").whole()
        rows, rows_of = self.over.start_alltoall([part[:, None] for part in vertices], "topology").whole()
        ids, counts = table.T.contiguous()
        return Requests(DeviceSelection(ids, pointers_of(counts), rows[:, 0]), minibatches_of, rows_of)

    def answer(self, rows: list[int], pointers: torch.Tensor, entries: list[torch.Tensor]) -> list[torch.Tensor]:
        """Send consecutive ragged rows, so many to each member; return the counts (int32) and the entries received, in rank order."""
        ends = pointers[self._cuda.send(torch.tensor([0, *accumulate(rows)]))].tolist()
        sizes = [b - a for a, b in pairwise(ends)]
        pending = [self.over.start_alltoall(torch.split(pointers.diff().int(), rows), "topology")]
        pending += [self.over.start_alltoall(torch.split(array[: ends[-1]], sizes), "topology") for array in entries]
        return [one.whole()[0] for one in pending]

    def frontier(self, q: DeviceSelection, first: int = 0) -> FrontierRows:
        """Describe the rows of a selection to the kernels: by their places, minus `first`."""
        array: Any = self._cuda.array
        rows = array(self.places(q.vertices) - first)
        return FrontierRows(rows, array(q.vertices), array(q.pointers), array(q.minibatches), len(q.vertices), len(q.minibatches))


def in_order(order: torch.Tensor, counts: torch.Tensor, *arrays: torch.Tensor) -> list[torch.Tensor]:
    """Put the owners' answers into the order of the rows; see `distributed.matrix.selection_exchange.in_request_order`."""
    own, start = counts.new_empty(len(order), dtype=torch.int64), counts.new_empty(len(order), dtype=torch.int64)
    own[order], start[order] = counts.long(), pointers_of(counts)[:-1]
    ends, came = pointers_of(own), len(arrays[0])
    if ends[-1] != came:
        raise PeerLost(f"{int(ends[-1])} picks were promised; {came} came")
    row = torch.arange(len(order), device=ends.device).repeat_interleave(own, output_size=came)
    at = start[row] + torch.arange(came, device=ends.device) - ends[row]
    return [ends, *(array[at] for array in arrays)]


def merged(parts: int, n: int, counts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
    """Merge pieces of the same rows from so many ranks; columns ascend. See `distributed.matrix.selection_exchange.merge_columns`."""
    rows = len(counts) // parts
    row = torch.arange(rows, device=counts.device).repeat(parts).repeat_interleave(counts.long(), output_size=len(columns))
    order = (row * n + columns).argsort()
    return [pointers_of(counts.reshape(parts, rows).sum(0)), columns[order], values[order]]


def pointers_of(counts: torch.Tensor) -> torch.Tensor:
    """Compute row pointers from counts: int64."""
    ends = counts.new_zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=ends[1:])
    return ends
