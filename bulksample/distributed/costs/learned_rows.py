"""Predict what a training step sends for a learned matrix in block rows, by the tables in `matrix.learned_rows`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..comm.primitives import SentCount
from ..matrix.codec import codec_named
from .feature_fetch import Tallies, predict_fetch


def predict_learned_step(replication: int, asked: Sequence[np.ndarray], bounds: np.ndarray, width: int, codec: str = "fp32") -> Tallies:
    """Predict what every rank sends when rank r looks up the places ``asked[r]`` once and their gradients return.

    Parameters
    ----------
    replication : c
    asked : p arrays of places
        Rank i c + j stands at (i, j) of the process grid.
    bounds : int64, shape (p / c + 1,)
    width : h
    codec : {"fp32", "fp16", "bf16"}
        Of the gradients.

    Returns
    -------
    For each rank, kind to (messages, bytes): "topology", "features", "gradients" and "control".
    """
    row_bytes, c = codec_named(codec).row_bytes(width), replication
    ids = [np.unique(one) for one in asked]
    out = []
    for r, sent in enumerate(predict_fetch(c, asked, bounds, width)):
        i, j = divmod(r, c)
        away = np.diff(np.searchsorted(ids[r], bounds))
        away[i] = 0
        tally = {**sent, "gradients": SentCount(int(np.count_nonzero(away)), row_bytes * int(away.sum()))}
        if c > 1:
            column = np.unique(np.concatenate(ids[j::c]))
            touched = int(np.count_nonzero((column >= bounds[i]) & (column < bounds[i + 1])))
            for kind, each in (("topology", 4 * touched), ("gradients", row_bytes * touched), ("control", 8)):
                before = tally[kind]
                tally[kind] = SentCount(before.messages + c - 1, before.bytes + (c - 1) * each)
        out.append(tally)
    return out
