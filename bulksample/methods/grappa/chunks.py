"""The chunks of the vertices that each rank sees in each super-epoch: a function of the seed, so no message is needed.

With p ranks there are p chunks, and rank r trains on the seeds of chunk r. In super-epoch t it sees c chunks: its own and

    (r + 1 + (t (c - 1) + j) mod (p - 1)) mod p      for j = 0 .. c - 2

This is a cyclic shift: the same number of ranks sees each chunk, and every pair of chunks meets once in a sweep.
"""

from __future__ import annotations

import numpy as np

from ...backends.base import Backend
from ...data.random_words import Words
from ...rng import Substream


def seen_chunks(ranks: int, count: int, turn: int) -> np.ndarray:
    """Return the chunks that each rank sees in a super-epoch: bool, shape (ranks, ranks).

    Parameters
    ----------
    count : int
        c; at most all of them.
    turn : int
        t.
    """
    seen, own = np.eye(ranks, dtype=bool), np.arange(ranks)
    for j in range(min(count, ranks) - 1):
        shift = 1 + (turn * (count - 1) + j) % (ranks - 1)
        seen[own, (own + shift) % ranks] = True
    return seen


def fresh_chunks(seed: int, turn: int, n: int, chunks: int, backend: Backend | None = None) -> np.ndarray:
    """Draw the chunk of every vertex in a super-epoch, uniform and independent: int32, shape (n,).

    The chunk is floor(w m / 2**32), w a 32-bit Philox word that names (vertex, t). Each of the m chunks has probability 1 / m up to
    2**-32.
    """
    words = Words(seed, backend).of(Substream.GRAPPA_CHUNK, 0, n, column=turn)[:, 0]
    return ((words.astype(np.uint64) * np.uint64(chunks)) >> np.uint64(32)).astype(np.int32)
