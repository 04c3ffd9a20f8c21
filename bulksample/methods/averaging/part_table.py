"""The part of every vertex in a run whose trainers come and go: the original part, and the present one.

    lend         divide the vertices of a part without a trainer among the present trainers, with the method's partitioner
    give back    return the original vertices of a part to it, from every part that has some of them

Every vertex is in one part at any time. A part without vertices was lent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SplitPart = Callable[[int, np.ndarray, int], np.ndarray]  # from a part, its vertices and a number of pieces: the piece of each vertex


class PartTable:
    """The parts of a run.

    Parameters
    ----------
    original : int32, shape (n,)
        The part of each vertex when the run began.
    split_part : callable
        Divides the vertices of a part into pieces.
    """

    def __init__(self, original: np.ndarray, split_part: SplitPart) -> None:
        self._original, self._present, self._split_part = original, original.copy(), split_part

    @property
    def n(self) -> int:
        """The number of vertices."""
        return len(self._original)

    def members(self, part: int) -> np.ndarray:
        """Return the vertices of a part, ascending: int32."""
        return np.flatnonzero(self._present == part).astype(np.int32)

    def lend(self, part: int, others: list[int]) -> list[int]:
        """Divide the vertices of a part among others; return the parts that received some."""
        vertices = self.members(part)
        if not len(vertices) or not others:
            return []
        self._present[vertices] = np.array(others, np.int32)[self._split_part(part, vertices, len(others))]
        changed: list[int] = np.unique(self._present[vertices]).tolist()
        return changed

    def give_back(self, part: int) -> list[int]:
        """Return its original vertices to a part that was lent; return the parts that lost some."""
        own = self._original == part
        changed: list[int] = np.unique(self._present[own & (self._present != part)]).tolist()
        self._present[own] = part
        return changed
