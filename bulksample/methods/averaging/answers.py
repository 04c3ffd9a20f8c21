"""Refuse answers of trainers that must not enter an average: those that are not finite, or whose update is too large.

    refused     |w - w_pushed| > R max(1, |w_pushed|)      Euclidean norms of the parameters; R: --max-update
    refused     a weight, a statistic of batch norm, a loss or a count that is not finite; a loss or count above 1e30

The rule stops trainers that are broken, not trainers that lie: who knows the token may send any update within it. Adam changes no
parameter by more than about 3 lr in a step, so honest updates stay far below R = 1000; see bench/results/serving.
"""

from __future__ import annotations

import numpy as np

from .frames import Frame
from .participant import SCALARS

_LARGEST = 1e30  # of a loss or a count; sums of them stay finite in float32


def fault_of(answer: Frame, pushed: Frame, parameters: int, max_update: float) -> str:
    """Return the reason to refuse an answer, or an empty string.

    Parameters
    ----------
    answer, pushed : Frame
        The weights of a trainer, and those that it continued from: vectors as `participant` describes them.
    parameters : int
        The number of parameters, which are the first numbers of a vector.
    max_update : float
        R, the largest norm of an update, in norms of the pushed parameters.
    """
    found, start = np.frombuffer(answer.payload, "<f4"), np.frombuffer(pushed.payload, "<f4")
    if not np.isfinite(found).all():
        return "sent weights that are not finite; use a lower lr"
    if (np.abs(found[-SCALARS:]) > _LARGEST).any():
        return f"sent a loss or a count above {_LARGEST:g}; use a lower lr"
    update, norm = update_norms(found[:parameters], start[:parameters])
    if update > max_update * norm:
        return (
            f"sent an update of norm {update:.3g}; at most {max_update:g} x {norm:.3g} is accepted: use a lower lr, or a higher max_update"
        )
    return ""


def update_norms(found: np.ndarray, start: np.ndarray) -> tuple[float, float]:
    """Return the norm of an update, and that of the parameters before it or 1 if that is larger."""
    before = start.astype(np.float64)
    update, norm = (float(np.sqrt(np.square(one).sum())) for one in (found - before, before))  # without BLAS, whose threads would spin
    return update, max(1.0, norm)
