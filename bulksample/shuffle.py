"""The order of an epoch: a keyed bijection of 0 .. n - 1, any part of which is computed without the rest.

    n <= 1024      positions sorted by random keys (`Stream.permutation`), so that every order is equally likely
    n > 1024       a Feistel network on the pairs (l, r) with l r_max + r = i, 0 <= l < l_max, 0 <= r < r_max:
                   l += F_1(r) mod l_max,   r += F_2(l) mod r_max,   l += F_3(r) mod l_max,   ...,   r += F_8(l) mod r_max

l_max is the square root of n, rounded up to an even number, and r_max = ceil(n / l_max), so there are at most n + sqrt(n) + 1 pairs. A
result beyond n - 1 goes through the network again until it is one of 0 .. n - 1 (cycle walking), which stays a bijection. As l_max is
even, a round may be an odd permutation of the pairs; otherwise every order would be an even one.

F_j(x) is a word of Philox that names (seed, epoch, group, j, x), scaled to its range. A network has some 8 sqrt(n) of them, 0.8 MB for
160 million examples, which are drawn once an epoch. With fewer rounds the differences of neighboring places show the law: four rounds in a
few orders of 1025 examples, six in 100,000 orders; eight do not show in as many. Nothing depends on ranks, threads or bulks.

References
----------
Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
"""

from __future__ import annotations

import math

import numpy as np

from .rng import Stream, Substream

SORTED = 1024  # examples at most that are sorted by keys; to sort them takes as long as to make a network
ROUNDS = 8  # an even number
_WORDS = 4  # of a block of Philox


def halves(n: int) -> tuple[int, int]:
    """Return l_max and r_max, for n > 1."""
    left = 2 * -(-(math.isqrt(n - 1) + 1) // 2)
    return left, -(-n // left)


class Shuffle:
    """The order of n examples in one epoch; groups of examples have orders of their own."""

    def __init__(self, stream: Stream, n: int, epoch: int = 0, group: int = 0) -> None:
        self._n = n
        self._whole = stream.permutation(n, epoch, group) if n <= SORTED else None
        if self._whole is not None:
            return
        self._sizes = halves(n)
        blocks = np.arange(-(-ROUNDS // _WORDS))[:, None]
        words = stream.words(Substream.SHUFFLE_ROUND.tag(epoch), np.arange(max(self._sizes)), vertex=blocks, minibatch=group)
        self._rounds = [self._shift(j, words[j // _WORDS, :, j % _WORDS]) for j in range(ROUNDS)]

    def _shift(self, j: int, words: np.ndarray) -> np.ndarray:
        """Return F_j of every value of the half that it reads: below the size of the other half."""
        changed, read = self._sizes[j % 2], self._sizes[1 - j % 2]
        return ((words[:read].astype(np.uint64) * np.uint64(changed)) >> np.uint64(32)).astype(np.int64)

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the examples at some places of the order, both in 0 .. n - 1: int64, of shape (len(places),)."""
        if self._whole is not None:
            return np.asarray(self._whole[places])
        examples = self._once(places)
        while len(beyond := np.flatnonzero(examples >= self._n)):
            examples[beyond] = self._once(examples[beyond])
        return examples

    def _once(self, places: np.ndarray) -> np.ndarray:
        """Run pairs through the network."""
        pair = list(np.divmod(places, self._sizes[1]))
        for j, shift in enumerate(self._rounds):
            changed, size = pair[j % 2], self._sizes[j % 2]
            changed += shift[pair[1 - j % 2]]
            np.subtract(changed, size, out=changed, where=changed >= size)
        return np.asarray(pair[0] * self._sizes[1] + pair[1])
