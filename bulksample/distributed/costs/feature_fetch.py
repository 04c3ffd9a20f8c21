"""Predict what the fetches of a `RowExchange` send on a process grid. The table of a fetch is in `matrix.feature_exchange`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..comm.primitives import SentCount
from ..comm.threads import SerialComm
from ..matrix.codec import codec_named
from ..matrix.feature_exchange import bounds_of_ranks
from ..matrix.grid import Order
from ..matrix.hot_rows import hottest, own_choice

Cached = np.ndarray | Sequence[np.ndarray] | None  # the ids in every rank's cache, or in that of each rank
Tallies = list[dict[str, SentCount]]  # for each of p ranks, kind to (messages, bytes)


def predict_cache(n: int, width: int, codec: str, cache_bytes: int, access_count: np.ndarray) -> np.ndarray:
    """Return the places that every cache will hold, ascending; `access_count` is that of all places, shape (n,)."""
    room = min(n, cache_bytes // max(1, codec_named(codec).row_bytes(width)))
    return hottest(SerialComm(), 0, np.asarray(access_count, np.float64), room)


def predict_own_caches(
    replication: int, wanted: Sequence[np.ndarray], bounds: np.ndarray, width: int, codec: str, cache_bytes: int
) -> list[np.ndarray]:
    """Return the places in the cache of each rank, ascending, by the places that it wants. `predict_fetch` of them predicts the filling."""
    room = cache_bytes // max(1, codec_named(codec).row_bytes(width))
    rows = [r // replication for r in range(len(wanted))]
    return [np.sort(own_choice(one, bounds[i], bounds[i + 1], room)) for i, one in zip(rows, wanted, strict=True)]


def predict_fetch(
    replication: int, asked: Sequence[np.ndarray], bounds: np.ndarray, width: int, codec: str = "fp32", cached: Cached = None
) -> Tallies:
    """Predict what every rank sends in a fetch of the places ``asked[r]`` by each rank r; process columns are independent."""
    return predict_fetches(replication, [[ids] for ids in asked], bounds, width, codec, cached)


def predict_fetches(
    replication: int, asked: Sequence[Sequence[np.ndarray]], bounds: np.ndarray, width: int, codec: str = "fp32", cached: Cached = None
) -> Tallies:
    """Predict what every rank sends in several fetches whose ids travel at once, of the places ``asked[r][w]`` in fetch w by rank r."""
    caches = [cached if cached is None or isinstance(cached, np.ndarray) else cached[j::replication] for j in range(replication)]
    columns = [predict_column_fetches(asked[j::replication], bounds, width, codec, one) for j, one in enumerate(caches)]
    return [sent for process_row in zip(*columns, strict=True) for sent in process_row]


def predict_column_fetches(
    asked: Sequence[Sequence[np.ndarray]], bounds: np.ndarray, width: int, codec: str = "fp32", cached: Cached = None
) -> list[dict[str, SentCount]]:
    """Predict what each rank of one process column sends in several fetches, by the table in `matrix.feature_exchange`.

    Parameters
    ----------
    asked : the ids that each rank requests in each of W fetches; p lists of W arrays
    bounds : int64, shape (p + 1,)
    width : f
    cached : the ids in every rank's cache, or a list of those in the cache of each, optional

    Returns
    -------
    For each rank, kind to (messages, bytes).
    """
    p, fetches = len(asked), len(asked[0])
    bounds = bounds_of_ranks(bounds, p)
    need = np.zeros((fetches, p, p), np.int64)  # need[w, r, q]: number of ids that rank r requests from rank q in fetch w
    for r, lists in enumerate(asked):
        for w, ids in enumerate(lists):
            missing = np.setdiff1d(ids, [] if cached is None else cached if isinstance(cached, np.ndarray) else cached[r])
            need[w, r] = np.diff(np.searchsorted(missing, bounds))
            need[w, r, r] = 0
    row_bytes = codec_named(codec).row_bytes(width)
    requests = np.count_nonzero(need.any(axis=0), axis=1)
    return [
        {
            "topology": SentCount(int(requests[r]), 4 * (int(requests[r]) * (fetches - 1) + int(need[:, r].sum()))),
            "features": SentCount(int(np.count_nonzero(need[:, :, r])) * (row_bytes > 0), row_bytes * int(need[:, :, r].sum())),
            "control": SentCount(p - 1, 8 * (p - 1)),
        }
        for r in range(p)
    ]


def share_between_machines(ranks: int, per_machine: int, replication: int, order: Order) -> float:
    """Predict the share of the rows requested in process columns that another machine holds, own rows included in the whole.

    Parameters
    ----------
    ranks : p
    per_machine : g, the ranks of each machine
    replication : c
    order : {"rows", "columns"}
        See `matrix.grid`. Where columns do not end with machines, this is the share of a column that starts with one.
    """
    rows = ranks // replication
    inside = max(per_machine // replication, 1) if order == "rows" else per_machine
    return max(0.0, 1 - inside / rows)
