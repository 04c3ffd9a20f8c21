"""Whose vertices are whose, where trainers come and go: as they were dealt, and as they are held now.

    lend         the vertices of a part that nobody has, dealt to the trainers that are there by the law of the method
    give back    those that a part was dealt first, to whoever takes it, from whoever has them

Every vertex is in one part at any time, and an empty part is one that was lent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Cut = Callable[[np.ndarray, int], np.ndarray]  # some vertices, ascending, and how many pieces: the piece of each


class Dealing:
    """The parts of a run.

    Parameters
    ----------
    home : int32, shape (n,)
        The part of each vertex, as it was dealt.
    cut : callable
        Deals the vertices of a part.
    """

    def __init__(self, home: np.ndarray, cut: Cut) -> None:
        self._home, self._now, self._cut = home, home.copy(), cut

    def members(self, part: int) -> np.ndarray:
        """The vertices of a part, ascending: int32."""
        return np.flatnonzero(self._now == part).astype(np.int32)

    def lend(self, part: int, others: list[int]) -> list[int]:
        """Deal the vertices of a part to others; which of these got some."""
        vertices = self.members(part)
        if not len(vertices) or not others:
            return []
        self._now[vertices] = np.array(others, np.int32)[self._cut(vertices, len(others))]
        return np.unique(self._now[vertices]).tolist()

    def give_back(self, part: int) -> list[int]:
        """A part that was lent has its own vertices again; which parts they were taken from."""
        own = self._home == part
        lent = np.unique(self._now[own & (self._now != part)]).tolist()
        self._now[own] = part
        return lent
