"""Predict what ranks send to fetch rows: features or hidden rows, features of edges, and learned rows, whose gradients return.

The tables are in `matrix.feature_exchange`, `matrix.edge_exchange` and `matrix.learned_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bulksample.distributed.comm.primitives import SentCount
from bulksample.distributed.comm.threads import SerialComm
from bulksample.distributed.matrix.codec import codec_named
from bulksample.distributed.matrix.feature_exchange import bounds_of_ranks, hottest
from bulksample.distributed.matrix.grid import Order

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
    return [np.sort(one[(one < bounds[i]) | (one >= bounds[i + 1])][:room]) for i, one in zip(rows, wanted, strict=True)]


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
    caches = [cached] * p if cached is None or isinstance(cached, np.ndarray) else cached
    missing = [[np.setdiff1d(ids, [] if held is None else held) for ids in lists] for lists, held in zip(asked, caches, strict=True)]
    need = _needed(missing, bounds_of_ranks(bounds, p))
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


def predict_edge_fetches(asked: Sequence[Sequence[np.ndarray]], bounds: np.ndarray, row_bytes: int, numbers: bool) -> Tallies:
    """Predict what each rank of a process column sends in several fetches of an `EdgeExchange` whose requests travel at once.

    Parameters
    ----------
    asked : p lists of W integer arrays, shape (m, 2)
        The place of the row and the column of the edges that each rank asks for in each fetch; they may repeat.
    bounds : int64, shape (p + 1,)
        Rank i holds the rows ``bounds[i]:bounds[i + 1]``.
    row_bytes : int
        Bytes of the features of an edge; 0 if none are fetched.
    numbers : bool
        The numbers of edges are fetched, too.

    Returns
    -------
    For each rank, kind to (messages, bytes): "topology", "features" and "control".
    """
    p, fetches = len(asked), len(asked[0])
    need = _needed([[np.unique(edges, axis=0)[:, 0] for edges in lists] for lists in asked], bounds)
    out = []
    for r in range(p):
        asks, answers, sent = int(np.count_nonzero(need[:, r].any(axis=0))), int(np.count_nonzero(need[:, :, r])), int(need[:, :, r].sum())
        requests = 4 * (fetches - 1) * asks + 8 * int(need[:, r].sum())
        out.append({
            "topology": SentCount(asks + numbers * answers, requests + 8 * numbers * sent),
            "features": SentCount(answers * (row_bytes > 0), row_bytes * sent),
            "control": SentCount(p - 1, 8 * (p - 1)),
        })  # fmt: skip
    return out


def predict_learned_steps(
    replication: int, asked: Sequence[Sequence[np.ndarray]], bounds: np.ndarray, width: int, codec: str = "fp32"
) -> Tallies:
    """Predict what every rank sends in the steps of a bulk, in each of which it looks up places once and their gradients return.

    The ids of all steps travel at once.

    Parameters
    ----------
    replication : c
    asked : p lists of W arrays of places
        Of each rank in each step; rank i c + j stands at (i, j) of the process grid.
    bounds : int64, shape (p / c + 1,)
    width : h
    codec : {"fp32", "fp16", "bf16"}
        Of the gradients.

    Returns
    -------
    For each rank, kind to (messages, bytes): "topology", "features", "gradients" and "control".
    """
    row_bytes, c = codec_named(codec).row_bytes(width), replication
    ids = [[np.unique(one) for one in lists] for lists in asked]
    needs = [_needed(ids[j::c], bounds) for j in range(c)]
    out = []
    for r, sent in enumerate(predict_fetches(c, asked, bounds, width)):
        i, j = divmod(r, c)
        away = needs[j][:, i]
        tally = {**sent, "gradients": SentCount(int(np.count_nonzero(away)), row_bytes * int(away.sum()))}
        if c > 1:
            columns = [np.unique(np.concatenate(one)) for one in zip(*ids[j::c], strict=True)]
            touched = [int(np.count_nonzero((column >= bounds[i]) & (column < bounds[i + 1]))) for column in columns]
            for kind, each in (("topology", 4 * sum(touched)), ("gradients", row_bytes * sum(touched)), ("control", 8 * len(touched))):
                before = tally[kind]
                tally[kind] = SentCount(before.messages + (c - 1) * len(touched), before.bytes + (c - 1) * each)
        out.append(tally)
    return out


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


def _needed(asked: Sequence[Sequence[np.ndarray]], bounds: np.ndarray) -> np.ndarray:
    """Count in ``[w, r, q]`` the rows that rank r requests from another rank q in fetch w; ``asked[r][w]`` are ascending places."""
    need = np.zeros((len(asked[0]), len(asked), len(asked)), np.int64)
    for r, lists in enumerate(asked):
        for w, places in enumerate(lists):
            need[w, r] = np.diff(np.searchsorted(places, bounds))
            need[w, r, r] = 0
    return need
