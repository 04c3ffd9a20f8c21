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
    columns: DeviceSelection | None = None


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

    def to_owners(self, q: DeviceSelection, columns: DeviceSelection | None = None) -> tuple[torch.Tensor, list[int], Requests]:
        """Send rows to their owners, with `columns` of the same mini-batches.

        Returns the order that groups the rows by owner (int64, shape (R,)), their number by owner, and what others ask of this rank.
        """
        owners, k = self._members, len(q.minibatches)
        owner = torch.searchsorted(self._inner_bounds, self.places(q.vertices), right=True)
        minibatch = torch.arange(k, device=owner.device).repeat_interleave(q.pointers.diff(), output_size=len(q.vertices))
        sizes = torch.bincount(owner * k + minibatch, minlength=owners * k).reshape(owners, k)
        order, rows = owner.argsort(stable=True), sizes.sum(1).tolist()
        return order, rows, self._exchange(q.minibatches, list(sizes), torch.split(q.vertices[order], rows), columns)

    def to_all(self, q: DeviceSelection) -> Requests:
        """Send a selection to every member; return theirs."""
        return self._exchange(q.minibatches, [q.pointers.diff()] * self._members, (q.vertices,) * self._members, None)

    def _exchange(
        self, minibatches: torch.Tensor, sizes: list[torch.Tensor], vertices: tuple[torch.Tensor, ...], columns: DeviceSelection | None
    ) -> Requests:
        head = torch.cat([minibatches.new_full((1,), len(minibatches)), minibatches]).int()
        more = [] if columns is None else [columns.pointers.diff().int(), columns.vertices.int()]
        pairs = zip(sizes, vertices, strict=True)
        parts = [torch.cat([head, own.int(), rows.int(), *more]) if len(rows) else head[:0] for own, rows in pairs]
        received = self.over.start_alltoall(parts, "topology").wait()
        numbers = torch.stack([part[0] if len(part) else head.new_zeros(()) for part in received]).tolist()
        tables = torch.cat([head[:0], *(part[1 : 1 + 2 * k] for part, k in zip(received, numbers, strict=True))])
        ids, counts, rows, selected, named = [head[:0]], [head[:0]], [head[:0]], [head[:0]], [head[:0]]
        rows_of = self._rows_of(tables, numbers)
        for part, k, own in zip(received, numbers, rows_of, strict=True):
            at = 1 + 2 * k + own
            ids.append(part[1 : 1 + k])
            counts.append(part[1 + k : 1 + 2 * k])
            rows.append(part[1 + 2 * k : at])
            named.append(part[at : at + k])
            selected.append(part[at + k :])
        names = torch.cat(ids).long() & 0xFFFFFFFF
        asked = DeviceSelection(names, pointers_of(torch.cat(counts)), torch.cat(rows))
        chosen = None if columns is None else DeviceSelection(names, pointers_of(torch.cat(named)), torch.cat(selected))
        return Requests(asked, numbers, rows_of, chosen)

    def _rows_of(self, tables: torch.Tensor, numbers: list[int]) -> list[int]:
        """Return the rows of each sender from its table: k ids, then k sizes."""
        ends = pointers_of(tables)
        cuts = [0, *accumulate(2 * k for k in numbers)]
        bounds = [at for cut, k in zip(cuts, numbers, strict=False) for at in (cut + k, cut + 2 * k)]
        found: list[int] = ends[self._cuda.send(torch.tensor(bounds))].reshape(-1, 2).diff(dim=1)[:, 0].tolist()
        return found

    def answer(self, rows: list[int], pointers: torch.Tensor, entries: list[torch.Tensor], expected: list[int]) -> list[torch.Tensor]:
        """Send consecutive ragged rows, so many to each member; return the counts (int32) and the entries received, in rank order.

        `expected` is the number of rows from each member.
        """
        ends = pointers[self._cuda.send(torch.tensor([0, *accumulate(rows)]))].tolist()
        sizes = [b - a for a, b in pairwise(ends)]
        columns = [torch.split(pointers.diff().int(), rows)]
        columns += [torch.split(array[: ends[-1]], sizes) for array in entries]
        parts = [torch.cat([array.contiguous().view(torch.int32) for array in arrays]) for arrays in zip(*columns, strict=True)]
        received = self.over.start_alltoall(parts, "topology").wait()
        words = [array.element_size() // 4 for array in entries]
        found: list[list[torch.Tensor]] = [[] for _ in columns]
        for part, own in zip(received, expected, strict=True):
            count = max(0, len(part) - own) // sum(words)
            found[0].append(part[:own])
            at = own
            for array, width, into in zip(entries, words, found[1:], strict=True):
                piece = part[at : at + width * count].clone()
                into.append(piece.view(array.dtype) if len(piece) else array.new_empty(0))
                at += width * count
        if any(len(part) < own for part, own in zip(received, expected, strict=True)):
            raise PeerLost(f"picks were promised for {sum(expected)} rows; {sum(map(len, received))} numbers came")
        return [torch.cat(pieces) for pieces in found]

    def answer_padded(
        self, rows: list[int], fanout: int, pointers: torch.Tensor, columns: torch.Tensor, order: torch.Tensor, expected: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Send at most `fanout` picks for each row back; return row pointers and picks in the order of the own rows."""
        width = torch.arange(fanout, device=columns.device)
        sent = columns.new_full((sum(rows), fanout), -1).masked_scatter_(width < pointers.diff()[:, None], columns)
        found = columns.new_empty((len(order), fanout))
        found[order] = self.over.start_alltoall(torch.split(sent, rows), "topology", expected).whole()[0]
        picked = found >= 0
        return pointers_of(picked.sum(1)), found[picked]

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


def merged(rows: int, n: int, counts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
    """Merge the pieces of so many rows from all ranks, or no pieces; columns ascend.

    See `distributed.matrix.selection_exchange.merge_columns`.
    """
    parts = len(counts) // max(1, rows)
    row = torch.arange(rows, device=counts.device).repeat(parts)
    row = row.repeat_interleave(counts.long(), output_size=len(columns))
    order = (row * n + columns).argsort()
    return [pointers_of(counts.reshape(parts, rows).sum(0)), columns[order], values[order]]


def pointers_of(counts: torch.Tensor) -> torch.Tensor:
    """Compute row pointers from counts: int64."""
    ends = counts.new_zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=ends[1:])
    return ends
