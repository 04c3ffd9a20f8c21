"""Layer-wise sampling on the union of relations: LADIES and FastGCN on the block matrix of all relations, cut by relation afterwards.

    Q' = SAMPLE(NORM(Q A), s),  A the union;    EXTRACT: Q_R A_r Q_C for each relation r,  weights a_r(v, u) / a(v, u) of the union's

A hop draws s vertices of all types together, by their importance in the union. An entry of the union may stand for several edges: of
parallel ones, or of several relations. Each gets its share of the weight of the entry, so that the sum over relations of weighted
aggregations is the aggregation over the union.

A model that takes a mean over each relation needs weights a_r(v, u) / (a_r(v) pi_u), pi_u the probability that u was drawn, whose sum
over the drawn u estimates the mean: those of the union, a_r(v, u) / (a(v) pi_u), times a(v) / a_r(v). With `renormalise` the weights of a
row of a relation add up to one instead, as those of the union do (LADIES, section 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from ..errors import UsageError
from ..graph import Key, Relation
from ..minibatch import Block, MiniBatch
from ..rng import Stream
from ..samplers import LayerWise
from ..selection import Selection
from ..sparse import row_pointers, runs
from .adjacency import RelationAdjacency
from .minibatch import HeteroMiniBatch, TypeRows


@dataclass(frozen=True)
class UnionSampler:
    """A layer-wise sampler on a heterogeneous graph.

    Parameters
    ----------
    base : LayerWise
        Such as ``Ladies((512, 512))``: its fanouts count the vertices of all types that a hop draws.
    means : bool
        Weights estimate the mean over each relation, as models of relations take it; by default the aggregation over the union.
    """

    base: LayerWise
    means: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.base, LayerWise):
            raise UsageError(f"the union of relations is sampled layer by layer; got {self.base!r}; use ladies or fastgcn")

    @property
    def identity(self) -> str:
        """The sampler and its options in one line: samplers with equal ones draw the same mini-batches."""
        return f"{type(self).__name__} {self.base.identity}{' means' * self.means}"

    @property
    def settings(self) -> dict[str, Any]:
        """The options of the sampler, ready for JSON, for messages that compare two samplers."""
        return self.base.settings

    def check(self, adjacency: RelationAdjacency) -> None:
        """Raise `UsageError` if this sampler does not support this graph."""
        adjacency.check_whole()
        self.base.check(adjacency)

    def table_bytes(self, adjacency: RelationAdjacency, k: int, like: HeteroMiniBatch) -> int:
        """Predict the bytes that sampling k mini-batches takes beside them: about the same again, for the mini-batches of the union."""
        return k * like.nbytes()

    def sample_bulk(self, adjacency: RelationAdjacency, seeds: Selection, stream: Stream, epoch: int = 0) -> list[HeteroMiniBatch]:
        """Sample k mini-batches in one call; see `RelationSampler.sample_bulk`. The blocks have weights."""
        drawn = self.base.sample_bulk(adjacency, seeds, stream, epoch)
        places = getattr(seeds, "places", None)
        spans = [slice(seeds.pointers[j], seeds.pointers[j + 1]) for j in range(len(seeds))]
        return [self._cut(adjacency, m, None if places is None else places[span]) for m, span in zip(drawn, spans, strict=True)]

    def _cut(self, adjacency: RelationAdjacency, drawn: MiniBatch, places: np.ndarray | None) -> HeteroMiniBatch:
        """Cut a mini-batch of the union by type and relation."""
        scale = (Scale.ROWS if self.base.renormalise else Scale.SUMS) if self.means else Scale.UNION
        return _cut(adjacency, drawn, places, scale)


class Scale(Enum):
    """Scales of the weights of a relation: those of the union, weights that add up to one in a row, or those that estimate a mean."""

    UNION = 0
    ROWS = 1
    SUMS = 2


def _cut(adjacency: RelationAdjacency, drawn: MiniBatch, places: np.ndarray | None, scale: Scale) -> HeteroMiniBatch:
    graph, m = adjacency.graph, drawn.on_host()
    kinds, vertices = adjacency.split(m.vertices)
    seed_kinds, seeds = adjacency.split(m.seeds)
    local = np.empty(len(kinds), np.int64)  # the place of each vertex in the list of its type
    stages = [m.blocks[-1].num_destinations, *(block.num_sources for block in reversed(m.blocks))]
    rows = {}
    for t, kind in enumerate(graph.types):
        mine, asked = np.flatnonzero(kinds == t), np.flatnonzero(seed_kinds == t)
        local[mine] = np.arange(len(mine))
        sizes = np.searchsorted(mine, stages)
        own = None if places is None else places[asked]
        rows[kind.name] = TypeRows(vertices[mine], sizes, seeds[asked], local[m.seed_rows[asked]].astype(np.int32), asked, None, own)
    blocks, entries = [], []
    for block in m.blocks:
        cut = _Edges(adjacency, block, kinds, vertices, local, scale).by_relation()
        blocks.append({key: part for key, (part, _) in cut.items()})
        entries.append({key: found for key, (_, found) in cut.items()})
    return HeteroMiniBatch(m.id, m.epoch, rows, tuple(blocks), tuple(entries), m.nested)


class _Edges:
    """The edges of a block of the union, as edges of relations."""

    def __init__(
        self, adjacency: RelationAdjacency, block: Block, kinds: np.ndarray, vertices: np.ndarray, local: np.ndarray, scale: Scale
    ) -> None:  # fmt: skip
        self.graph, self.block, self.scale, self.sums = adjacency.graph, block, scale, adjacency.row_sums
        self.kinds, self.vertices, self.local = kinds, vertices, local
        self.into = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))

    def by_relation(self) -> dict[Key, tuple[Block, np.ndarray]]:
        """Return the block of each relation and the entries of its edges."""
        found = [self._of(relation) for relation in self.graph.relations]
        total = np.zeros(self.block.num_edges)
        for edges, _, weights in found:
            total += np.bincount(edges, weights, minlength=len(total))
        pairs = zip(self.graph.relations, found, strict=True)
        return {relation.key: self._block(relation, edges, entries, weights, total) for relation, (edges, entries, weights) in pairs}

    def _of(self, relation: Relation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the edges of the union that a relation has: the place of each in the block, its entry, and its real weight."""
        ends = self.graph.place(relation.destination), self.graph.place(relation.source)
        mine = np.flatnonzero((self.kinds[self.into] == ends[0]) & (self.kinds[self.block.indices] == ends[1]))
        matrix = relation.adjacency
        rows, columns = self.vertices[self.into[mine]].astype(np.int64), self.vertices[self.block.indices[mine]]
        first = matrix.find(rows, columns)
        there = first >= 0
        mine, first = mine[there], first[there]
        counts = matrix.find_end(rows[there], columns[there]) - first  # parallel edges
        edges, entries = np.repeat(mine, counts), runs(first, counts)
        weights = matrix.entries()[entries] * relation.weight_unit
        kept = weights > 0  # an edge of weight 0 beside others of its entry
        return edges[kept], entries[kept], weights[kept]

    def _block(
        self, relation: Relation, edges: np.ndarray, entries: np.ndarray, weights: np.ndarray, total: np.ndarray
    ) -> tuple[Block, np.ndarray]:
        block = self.block
        assert block.weights is not None
        shares = np.divide(weights, total[edges], out=np.zeros_like(weights), where=total[edges] > 0)
        destinations = int((self.kinds[: block.num_destinations] == self.graph.place(relation.destination)).sum())
        sources = int((self.kinds[: block.num_sources] == self.graph.place(relation.source)).sum())
        rows = self.local[self.into[edges]]
        pointers = row_pointers(np.bincount(rows, minlength=destinations))
        columns = self.local[block.indices[edges]].astype(np.int32)
        weights = block.weights[edges] * shares
        if self.scale is Scale.ROWS:
            weights /= np.bincount(rows, weights, minlength=destinations)[rows]
        elif self.scale is Scale.SUMS:
            of_relation, of_union = self.sums[self.graph.ordinal(relation.key)], self.sums[-1]
            vertices, place = self.vertices[self.into[edges]], self.graph.place(relation.destination)
            weights *= of_union[self.graph.offsets[place] + vertices] / of_relation[vertices]
        return Block(pointers, columns, weights.astype(np.float32), sources), entries
