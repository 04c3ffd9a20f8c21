"""Predict what training steps send for a learned matrix in block rows, by the tables in `matrix.learned_rows`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..comm.primitives import SentCount
from ..matrix.codec import codec_named
from .feature_fetch import Tallies, predict_fetches


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
    ids = [[np.unique(one) for one in own] for own in asked]
    out = []
    for r, sent in enumerate(predict_fetches(c, asked, bounds, width)):
        i, j = divmod(r, c)
        away = np.array([np.diff(np.searchsorted(one, bounds)) for one in ids[r]])
        away[:, i] = 0
        tally = {**sent, "gradients": SentCount(int(np.count_nonzero(away)), row_bytes * int(away.sum()))}
        if c > 1:
            columns = [np.unique(np.concatenate(one)) for one in zip(*ids[j::c], strict=True)]
            touched = [int(np.count_nonzero((column >= bounds[i]) & (column < bounds[i + 1]))) for column in columns]
            for kind, each in (("topology", 4 * sum(touched)), ("gradients", row_bytes * sum(touched)), ("control", 8 * len(touched))):
                before = tally[kind]
                tally[kind] = SentCount(before.messages + (c - 1) * len(touched), before.bytes + (c - 1) * each)
        out.append(tally)
    return out
