"""Predict what a `RowExchange` on a process grid sends when it is made, with its cache, and in each fetch.

The g = p / c ranks of a process column exchange the rows of a matrix of f columns; rank i holds block row i. Opening compares five
numbers. A cache with room for m rows is filled from candidates: rank i names its m_i = min(m, own rows) rows of highest access
count, and sends the h_i of them that are among the m highest of all.

======== ======================================================= ===========================
kind     bytes that rank i sends in opening                      messages
======== ======================================================= ===========================
control  40 (g - 1), and with a cache (8 + 16 m_i) (g - 1) more  g - 1, 4 (g - 1) with a cache
features row_bytes(f) * h_i (g - 1)                              g - 1 with a cache, else 0
======== ======================================================= ===========================

The table of a fetch is in `matrix.feature_exchange`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..comm.primitives import SentCount
from ..comm.threads import SerialComm
from ..matrix.codec import codec_named
from ..matrix.feature_exchange import bounds_of_ranks
from ..matrix.hot_rows import hottest

Tallies = list[dict[str, SentCount]]  # for each of p ranks, kind to (messages, bytes)


def predict_cache(n: int, width: int, codec: str, cache_bytes: int, access_count: np.ndarray) -> np.ndarray:
    """Return the places that every cache will hold, ascending; `access_count` is that of all places, shape (n,)."""
    room = min(n, cache_bytes // max(1, codec_named(codec).row_bytes(width)))
    return hottest(SerialComm(), 0, np.asarray(access_count, np.float64), room)


def predict_opening(
    replication: int, bounds: np.ndarray, width: int, codec: str = "fp32", cache_bytes: int = 0, access_count: np.ndarray | None = None
) -> Tallies:
    """Predict what every rank sends when a `RowExchange` is made in each process column."""
    others, n = len(bounds) - 2, int(bounds[-1])
    if not cache_bytes or access_count is None:
        column = [{"control": SentCount(others, 40 * others), "features": SentCount(0, 0)} for _ in bounds[1:]]
    else:
        row_bytes = codec_named(codec).row_bytes(width)
        candidates = np.minimum(min(n, cache_bytes // max(1, row_bytes)), np.diff(bounds)).tolist()
        hot = np.diff(np.searchsorted(predict_cache(n, width, codec, cache_bytes, access_count), bounds)).tolist()
        column = [
            {"control": SentCount(4 * others, (48 + 16 * m) * others), "features": SentCount(others, row_bytes * h * others)}
            for m, h in zip(candidates, hot, strict=True)
        ]
    return [sent for sent in column for _ in range(replication)]


def predict_fetch(
    replication: int, asked: Sequence[np.ndarray], bounds: np.ndarray, width: int, codec: str = "fp32", cached: np.ndarray | None = None
) -> Tallies:
    """Predict what every rank sends in a fetch of the places ``asked[r]`` by each rank r; process columns are independent."""
    columns = [predict_column_fetch(asked[j::replication], bounds, width, codec, cached) for j in range(replication)]
    return [sent for process_row in zip(*columns, strict=True) for sent in process_row]


def predict_column_fetch(
    asked: Sequence[np.ndarray], bounds: np.ndarray, width: int, codec: str = "fp32", cached: np.ndarray | None = None
) -> list[dict[str, SentCount]]:
    """Predict what each rank of one process column sends in a fetch, by the table in `matrix.feature_exchange`.

    Parameters
    ----------
    asked : the ids that each rank requests; p arrays
    bounds : int64, shape (p + 1,)
    width : f
    cached : the ids in every rank's cache, optional

    Returns
    -------
    For each rank, kind to (messages, bytes).
    """
    p = len(asked)
    bounds = bounds_of_ranks(bounds, p)
    need = np.zeros((p, p), np.int64)  # need[r, q]: number of ids that rank r requests from rank q
    for r, ids in enumerate(asked):
        missing = np.setdiff1d(ids, [] if cached is None else cached)
        need[r] = np.diff(np.searchsorted(missing, bounds))
        need[r, r] = 0
    row_bytes = codec_named(codec).row_bytes(width)
    return [
        {
            "topology": SentCount(int(np.count_nonzero(need[r])), 4 * int(need[r].sum())),
            "features": SentCount(int(np.count_nonzero(need[:, r])) * (row_bytes > 0), row_bytes * int(need[:, r].sum())),
            "control": SentCount(2 * (p - 1), 16 * (p - 1)),
        }
        for r in range(p)
    ]
