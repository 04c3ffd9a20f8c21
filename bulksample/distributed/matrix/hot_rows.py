"""The rows that everybody asks for, kept by everybody."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..comm.base import Comm


class HotRows(NamedTuple):
    """Rows that need not travel: ids (ascending, int64, shape (h,)) and the rows as they would, shape (h, f)."""

    ids: np.ndarray
    rows: np.ndarray

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Where each id is kept, -1 where it is not: int64, shape of `ids`."""
        if not len(self.ids):
            return np.full(ids.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, at, -1)


def no_rows(width: int, dtype: np.dtype) -> HotRows:
    """A cache of nothing."""
    return HotRows(np.empty(0, np.int64), np.empty((0, width), dtype))


def hottest(comm: Comm, first: int, access_count: np.ndarray, room: int) -> np.ndarray:
    """The ids of the `room` hottest rows of all ranks, ascending: int64, shape (min(room, n),).

    Rank r, whose rows begin at `first`, brings the ids and the heat of its own hottest ones, 16 bytes each (control).
    Of equally hot rows the lower id counts as hotter.
    """
    order = np.argsort(-access_count, kind="stable")[:room]
    counts = comm.allgather(np.array([len(order)]), "control")[:, 0]
    ids = comm.allgather_rows(order + first, counts, "control")
    all_heat = comm.allgather_rows(access_count[order], counts, "control")
    return np.sort(ids[np.lexsort((ids, -all_heat))[:room]])
