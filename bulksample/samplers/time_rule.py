"""Rules of time: which vertices and edges a mini-batch may draw, given the times of its seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import UsageError, check_switches

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class TimeRule:
    """Which neighbors a tree may draw: those whose time lies in the tree's window [start, end].

    The window ends at the time of the seed. It begins at the start that was given with the seed, or `window` before its end, or never.
    Relations without times are unconstrained.

    Parameters
    ----------
    by : {"auto", "vertices", "edges"}
        The times that count: those of the source vertices, or those of the edges. ``auto`` takes the kind that the graph has.
    strategy : {"uniform", "last"}
        ``last`` takes the s newest; of equal times, those that come last in (source, entry). It uses no random number. Relations without
        times draw uniformly.
    strict : bool
        Leave out neighbors of exactly the end of the window.
    window : int, optional
        The length of the window, in units of time.
    moving : bool
        The end of the window moves to the time of the neighbor just taken, so that time falls along every walk. By default it stays at
        the time of the seed in every hop. A vertex that a tree meets at two times is then two vertices of the mini-batch.

    Raises
    ------
    UsageError
        If a value is unknown or out of range.
    """

    by: Literal["auto", "vertices", "edges"] = "auto"
    strategy: Literal["uniform", "last"] = "uniform"
    strict: bool = False
    window: int | None = None
    moving: bool = False

    def __post_init__(self) -> None:
        check_switches(strict=self.strict, moving=self.moving)
        for name, value, known in (("by", self.by, ("auto", "vertices", "edges")), ("strategy", self.strategy, ("uniform", "last"))):
            if value not in known:
                raise UsageError(f"{name} was {value!r}; use {', '.join(known)}")
        if isinstance(self.window, np.integer):
            object.__setattr__(self, "window", int(self.window))
        if self.window is not None and (isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 0):
            raise UsageError(f"window must be a whole number of units of time, 0 or more; got {self.window!r}")


def before(ends: np.ndarray, window: int) -> np.ndarray:
    """Return the times `window` before the ends, the least int64 where that does not fit: int64."""
    if window > _MOST:
        return np.full(len(ends), _LEAST)
    fits = ends >= _LEAST + window
    return np.where(fits, ends - np.where(fits, window, 0), _LEAST)
