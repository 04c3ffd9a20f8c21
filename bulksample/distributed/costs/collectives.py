"""What every rank of a process grid sends in one collective, worked out from the sizes of the parts: nothing moves here.

The counterpart of `Comm`'s tally and of `packets`, for `costs`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..comm.primitives import SentCount

SENT_KINDS = ("topology", "control")
GridSent = np.ndarray  # int64, shape (2, 2, p / c, c): by SENT_KINDS; messages and bytes; of rank (i, j)

ID, VALUE, HEAD = 4, 8, 16  # bytes of an id or a count; of a value or a share; of a minibatch, its id and size


def nothing_sent(rows: int, replication: int) -> GridSent:
    """What is sent where nothing is: zeros."""
    return np.zeros((2, 2, rows, replication), np.int64)


def tallies(sent: GridSent) -> list[dict[str, SentCount]]:
    """For each rank, kind to (messages, bytes): what its `Comm.tally` grows by."""
    ranks = sent.reshape(2, 2, -1).transpose(2, 0, 1).tolist()
    return [{kind: SentCount(*traffic) for kind, traffic in zip(SENT_KINDS, rank, strict=True)} for rank in ranks]


class CollectiveCosts:
    """The communicators of one direction of a p/c x c grid, g ranks in each.

    Sizes have shape (p / c, c, g): what rank (i, j) has for each member of its process column (g = p / c), or of its
    process row (g = c). What it has for itself is not sent.

    Parameters
    ----------
    along : {"column", "row"}
    rows, replication : p / c and c
    """

    def __init__(self, along: Literal["column", "row"], rows: int, replication: int) -> None:
        self.size = rows if along == "column" else replication
        self._own = np.eye(rows, dtype=bool)[:, None] if along == "column" else np.eye(replication, dtype=bool)[None]
        self._turned = (2, 1, 0) if along == "column" else (0, 2, 1)

    def to_each(self, sizes: np.ndarray) -> np.ndarray:
        """The same size, one of shape (p / c, c), for each member."""
        return np.repeat(sizes[:, :, None], self.size, axis=2)

    def alltoall(self, sizes: np.ndarray) -> GridSent:
        """`Comm.alltoall` of so many bytes."""
        away = np.where(self._own, 0, sizes)
        others = np.full(away.shape[:2], self.size - 1)
        return np.array([[np.count_nonzero(away, axis=2), away.sum(axis=2)], [others, 8 * others]])

    def allgather(self, sizes: np.ndarray) -> GridSent:
        """`Comm.allgather`, to which rank (i, j) brings so many bytes: shape (p / c, c)."""
        others = np.full(sizes.shape, self.size - 1)
        return np.array([[others, others * sizes], 2 * [np.zeros_like(others)]])

    def selections(self, minibatches: np.ndarray, rows: np.ndarray, named: bool) -> GridSent:
        """`exchange_selections` of so many minibatches and rows."""
        return self.alltoall(HEAD * minibatches) + self.alltoall((2 * ID if named else ID) * rows)

    def answers(self, rows: np.ndarray, entries: np.ndarray, values: bool) -> GridSent:
        """`exchange_ragged_rows`, back to who asked for so many rows: with so many entries, of an id each and perhaps a value."""
        rows, entries = rows.transpose(self._turned), entries.transpose(self._turned)
        sent = self.alltoall(ID * rows) + self.alltoall(ID * entries)
        return sent + self.alltoall(VALUE * entries) if values else sent
