"""Sampling on GPUs of a graph in block rows: row ids go to the ranks that own them, drawn neighbors come back.

Tensors stay on the GPUs; the host reads only counts. Messages, their order and the mini-batches are those of
`distributed.matrix.owner.OwnerAdjacency`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...adjacency import Entries, LayerLaw
from ...backends.base import SharedDraws, check_fanout
from ...backends.cuda.bulk import DeviceBulk, close, hop_after_hop, put_seeds
from ...backends.cuda.device import DeviceCSR
from ...backends.cuda.draws import DrawnEdges, draw_rows
from ...backends.cuda.layer_race import DevicePicks, LayerEntries, smallest
from ...backends.cuda.layers import weighed_edges
from ...backends.cuda.numbering import Numbering
from ...backends.cuda.predicted import most_found
from ...backends.cuda.products import restrict, spgemm
from ...backends.cuda.tables import HeldVertices
from ...backends.hops import Expansion
from ...distributed.matrix.owner import OwnerAdjacency
from ...rng import Draw
from ...selection import Selection
from ...sparse import CSR
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext
from .device_adjacency import memory_errors, split_bulk
from .owner_messages import DeviceSelection, OwnerMessages, in_order, merged


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
        self._cuda, self.messages = cuda, OwnerMessages(cuda, over, self.layout)
        self._row_sums: torch.Tensor | None = None

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        """Expand with the bytes per hop of `OwnerAdjacency.sample_rows`; the host waits for counts three times a hop."""
        with self._cuda.streams.sample.on("expand"), memory_errors():
            bulk = self._bulk(seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new)
            return split_bulk(self._cuda, bulk, seeds, only_new)

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | SharedDraws, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion]:  # fmt: skip
        """Expand with the bytes per hop of `OwnerAdjacency.sample_layer` and `restrict`; the host waits for counts in every hop."""
        with self._cuda.streams.sample.on("expand_layers"), memory_errors():
            bulk = self._layered_bulk(seeds, drawn, [check_fanout(fanout) for fanout in fanouts], draws, only_new, (debias, renormalise))
            return split_bulk(self._cuda, bulk, seeds, only_new)

    # ---- node-wise

    def _bulk(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> DeviceBulk:
        device, k = self._cuda.kernels, len(seeds)
        entries = self.grid.rows * self.block.nnz  # about nnz(A)
        numbering = Numbering(device, np.full(k, self.n), most_found(len(seeds.vertices), fanouts, entries, k))
        rows = put_seeds(device, seeds)
        minibatches = self._cuda.tensor(rows.minibatches)

        def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
            return self._drawn(self._selection(minibatches, frontier), fanouts[hop], draws[hop])

        return close(device, hop_after_hop(device, numbering, rows, draw, len(fanouts), only_new))

    def _selection(self, minibatches: torch.Tensor, frontier: HeldVertices) -> DeviceSelection:
        tensor = self._cuda.tensor
        return DeviceSelection(minibatches, tensor(frontier.pointers), tensor(frontier.vertices)[: frontier.size])

    def _drawn(self, q: DeviceSelection, fanout: int, draw: Draw) -> DrawnEdges:
        """Have the owners of a frontier's rows draw their neighbors; return the picks in the order of the frontier."""
        cuda, messages, padded = self._cuda, self.messages, self.padded(fanout)
        order, rows, asked = messages.to_owners(q)
        picks = draw_rows(cuda.kernels, cuda.kernels.matrix(self.block), messages.frontier(asked.selection, self.first), fanout, draw)
        pointers, columns = cuda.tensor(picks.pointers), cuda.tensor(picks.columns)
        if padded:
            return DrawnEdges(*map(cuda.array, messages.answer_padded(asked.rows_of, fanout, pointers, columns, order, rows)))
        return DrawnEdges(*map(cuda.array, in_order(order, *messages.answer(asked.rows_of, pointers, [columns], rows))))

    # ---- layer-wise

    def _layered_bulk(
        self, seeds: Selection, drawn: LayerLaw | SharedDraws, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        weighing: tuple[bool, bool],
    ) -> DeviceBulk:  # fmt: skip
        device, k = self._cuda.kernels, len(seeds)
        most = fanouts if isinstance(drawn, LayerLaw) else [int(np.diff(picks.pointers).max(initial=0)) for picks in drawn]
        found = sum(max(s, 0) for s in most)
        bounds = None if min(most, default=0) < 0 else np.diff(seeds.pointers) + found
        numbering = Numbering(device, np.full(k, self.n), len(seeds.vertices) + k * found, bounds)
        rows = put_seeds(device, seeds)
        minibatches = self._cuda.tensor(rows.minibatches)

        def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
            q = self._selection(minibatches, frontier)
            if isinstance(drawn, LayerLaw):
                picked = self._picked(q, drawn, fanouts[hop], draws[hop])
            else:
                picked = DevicePicks(*(device.put(part) for part in drawn[hop]))
            return self._edges(q, picked, weighing)

        return close(device, hop_after_hop(device, numbering, rows, draw, len(fanouts), only_new))

    def _picked(self, q: DeviceSelection, law: LayerLaw, fanout: int, draw: Draw) -> DevicePicks:
        """Draw s vertices for each mini-batch: the s + 1 smallest keys of every range of columns, then the s smallest of those."""
        cuda, device, tensor = self._cuda, self._cuda.kernels, self._cuda.tensor
        asked = self.messages.to_all(q)
        rows = self.messages.frontier(asked.selection)
        block = device.matrix(self._summable_columns(law.entries))
        pointers, columns, sums = spgemm(device, DeviceCSR(rows.parts, rows.vertices, None, (rows.k, self.n)), block)
        named, totals = cuda.put(self._own)[tensor(columns).long()], tensor(sums)
        ends, picks, _ = self._smallest(tensor(pointers), named, totals, law, fanout if fanout < 0 else fanout + 1, rows.minibatches, draw)
        keys = _row_index(tensor(pointers), len(named)) * self.n + named
        at = torch.searchsorted(keys, _row_index(ends, len(picks)) * self.n + picks)
        expected = [len(q.minibatches) if len(q.vertices) else 0] * len(asked.minibatches_of)
        answers = self.messages.answer(asked.minibatches_of, ends, [picks, totals[at]], expected)
        ends, columns, totals = merged(len(q.minibatches), self.n, *answers)
        return DevicePicks(*map(cuda.array, self._smallest(ends, columns, totals, law, fanout, cuda.array(q.minibatches), draw)))

    def _smallest(
        self, pointers: torch.Tensor, columns: torch.Tensor, sums: torch.Tensor, law: LayerLaw, s: int, minibatches: object, draw: Draw
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return pointers, columns and inclusion of the s smallest keys of each row; the host waits for their number."""
        cuda, device = self._cuda, self._cuda.kernels
        layer = LayerEntries(cuda.array(pointers), cuda.array(columns), None, cuda.array(sums), law.power == 2)
        drawn = smallest(device, layer, s, minibatches, draw, len(columns))
        ends, picks, inclusion = (cuda.tensor(part) for part in drawn)
        count = int(ends[-1])
        return ends, picks[:count], inclusion[:count]

    def _edges(self, q: DeviceSelection, picked: DevicePicks, weighing: tuple[bool, bool]) -> DrawnEdges:
        """Have the owners of a frontier's rows extract the edges to the vertices drawn, and weigh them."""
        cuda, messages, tensor = self._cuda, self.messages, self._cuda.tensor
        chosen = DeviceSelection(q.minibatches, tensor(picked.pointers), tensor(picked.columns))
        order, of_owners, asked = messages.to_owners(q, chosen)
        selected = asked.columns
        assert selected is not None
        block, rows = cuda.kernels.matrix(self.block), messages.frontier(asked.selection, self.first)
        found = restrict(cuda.kernels, block, rows, cuda.array(selected.pointers), cuda.array(selected.vertices))
        ends = tensor(found.pointers)
        columns, entries = (tensor(part)[: int(ends[-1])] for part in (found.columns, found.entries))
        shares = self._shares(tensor(rows.vertices), ends, entries, block)
        answers = messages.answer(asked.rows_of, ends, [columns, shares], of_owners)
        kept = [cuda.array(part) for part in in_order(order, *answers)]
        frontier = messages.frontier(q)
        return weighed_edges(cuda.kernels, frontier, kept[0], kept[1], picked, *weighing, shares=kept[2])

    def _shares(self, rows: torch.Tensor, ends: torch.Tensor, entries: torch.Tensor, block: DeviceCSR) -> torch.Tensor:
        """Return the weight of each edge in its row of A, row-normalised: float64."""
        if self._row_sums is None:
            self._row_sums = self._cuda.put(np.maximum(self.local._row_sums, 1.0))
        sums = self._row_sums[rows.long()].repeat_interleave(ends.diff(), output_size=len(entries))
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


def _row_index(pointers: torch.Tensor, entries: int) -> torch.Tensor:
    """Return the row of each entry: int64."""
    return torch.arange(len(pointers) - 1, device=pointers.device).repeat_interleave(pointers.diff(), output_size=entries)
