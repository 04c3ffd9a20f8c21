"""Repeatable negative examples: the distributions of torch_geometric, drawn with the counter-based stream.

uniform    floor(n u)                       by weight    the first v with w_1 + ... + w_v > u W
in time    the same among the m vertices that exist at the time of the link, in the order of time
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch_geometric.sampler import NegativeSampling

from ...data.random_words import scaled
from ...errors import DataError, UsageError
from ...rng import Stream, Substream, as_unit


class SeededNegatives(NegativeSampling):
    """The negatives of one mini-batch; a draw depends on (seed, epoch, mini-batch, endpoint, position) alone.

    Parameters
    ----------
    law : NegativeSampling
    stream : Stream
    minibatch, epoch : int
    times : (int64 of shape (sources,), int64 of shape (destinations,)), either may be None
        Times of the vertices. A negative is then drawn among those that exist at the time of its link.
    until : int64, shape (links,), optional
        The times of the links.
    """

    def __init__(
        self, law: NegativeSampling, stream: Stream, minibatch: int, epoch: int,
        times: tuple[np.ndarray | None, np.ndarray | None] = (None, None), until: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        super().__init__(law.mode, law.amount, law.src_weight, law.dst_weight)
        self._stream, self._minibatch, self._epoch = stream, minibatch, epoch
        self._times, self._until = times, until

    def sample(self, num_samples: int, endpoint: Literal["src", "dst"], num_nodes: int | None = None) -> torch.Tensor:
        """Draw `num_samples` vertices: int64; the i-th belongs to link i mod links. Like torch_geometric, this may draw false negatives.

        Raises
        ------
        UsageError
            If there is not one weight for each vertex, or a weight is negative or not finite.
        DataError
            If no vertex, or none with a weight above zero, exists at the time of a link.
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
