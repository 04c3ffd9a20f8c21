"""The seeds of mini-batches of links: both ends, and repeatable negatives.

Negatives have the distributions of torch_geometric, and are drawn with the counter-based stream:

uniform    floor(n u)                       by weight    the first v with w_1 + ... + w_v > u W
in time    the same among the m vertices that exist at the time of the link, in the order of time
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch_geometric.sampler import EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from ...data.random_words import scaled
from ...errors import DataError, UsageError
from ...graph import NODE, Graph
from ...graph.times import given_times
from ...rng import Stream, Substream, as_unit

Seeds: TypeAlias = Mapping[str, np.ndarray]  # by type
Times: TypeAlias = Mapping[str, np.ndarray | None]


class LinkSeeds(NamedTuple):
    """The seeds of a mini-batch of links, their times, and the metadata of torch_geometric's output."""

    seeds: Seeds
    times: Times
    metadata: Any


def link_seeds(graph: Graph, index: EdgeSamplerInput, negatives: SeededNegatives | None, typed: bool, disjoint: bool) -> LinkSeeds:
    """Return the ends of links and their negatives as seeds; torch_geometric's code computes them."""
    ends: list[tuple[Seeds, Times]] = []

    def nothing_yet(seed: Any, time: Any) -> SamplerOutput | HeteroSamplerOutput:
        seeds, stamps = (seed, time or {}) if isinstance(seed, dict) else ({NODE: seed}, {NODE: time})
        times = {name: None if stamps.get(name) is None else given_times("edge_label_time", stamps[name]) for name in seeds}
        ends.append(({name: ids.numpy() for name, ids in seeds.items()}, times))
        if isinstance(seed, dict):
            return HeteroSamplerOutput(dict(seed), {}, {}, {}, batch=dict(seed))
        return SamplerOutput(seed, seed, seed, None, batch=seed)

    counts: Any = {kind.name: kind.count for kind in graph.types} if typed else graph.n
    metadata = edge_sample(index, nothing_yet, counts, disjoint, None, negatives).metadata
    return LinkSeeds(*ends[0], metadata)


class SeededNegatives(NegativeSampling):
    """The negatives of one mini-batch; a draw depends on (seed, epoch, mini-batch, endpoint, position) alone.

    `times` are those of the sources and of the destinations, `until` those of the links, int64: a negative is then drawn among the vertices
    that exist at the time of its link.
    """

    def __init__(
        self, law: NegativeSampling, stream: Stream, minibatch: int, epoch: int,
        times: tuple[np.ndarray | None, np.ndarray | None] = (None, None), until: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        super().__init__(law.mode, law.amount, law.src_weight, law.dst_weight)
        self._stream, self._minibatch, self._epoch = stream, minibatch, epoch
        self._times, self._until = times, until

    @staticmethod
    def of_links(
        graph: Graph, law: NegativeSampling, index: EdgeSamplerInput, stream: Stream, minibatch: int, epoch: int, timed: bool
    ) -> SeededNegatives:
        """Return the negatives of some links of a graph, in time if its vertices are `timed` and the links have times."""
        ends = (NODE, NODE) if index.input_type is None else (index.input_type[0], index.input_type[-1])
        until = None if index.time is None else given_times("edge_label_time", index.time, len(index.row))
        source, destination = (graph.type(end).times if timed and until is not None else None for end in ends)
        return SeededNegatives(law, stream, minibatch, epoch, (source, destination), until)

    def sample(self, num_samples: int, endpoint: Literal["src", "dst"], num_nodes: int | None = None) -> torch.Tensor:
        """Draw `num_samples` vertices: int64; the i-th belongs to link i mod links. Like torch_geometric, this may draw false negatives.

        Raises `UsageError` unless vertices have a finite weight, 0 or more; `DataError` if none of positive weight exists at a link's time.
        """
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        side = ("src", "dst").index(endpoint)
        words = self._stream.words(Substream.PYG_NEGATIVE.tag(self._epoch), np.arange(num_samples), vertex=side, minibatch=self._minibatch)
        assert num_nodes is not None or weight is not None
        count = num_nodes if num_nodes is not None else int(weight.numel())
        if weight is not None and weight.numel() != count:
            raise UsageError(f"got {weight.numel()} weights of negatives; use one for each of the {count} vertices")
        order, eligible = self._eligible(side, num_samples, count)
        if weight is None:
            drawn = scaled(words[..., 0], 32, eligible)
        else:
            drawn = _by_weight(as_unit(words), weight.detach().cpu().double().numpy()[order], eligible)
        return torch.from_numpy(order[drawn].astype(np.int64))

    def _eligible(self, side: int, samples: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the vertices in the order of time, and how many of the first of them each negative may be."""
        times = self._times[side]
        if times is None or self._until is None:
            return np.arange(n), np.full(samples, n)
        order = np.argsort(times, kind="stable")
        until = self._until[np.arange(samples) % max(1, len(self._until))]
        eligible = np.searchsorted(times[order], until, side="right")
        if samples and not eligible.all():
            raise DataError(f"no vertex exists at time {until[np.argmin(eligible)]}, so the link of that time has no negatives")
        return order, eligible


def _by_weight(units: np.ndarray, weights: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    """Return for each unit number a place among the first `eligible` weights, by weight; one of weight zero is never drawn."""
    if len(bad := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))):
        raise UsageError(f"a weight of negatives is {weights[bad[0]]}; use finite numbers, 0 or more")
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    totals = ends[eligible]
    if not totals.all():
        raise DataError("all vertices that a negative may be have the weight 0; give one of them a weight above 0")
    drawn: np.ndarray = np.searchsorted(ends[1:], units * totals, side="right")
    last = np.searchsorted(ends[1:], totals, side="left")  # where a product is rounded up to the total
    return np.asarray(np.minimum(drawn, last))
