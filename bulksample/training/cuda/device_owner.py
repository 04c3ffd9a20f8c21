"""Sampling on GPUs of a graph in block rows: row ids go to the ranks that own them, drawn neighbors come back.

Tensors stay on the GPUs; the host reads only counts. Messages, their order and the mini-batches are those of
`distributed.matrix.owner.OwnerAdjacency`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ...adjacency import Entries, LayerLaw
from ...backends.base import check_fanout, drawn_from
from ...backends.cuda.bulk import DeviceSeeds, Division, cut_to, hop_after_hop, put_inputs
from ...backends.cuda.device import DeviceCSR
from ...backends.cuda.draws import DevicePicks, DrawnEdges, FrontierRows, LayerEntries, draw_rows, smallest
from ...backends.cuda.layers import weighed_edges
from ...backends.cuda.predicted import most_found
from ...backends.cuda.products import restrict, spgemm
from ...backends.cuda.tables import Numbering
from ...backends.hops import Expansion
from ...backends.layer_draws import SharedDraws
from ...distributed.matrix.owner import OwnerAdjacency
from ...distributed.matrix.reply_slots import RowLaw
from ...graph.selection import Selection
from ...rng import Draw
from ...sparse import CSR
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext, memory_errors
from .device_adjacency import split_bulk
from .owner_messages import BulkReads, DeviceRequests, DeviceSelection, OwnerMessages, Routed, in_order, merged, pointers_of, row_of_entry


class OwnRows(NamedTuple):
    """The rows of this rank that the members of its process column have in their frontiers."""

    of_members: list[int]
    neighbors: int  # of all these rows together


class DeviceOwnerAdjacency(OwnerAdjacency):
    """An adjacency whose block rows lie on the GPUs of the ranks of a process column; each draws from its own rows."""

    def __init__(self, adjacency: OwnerAdjacency, cuda: CudaContext, over: TensorComm) -> None:
        super().__init__(adjacency.grid, adjacency.block, cuda.engine, adjacency.layout)
        self._cuda, self.messages = cuda, OwnerMessages(cuda, over, self.layout)
        self._row_sums: torch.Tensor | None = None
        self._tables: dict[bool, torch.Tensor] = {}  # those of `RowCounts`

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        """Expand with the bytes per hop of `OwnerAdjacency.sample_rows`.

        The host waits for the device once a hop, for the number of rows of each owner; once for the mini-batches of the other ranks, in
        the first hop in which they ask; and once for the counts of the bulk. Answers that are not padded take one more wait a hop, for
        their lengths. Messages that travel over the host are copied to it besides.
        """
        with self._cuda.streams.sample.on("expand"), memory_errors():
            fanouts, k = [check_fanout(fanout) for fanout in fanouts], len(seeds)
            entries = self.grid.rows * self.block.nnz  # about nnz(A)
            edges = most_found(len(seeds.vertices), fanouts, entries, k)

            def draw(q: DeviceSelection, reads: BulkReads, hop: int) -> DrawnEdges:
                return self._drawn(q, reads, fanouts[hop], draws[hop])

            return self._expanded(seeds, Numbering(self._cuda.kernels, np.full(k, self.n), edges), draw, len(fanouts), only_new)

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | SharedDraws, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion]:  # fmt: skip
        """Expand with the bytes per hop of `OwnerAdjacency.sample_layer` and `restrict`.

        The host waits for the device six times a hop where the frontier says what is drawn (LADIES), else four times (FastGCN), for the
        lengths of messages and products; once for the mini-batches of the other ranks; and once for the counts of the bulk. Messages that
        travel over the host are copied to it besides.
        """
        with self._cuda.streams.sample.on("expand_layers"), memory_errors():
            device, k, weighing = self._cuda.kernels, len(seeds), (debias, renormalise)
            fanouts = [check_fanout(fanout) for fanout in fanouts]
            most = fanouts if isinstance(drawn, LayerLaw) else [int(np.diff(picks.pointers).max(initial=0)) for picks in drawn]
            drawn_at_most = sum(max(s, 0) for s in most)
            bounds = None if min(most, default=0) < 0 else np.diff(seeds.pointers) + drawn_at_most
            numbering = Numbering(device, np.full(k, self.n), len(seeds.vertices) + k * drawn_at_most, bounds)

            def draw(q: DeviceSelection, reads: BulkReads, hop: int) -> DrawnEdges:
                routed = self.messages.route(q, reads)
                if isinstance(drawn, LayerLaw):
                    picked, coming = self._picked(routed.selection, reads, drawn, fanouts[hop], draws[hop])
                else:
                    picked, coming = DevicePicks(*(device.put(part) for part in drawn[hop])), None
                return self._edges(routed, reads, picked, coming, weighing)

            return self._expanded(seeds, numbering, draw, len(fanouts), only_new)

    def _expanded(
        self, seeds: Selection, numbering: Numbering, draw: Callable[[DeviceSelection, BulkReads, int], DrawnEdges], hops: int,
        only_new: bool,
    ) -> list[Expansion]:  # fmt: skip
        """Take a bulk through its hops, of which ``draw(frontier, reads, hop)`` draws one."""
        cuda, reads = self._cuda, BulkReads(self._cuda, self.messages.over)
        rows, tensor = put_inputs(cuda.kernels, DeviceSeeds.of(seeds)), cuda.tensor

        def drawn(frontier: FrontierRows, hop: int) -> DrawnEdges:
            minibatches, pointers, vertices = (tensor(part) for part in (frontier.minibatches, frontier.parts, frontier.vertices))
            return draw(DeviceSelection(minibatches, pointers, vertices[: frontier.size]), reads, hop)

        bulk = hop_after_hop(cuda.kernels, numbering, rows, drawn, hops, Division(seeds.pointers, only_new), bounded=True)
        return [one.plain() for one in split_bulk(cuda, cut_to(bulk, reads.read(tensor(bulk.counts))))]

    # ---- node-wise

    def _drawn(self, q: DeviceSelection, reads: BulkReads, fanout: int, draw: Draw) -> DrawnEdges:
        """Have the owners of a frontier's rows draw their neighbors; return the picks in the order of the frontier."""
        cuda, messages, padded = self._cuda, self.messages, self.padded(fanout)
        routed = messages.route(q, reads, None if padded else self._edges_drawn(RowLaw(fanout, draw.law)))
        requested = messages.to_owners(routed, reads)
        rows, ends = messages.frontier(requested.selection, self.first), list[int]()

        def read(numbers: Any, picks: Any) -> list[int]:
            """Read the ends of the answers along with what the draw waits for."""
            together = torch.cat([cuda.tensor(numbers), messages.cuts(requested.rows_of, cuda.tensor(picks))])
            values: list[int] = reads.read(together).tolist()
            ends[:] = values[len(numbers) :]
            return values[: len(numbers)]

        picks = draw_rows(cuda.kernels, cuda.kernels.matrix(drawn_from(self.block, [draw])), rows, fanout, draw, read)
        pointers, columns = cuda.tensor(picks.pointers), cuda.tensor(picks.columns)
        if padded:
            picked = messages.answer_padded(requested.rows_of, fanout, pointers, columns, routed)
        else:
            ends = ends or reads.read(messages.cuts(requested.rows_of, pointers)).tolist()
            picked = messages.answer_counted(columns, ends, routed)
        pointers, columns = (cuda.array(part) for part in picked)
        return DrawnEdges(pointers, columns, rows=len(routed.order))

    def _edges_drawn(self, law: RowLaw) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a function of places, int32, that returns how many neighbors their rows draw; the first call is collective."""
        name = self._gather(law)
        table = self._counts.tables[name]
        if name not in self._tables or self._tables[name].element_size() < table.itemsize:
            self._tables[name] = self._cuda.put(table)
        counts = self._tables[name]
        return lambda places: torch.as_tensor(law.edges_drawn(counts[places.long()].long()))

    # ---- layer-wise

    def _picked(
        self, q: DeviceSelection, reads: BulkReads, law: LayerLaw, fanout: int, draw: Draw
    ) -> tuple[DevicePicks, OwnRows]:  # fmt: skip
        """Draw s vertices for each mini-batch: the s + 1 smallest keys of every range of columns, then the s smallest of those.

        Returns as well what the frontiers of all members, which every member has now, ask of this rank's rows.
        """
        cuda, device, tensor, messages = self._cuda, self._cuda.kernels, self._cuda.tensor, self.messages
        requested = messages.to_all(q, reads)
        rows = messages.frontier(requested.selection)
        block = device.matrix(self._summable_columns(law.entries))
        pointers, columns, sums = spgemm(device, DeviceCSR(rows.parts, rows.vertices, None, (rows.k, self.n)), block)
        named, totals = tensor(device.constant(self._own))[tensor(columns).long()], tensor(sums)
        near, some, _ = self._smallest(tensor(pointers), named, totals, law, fanout if fanout < 0 else fanout + 1, rows.minibatches, draw)
        numbers = reads.read(torch.cat([messages.cuts(requested.minibatches_of, near), *self._own_rows(requested)])).tolist()
        members = len(requested.rows_of)
        cuts, coming = numbers[: members + 1], OwnRows(numbers[members + 1 : -1], numbers[-1])
        picks = some[: cuts[-1]]
        keys = row_of_entry(tensor(pointers), len(named)) * self.n + named
        at = torch.searchsorted(keys, row_of_entry(near, len(picks)) * self.n + picks)
        expected = [len(q.minibatches) if len(q.vertices) else 0] * len(requested.minibatches_of)
        answers = messages.answer(reads, requested.minibatches_of, near, cuts, [picks, totals[at]], expected)
        ends, columns, totals = merged(len(q.minibatches), self.n, *answers)
        chosen = self._smallest(ends, columns, totals, law, fanout, cuda.array(q.minibatches), draw)
        count = int(reads.read(chosen[0][-1:])[0])
        return DevicePicks(cuda.array(chosen[0]), *(cuda.array(part[:count]) for part in chosen[1:])), coming

    def _own_rows(self, requested: DeviceRequests) -> list[torch.Tensor]:
        """Count the rows of this rank in the frontier of each member, and their neighbors: int64 of shapes (members,) and (1,)."""
        place = self.messages.places(requested.selection.vertices) - self.first
        is_local = (place >= 0) & (place < self.block.shape[0])
        degrees = self._cuda.tensor(self._cuda.kernels.matrix(self.block.positive).indptr).diff()
        padded = torch.cat([degrees, degrees.new_zeros(1)])  # the rows of others have none, and a block may be empty
        neighbors = padded[torch.where(is_local, place, len(degrees)).long()]
        return [self.messages.cuts(requested.rows_of, pointers_of(is_local)).diff(), neighbors.sum().reshape(1)]

    def _smallest(
        self, pointers: torch.Tensor, columns: torch.Tensor, sums: torch.Tensor, law: LayerLaw, s: int, minibatches: object, draw: Draw
    ) -> list[torch.Tensor]:
        """Return pointers, columns and inclusion of the s smallest keys of each row; the last two may be longer than the pointers say."""
        cuda, device = self._cuda, self._cuda.kernels
        layer = LayerEntries(cuda.array(pointers), cuda.array(columns), None, cuda.array(sums), law.power == 2)
        return [cuda.tensor(part) for part in smallest(device, layer, s, minibatches, draw, len(columns))]

    def _edges(
        self, routed: Routed, reads: BulkReads, picked: DevicePicks, coming: OwnRows | None, weighing: tuple[bool, bool]
    ) -> DrawnEdges:  # fmt: skip
        """Have the owners of a frontier's rows extract the edges to the vertices drawn, and weigh them."""
        cuda, messages, tensor = self._cuda, self.messages, self._cuda.tensor
        chosen = DeviceSelection(routed.selection.minibatches, tensor(picked.pointers), tensor(picked.columns))
        requested = messages.to_owners(routed, reads, chosen, coming.of_members if coming else None)
        selected = requested.columns
        assert selected is not None
        block, rows = cuda.kernels.matrix(self.block.positive), messages.frontier(requested.selection, self.first)
        parts = cuda.array(selected.pointers), cuda.array(selected.vertices)
        met = restrict(cuda.kernels, block, rows, *parts, neighbors=coming.neighbors if coming else None)
        ends = tensor(met.pointers)
        cuts = reads.read(messages.cuts(requested.rows_of, ends)).tolist()
        columns, entries = (tensor(part)[: cuts[-1]] for part in (met.columns, met.entries))
        shares = self._shares(tensor(rows.vertices), ends, entries, block)
        answers = messages.answer(reads, requested.rows_of, ends, cuts, [columns, shares], routed.rows)
        kept = [cuda.array(part) for part in in_order(routed.order, *answers)]
        weighed = weighed_edges(cuda.kernels, messages.frontier(routed.selection), kept[0], kept[1], picked, *weighing, shares=kept[2])
        return weighed._replace(rows=len(routed.order))

    def _shares(self, rows: torch.Tensor, ends: torch.Tensor, entries: torch.Tensor, block: DeviceCSR) -> torch.Tensor:
        """Return the weight of each edge in its row of A, row-normalised: float64."""
        if self._row_sums is None:
            self._row_sums = self._cuda.put(np.maximum(self.local.matrix.row_sums, 1.0))
        sums = self._row_sums[rows.long()[row_of_entry(ends, len(entries))]]
        return 1.0 / sums if block.values is None else self._cuda.tensor(block.values)[entries].double() / sums

    def _summable_columns(self, entries: Entries) -> CSR:
        """Return this rank's columns of A; raise `OverflowError` if the sum of one could exceed int64."""
        first = entries not in self._column_blocks
        block = self._columns_of(entries)
        if first and block.value_bound * block.longest_column >= 2**63:
            sums = np.bincount(block.indices, block.entries(), minlength=1)
            if sums.max() >= 2**63:
                raise OverflowError(f"a column of weights sums to {sums.max():.3g}, beyond int64; use weights of a coarser fixed point")
        return block
