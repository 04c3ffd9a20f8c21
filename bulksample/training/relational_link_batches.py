"""Mini-batches of edges of one relation: b edges, and a negative destination for each of them.

    seeds   u_1 .. u_b,  v_1 .. v_b,  w_1 .. w_b        edges u -> v;  w uniform among the destinations that u has no edge to

With time, the three seeds of an edge are asked about when the edge came to be, and w existed then. The draw of w names (seed, epoch, edge),
so it depends on no rank, batch size or bulk. A source with an edge to every destination draws among all that exist.

`exclude` removes the examples of a mini-batch from its own blocks, as in `link_batches`: ``self`` from the relation, ``both`` also from its
reverses. Of edges with times, those of the same time alone are removed: earlier ones between the same ends are the past.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..data.random_words import scaled
from ..errors import UsageError
from ..minibatch import Block
from ..relations.graph import Key, Relation
from ..relations.links import NonNeighbors
from ..relations.minibatch import HeteroMiniBatch
from ..relations.one_type import LinkEndsLoader
from ..relations.seeds import HeteroSeeds, SeedList
from ..relations.times import with_times
from ..rng import Substream
from ..samplers import Sampler
from ..selection import Selection
from ..sparse import frozen, row_pointers
from ..views.relational_links import RelationalLinkView
from .link_batches import kept_edges


class RelationEdgeLoader(LinkEndsLoader):
    """A loader whose examples are the edges of a relation, without loops.

    Parameters
    ----------
    view : RelationalLinkView
    sampler : Sampler
    exclude : {"none", "self", "both"}
        The edges removed from the blocks of a mini-batch; see above.
    **options
        Those of `BulkLoader`.
    """

    def __init__(self, view: RelationalLinkView, sampler: Sampler, exclude: str = "none", **options: Any) -> None:
        self._view, self._relation, self._n = view, view.relation, view.graph.n
        a = self._relation.adjacency
        self._source, self._destination = a.indices.astype(np.int64), a.row_of_entry().astype(np.int64)
        self._edges = examples_of(view)
        if not len(self._edges):
            raise UsageError(f"{self._relation} of graph {view.graph.name!r} has no edge to train on; use another relation")
        self._others = NonNeighbors(view.graph, self._relation)
        turns: dict[Key, list[bool]] = {} if exclude == "none" else {self._relation.key: [False]}
        for key in view.reverses if exclude == "both" else ():
            turns.setdefault(key, []).append(True)  # an undirected relation is its own reverse
        self._cleared = [(view.graph.relation(key), turned) for key, turned in turns.items()]
        timed = view.link_times is not None and any(relation.times is not None for relation, _ in self._cleared)
        times = None if view.link_times is None else frozen(view.link_times[self._edges], np.int64)
        listed = SeedList(frozen(np.zeros(len(self._edges)), np.int32), frozen(self._edges, np.int64), times, None, self._n)
        law = view.law(sampler, 3 * options["batch_size"], entries=timed)
        super().__init__(view.schema.targets, view.relations, law, listed, **options)

    def _order(self) -> np.ndarray:
        ordered: np.ndarray = self._edges[super()._order()]
        return ordered

    def _selected(self, examples: list[np.ndarray], minibatches: np.ndarray, epoch: int) -> HeteroSeeds:
        times = self._view.link_times
        ends = [self.ends(edges, epoch) for edges in examples]
        stamps = None if times is None else frozen(np.concatenate([np.empty(0, np.int64), *(np.tile(times[e], 3) for e in examples)]))
        pointers = row_pointers([len(part) for part in ends])
        return HeteroSeeds(minibatches, pointers, np.concatenate([np.empty(0, np.int32), *ends]), self._n, None, None, stamps)

    def ends(self, edges: np.ndarray, epoch: int) -> np.ndarray:
        """Return the sources, destinations and negative destinations of edges, in the numbering of all vertices: int32, shape (3 b,)."""
        first, other = self._view.first_of_ends
        parts = self._source[edges] + first, self._destination[edges] + other, self._negatives(edges, epoch) + other
        return np.concatenate(parts).astype(np.int32)

    def _negatives(self, edges: np.ndarray, epoch: int) -> np.ndarray:
        """Draw for each edge a destination that its source has no edge to: int64, shape (b,)."""
        source, times = self._source[edges], self._view.link_times
        existing = self._others.existing(source, None if times is None else times[edges])
        eligible = self._others.eligible(source, existing)
        words = self._stream.words(Substream.LINK_NEGATIVE.tag(epoch), edges)[..., 0]
        some = np.flatnonzero(eligible)
        drawn = self._others.anyone(scaled(words, 32, existing))
        drawn[some] = self._others.at(source[some], existing[some], scaled(words[some], 32, eligible[some]))
        return drawn

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[Any]:
        sampled = super()._sample_bulk(seeds, epoch)
        return [replace(one, whole=self._without_targets(one.whole, one.seeds)) for one in sampled] if self._cleared else sampled

    def _without_targets(self, minibatch: HeteroMiniBatch, seeds: np.ndarray) -> HeteroMiniBatch:
        """Return a mini-batch without the sampled edges that are its examples; all vertices stay."""
        pairs = seeds.astype(np.int64).reshape(3, -1)[:2]
        times = None
        if self._view.link_times is not None:
            stamps = np.concatenate([part.seed_times for part in minibatch.rows.values() if part.seed_times is not None])
            places = np.concatenate([part.seed_trees for part in minibatch.rows.values()])
            times = stamps[np.argsort(places, kind="stable")][: pairs.shape[1]]
        blocks = [dict(of_layer) for of_layer in minibatch.blocks]
        for relation, turns in self._cleared:
            ends = np.concatenate([pairs[::-1] if turned else pairs for turned in turns], axis=1)
            stamps_of = None if relation.times is None or times is None else np.tile(times, len(turns))
            for layer, of_layer in enumerate(blocks):
                drawn = None if minibatch.entries is None else minibatch.entries[layer][relation.key]
                of_layer[relation.key] = _cleared(of_layer[relation.key], minibatch, relation, ends, stamps_of, drawn)
        return replace(minibatch, blocks=tuple(blocks), entries=None, times=None)


def _cleared(
    block: Block, minibatch: HeteroMiniBatch, relation: Relation, ends: np.ndarray, times: np.ndarray | None,
    entries: np.ndarray | None,
) -> Block:  # fmt: skip
    """Return a block without the edges between some ends, int64 of shape (2, e); with times, without those of the same time alone."""
    n = relation.adjacency.shape[1]
    row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
    keys = minibatch.rows[relation.destination].vertices[row].astype(np.int64) * n + minibatch.rows[relation.source].vertices[block.indices]
    wanted = ends[1] * n + ends[0]
    gone = np.isin(keys, wanted)
    if times is not None and relation.times is not None and entries is not None:
        found = np.flatnonzero(gone)
        asked, drawn = with_times(wanted, times), with_times(keys[found], relation.times[entries[found]])
        gone[found] = np.isin(drawn, asked)
    return kept_edges(block, ~gone)


def examples_of(view: RelationalLinkView) -> np.ndarray:
    """Return the entries of the relation that are no loops: int64."""
    relation = view.relation
    if relation.source != relation.destination:
        return np.arange(relation.edges)
    return np.flatnonzero(relation.adjacency.indices != relation.adjacency.row_of_entry())
