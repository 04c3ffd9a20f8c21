"""Mini-batches of edges, and DGL's graphs of their pairs.

    pairs    of the edges, and of the negatives: relation by relation, in the order of the mini-batch
    seeds    of the edges and then of the negatives, relation by relation: all sources, then all destinations
    w        = floor(n r / 2**32), the destination of a negative of `Uniform`; r a word of (seed, epoch, mini-batch, relation, position)

A vertex is numbered where it first occurs among the seeds of its type, as DGL does when it compacts graphs of pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...adjacency import Adjacency
from ...data.random_words import scaled
from ...errors import UsageError
from ...graph import Graph
from ...graph.minibatch import MiniBatch, hash_arrays
from ...graph.selection import Selection, vertex_ids
from ...loading.loader import BulkLoader
from ...rng import Substream
from ...samplers import AnySampler
from ...sparse import frozen, row_pointers
from .. import require
from .blocks import INSTALL
from .edges import ByRelation, EdgeList, EdgePredictionSampler, Ends, Exclusion, Uniform

Pairs = dict[int, Ends]  # by the place of the relation


class PairBatch(NamedTuple):
    """A mini-batch whose seeds are the ends of edges, and of negatives if there are any."""

    minibatch: MiniBatch
    edges: ByRelation  # ids
    counts: list[dict[int, int]]  # the pairs of each relation, of the edges and of the negatives

    def rows(self, graph: Graph) -> list[Pairs]:
        """Return the ends of all pairs as positions among the vertices of their types."""
        taken = dict.fromkeys(self.minibatch.rows, 0)

        def next_rows(name: str, count: int) -> np.ndarray:
            first = taken[name]
            taken[name] += count
            return self.minibatch.rows[name].seed_rows[first : taken[name]]

        found = []
        for of_graph in self.counts:
            keys = {place: graph.relations[place].key for place in of_graph}
            found.append({place: (next_rows(keys[place][0], m), next_rows(keys[place][2], m)) for place, m in of_graph.items()})
        return found


class PairLoader(BulkLoader):
    """A loader of `PairBatch`, whose examples are edges; options are those of `BulkLoader`.

    Negatives of a function of the user's are drawn on the thread that iterates, since they take random numbers that others take too.
    """

    def __init__(
        self, adjacency: Adjacency, sampler: AnySampler, graph: Graph, edges: EdgeList, options: EdgePredictionSampler, **more: Any
    ) -> None:  # fmt: skip
        self._graph, self._edges, self._drawn_by = graph, edges, options.settings["negative_sampler"]
        self._draw, self._exclusion = options.negatives, Exclusion(edges, options)
        ahead = self._draw is None or isinstance(self._draw, Uniform)
        super().__init__(adjacency, sampler, np.broadcast_to(np.int32(0), len(edges)), prefetch=ahead, **more)  # only counts examples

    @cached_property
    def _identity(self) -> dict[str, Any]:
        sha, named = hashlib.sha256(), super()._identity
        hash_arrays(sha, [("relations", self._edges.relations), ("ids", self._edges.ids)])
        rules = f"{named['sampler']}, exclude {self._exclusion}, negative_sampler {self._drawn_by}"
        return named | {"seeds": sha.hexdigest(), "sampler": rules}

    def _bulk(self, examples: list[np.ndarray], ids: list[int], epoch: int) -> list[Any]:
        offsets, relations = self._graph.offsets, self._graph.relations
        places = {kind.name: place for place, kind in enumerate(self._graph.types)}
        batches, seeds = [], []
        for positions, number in zip(examples, ids, strict=True):
            at = self._edges.by_relation(positions)
            edges = {place: self._edges.ids[one] for place, one in at.items()}
            pairs: list[Pairs] = [{place: (self._edges.ends[0][one], self._edges.ends[1][one]) for place, one in at.items()}]
            if self._draw is not None:
                pairs.append(self._negatives(pairs[0], edges, number, epoch))
            none, ends = np.empty(0, np.int64), []
            for of_graph in pairs:
                for place, (sources, destinations) in of_graph.items():
                    source, _, destination = relations[place].key
                    ends += [offsets[places[source]] + sources, offsets[places[destination]] + destinations]
            seeds.append(np.concatenate([none, *ends]))
            batches.append((edges, [{place: len(ends[0]) for place, ends in of_graph.items()} for of_graph in pairs]))
        vertices = frozen(np.concatenate([np.empty(0, np.int64), *seeds]), np.int32)
        chosen = Selection(np.array(ids, np.int64), row_pointers([len(one) for one in seeds]), vertices, self._graph.n)
        return [
            PairBatch(self._exclusion.without(minibatch, self._graph, edges), edges, counts)
            for minibatch, (edges, counts) in zip(self._sample_bulk(chosen, epoch), batches, strict=True)
        ]

    def _probe(self) -> MiniBatch | None:
        found: Any = super()._probe()
        return None if found is None else found.minibatch

    def _negatives(self, pairs: Pairs, edges: ByRelation, minibatch: int, epoch: int) -> Pairs:
        """Draw the negatives of a mini-batch, in the order of relations."""
        if not isinstance(self._draw, Uniform):
            return self._given(self._draw(self._edges.graph, self._edges.given(edges))) if edges else {}
        drawn, tag = {}, Substream.DGL_NEGATIVE.tag(epoch)
        for place, (sources, _) in pairs.items():
            repeated = np.repeat(sources, self._draw.k)
            words = self._stream.words(tag, np.arange(len(repeated)), vertex=place, minibatch=minibatch)[..., 0]
            drawn[place] = repeated, scaled(words, 32, self._graph.type(self._graph.relations[place].destination).count)
        return drawn

    def _given(self, found: Any) -> Pairs:
        """Return the pairs that a function of the user's has drawn; raises `UsageError` for what are none."""
        keys, drawn = self._edges.keys, {}
        if not isinstance(found, Mapping):
            if len(keys) > 1:
                raise UsageError(
                    f"negative_sampler returned a {type(found).__name__}; return a dict of sources and destinations by edge type"
                )
            found = {keys[0]: found}
        for name, ends in found.items():
            place = self._edges.place("negative_sampler", name)
            if not isinstance(ends, tuple | list) or len(ends) != 2:
                raise UsageError(f"negative_sampler returned a {type(ends).__name__}; return (sources, destinations)")
            key = self._graph.relations[place].key
            sources, destinations = (
                vertex_ids(one, self._graph.type(kind).count, f"negative_sampler: {what}")
                for one, kind, what in ((ends[0], key[0], "sources"), (ends[1], key[2], "destinations"))
            )
            if len(sources) != len(destinations):
                raise UsageError(f"negative_sampler returned {len(sources)} sources and {len(destinations)} destinations; return pairs")
            drawn[place] = sources, destinations
        return dict(sorted(drawn.items()))


