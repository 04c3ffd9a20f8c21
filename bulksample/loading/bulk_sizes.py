"""The number k of mini-batches in a bulk: what users may ask for, what fits into memory, the first bulks of an epoch, and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

from ..errors import UsageError, is_whole
from ..free_memory import free_memory

AUTO_LIMIT = 32  # mini-batches: beyond it a bulk gains nothing, and the first one keeps its consumer waiting
COPIES = 2.5  # bulks in memory: one in use, one being sampled, and buffers kept for reuse or allocated too large
_SCORED_BYTES = 2**28  # of the mini-batches of a bulk of an evaluation
_EDGE_BYTES = 12  # of a sampled edge in a mini-batch: its column, its source vertex, and a share of row pointers


def check_bulk_size(bulk_size: Any, memory_budget: Any = None) -> None:
    """Raise `UsageError` for anything but ``auto`` or a positive whole number, or for a budget that is none or decides nothing."""
    if not is_whole(bulk_size) and not (isinstance(bulk_size, str) and bulk_size == "auto"):
        raise UsageError(f"bulk_size must be 'auto' or positive, and a whole number; got {bulk_size!r}")
    if memory_budget is not None and not is_whole(memory_budget):
        raise UsageError(f"memory_budget must be a positive whole number of bytes; got {memory_budget!r}")
    if memory_budget is not None and bulk_size != "auto":
        raise UsageError(
            f"memory_budget is for bulk_size auto; got memory_budget {memory_budget} with bulk_size {bulk_size}: leave one out"
        )


def fitting(predict: Callable[[int], float], most: int, budget: int | None) -> int:
    """Return the largest k, at most `most` and 32, whose predicted bytes fit the budget: by default a quarter of the free memory."""
    budget = free_memory() // 4 if budget is None else budget
    return next((k for k in range(min(AUTO_LIMIT, most), 1, -1) if predict(k) <= budget), 1)


def growing(k: int) -> Iterator[int]:
    """Yield 1, 2, 4, ... and then k for ever: sizes of bulks, each sampled while one of half its size is consumed."""
    size = 1
    while size < k:
        yield size
        size *= 2
    yield from repeat(k)


def scoring_bulk(batch_size: int, fanouts: Sequence[int], relations: int = 1) -> int:
    """Return k of an evaluation, the same on every rank: as many mini-batches as 256 MB hold if no neighbor came twice, at most 32.

    1 where all neighbors are taken, because nothing bounds their number. A row draws from at most so many relations.
    """
    if min(fanouts) < 0:
        return 1
    frontier, edges = batch_size, 0
    for fanout in fanouts:
        edges += frontier * relations * fanout
        frontier *= 1 + relations * fanout
    return max(1, min(AUTO_LIMIT, _SCORED_BYTES // (_EDGE_BYTES * max(1, edges))))
