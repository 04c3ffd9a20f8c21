"""Predict the memory of exact inference on one rank, in bytes; d entries a row, rows of w_(l-1) become rows of w_l, u = min of both.

    gathered   4 (S u + R (w_(l-1) + u + 2 w_l))          S sent rows in memory at once, R own rows
    streamed   4 R (w_(l-1) + u + w_l) + chunk            the largest sum of two consecutive shards and of the rows sent between them
    chunk      40 E + 12 U u + 4 B (w_(l-1) + 2 w_l)      B rows with E = B d entries and U = n (1 - exp(-E / n)) distinct sources

A fetch holds three copies of its rows.
A layer counts no w_(l-1) if that is the input, and sends nothing where each rank holds the features and aggregates them as they are.
The largest layer counts. Shards that do not fit lie in files, and only the chunk remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import expm1

CHUNK_NUMBERS = 2**24  # of the entries of a chunk, gathered
DEVICE_CHUNK_NUMBERS = 2**28  # small chunks would leave a GPU idle
CHUNK_BYTES = 2**26  # streamed
LEAST_CHUNK = 2**20
_ENTRY = 40  # position, source, two copies of both while they are sorted, and the number in the block


def layers(widths: Sequence[int], holds_features: bool) -> Iterator[tuple[int, int, int]]:
    """Yield of each layer the widths of its rows in memory: those below, those sent, and those above."""
    for i, (into, out) in enumerate(pairwise(widths)):
        yield 0 if i == 0 else into, 0 if i == 0 and into <= out and holds_features else min(into, out), out


def shard_bytes(widths: Sequence[int], rows: float, holds_features: bool) -> float:
    """Bytes of the shards of one rank at the widest layer, streamed."""
    return max(4 * rows * (below + sent + out) for below, sent, out in layers(widths, holds_features))


def entries_of_chunk(widths: Sequence[int], budget: float, degree: float) -> int:
    """Return the entries of a chunk that takes at most so many bytes, all its sources being distinct."""
    each = max(_ENTRY + 12 * min(pair) + 4 * (pair[0] + 2 * pair[1]) / max(1.0, degree) for pair in pairwise(widths))
    return max(1, int(budget / each))


def chunk_room(widths: Sequence[int], rows: float, holds_features: bool, memory: float) -> tuple[float, bool]:
    """Return the bytes for a chunk, and True if the shards of this many rows must lie in files."""
    shards = shard_bytes(widths, rows, holds_features)
    on_disk = shards + LEAST_CHUNK > memory
    return min(CHUNK_BYTES, memory if on_disk else memory - shards), on_disk


def streamed_bytes(widths: Sequence[int], n: int, rows: float, degree: float, holds_features: bool, memory: float) -> float:
    """Bytes of streamed inference within a budget: shards and a chunk, or the chunk alone where the shards lie in files."""
    room, on_disk = chunk_room(widths, rows, holds_features, memory)
    entries = min(entries_of_chunk(widths, room, degree), rows * degree)
    distinct, chunk_rows = -n * expm1(-entries / max(1, n)), entries / max(1.0, degree)
    chunk = max(_ENTRY * entries + 12 * distinct * min(pair) + 4 * chunk_rows * (pair[0] + 2 * pair[1]) for pair in pairwise(widths))
    return (0.0 if on_disk else shard_bytes(widths, rows, holds_features)) + chunk


def gathered_bytes(widths: Sequence[int], gathered: float, rows: float, holds_features: bool) -> float:
    """Bytes of gathered inference at its widest layer."""
    return max(4 * (gathered * sent + rows * (below + sent + 2 * out)) for below, sent, out in layers(widths, holds_features))