class PairGraphs:
    """Makes DGL's graphs of the pairs of mini-batches; raises `UsageError` for a label that no edge has.

    The graph of the edges has the features of the DGLGraph and both ids, `dgl.NID` and `dgl.EID`; that of the negatives `dgl.NID` alone.
    """

    def __init__(self, edges: EdgeList, relations: Graph, labels: Any) -> None:
        self._edges, self._relations = edges, relations
        self._labels = list(self._wanted(labels))

    def _wanted(self, labels: Any) -> Any:
        """Yield the edge type and the name of each label to slice at once."""
        graph, keys = self._edges.graph, self._edges.keys
        for name, labels_of in labels.items() if isinstance(labels, Mapping) else [(None, labels)]:
            kinds = keys if name is None else [keys[self._edges.place("prefetch_labels", name)]]
            for label in [labels_of] if isinstance(labels_of, str) else labels_of:
                known = {key: key in kinds and label in graph.edges[key].data for key in kinds}
                if not any(known.values()):
                    raise UsageError(f"prefetch_labels: edges of {', '.join(map(str, kinds))} have no feature {label!r}; leave it out")
                yield from ((key, label) for key, has in known.items() if has)

    def of(self, batch: PairBatch) -> list[Any]:
        """Return the graph of the edges of a mini-batch, and that of its negatives if they were asked for."""
        dgl = require("dgl", None, INSTALL)
        graph, keys = self._edges.graph, self._edges.keys
        nodes = [self._edges.tensor(part.vertices[: part.sizes[0]]) for part in batch.minibatch.rows.values()]
        counts = {name: len(ids) for name, ids in zip(graph.ntypes, nodes, strict=True)}
        none, made = np.empty(0, np.int64), []
        for pairs in batch.rows(self._relations):
            ends = {key: tuple(self._edges.tensor(rows) for rows in pairs.get(place, (none, none))) for place, key in enumerate(keys)}
            made.append(dgl.heterograph(ends, counts, idtype=graph.idtype, device=graph.device))
            for name, ids in zip(graph.ntypes, nodes, strict=True):
                made[-1].nodes[name].data[dgl.NID] = ids
        frames = dgl.utils.extract_node_subframes(graph, nodes)
        drawn = dgl.utils.extract_edge_subframes(graph, [self._edges.tensor(batch.edges.get(i, none)) for i in range(len(keys))])
        dgl.utils.set_new_frames(
            made[0], node_frames=[frames[graph.ntypes.index(name)] for name in made[0].ntypes],
            edge_frames=[drawn[keys.index(tuple(key))] for key in made[0].canonical_etypes],
        )  # fmt: skip
        for key, label in self._labels:
            made[0].edges[key].data[label]
        return made
