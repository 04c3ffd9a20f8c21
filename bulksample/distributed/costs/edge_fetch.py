"""Predict what the fetches of an `EdgeExchange` send in one process column; edges are named by the places of their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..comm.primitives import SentCount
from .feature_fetch import Tallies


def predict_edge_fetches(asked: Sequence[Sequence[np.ndarray]], bounds: np.ndarray, row_bytes: int, numbers: bool) -> Tallies:
    """Predict what each rank of a process column sends in several fetches whose requests travel at once.

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
    need = np.zeros((fetches, p, p), np.int64)  # need[w, r, q]: distinct edges that rank r requests from rank q in fetch w
    for r, lists in enumerate(asked):
        for w, edges in enumerate(lists):
            need[w, r] = np.diff(np.searchsorted(np.unique(edges, axis=0)[:, 0], bounds))
            need[w, r, r] = 0
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
