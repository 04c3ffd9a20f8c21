"""Counter-based random words of synthetic graphs.

The counter of a word holds (item, column, block, substream): the item is an edge or a vertex, the column counts groups of
four words of an item, and the substream (`bulksample.rng.Substream`) is the part of the recipe that draws. A word depends on the
counter and the seed alone, so the size of a chunk, the machine and the back end do not change a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..rng import PIECE, Substream, as_u64, check_seed, counters, philox

if TYPE_CHECKING:
    from ..backends.base import Backend


@dataclass(frozen=True)
class Words:
    """A source of random words for one seed; a back end, if there is one, generates them faster."""

    seed: int
    backend: Backend | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def of(self, substream: Substream, first: int, count: int, column: int = 0) -> np.ndarray:
        """Return four words for each of the items ``first .. first + count - 1``: uint32, shape (count, 4)."""
        parts = []
        while count:  # the index is 32 bits wide; the upper bits of an item go to the third word of the counter
            high, low = divmod(first, 2**32)
            length = min(count, 2**32 - low)
            parts.append(self._block(substream.tag(), low, length, column, high))
            first, count = first + length, count - length
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, 4), np.uint32), *parts])

    def _block(self, word: int, low: int, count: int, column: int, high: int) -> np.ndarray:
        if self.backend is not None:
            return self.backend.random_words(self.seed, word, low, count, vertex=column, minibatch=high)
        made = np.empty((count, 4), np.uint32)
        for start, length in chunks(count, PIECE):
            index = np.arange(start, start + length) + low
            made[start : start + length] = philox(counters(index, column, high, word), self.seed)
        return made

    def permutation(self, substream: Substream, n: int, column: int = 0) -> np.ndarray:
        """Return a permutation of 0 .. n - 1: int32, shape (n,). Positions are sorted by 64-bit keys, equal keys by position."""
        keys = np.empty(n, np.uint64)
        for first, count in chunks(n):
            keys[first : first + count] = as_u64(self.of(substream, first, count, column))
        return np.argsort(keys, kind="stable").astype(np.int32)


def chunks(total: int, size: int = 2**20) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of consecutive pieces of 0 .. total - 1."""
    for first in range(0, total, size):
        yield first, min(size, total - first)


def threshold(probability: float) -> int:
    """Return the integer t for which a 32-bit word w has ``w < t`` with this probability, to within 2**-32."""
    return int(probability * 2**32)


def scaled(bits: np.ndarray, width: int, bound: np.ndarray | int) -> np.ndarray:
    """Return floor(bits * bound / 2**width), exactly: an integer in 0 .. bound - 1 from `width` random bits.

    `width` is even and at most 48, `bound` at most 2**40, so every product fits 64 bits.
    """
    half = np.uint64(width // 2)
    bound = np.asarray(bound, np.uint64)
    bits = bits.astype(np.uint64, copy=False)
    low = bits & ((np.uint64(1) << half) - np.uint64(1))
    scaled: np.ndarray = ((bits >> half) * bound + ((low * bound) >> half)) >> half
    return scaled.astype(np.int64)


class RangeLookup:
    """Find which of n consecutive ranges holds a number, for many numbers: range i is ``running[i] .. running[i + 1] - 1``.

    `running`, int64 of shape (n + 1,), rises strictly from 0. A guide holds the first candidate for each of about 4 n equal steps. A lookup
    takes two reads and a few moves; a binary search in a large table would miss the cache at every level.
    """

    def __init__(self, running: np.ndarray) -> None:
        total, n = int(running[-1]), len(running) - 1
        self.running = running
        self.shift = max(0, total.bit_length() - n.bit_length() - 2)
        steps = np.arange((total >> self.shift) + 1, dtype=np.int64) << self.shift
        self.guide = np.searchsorted(running, steps, side="right") - 1

    def find(self, numbers: np.ndarray) -> np.ndarray:
        """Return the range of each number 0 .. total - 1: int64, the shape of `numbers`."""
        place: np.ndarray = self.guide[numbers >> self.shift]
        late = np.flatnonzero(self.running[place + 1] <= numbers)
        while len(late):
            place[late] += 1
            late = late[self.running[place[late] + 1] <= numbers[late]]
        return place
