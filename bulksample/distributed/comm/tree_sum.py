"""Sums in the order of a balanced binary tree, so that one rank can add the terms of several and leave every bit as it was.

    s = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) + ...        an odd last sum waits for the next level

The tree over p terms is the tree over p / 2**i sums of 2**i consecutive terms each, if p is a multiple of 2**i.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

Term = TypeVar("Term", bound=Any)


def tree_sum(terms: Iterable[Term]) -> Term:
    """Add arrays or tensors of one shape, at least one, in the order of a balanced binary tree; the terms stay as they are."""
    sums = list(terms)
    while len(sums) > 1:
        pairs = [sums[i] + sums[i + 1] for i in range(0, len(sums) - 1, 2)]
        sums = pairs + sums[2 * len(pairs) :]
    return sums[0]


class TreeSum:
    """The same sum of terms that come one after another: holds at most log2 of their number.

    A sum of 2**i terms waits until the next 2**i terms have been added.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, Any]] = []  # the number of terms, and their sum; numbers descend

    def add(self, term: Any) -> None:
        """Add the next term."""
        size = 1
        while self._sums and self._sums[-1][0] == size:
            term, size = self._sums.pop()[1] + term, 2 * size
        self._sums.append((size, term))

    def total(self) -> Any:
        """Return the sum of all terms so far, at least one."""
        _, last = self._sums[-1]
        for _, earlier in reversed(self._sums[:-1]):
            last = earlier + last
        return last
