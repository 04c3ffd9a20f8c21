"""Draw columns by weight from one row that all mini-batches share, in time independent of the length of the row.

    t_i = sum over j <= i of -log2(u_j);   c_i = v with probability w_v / W;   key of v = the first t_i with c_i = v

Column v arrives as a Poisson process of rate w_v / W, so its first arrival is an exponential time of that rate, independent of the
others. These are the keys of the race of `Backend.smallest_keys`, which gives every column of the row a random word of its own. Here
words name arrivals instead, and reading stops once s + 1 columns have arrived. With a word for each column, all of them would have to
be read, since any may be the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..backends.base import Backend
from ..backends.layer_draws import LayerPicks, SharedDraws
from ..backends.reference import inclusion_probability, mulhi, neg_log2
from ..rng import Draw, as_u64
from ..sparse import CSR

_SHARE = 16  # the s + 1 heaviest columns hold at most 15 / 16 of the weight, so at most 16 (s + 1) arrivals are expected
_TOTAL_BITS = 62


class SharedRow:
    """A sparse row of integer weights, shape (1, n), from which mini-batches draw columns."""

    def __init__(self, row: CSR) -> None:
        entries = row.entries()
        kept = entries > 0
        self.columns, weights = row.indices[kept], entries[kept]  # of positive weight, ascending
        self.given = weights.astype(np.float64)
        total = (int((weights >> 32).sum()) << 32) + int((weights & 0xFFFFFFFF).sum())
        self.weights = np.maximum(weights >> max(0, total.bit_length() - _TOTAL_BITS), 1)  # shortened if their sum exceeds 62 bits
        self.ends = np.cumsum(self.weights)
        self._by_arrivals = lru_cache(maxsize=64)(self._few_arrivals_do)

    def draws(self, backend: Backend, fanouts: Sequence[int], minibatches: np.ndarray, draws: Sequence[Draw]) -> SharedDraws:
        """Return the picks of hops: of each mini-batch as many columns as the fanout of the hop says."""
        by_arrivals = [self._arrive(fanout) for fanout in fanouts]

        def draw_hop(hop: int) -> LayerPicks:
            return self.draw(backend, fanouts[hop], minibatches, draws[hop])

        return SharedDraws(self.columns, self.given, self.ends, fanouts, draws, by_arrivals, draw_hop)

    def draw(self, backend: Backend, fanout: int, minibatches: np.ndarray, draw: Draw) -> LayerPicks:
        """Draw s columns for each mini-batch, with their inclusion probabilities, with the distribution of `Backend.smallest_keys`."""
        if self._arrive(fanout):
            arrived = backend.first_arrivals(self.ends, fanout, minibatches, draw)
            positions, times = arrived or self._each(backend, fanout, minibatches, draw)
            pointers, at, tau = np.arange(len(minibatches) + 1, dtype=np.int64) * fanout, positions.reshape(-1), np.repeat(times, fanout)
            return LayerPicks(pointers, self.columns[at], inclusion_probability(self.weights[at].astype(np.float64), tau))
        one = np.array([0, len(self.columns)], np.int64)
        return backend.smallest_keys(one, self.columns, self.given, fanout, minibatches, draw)

    def _arrive(self, fanout: int) -> bool:
        """Return True if this many columns are drawn by their arrivals."""
        return fanout != -1 and self._by_arrivals(fanout)

    def _few_arrivals_do(self, s: int) -> bool:
        """Return True if the first s columns take few arrivals. Only integers of the row and s decide, so all machines agree."""
        if _SHARE * (s + 1) > len(self.columns):
            return False
        heaviest = np.partition(self.weights, len(self.weights) - s - 1)[len(self.weights) - s - 1 :]
        return _SHARE * int(heaviest.sum()) <= (_SHARE - 1) * int(self.ends[-1])

    def _each(self, backend: Backend, s: int, minibatches: np.ndarray, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """Compute what `Backend.first_arrivals` returns from the back end's random words."""
        drawn = [self._first(backend, s, int(minibatch), draw) for minibatch in minibatches]
        positions = np.concatenate([np.empty(0, np.int64), *[picks for picks, _ in drawn]])
        return positions.reshape(len(minibatches), s), np.array([last for _, last in drawn])

    def _first(self, backend: Backend, s: int, minibatch: int, draw: Draw) -> tuple[np.ndarray, float]:
        """Find the positions of the s columns that arrive first, ascending, and the time of the next, divided by W."""
        count = 2 * (s + 1) + 64
        while True:
            words = backend.random_words(draw.seed, draw.tag, 0, count, 0, minibatch)
            total = np.full(count, self.ends[-1], np.uint64)
            below = mulhi(as_u64(words[:, 2:]), total)  # uniform, but for a word in 2**64 at each end of a column
            column = np.searchsorted(self.ends, below.astype(np.int64), side="right")
            distinct, arrival = np.unique(column, return_index=True)
            if len(distinct) > s:
                break
            count *= 2
        order = np.argsort(arrival)[: s + 1]
        last = int(arrival[order[s]])
        time = np.cumsum(neg_log2(as_u64(words[: last + 1])).astype(np.float64))[last]  # left to right
        return np.sort(distinct[order[:s]]), float(time) / float(self.ends[-1])
