"""The seeds of mini-batches of links: both ends, and repeatable negatives.

Negatives have the distributions of torch_geometric, and are drawn with the counter-based stream:

uniform    floor(n u)                       by weight    the first v with w_1 + ... + w_v > u W
in time    the same among the m vertices that exist at the time of the link, in the order of time
strict     the same given that no edge joins the pair: P(u, v) = p(u) p(v) / P(no edge), or of triplets p(v) / P(no edge from u)

A strict draw that is an edge is drawn again: a triplet's from the rest of its law, a pair by the same law some times, then from the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch_geometric.sampler import EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from ...data.random_words import scaled
from ...errors import DataError, UsageError
from ...graph import NODE, Graph, Key
from ...graph.links import NonNeighbors
from ...graph.times import given_times
from ...graph.types import relation_from_edges
from ...rng import Stream, Substream, as_unit
from ...sparse import fixed_point
from .read_graph import EDGES

Seeds: TypeAlias = Mapping[str, np.ndarray]  # by type
Times: TypeAlias = Mapping[str, np.ndarray | None]
_ATTEMPTS = 16  # at a pair that is no edge, before the rest of the law is counted


class LinkSeeds(NamedTuple):
    """The seeds of a mini-batch of links, the position of the link of each, and the metadata of torch_geometric's output.

    Positions are by type, int64, and there are none unless trees are disjoint.
    """

    seeds: Seeds
    links: Mapping[str, np.ndarray]
    metadata: Any

    def times(self, what: str, of_links: Any) -> Times:
        """Return for each seed the time of its link, None without times; `what` names the argument in messages."""
        if of_links is None:
            return dict.fromkeys(self.seeds)
        stamps = given_times(what, of_links)
        return {name: stamps[links] for name, links in self.links.items()}


def link_seeds(graph: Graph, index: EdgeSamplerInput, negatives: SeededNegatives | None, typed: bool, disjoint: bool) -> LinkSeeds:
    """Return the ends of links and their negatives as seeds; torch_geometric's code computes them."""
    ends: list[tuple[Seeds, Seeds]] = []
    numbered = copy.copy(index)  # torch_geometric gives the time of a link to all of its seeds; here the position of the link stands for it
    numbered.time = torch.arange(len(index.row)) if disjoint else None

    def nothing_yet(seed: Any, links: Any) -> SamplerOutput | HeteroSamplerOutput:
        seeds, places = (seed, links or {}) if isinstance(seed, dict) else ({NODE: seed}, {} if links is None else {NODE: links})
        ends.append(({name: ids.numpy() for name, ids in seeds.items()}, {name: at.numpy() for name, at in places.items()}))
        if isinstance(seed, dict):
            return HeteroSamplerOutput(dict(seed), {}, {}, {}, batch=dict(seed))
        return SamplerOutput(seed, seed, seed, None, batch=seed)

    counts: Any = {kind.name: kind.count for kind in graph.types} if typed else graph.n
    *metadata, links = edge_sample(numbered, nothing_yet, counts, disjoint, None, negatives).metadata
    return LinkSeeds(*ends[0], (*metadata, None if index.time is None else index.time[links]))


