"""Messages between the GPUs of a process column: selections to the owners of their rows or to all members, and answers.

Tensors stay on the GPUs; the host reads only counts. Messages, their order and their bytes are those of
`distributed.matrix.requests` and `distributed.matrix.messages`. Their lengths must be on the host before a message is sent. Sizes that
are not known are bounded, and what other ranks promised is checked with the next number that is read (`BulkReads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ...backends.cuda.draws import FrontierRows
from ...distributed.matrix.layout import Layout
from ...errors import PeerLost
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext


class BulkReads:
    """Read numbers from the GPU during one bulk, and check with them what other ranks promised in messages over `over`."""

    def __init__(self, cuda: CudaContext, over: TensorComm) -> None:
        self._cuda, self._over = cuda, over
        self._checks: list[tuple[torch.Tensor, list[int], str]] = []
        self.minibatches_of: dict[int, int] = {}

    def check(self, promised: torch.Tensor, came: Sequence[int], of: str) -> None:
        """Have the next read compare numbers on the GPU, int64, with those that came; `of` names what was promised."""
        self._checks.append((promised, list(came), of))

    def read(self, numbers: torch.Tensor) -> np.ndarray:
        """Wait for int64 numbers, 1-d, and return them; raise `PeerLost` if what is to be checked is not as promised, or does not come."""
        checks, self._checks = self._checks, []
        self._over.settle()
        together = torch.cat([numbers, *(promised for promised, _, _ in checks)])
        values = self._cuda.kernels.get(self._cuda.array(together))
        at = len(numbers)
        for _, came, of in checks:
            promised, at = values[at : at + len(came)].tolist(), at + len(came)
            if promised != came:
                lists = [", ".join(map(str, numbers)) for numbers in (promised, came)]
                raise PeerLost(f"{lists[0]} {of} were promised; {lists[1]} came")
        return values[: len(numbers)]


class DeviceSelection(NamedTuple):
    """Rows of k mini-batches, on the device; see `Selection`."""

    minibatches: torch.Tensor  # int64, shape (k,)
    pointers: torch.Tensor  # int64, shape (k + 1,)
    vertices: torch.Tensor  # int32, shape (R,)


class Routed(NamedTuple):
    """The rows of a selection, grouped by owner."""

    order: torch.Tensor  # int64, shape (R,): rows of the selection sorted by owner, stable
    sizes: list[torch.Tensor]  # of each owner: its rows by mini-batch, int64, shape (k,)
    rows: list[int]  # by owner
    selection: DeviceSelection
    ends: torch.Tensor | None = None  # int64, shape (R + 1,): row pointers of the picks to come, in this order, if they are known
    picks: list[int] | None = None  # by owner


class DeviceRequests(NamedTuple):
    """The selections that all members of a process column have sent, one after the other."""

    selection: DeviceSelection
    minibatches_of: list[int]  # by sender
    rows_of: list[int]  # by sender
    columns: DeviceSelection | None = None


class OwnerMessages:
    """The exchanges `over` a process column whose members own block rows."""

    def __init__(self, cuda: CudaContext, over: TensorComm, layout: Layout) -> None:
        self._cuda, self.over, self._members = cuda, over, layout.blocks
        self._inner_bounds = cuda.put(layout.bounds[1:-1].astype(np.int32))
        self._positions = None if layout.position is None else cuda.put(layout.position)

    def places(self, vertices: torch.Tensor) -> torch.Tensor:
        """Return the place of each vertex in the layout: int32."""
        return vertices if self._positions is None else self._positions[vertices.long()]

    def route(self, q: DeviceSelection, reads: BulkReads, drawn: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Routed:
        """Group rows by owner, and wait for the number of rows of each. `q.vertices` may be longer than its last pointer.

        `drawn` returns how many picks the rows at some places draw, int64, if that is known.
        """
        owners, k, device = self._members, len(q.minibatches), q.vertices.device
        row = torch.arange(len(q.vertices), device=device)
        named = row < q.pointers[-1]
        minibatch = torch.searchsorted(q.pointers[1:], row, right=True)
        places = self.places(torch.where(named, q.vertices, 0))
        owner = torch.searchsorted(self._inner_bounds, places, right=True)
        groups = torch.arange(owners * k + 1, device=device, dtype=torch.int32 if owners * k < 2**31 else torch.int64)
        group, order = torch.where(named, owner * k + minibatch, owners * k).to(groups.dtype).sort(stable=True)
        starts = torch.searchsorted(group, groups)
        cuts = starts[k * torch.arange(owners + 1, device=device)]
        ends = None if drawn is None else pointers_of(torch.where(named, drawn(places), 0)[order])
        ends_by_owner = reads.read(cuts if ends is None else torch.cat([cuts, ends[cuts]])).reshape(-1, owners + 1)
        rows, count = np.diff(ends_by_owner).tolist(), int(ends_by_owner[0, -1])
        routed = Routed(order[:count], list(starts.diff().reshape(owners, k)), rows[0], q._replace(vertices=q.vertices[:count]))
        return routed if ends is None else routed._replace(ends=ends[: count + 1], picks=rows[1])

    def to_owners(
        self, routed: Routed, reads: BulkReads, columns: DeviceSelection | None = None, coming: list[int] | None = None
    ) -> DeviceRequests:  # fmt: skip
        """Send rows to their owners, with `columns` of the same mini-batches; return what others ask of this rank.

        Waits for the rows of each sender where columns travel as well, unless these numbers are known: `coming`.
        """
        vertices = torch.split(routed.selection.vertices[routed.order], routed.rows)
        return self._exchange(reads, routed.selection.minibatches, routed.sizes, vertices, columns, coming)

    def to_all(self, q: DeviceSelection, reads: BulkReads) -> DeviceRequests:
        """Send a selection to every member; return theirs."""
        return self._exchange(reads, q.minibatches, [q.pointers.diff()] * self._members, (q.vertices,) * self._members)

    def _exchange(
        self, reads: BulkReads, minibatches: torch.Tensor, sizes: list[torch.Tensor], vertices: tuple[torch.Tensor, ...],
        columns: DeviceSelection | None = None, coming: list[int] | None = None,
    ) -> DeviceRequests:  # fmt: skip
        """Wait for the numbers of mini-batches that are not known, and for the rows of each sender as `to_owners` does."""
        head = torch.cat([minibatches.new_full((1,), len(minibatches)), minibatches]).int()
        more = [] if columns is None else [columns.pointers.diff().int(), columns.vertices.int()]
        pairs = zip(sizes, vertices, strict=True)
        parts = [torch.cat([head, rows_here.int(), rows.int(), *more]) if len(rows) else head[:0] for rows_here, rows in pairs]
        received = self.over.start_alltoall(parts, "topology").wait()
        numbers = self._minibatches_of(received, reads)
        tables = torch.cat([head[:0], *(part[1 + k : 1 + 2 * k] for part, k in zip(received, numbers, strict=True))])
        ends = pointers_of(tables)
        of_senders = ends[self._cuda.send(torch.tensor([0, *accumulate(numbers)]))].diff()
        if columns is None:
            coming = [len(part) - 1 - 2 * k if len(part) else 0 for part, k in zip(received, numbers, strict=True)]
        if coming is None:
            rows_of: list[int] = reads.read(of_senders).tolist()
        else:
            rows_of = coming
            reads.check(of_senders, coming, "rows of requests")
        words = 2 if columns is None else 3  # of each mini-batch: its id, its rows and its columns
        senders = zip(received, numbers, rows_of, strict=True)
        if any(not 0 < rows_here < len(part) - words * k if len(part) else rows_here for part, k, rows_here in senders):
            raise PeerLost(f"{sum(rows_of)} rows of requests were promised; {sum(map(len, received))} numbers came")
        ids, rows, selected, named = [head[:0]], [head[:0]], [head[:0]], [head[:0]]
        for part, k, rows_here in zip(received, numbers, rows_of, strict=True):
            at = 1 + 2 * k + rows_here
            ids.append(part[1 : 1 + k])
            rows.append(part[1 + 2 * k : at])
            named.append(part[at : at + k])
            selected.append(part[at + k :])
        names, requested = torch.cat(ids).long() & 0xFFFFFFFF, torch.cat(rows)
        of_each = DeviceSelection(names, ends.clamp(max=len(requested)), requested)
        if columns is None:
            return DeviceRequests(of_each, numbers, rows_of)
        columns_ends, chosen = pointers_of(torch.cat(named)), torch.cat(selected)
        reads.check(columns_ends[-1:], [len(chosen)], "columns of requests")
        return DeviceRequests(of_each, numbers, rows_of, DeviceSelection(names, columns_ends.clamp(max=len(chosen)), chosen))

    def _minibatches_of(self, received: list[torch.Tensor], reads: BulkReads) -> list[int]:
        """Return how many mini-batches the request of each rank is for; those of one rank are as many throughout a bulk."""
        new = [rank for rank, part in enumerate(received) if len(part) and rank not in reads.minibatches_of]
        if new:
            announced = reads.read(torch.cat([received[rank][:1] for rank in new]).long())
            reads.minibatches_of |= dict(zip(new, announced.tolist(), strict=True))
        numbers = [reads.minibatches_of[rank] if len(part) else 0 for rank, part in enumerate(received)]
        for rank, (part, k) in enumerate(zip(received, numbers, strict=True)):
            if len(part) and not 0 < 2 * k < len(part) - 1:
                raise PeerLost(f"rank {rank} sent a request of {len(part)} numbers for {k} mini-batches")
        return numbers

    def cuts(self, rows: list[int], pointers: torch.Tensor) -> torch.Tensor:
        """Return the entries before the rows of each member, where so many rows of each follow one another, and all entries: int64."""
        return pointers[self._cuda.send(torch.tensor([0, *accumulate(rows)]))]

    def answer(
        self, reads: BulkReads, rows: list[int], pointers: torch.Tensor, ends: list[int], entries: list[torch.Tensor], expected: list[int]
    ) -> list[torch.Tensor]:
        """Send consecutive ragged rows, so many to each member; return their row pointers and the entries received, in rank order.

        `ends` are the numbers of `cuts`, `expected` the number of rows from each member. Waits for nothing that is on this GPU.
        """
        sizes = [b - a for a, b in pairwise(ends)]
        columns = [torch.split(pointers.diff().int(), rows)]
        columns += [torch.split(array[: ends[-1]], sizes) for array in entries]
        parts = [torch.cat([array.contiguous().view(torch.int32) for array in arrays]) for arrays in zip(*columns, strict=True)]
        received = self.over.start_alltoall(parts, "topology").wait()
        words = [array.element_size() // 4 for array in entries]
        left = [len(part) - rows_here for part, rows_here in zip(received, expected, strict=True)]
        if any(more < 0 or more % sum(words) or (more and not rows_here) for more, rows_here in zip(left, expected, strict=True)):
            raise PeerLost(f"picks were promised for {sum(expected)} rows; {sum(map(len, received))} numbers came")
        pieces_of: list[list[torch.Tensor]] = [[] for _ in columns]
        for part, rows_here, more in zip(received, expected, left, strict=True):
            count = more // sum(words)
            pieces_of[0].append(part[:rows_here])
            at = rows_here
            for array, width, into in zip(entries, words, pieces_of[1:], strict=True):
                piece = part[at : at + width * count].clone()
                into.append(piece.view(array.dtype) if len(piece) else array.new_empty(0))
                at += width * count
        counts, *arrays = [torch.cat(pieces) for pieces in pieces_of]
        came, promised = len(arrays[0]), pointers_of(counts)
        reads.check(promised[-1:], [came], "picks")
        return [promised.clamp(max=came), *arrays]

    def answer_counted(self, columns: torch.Tensor, ends: list[int], routed: Routed) -> list[torch.Tensor]:
        """Send the picks of consecutive rows back; return row pointers and picks in the order of the own rows.

        `ends` are the numbers of `cuts`; what comes is known from `routed`. Waits for nothing that is on this GPU.
        """
        assert routed.ends is not None
        parts = torch.split(columns[: ends[-1]], [b - a for a, b in pairwise(ends)])
        picks = self.over.start_alltoall(parts, "topology", routed.picks).whole()[0]
        return in_order(routed.order, routed.ends, picks)

    def answer_padded(
        self, rows: list[int], fanout: int, pointers: torch.Tensor, columns: torch.Tensor, routed: Routed
    ) -> list[torch.Tensor]:
        """Send at most `fanout` picks for each row back; return row pointers and picks in the order of the own rows.

        The picks, int32, have room for `fanout` in each row. Waits for nothing that is on this GPU.
        """
        width = torch.arange(fanout, device=columns.device)
        at = (pointers[:-1, None] + width).clamp(max=max(len(columns) - 1, 0))
        sent = torch.where(width < pointers.diff()[:, None], columns[at], -1)
        picks = columns.new_empty((len(routed.order), fanout))
        picks[routed.order] = self.over.start_alltoall(torch.split(sent, rows), "topology", routed.rows).whole()[0]
        picked = picks >= 0
        ends = pointers_of(picked.sum(1))
        place = torch.arange(picks.numel(), device=picks.device).reshape(picks.shape)
        unpicked = ends[-1] + place - ends[1:, None]  # behind all picks, in order
        kept = torch.empty_like(picks).reshape(-1)
        kept[torch.where(picked, ends[:-1, None] + width, unpicked)] = picks
        return [ends, kept]

    def frontier(self, q: DeviceSelection, first: int = 0) -> FrontierRows:
        """Describe the rows of a selection to the kernels: by their places, minus `first`."""
        array: Any = self._cuda.array
        rows = array(self.places(q.vertices) - first)
        return FrontierRows(rows, array(q.vertices), array(q.pointers), array(q.minibatches), len(q.vertices), len(q.minibatches))


def in_order(order: torch.Tensor, ends: torch.Tensor, *arrays: torch.Tensor) -> list[torch.Tensor]:
    """Put the owners' answers into the order of the rows; see `distributed.matrix.messages.Reply.received`."""
    counts, start, came = torch.empty_like(ends[:-1]), torch.empty_like(ends[:-1]), len(arrays[0])
    counts[order], start[order] = ends.diff(), ends[:-1]
    pointers = pointers_of(counts)
    row, entry = row_of_entry(pointers, came), torch.arange(came, device=ends.device)
    at = (start[row] + entry - pointers[row]).clamp(max=max(came - 1, 0))  # a rank that broke its promise must not read elsewhere
    return [pointers, *(array[at] for array in arrays)]


def merged(rows: int, n: int, ends: torch.Tensor, columns: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
    """Merge the pieces of so many rows from all ranks, or no pieces; columns ascend. See `distributed.matrix.messages.merge_columns`."""
    parts = (len(ends) - 1) // max(1, rows)
    row = row_of_entry(ends, len(columns)) % max(1, rows)
    order = (row * n + columns).argsort()
    return [pointers_of(ends.diff().reshape(parts, rows).sum(0)), columns[order], values[order]]


def row_of_entry(pointers: torch.Tensor, entries: int) -> torch.Tensor:
    """Return the row of each entry: int64."""
    row = torch.searchsorted(pointers[1:], torch.arange(entries, device=pointers.device), right=True)
    return row.clamp(max=max(len(pointers) - 2, 0))


def pointers_of(counts: torch.Tensor) -> torch.Tensor:
    """Compute row pointers from counts: int64."""
    ends = counts.new_zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=ends[1:])
    return ends
