"""The cache of the rows that ranks fetch most often: the same rows on every rank, or a choice of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..comm.base import Comm


class HotRows(NamedTuple):
    """Cached rows: their ids (ascending, int64, shape (h,)) and the encoded rows, shape (h, f)."""

    ids: np.ndarray
    rows: np.ndarray

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return the position of each id in the cache, -1 for an id that is not cached: int64, shape of `ids`."""
        if not len(self.ids):
            return np.full(ids.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, at, -1)


def no_rows(width: int, dtype: np.dtype) -> HotRows:
    """Return an empty cache."""
    return HotRows(np.empty(0, np.int64), np.empty((0, width), dtype))


def hottest(comm: Comm, first: int, access_count: np.ndarray, room: int) -> np.ndarray:
    """Return the ids of the `room` most often fetched rows of all ranks, ascending: int64, shape (min(room, n),); collective.

    Each rank sends the ids and access counts of its own most fetched rows to all others, 16 bytes each (kind "control"). `first`
    is the id of its first row. Of rows with equal counts the lower id wins.
    """
    order = np.argsort(-access_count, kind="stable")[:room]
    counts = comm.allgather(np.array([len(order)]), "control")[:, 0]
    ids = comm.allgather_rows(order + first, counts, "control")
    all_counts = comm.allgather_rows(access_count[order], counts, "control")
    return np.sort(ids[np.lexsort((ids, -all_counts))[:room]])


def own_choice(wanted: np.ndarray, first: int, end: int, room: int) -> np.ndarray:
    """Return the first `room` of the rows that a rank wants and does not hold: int64. It holds rows `first` to ``end - 1``."""
    return wanted[(wanted < first) | (wanted >= end)][:room].astype(np.int64)


def by_score(score: np.ndarray) -> np.ndarray:
    """Return the rows with positive scores, the highest first; of equal ones the lower id first: int64."""
    order = np.argsort(-score, kind="stable")
    return order[: np.count_nonzero(score > 0)]