class SeededNegatives(NegativeSampling):
    """The negatives of one mini-batch; a draw depends on (seed, epoch, mini-batch, endpoint, position) alone.

    Negative i belongs to link i mod links, or, of triplets whose trees are not `disjoint`, to link i div amount: so torch_geometric lays
    `dst_neg_index` out. With times, which need disjoint trees, it is drawn among the vertices that exist at the time of its link.
    With `others`, no negative is an edge: one that is gets drawn again, among those that are none.
    """

    def __init__(
        self, graph: Graph, law: NegativeSampling, index: EdgeSamplerInput, stream: Stream, minibatch: int, epoch: int, *, timed: bool,
        disjoint: bool, others: NonNeighbors | None = None,
    ) -> None:  # fmt: skip
        super().__init__(law.mode, law.amount, law.src_weight, law.dst_weight)
        self._stream, self._minibatch, self._tag, self._others = stream, minibatch, Substream.PYG_NEGATIVE.tag(epoch), others
        ends = [graph.type(end) for end in ends_of_type(index.input_type)]
        self._until = None if index.time is None else given_times("edge_label_time", index.time, len(index.row))
        self._times = [kind.times if timed and self._until is not None else None for kind in ends]
        self._counts, self._sources, self._disjoint = [kind.count for kind in ends], index.row.numpy(), disjoint
        self._pairs: tuple[np.ndarray, np.ndarray] | None = None  # with `others`: both ends are drawn at once
        self._orders: dict[int, np.ndarray] = {}  # by time, of each endpoint

    def sample(self, num_samples: int, endpoint: Literal["src", "dst"], num_nodes: int | None = None) -> torch.Tensor:
        """Draw `num_samples` vertices: int64. Without `others` they may be false negatives, as in torch_geometric.

        Raises `UsageError` unless vertices have a finite weight, 0 or more, or if edges leave a link no negative; `DataError` if no vertex
        of positive weight exists at a link's time.
        """
        side, every = ("src", "dst").index(endpoint), np.arange(num_samples)
        if self._others is None:
            order, places = self._drawn(side, every)
            return torch.from_numpy(order[places].astype(np.int64))
        self._pairs = self._pairs or self._without_edges(self._others, every)
        return torch.from_numpy(self._pairs[side].astype(np.int64))

    def check_some(self) -> None:
        """Raise what `sample` would raise, if it would for some link."""
        if not len(self._sources):
            return
        early, one = copy.copy(self), np.zeros(1, np.int64)  # what the earliest link may have as negatives, all others may have too
        early._until = None if self._until is None else self._until.min(keepdims=True)
        for side in (0, 1) if self.is_binary() else (1,):
            early._drawn(side, one)
        if self._others is not None and self.is_binary():
            early._sources_with_others(self._others, one)
        elif self._others is not None:
            _eligible(self._others, self._sources, self._until)

    def _drawn(self, side: int, positions: np.ndarray, attempt: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the vertices of one endpoint in the order of time, and the place of each negative among them."""
        weights, (order, existing) = self._weights(side), self._existing(side, positions)
        words = self._words(side, positions, attempt)
        if weights is None:
            return order, scaled(words[..., 0], 32, existing)
        return order, _by_weight(as_unit(words), weights[order], existing)

    def _without_edges(self, others: NonNeighbors, every: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of negatives that are no edges. Those of the law that are stay; the others are drawn from the rest of it."""
        _, places = self._drawn(1, every)
        links = every // int(self.amount) if self.is_triplet() and not self._disjoint else every % max(1, len(self._sources))
        order, at = self._drawn(0, every) if self.is_binary() else (self._sources, links)
        sources = order[at].astype(np.int64)
        bad = np.flatnonzero(others.joined(sources, places))
        for attempt in range(1, _ATTEMPTS) if self.is_binary() else ():
            if not len(bad):
                break
            order, at = self._drawn(0, bad, attempt)
            sources[bad], places[bad] = order[at], self._drawn(1, bad, attempt)[1]
            bad = bad[others.joined(sources[bad], places[bad])]
        if self.is_binary():
            sources[bad] = self._sources_with_others(others, bad)
        destinations, until = others.anyone(places), None if self._until is None else self._until[links[bad]]
        existing, eligible = _eligible(others, sources[bad], until)
        units = as_unit(self._words(1, bad, _ATTEMPTS))
        destinations[bad] = others.at(sources[bad], existing, np.minimum((units * eligible).astype(np.int64), eligible - 1))
        return sources, destinations

    def _sources_with_others(self, others: NonNeighbors, positions: np.ndarray) -> np.ndarray:
        """Draw a source for each negative by its own weight times that of the destinations it has no edge to: int64."""
        units, (order, existing) = as_unit(self._words(0, positions, _ATTEMPTS)), self._existing(0, positions)
        weights, drawn = self._weights(0), np.empty(len(positions), np.int64)
        own = np.ones(len(order)) if weights is None else fixed_point(weights[order], len(order))[0].astype(np.float64)
        until = None if self._until is None else self._until[positions % max(1, len(self._until))]
        known = others.existing(positions, until)
        for count in np.unique(known):
            law, mine = own * others.eligible(order, np.full(len(order), count)), known == count
            if not law[: existing[mine].min()].any():
                when = "" if until is None else f" that exist at time {until[mine].min()}"
                raise UsageError(f"strict_negatives: every pair of vertices{when} that a negative may be is an edge; leave it out")
            drawn[mine] = order[_by_weight(units[mine], law, existing[mine])]
        return drawn

    def _words(self, side: int, positions: np.ndarray, attempt: int) -> np.ndarray:
        return self._stream.words(self._tag, positions, vertex=side + 2 * attempt, minibatch=self._minibatch)

    def _weights(self, side: int) -> np.ndarray | None:
        weights = (self.src_weight, self.dst_weight)[side]
        return None if weights is None else _checked(weights, self._counts[side])

    def _existing(self, side: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vertices in the order of time, and how many of the first of them each negative may be."""
        times, n = self._times[side], self._counts[side]
        if times is None or self._until is None:
            return np.arange(n), np.full(len(positions), n)
        if side not in self._orders:
            self._orders[side] = np.argsort(times, kind="stable")
        order = self._orders[side]
        until = self._until[positions % max(1, len(self._until))]
        existing = np.searchsorted(times[order], until, side="right")
        if len(positions) and not existing.all():
            raise DataError(f"no vertex exists at time {until[np.argmin(existing)]}, so the link of that time has no negatives")
        return order, existing


def non_edges(graph: Graph, key: Key | None, law: NegativeSampling) -> NonNeighbors:
    """Return the pairs that no edge of a type joins, for `SeededNegatives`; the destinations have the weights of the law."""
    source, destination = ends_of_type(key)
    relation = next((relation for relation in graph.relations if relation.key == (EDGES if key is None else key)), None)
    if relation is None:  # links may be of a type without edges
        relation = relation_from_edges(graph.type(source), str(key), graph.type(destination), np.empty(0, np.int64), np.empty(0, np.int64))
    n = graph.type(destination).count
    return NonNeighbors(graph, relation, None, None if law.dst_weight is None else fixed_point(_checked(law.dst_weight, n), n)[0])


def ends_of_type(key: Key | None) -> tuple[str, str]:
    """Return the types of the source and the destination of links."""
    return (NODE, NODE) if key is None else (key[0], key[-1])


def _eligible(others: NonNeighbors, sources: np.ndarray, until: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of existing destinations of each source, and the weight of those it has no edge to; both int64."""
    existing = others.existing(sources, until)
    eligible = others.eligible(sources, existing)
    if len(eligible) and not eligible.all():
        at = int(np.argmin(eligible))
        when = "" if until is None else f" that exists at time {until[at]}"
        raise UsageError(
            f"strict_negatives: vertex {sources[at]} has an edge to every destination{when} that a negative may be, so it has no negative; "
            "leave out its links, or strict_negatives"
        )
    return existing, eligible


def _checked(weights: torch.Tensor, count: int) -> np.ndarray:
    """Return weights as float64 of shape (count,)."""
    given = torch.as_tensor(weights).detach().cpu().double().reshape(-1).numpy()
    if len(given) != count:
        raise UsageError(f"got {len(given)} weights of negatives; use one for each of the {count} vertices")
    if len(bad := np.flatnonzero(~(np.isfinite(given) & (given >= 0)))):
        raise UsageError(f"a weight of negatives is {given[bad[0]]}; use finite numbers, 0 or more")
    if given.max(initial=0.0) > np.finfo(np.float64).max / max(1, count):
        raise UsageError("the weights of negatives add up to more than float64 holds; divide them all by a number")
    return given


def _by_weight(units: np.ndarray, weights: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    """Return for each unit number a place among the first `eligible` weights, by weight; one of weight zero is never drawn."""
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    totals = ends[eligible]
    if not totals.all():
        raise DataError("all vertices that a negative may be have the weight 0; give one of them a weight above 0")
    drawn: np.ndarray = np.searchsorted(ends[1:], units * totals, side="right")
    last = np.searchsorted(ends[1:], totals, side="left")  # where a product is rounded up to the total
    return np.asarray(np.minimum(drawn, last))
