"""R-MAT: the skewed graph of the Graph500 benchmark, drawn with integer thresholds only."""

from __future__ import annotations

import numpy as np

from ..backends.base import Backend
from ..errors import UsageError
from ..graph import Graph
from ..rng import Substream
from .edges import Pairs, from_keys, sorted_keys
from .random_words import Words, chunks, threshold

MAX_SCALE = 30


def rmat(
    scale: int, edge_factor: int = 16, *, edges: int | None = None, a: float = 0.57, b: float = 0.19, c: float = 0.19, seed: int = 0,
    directed: bool = False, permute: bool = True, self_loops: bool = False, backend: Backend | None = None, chunk: int = 2**20,
) -> Graph:  # fmt: skip
    """Draw a graph of n = 2**scale vertices by recursive quadrants of the adjacency, without weights, features or labels.

    At each of `scale` levels an edge u -> v goes to the quadrant (0, 0), (0, 1), (1, 0) or (1, 1) with probability
    a, b, c, 1 - a - b - c. The first bit of the quadrant is a bit of u, the second one of v, highest bits first. Raises `UsageError` if an
    argument is out of range.

    Parameters
    ----------
    scale : int, 0 .. 30
    edge_factor : int
        Edges drawn per vertex.
    edges : int, optional
        Edges drawn in total, instead of ``edge_factor * n``. The graph has fewer, because repetitions and self loops
        are dropped. An undirected graph holds each edge in both directions.
    a, b, c : float
        The defaults are those of Graph500.
    directed : bool
        Keep only u -> v; the default adds v -> u.
    permute : bool
        Renumber the vertices by a random permutation, as Graph500 does; otherwise low numbers have high degrees.
    self_loops : bool
        Keep self loops.
    backend : Backend, optional
        Generates the random words; every back end generates the same.
    chunk : int
        Edges drawn at a time; it does not change the graph.

    Notes
    -----
    Word t of an edge decides level t. Memory is 12 bytes per entry of the adjacency and 16 MiB of temporaries. See Chakrabarti, Zhan,
    Faloutsos, "R-MAT: a recursive model for graph mining", SDM 2004, and the Graph500 specification.
    """
    if not 0 <= scale <= MAX_SCALE:
        raise UsageError(f"scale {scale} is out of range; use 0 to {MAX_SCALE}")
    if edge_factor < 0 or (edges is not None and edges < 0):
        raise UsageError(f"the number of edges must not be negative: got {edge_factor if edges is None else edges}")
    if not (min(a, b, c) >= 0 and a + b + c <= 1):
        raise UsageError(f"a, b and c must be probabilities with a sum of at most 1: got {(a, b, c)}; use such as 0.57, 0.19, 0.19")
    if chunk < 1:
        raise UsageError(f"chunk must be positive: got {chunk}")
    n = 1 << scale
    pairs = edge_factor * n if edges is None else edges
    words = Words(seed, backend)
    limits = [threshold(p) for p in (a, a + b, a + b + c)]
    names = words.permutation(Substream.RMAT_NAME, n) if permute else None

    def drawn() -> Pairs:
        for first, count in chunks(pairs, chunk):
            u, v = _ends(words, scale, limits, first, count)
            if not self_loops:
                apart = u != v
                u, v = u[apart], v[apart]
            if names is not None:
                u, v = names[u], names[v]
            yield v, u
            if not directed:
                yield u, v

    return Graph(from_keys(sorted_keys(drawn(), pairs if directed else 2 * pairs), n), name=f"rmat-{scale}").validate()


def _ends(words: Words, scale: int, limits: list[int], first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw both ends of the edges ``first .. first + count - 1``: int32, shape (count,)."""
    u, v = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for level in range(scale):
        if level % 4 == 0:
            block = words.of(Substream.RMAT_QUADRANT, first, count, column=level // 4)
        w = block[:, level % 4]
        past_a, past_b, past_c = (w >= limit for limit in limits)
        u <<= 1
        u |= past_b
        v <<= 1
        v |= past_a ^ past_b ^ past_c  # in the second or the fourth quadrant
    return u, v
