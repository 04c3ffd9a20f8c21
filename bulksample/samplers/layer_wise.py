"""Samplers with one row of Q per mini-batch: the frontier draws one set of vertices, and keeps all edges from them.

    Q' = SAMPLE(NORM(Q A), s),  A the union of all relations;    EXTRACT: Q_R A_r Q_C for each relation r

The union is the block matrix of all relations over the numbering of all vertices; that of one relation is its adjacency. A hop draws s
vertices of all types together, by their importance in the union. Of several relations, an entry of the union may stand for several edges:
of parallel ones, or of several relations. Each gets its share of the weight of the entry, a_r(v, u) / a(v, u), so that the sum over
relations of weighted aggregations is the aggregation over the union.

A model that takes a mean over each relation needs weights a_r(v, u) / (a_r(v) pi_u), pi_u the probability that u was drawn, whose sum
over the drawn u estimates the mean: those of the union, a_r(v, u) / (a(v) pi_u), times a(v) / a_r(v). With `renormalise` the weights of a
row of a relation add up to one instead, as those of the union do (LADIES, section 3.3).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import numpy as np

from ..adjacency import Adjacency, LayerLaw
from ..backends.hops import Expansion
from ..backends.layer_draws import SharedDraws
from ..errors import check_switches
from ..graph import Graph, Key, Relation
from ..graph.minibatch import Block, MiniBatch, TypeRows
from ..graph.selection import Selection
from ..local_adjacency import LocalAdjacency
from ..rng import Draw, Stream
from ..sparse import row_pointers, runs
from .base import Sampler


@dataclass(frozen=True)
class LayerWise(Sampler):
    """A sampler whose fanouts count the vertices that a hop draws for a whole mini-batch.

    Parameters
    ----------
    debias : bool
        Divide the row-normalised weight of each kept edge by the probability that its source was drawn, so that a
        sum over the draws estimates the full aggregation without bias. For draws without replacement this is the
        exact form of the published factor 1 / (s p), p the probability of one draw, which it approaches for small s p. If every
        candidate is drawn, the factor is 1 and the layer is the full aggregation.
    renormalise : bool
        Scale the weights of each row to sum to one afterwards (LADIES, section 3.3). This lowers the variance and adds
        a bias that vanishes as s grows; ``False`` is the unbiased estimator.
    means : bool
        Weights estimate the mean over each relation, as models of relations take it; by default the aggregation over the union.
    """

    draws_from_frontier: ClassVar[bool] = True  # False: all frontiers draw from one distribution
    estimates_weighted_means = True
    debias: bool = True
    renormalise: bool = True
    means: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_switches(means=self.means)

    @property
    def identity_by_type(self) -> str:
        return f"UnionSampler {self.identity}{' means' * self.means}"  # the name that loader states of 0.1 hold

    @abstractmethod
    def law(self, adjacency: Adjacency, seeds: Selection, draws: Sequence[Draw]) -> LayerLaw | SharedDraws:
        """Return the distribution by which each hop draws from its frontier; or the picks of every hop, if they need no frontier."""

    def check(self, adjacency: Adjacency) -> None:
        adjacency.check_whole()

    def expand(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
        """Take k mini-batches through all hops on the union, before they are cut into blocks."""
        draws = [stream.layer_draw(layer=hop, epoch=epoch) for hop in range(len(self.fanouts))]
        drawn, only_new = self.law(adjacency, seeds, draws), self.frontier == "new"
        return adjacency.expand_layers(seeds, drawn, self.fanouts, draws, only_new, self.debias, self.renormalise)

    def table_bytes(self, adjacency: Adjacency, k: int, like: MiniBatch) -> int:
        if like.by_type:
            return k * like.nbytes()  # about the same again, for the mini-batches of the union
        only_new, from_frontier = self.frontier == "new", self.draws_from_frontier
        known = adjacency.layer_bytes(k, k * len(like.seeds), self.fanouts, only_new, from_frontier)
        rows = like.vertices[: like.blocks[0].num_destinations if from_frontier else 0]
        return adjacency.layer_tables(k, len(like.seeds), rows) if known is None else known

    def _sample(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[MiniBatch]:
        made = [self._minibatch(seeds, j, epoch, part) for j, part in enumerate(self.expand(adjacency, seeds, stream, epoch))]
        if not adjacency.by_type:
            return made
        spans = [slice(seeds.pointers[j], seeds.pointers[j + 1]) for j in range(len(seeds))]
        places = [None if seeds.places is None else seeds.places[span] for span in spans]
        return [self._cut(adjacency, one, places_of_seeds) for one, places_of_seeds in zip(made, places, strict=True)]

    def _minibatch(self, seeds: Selection, j: int, epoch: int, part: Expansion) -> MiniBatch:
        """Return mini-batch j of a bulk of the union. Rows of a block are the vertices held before its hop, its sources those after."""
        nested = self.frontier == "new"
        hops = part.hops * (len(self.fanouts) // len(part.hops))  # nested ones may be one that holds all others
        blocks = []
        for hop, rows, sources in zip(hops, part.held, part.held[1:], strict=False):
            edges = len(hop.columns) if len(hop.pointers) == rows + 1 else int(hop.pointers[rows])
            weights = None if hop.weights is None else hop.weights[:edges]
            blocks.append(Block(hop.pointers[: rows + 1], hop.columns[:edges], weights, sources))
        name, ends = int(seeds.minibatches[j]), (part.seed_rows, part.vertices)
        return MiniBatch.plain(name, epoch, seeds.part(j), *ends, tuple(reversed(blocks)), nested)

    def _cut(self, adjacency: Adjacency, drawn: MiniBatch, places: np.ndarray | None) -> MiniBatch:
        """Cut a mini-batch of the union by type and relation."""
        graph, m = adjacency.graph, drawn.on_host()
        kinds, vertices = adjacency.split(m.vertices)
        seed_kinds, seeds = adjacency.split(m.seeds)
        local = np.empty(len(kinds), np.int64)  # the place of each vertex in the list of its type
        stages = [m.blocks[-1].num_destinations, *(block.num_sources for block in reversed(m.blocks))]
        rows = {}
        for t, kind in enumerate(graph.types):
            mine, of_seeds = np.flatnonzero(kinds == t), np.flatnonzero(seed_kinds == t)
            local[mine] = np.arange(len(mine))
            sizes = np.searchsorted(mine, stages)
            seed_places, seed_rows = None if places is None else places[of_seeds], local[m.seed_rows[of_seeds]].astype(np.int32)
            rows[kind.name] = TypeRows(vertices[mine], sizes, seeds[of_seeds], seed_rows, of_seeds, None, seed_places)
        blocks, entries = [], []
        for block in m.blocks:
            of_layer, positions = self._by_relation(adjacency, block, kinds, vertices, local)
            blocks.append(of_layer)
            entries.append(positions)
        return MiniBatch(m.id, m.epoch, rows, tuple(blocks), m.nested, known_entries=tuple(entries))

    def _by_relation(
        self, adjacency: Adjacency, block: Block, kinds: np.ndarray, vertices: np.ndarray, local: np.ndarray
    ) -> tuple[dict[Key, Block], dict[Key, np.ndarray]]:
        """Return the edges of a block of the union as a block of each relation, and their entries.

        Vertices of the union have types, ids and places in the lists of their types. Weights are those of the union; with `means` they add
        up to one in a row, or estimate the mean over the relation.
        """
        graph, sums = adjacency.graph, cast(LocalAdjacency, adjacency).row_sums  # samplers check that every row is here
        into, total = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr)), np.zeros(block.num_edges)
        parts = [_edges_of(graph, relation, block.indices, into, kinds, vertices) for relation in graph.relations]
        for edges, _, weights in parts:
            total += np.bincount(edges, weights, minlength=len(total))
        assert block.weights is not None
        blocks, entries = {}, {}
        for ordinal, (relation, (edges, positions, weights)) in enumerate(zip(graph.relations, parts, strict=True)):
            destination, source = graph.place(relation.destination), graph.place(relation.source)
            destinations = int((kinds[: block.num_destinations] == destination).sum())
            sources = int((kinds[: block.num_sources] == source).sum())
            rows, columns = local[into[edges]], local[block.indices[edges]].astype(np.int32)
            shares = np.divide(weights, total[edges], out=np.zeros_like(weights), where=total[edges] > 0)
            weights = block.weights[edges] * shares
            if self.means and self.renormalise:
                weights /= np.bincount(rows, weights, minlength=destinations)[rows]
            elif self.means:
                ids = vertices[into[edges]]
                weights *= sums[-1][graph.offsets[destination] + ids] / sums[ordinal][ids]
            pointers = row_pointers(np.bincount(rows, minlength=destinations))
            blocks[relation.key], entries[relation.key] = Block(pointers, columns, weights.astype(np.float32), sources), positions
        return blocks, entries


def _edges_of(
    graph: Graph, relation: Relation, sources: np.ndarray, into: np.ndarray, kinds: np.ndarray, vertices: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the edges of the union that a relation has: the place of each in the block, its entry, and its real weight."""
    matrix, ends = relation.adjacency, (graph.place(relation.destination), graph.place(relation.source))
    mine = np.flatnonzero((kinds[into] == ends[0]) & (kinds[sources] == ends[1]))
    rows, columns = vertices[into[mine]].astype(np.int64), vertices[sources[mine]]
    first = matrix.find(rows, columns)
    there = first >= 0
    mine, first = mine[there], first[there]
    counts = matrix.find_end(rows[there], columns[there]) - first  # parallel edges
    edges, entries = np.repeat(mine, counts), runs(first, counts)
    weights = matrix.entries()[entries] * relation.weight_unit
    kept = weights > 0  # an edge of weight 0 beside others of its entry
    return edges[kept], entries[kept], weights[kept]
