"""Mini-batches of edges of one relation: b edges, and a negative destination for each of them.

    seeds   u_1 .. u_b,  v_1 .. v_b,  w_1 .. w_b        edges u -> v;  w uniform among the destinations that u has no edge to

With time, the three seeds of an edge are asked about when the edge came to be, and w existed then. The draw of w names (seed, epoch, edge),
so it depends on no rank, batch size or bulk. A source with an edge to every destination draws among all that exist.

`exclude` removes the examples of a mini-batch from its own blocks, as in `link_batches`: ``self`` from the relation, ``both`` also from its
reverses. Of edges with times, those of the same time alone are removed: earlier ones between the same ends are the past.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import UsageError
from ..graph import Key, Relation
from ..graph.times import with_times
from ..minibatch import Block
from ..relations.minibatch import HeteroMiniBatch
from ..relations.one_type import LinkEndsLoader
from ..relations.seeds import HeteroSeeds, SeedList
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
        self._view, self._links, self._n = view, view.links, view.graph.n
        relation, edges = view.relation, self._links.edges
        if not len(edges):
            raise UsageError(f"{relation} of graph {view.graph.name!r} has no edge to train on; use another relation")
        turns: dict[Key, list[bool]] = {} if exclude == "none" else {relation.key: [False]}
        for key in view.reverses if exclude == "both" else ():
            turns.setdefault(key, []).append(True)  # an undirected relation is its own reverse
        self._cleared = [(view.graph.relation(key), turned) for key, turned in turns.items()]
        timed = self._links.timed and any(relation.times is not None for relation, _ in self._cleared)
        none = np.broadcast_to(np.int64(0), len(edges))  # the list only counts examples
        listed = SeedList(np.broadcast_to(np.int32(0), len(edges)), edges, none if self._links.timed else None, None, self._n)
        law = view.law(sampler, 3 * options["batch_size"], entries=timed)
        self._links.prepare()
        super().__init__(view.schema.targets, view.relations, law, listed, **options)

    def _examples(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(self._links.edges[positions])

    def _selected(self, examples: list[np.ndarray], minibatches: np.ndarray, epoch: int) -> HeteroSeeds:
        """Return the ends of the edges of each mini-batch: sources, destinations and negative destinations; see `LinkExamples`."""
        edges, (first, other) = np.concatenate([np.empty(0, np.int64), *examples]), self._view.first_of_ends
        ends = self._links.ends(edges)
        words = self._stream.words(Substream.LINK_NEGATIVE.tag(epoch), edges)[..., 0]
        columns = np.stack([ends.sources + first, ends.destinations + other, self._links.negatives(ends, words) + other])
        cuts = row_pointers([len(part) for part in examples])
        seeds = [columns[:, begin:end].reshape(-1) for begin, end in pairwise(cuts)]
        vertices = frozen(np.concatenate([np.empty(0, np.int64), *seeds]), np.int32)
        stamps = None
        if ends.times is not None:
            own = ends.times
            stamps = frozen(np.concatenate([np.empty(0, np.int64), *(np.tile(own[begin:end], 3) for begin, end in pairwise(cuts))]))
        return HeteroSeeds(minibatches, 3 * cuts, vertices, self._n, None, None, stamps)

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[Any]:
        sampled = super()._sample_bulk(seeds, epoch)
        return [replace(one, whole=self._without_targets(one.whole, one.seeds)) for one in sampled] if self._cleared else sampled

    def _without_targets(self, minibatch: HeteroMiniBatch, seeds: np.ndarray) -> HeteroMiniBatch:
        """Return a mini-batch without the sampled edges that are its examples; all vertices stay."""
        pairs = seeds.astype(np.int64).reshape(3, -1)[:2]
        times = None
        if self._links.timed:
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
        return replace(minibatch, blocks=tuple(blocks), known_entries=None, times=None, find_entries=None)


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
