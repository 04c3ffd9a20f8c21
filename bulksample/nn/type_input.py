"""The input rows of one vertex type: a linear map of its features, or learned rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .aggregate import multiply
from .layers import Input

_CHUNK = 2**18  # numbers that are drawn at once, so that a rank draws a table without holding it


class TypeInput(nn.Module):
    """The input rows of one type, all of one width.

    Parameters
    ----------
    width : int
        f, the features of the type; 0 if it has none.
    rows : int
        Learned rows of a type without features: one for each vertex, or 1.
    hidden : int
    generator : torch.Generator
    members : int32, shape (m,), optional
        The vertices whose learned rows this rank holds, ascending; all by default. Their initial values are those of the whole table.

    Attributes
    ----------
    weight : Parameter
        The linear map, shape (f, hidden), or learned rows, shape (rows or m, hidden).
    """

    def __init__(self, width: int, rows: int, hidden: int, generator: torch.Generator, members: np.ndarray | None = None) -> None:
        super().__init__()
        self.width, self.rows, self.members = width, rows, members
        if width:
            self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(width, hidden), generator=generator))
        else:
            self.weight = nn.Parameter(_normal_rows(rows, hidden, generator, members))  # rows of norm 1 or so
        self.bias = nn.Parameter(torch.zeros(hidden)) if width else None

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> TypeInput:
        """Leave a block of learned rows on the host, where ranks exchange them, when the model moves to a device."""
        return self if self.members is not None else super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def forward(self, x: Input) -> torch.Tensor:
        """Return the rows of vertices.

        Parameters
        ----------
        x : shape (N, f)
            Their features. Of a type without features their ids, int64 of shape (N,), or their learned rows, if this rank holds a part.
        """
        if self.bias is not None:
            return multiply(x, self.weight) + self.bias
        assert isinstance(x, torch.Tensor)
        if self.members is not None:
            return x
        return F.embedding(x if self.rows > 1 else torch.zeros_like(x), self.weight)


def _normal_rows(rows: int, width: int, generator: torch.Generator, members: np.ndarray | None) -> torch.Tensor:
    """Draw a table of normal numbers with deviation ``width ** -0.5``, chunk by chunk, and keep all of its rows or those of the members."""
    kept = np.arange(rows) if members is None else members.astype(np.int64)
    table, step = torch.empty(len(kept), width), max(1, _CHUNK // width)
    for first in range(0, rows, step):
        chunk = torch.empty(min(step, rows - first), width).normal_(std=width**-0.5, generator=generator)
        low, high = np.searchsorted(kept, [first, first + step])
        table[low:high] = chunk[torch.from_numpy(kept[low:high] - first)]
    return table
