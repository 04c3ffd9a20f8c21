"""Mini-batches of b edges: of one relation, with a negative destination for each of them, for link prediction; or of a table with labels.

    seeds   u_1 .. u_b,  v_1 .. v_b,  w_1 .. w_b        edges u -> v;  w uniform among the destinations that u has no edge to, w != u
    loss    sum over edges of  -log s(score(u, v)) - log s(-score(u, w)),   s the logistic function, over 2 b examples

Every stored edge except loops is an example once an epoch; an undirected edge is one in both directions. With time, the three seeds of an
edge are asked about when the edge came to be, and w existed then. The draw of w names (seed, epoch, edge), so it depends on no rank, batch
size or bulk. A source with an edge to every destination draws among all that exist. Held-out edges are unknown here and may be drawn as
negatives.

An example of a mini-batch may also be among its sampled edges, which gives the answer away. `exclude` removes such edges from the
blocks: ``self`` the examples of the mini-batch, ``both`` also their reverse edges, in the relations that are its reverses. The default
removes none, as DGL and PyG do. Of edges with times, those of the same time alone are removed: earlier ones between the same ends are the
past. Edges are removed after the draws (as GraphBolt's `exclude_seed_edges` does): the others keep their weights, and a row may have fewer
edges than the fanout.

Labelled edges (task ``edges``) have the seeds u_1 .. u_b, v_1 .. v_b alone, and the loss of their labels, as vertices have; see
`nn.losses`. They are pairs of a table, and edges of the graph or not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F

from ..data.held_out_links import HeldOutLinks
from ..data.link_examples import EdgeExamples, LabelledPairs, LinkExamples
from ..data.link_split import LinkGraph
from ..errors import UsageError
from ..graph import Graph, Key, Relation
from ..graph.labels import as_numbers
from ..graph.links import among_targets
from ..graph.minibatch import Block, MiniBatch
from ..graph.seed_list import SeedList
from ..graph.selection import Selection
from ..loading.loader import BulkLoader
from ..nn.decoders import LinkModel, PairModel
from ..nn.gather import OwnAndMean
from ..nn.losses import summed_loss, summed_shares
from ..rng import Substream
from ..samplers import Sampler
from ..sparse import frozen, row_pointers
from ..views.type_view import LinkTargets
from ..views.view import View, as_index
from .batches import StepBatch
from .context import TrainingContext
from .source import Source


def links_of(view: View) -> EdgeExamples:
    """Return the edges that are examples of a view."""
    if view.targets.links is None:
        assert view.adjacency.whole_matrix is not None
        view.targets.links = LinkExamples.of(Graph(view.adjacency.whole_matrix, name=view.name))
    return view.targets.links


class EdgeLoader(BulkLoader):
    """A loader whose examples are the edges of a relation, without loops, or labelled pairs.

    `exclude` is described above, and options are `BulkLoader`'s. `MiniBatch.examples` has the positions of edges in the adjacency, or those
    of labelled pairs in their table.
    """

    def __init__(self, view: View, sampler: Sampler, exclude: str = "none", **options: Any) -> None:
        if sampler.coverage:
            raise UsageError("coverage counts subgraphs whose roots are seeds, but the examples here are edges; use coverage=0")
        if sampler.adds_seeds:
            raise UsageError(f"edges are scored by the rows of their ends, and {sampler.name} adds seeds of its own; use another sampler")
        self._links = links = links_of(view)
        self._ends = 3 if isinstance(links, LinkExamples) else 2  # seeds of an example
        targets, edges = view.targets if isinstance(view.targets, LinkTargets) else None, links.edges
        if targets is not None and not len(edges):
            raise UsageError(f"{links.relation} of graph {view.name!r} has no edge to train on; use another relation")
        self._firsts = view.targets.first_of_ends
        turns: dict[Key, list[bool]] = {} if exclude == "none" else {links.relation.key: [False]}
        for key in () if exclude != "both" else (links.relation.key,) if targets is None else targets.reverses:
            turns.setdefault(key, []).append(True)  # an undirected relation is its own reverse
        self._cleared = [(links.graph.relation(key), turned) for key, turned in turns.items()]
        if isinstance(links, LinkExamples):
            links.prepare()
        counted: Any = np.broadcast_to(np.int32(0), len(edges))  # the list only counts examples
        if targets is not None:
            timed = links.timed and any(relation.times is not None for relation, _ in self._cleared)
            none = np.broadcast_to(np.int64(0), len(edges)) if links.timed else None
            counted = SeedList(counted, edges, none, None, links.graph.n)
            sampler = targets.law(sampler, self._ends * options["batch_size"], timed)
            options["seed_types"] = targets.schema.targets
        super().__init__(view.adjacency, sampler, counted, **options)

    def _examples(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(self._links.edges[positions])

    @cached_property
    def _identity(self) -> dict[str, Any]:
        table = {"edge_labels": self._links.table.identity} if isinstance(self._links, LabelledPairs) else {}
        return table | super()._identity

    def _bulk(self, examples: list[np.ndarray], ids: list[int], epoch: int) -> list[MiniBatch]:
        chosen = [self._examples(positions) for positions in examples]
        sampled = self._sample_bulk(self._selected(chosen, np.array(ids, np.int64), epoch), epoch)
        return [replace(one, examples=edges) for one, edges in zip(sampled, chosen, strict=True)]

    def _selected(self, examples: list[np.ndarray], minibatches: np.ndarray, epoch: int) -> Selection:
        """Return the ends of the edges of each mini-batch: sources, destinations and of links negative destinations."""
        edges, (first, other) = np.concatenate([np.empty(0, np.int64), *examples]), self._firsts
        ends = self._links.ends(edges)
        lists = [ends.sources + first, ends.destinations + other]
        if isinstance(self._links, LinkExamples):
            words = self._stream.words(Substream.LINK_NEGATIVE.tag(epoch), edges)[..., 0]
            lists.append(self._links.negatives(ends, words) + other)
        columns, count = np.stack(lists), self._ends
        cuts = row_pointers([len(part) for part in examples])
        seeds = [columns[:, begin:end].reshape(-1) for begin, end in pairwise(cuts)]
        vertices = frozen(np.concatenate([np.empty(0, np.int64), *seeds]), np.int32)
        stamps = None
        if ends.times is not None:
            times = ends.times
            stamps = frozen(np.concatenate([np.empty(0, np.int64), *(np.tile(times[begin:end], count) for begin, end in pairwise(cuts))]))
        return Selection(minibatches, count * cuts, vertices, self._links.graph.n, None, None, stamps)

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[Any]:
        sampled: list[Any] = super()._sample_bulk(seeds, epoch)
        if not self._cleared:
            return sampled
        return [self._without_targets(one, one.seeds.astype(np.int64).reshape(self._ends, -1)[:2]) for one in sampled]

    def _without_targets(self, minibatch: MiniBatch, pairs: np.ndarray) -> MiniBatch:
        """Return a mini-batch without the sampled edges that are its examples, given their sources and destinations; all vertices stay."""
        times = None
        if self._links.timed:
            stamps = np.concatenate([part.seed_times for part in minibatch.rows.values() if part.seed_times is not None])
            places = np.concatenate([part.seed_trees for part in minibatch.rows.values()])
            times = stamps[np.argsort(places, kind="stable")][: pairs.shape[1]]
        blocks = [dict(of_layer) for of_layer in minibatch.layers]
        for relation, turns in self._cleared:
            ends = np.concatenate([pairs[::-1] if turned else pairs for turned in turns], axis=1)  # turned around or not, or both
            stamps_of = None if relation.times is None or times is None else np.tile(times, len(turns))
            destinations, sources = (minibatch.rows[name].vertices for name in (relation.destination, relation.source))
            for layer, of_layer in enumerate(blocks):
                drawn = None if minibatch.entries is None else minibatch.entries[layer][relation.key]
                of_layer[relation.key] = _without(of_layer[relation.key], destinations, sources, relation, ends, stamps_of, drawn)
        return replace(minibatch, layers=tuple(blocks), known_entries=None, times=None, find_entries=None)


def _without(
    block: Block, destinations: np.ndarray, sources: np.ndarray, relation: Relation, ends: np.ndarray, times: np.ndarray | None = None,
    entries: np.ndarray | None = None,
) -> Block:  # fmt: skip
    """Return a block without the edges between some ends, int64, shape (2, e); with their times, without those of the same time alone.

    `destinations` and `sources` are the vertices of the rows and columns; `entries` has the position of each edge in its relation.
    """
    row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
    columns, stamps, of_block = relation.times, None, (sources[block.indices], destinations[row])
    if times is not None and columns is not None and entries is not None:
        stamps = times, lambda edges: columns[entries[edges]]
    return block.only(~among_targets(of_block, ends, stamps))


def held_out(source: Source) -> HeldOutLinks:
    """Return the held-out edges that a graph in memory has from `hold_out`, or those of a store; `UsageError` if there are none."""
    if isinstance(source, LinkGraph) and source.held_out is not None:
        return source.held_out
    if isinstance(source, Graph):
        fits = "use data.link_split.hold_out(graph, ...), or a directory that `bulksample data split-edges` wrote"
        raise UsageError(f"graph {source.name!r} in memory has no held-out edges; {fits}")
    return HeldOutLinks.load(source)


def check_ranking(metric: str, links: HeldOutLinks) -> None:
    """Raise `UsageError` for ``hits@k`` of more ranks than an edge has negatives: every edge would be a hit."""
    _, _, k = metric.partition("@")
    for split, negatives in links.negatives.items():
        if k and len(negatives) and int(k) > negatives.shape[1]:
            most = negatives.shape[1]
            found = f"each held-out edge of {split} is ranked among {most} negatives, so all would be hits"
            raise UsageError(f"metric: got {metric}, and {found}; use hits@1 to hits@{most}, or mrr")


def without_labels(graph: Graph) -> Graph:
    """Return the graph for link prediction: no vertex has a class or belongs to a split."""
    return graph.replace(labels=np.full(graph.n, -1, np.int64), num_classes=0, masks={})


def link_loss(context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
    """Return the summed loss of a batch whose seeds are sources, destinations and negatives, and the number of its examples."""
    minibatch = batch.minibatch
    if minibatch is None or not len(minibatch.seed_rows):
        return None, 0
    model = cast(LinkModel, context.model)
    true, false = model.scores(_embeddings(context, batch), as_index(minibatch.seed_rows))
    return F.softplus(-true).sum() + F.softplus(false).sum(), 2 * len(true)


def edge_loss(context: TrainingContext, batch: StepBatch) -> tuple[torch.Tensor | None, float]:
    """Return the summed loss of a batch of labelled pairs, whose seeds are sources and destinations, and their number.

    A pair whose labels are known in part counts by the share of them, as vertices do; see `nn.losses`.
    """
    minibatch, table = batch.minibatch, labelled_pairs(context.view).table
    if minibatch is None or minibatch.examples is None or not len(minibatch.examples):
        return None, 0
    assert table.labels is not None
    model, send = cast(PairModel, context.model), context.compute.send
    x = None if table.features is None else send(torch.from_numpy(table.features[minibatch.examples]))
    logits = model.logits(_embeddings(context, batch), as_index(minibatch.seed_rows), x)
    truth = torch.from_numpy(as_numbers(table.labels[minibatch.examples]))
    return summed_loss(context.config.target or "class", logits, send(truth)), summed_shares(truth)


def labelled_pairs(view: View) -> LabelledPairs:
    """Return the labelled pairs that are the examples of a view."""
    assert isinstance(view.targets.links, LabelledPairs)
    return view.targets.links


def _embeddings(context: TrainingContext, batch: StepBatch) -> torch.Tensor:
    """Return the rows of the seeds of a batch that has some, by the encoder in training: float32, shape (seeds, width)."""
    minibatch = batch.minibatch
    assert minibatch is not None
    assert batch.x is not None
    with context.compute.arithmetic():
        read = minibatch.inner if isinstance(batch.x, OwnAndMean) else minibatch
        names = context.view.names(read, context.progress.stage)
        z: torch.Tensor = context.model(read.blocks, batch.x, context.view.degrees(read.vertices), names).float()
    return z
