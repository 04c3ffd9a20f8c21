"""The `rows` policy on relations: rows travel to the rank that draws from them, as in the 1.5D algorithm.

Q selects rows of every type, so its nonzero columns name vertices; the row of a vertex holds its rows in all relations that end in its type
and draw in this hop. The distinct vertices of all mini-batches of a process row are fetched once, in the stages of `spgemm15d`: what a
stage sends does not grow in messages with the number of relations. Places of vertices are those of `StackedPlaces`. A row that travels, in
words of 4 bytes, with r over these relations in order:

    edges of each r  (| first entry of each r, 2 words)  | of each r:  sources  (| weights, 2 words each) (| times of edges, 2 words each)

Weights travel where the law reads them, and times where those of edges count; those of vertices lie on every rank. Rows travel whole and
not as windows of time: trees of one bulk ask for the same row at many times, and it is sent once. The rank that draws sorts rows by time
and finds the windows. `rows-oblivious` sends whole block rows in the place of the rows that are named.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2 and algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.base import Backend
from ...backends.relation_draws import Frontier, RelationMatrix, RowPicks, draw_rows
from ...backends.relational import RelationLaw
from ...graph import Graph
from ...sparse import CSR, row_pointers, runs
from .layout import StackedPlaces, TypeLayouts
from .messages import MessageReader, Section, pack
from .relation_blocks import HopRules, PartitionedRelations, RelationBlock
from .requests import HopForm
from .spgemm15d import StagedRows


class RowsRelations(PartitionedRelations):
    """Relations in block rows that send rows, or whole block rows (`oblivious`, a baseline), to ranks that draw; collective."""

    def __init__(
        self, graph: Graph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock], oblivious: bool = False
    ) -> None:  # fmt: skip
        super().__init__(graph, backend, blocks, held)
        self._stacked = StackedPlaces(self.layouts)
        self._rows = StagedRows(self.grid, backend, self._stacked.bounds, graph.n, oblivious=oblivious)

    def _draw(self, rules: HopRules, frontiers: Sequence[Frontier], laws: Sequence[RelationLaw]) -> Sequence[RowPicks | None]:
        form, out = HopForm.of(self.facts(rules.by), laws, rules), list[RowPicks | None]([None] * len(laws))
        if not form.relations:
            return out
        places = {t: self._stacked.places(t, frontiers[t].vertices) for t in form.types}
        own = np.unique(np.concatenate(list(places.values())))
        fetched = self._rows.fetch(own, lambda rows: self._packed(form, rows))
        kinds, _ = self._stacked.located(own)
        for t in form.types:
            among = np.flatnonzero(kinds == t)
            local = frontiers[t]._replace(vertices=np.searchsorted(own[among], places[t]).astype(np.int32))
            for one, (rows, firsts) in zip(form.into(t), self._unpacked(form, t, fetched, among, rules), strict=True):
                picks, entries = draw_rows(self.backend, rows, local, laws[one.place], rules.moving), None
                if firsts is not None and picks.entries is not None:  # positions in the whole adjacency, of which row r begins at firsts[r]
                    shift = (firsts - rows.matrix.indptr[:-1])[local.vertices]
                    entries = picks.entries + np.repeat(shift, np.diff(picks.pointers))
                out[one.place] = picks._replace(entries=entries)
        return out

    def _packed(self, form: HopForm, rows: np.ndarray) -> CSR:
        """Pack rows of this rank's block, each into words; `rows` are places from its first one on."""
        kinds, local = self._stacked.located(rows + self._stacked.bounds[self.grid.row])
        lengths, packed = np.zeros(len(rows), np.int64), list[tuple[np.ndarray, np.ndarray]]()
        for t in form.types:
            among = np.flatnonzero(kinds == t)
            words, lengths[among] = pack(_sections(form, t, self.held, local[among]))
            packed.append((among, words))
        pointers = row_pointers(lengths)
        words = np.empty(int(pointers[-1]), np.int32)
        for among, of_type in packed:
            words[runs(pointers[among], lengths[among])] = of_type
        return CSR(pointers, words, None, (len(rows), self.n))

    def _unpacked(
        self, form: HopForm, kind: int, fetched: CSR, among: np.ndarray, rules: HopRules
    ) -> list[tuple[RelationMatrix, np.ndarray | None]]:  # fmt: skip
        """Return for each relation into a type its fetched rows, and the first entry of each in the whole adjacency."""
        relations, made = form.into(kind), list[tuple[RelationMatrix, np.ndarray | None]]()
        heads, reader = np.full(len(among), len(relations)), MessageReader(fetched.indices, fetched.degrees[among], fetched.indptr[among])
        counts = reader.take(heads).reshape(-1, len(relations))
        firsts = reader.take(heads, np.int64).reshape(-1, len(relations)) if form.entries else None
        for i, one in enumerate(relations):
            of_row = counts[:, i]
            sources = reader.take(of_row)
            weights, times = (reader.take(of_row, np.int64) if there else None for there in (one.by_weight, one.edge_times))
            relation, own = self.graph.relations[one.place], self.relations(rules.by)[one.place]
            stamps = self.graph.type(relation.source).times
            if rules.by == "vertices" and stamps is not None:
                times = np.array(stamps[sources])
            matrix = CSR(row_pointers(of_row), sources, weights, (len(of_row), relation.adjacency.shape[1]))
            rows = RelationMatrix(own.source, own.destination, matrix, times, own.parallel)
            made.append((rows, None if firsts is None else firsts[:, i]))
        reader.finish("rows of relations of another length than their counts say")
        return made


def _sections(form: HopForm, kind: int, held: Sequence[RelationBlock], rows: np.ndarray) -> list[Section]:
    """Return the sections of rows of one type: each row is a message."""
    blocks = [(one, held[one.place]) for one in form.into(kind)]
    degrees = np.stack([block.matrix.degrees[rows] for _, block in blocks], axis=1)
    heads = np.full(len(rows), len(blocks))
    sections = [Section(degrees.astype(np.int32).reshape(-1), heads)]
    if form.entries:
        firsts = [block.matrix.indptr[:-1][rows] + block.shift_of(rows) for _, block in blocks]
        sections.append(Section(np.stack(firsts, axis=1).reshape(-1), heads))
    for (one, block), counts in zip(blocks, degrees.T, strict=True):
        at = runs(block.matrix.indptr[:-1][rows], counts)
        for array, there in ((block.matrix.indices, True), (block.matrix.values, one.by_weight), (block.times, one.edge_times)):
            if there and array is not None:
                sections.append(Section(array[at], counts))
    return sections
