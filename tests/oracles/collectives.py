"""Predict what every rank of a process grid sends in one collective, from the sizes of its parts.

The predictions equal the tally of `Comm` for the collectives of `matrix.messages`, `matrix.requests` and `matrix.reply_slots`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bulksample.distributed.comm.primitives import SentCount
from bulksample.distributed.matrix.reply_slots import Counted, missing

SENT_KINDS = ("topology", "control")
GridSent = NDArray[np.int64]  # int64, shape (2, 2, p / c, c): by SENT_KINDS; messages and bytes; of rank (i, j)

ID, VALUE = 4, 8  # bytes of an id or a count; of a value or a share


def nothing_sent(rows: int, replication: int) -> GridSent:
    """Return a prediction of zero messages and bytes."""
    return np.zeros((2, 2, rows, replication), np.int64)


def on_grid(values: ArrayLike, replication: int) -> np.ndarray:
    """Arrange one value for each of p ranks on the grid: int64, shape (p / c, c, ...)."""
    listed = np.array(values, np.int64)
    return listed.reshape(len(listed) // replication, replication, *listed.shape[1:])


def tallies(sent: GridSent) -> list[dict[str, SentCount]]:
    """Convert a prediction to the growth of each rank's `Comm.tally`: kind to (messages, bytes)."""
    ranks = sent.reshape(2, 2, -1).transpose(2, 0, 1).tolist()
    return [{kind: SentCount(*traffic) for kind, traffic in zip(SENT_KINDS, rank, strict=True)} for rank in ranks]


class CollectiveCosts:
    """Predictions for the communicators of one direction of a p/c x c grid, with g ranks in each.

    Sizes have shape (p / c, c, g): rank (i, j) has a part for each member of its process column (g = p / c) or of its process row
    (g = c). Its part for itself is not sent.

    Parameters
    ----------
    along : {"column", "row"}
    rows, replication : p / c and c
    """

    def __init__(self, along: Literal["column", "row"], rows: int, replication: int) -> None:
        self.rows, self.replication = rows, replication
        self.size = rows if along == "column" else replication
        self._own = np.eye(rows, dtype=bool)[:, None] if along == "column" else np.eye(replication, dtype=bool)[None]
        self._turned = (2, 1, 0) if along == "column" else (0, 2, 1)

    def to_each(self, sizes: np.ndarray) -> np.ndarray:
        """Repeat sizes of shape (p / c, c) for each member."""
        return np.repeat(sizes[:, :, None], self.size, axis=2)

    def alltoall(self, sizes: np.ndarray, counts_known: bool = False) -> GridSent:
        """Predict `Comm.alltoall` of parts of the given bytes; no counts go ahead where both sides know them."""
        away = np.where(self._own, 0, sizes)
        others = np.full(away.shape[:2], 0 if counts_known else self.size - 1)
        return np.array([[np.count_nonzero(away, axis=2), away.sum(axis=2)], [others, 8 * others]])

    def allgather(self, sizes: np.ndarray) -> GridSent:
        """Predict `Comm.allgather` of arrays of the given bytes: shape (p / c, c)."""
        others = np.full(sizes.shape, self.size - 1)
        return np.array([[others, others * sizes], 2 * [np.zeros_like(others)]])

    def counts(self, wanted: Sequence[Counted], widths: dict[Hashable, int]) -> GridSent:
        """Predict `RowCounts.gather`, given the bytes of the counts of each table that exists; adds those of the new ones."""
        new = missing(wanted, widths)
        if not new:
            return nothing_sent(self.rows, self.replication)
        widths |= {one.name: one.width for one in new}
        return self.allgather(np.repeat(np.sum([one.sizes for one in new], axis=0)[:, None], self.replication, axis=1))

    def requests(self, minibatches: np.ndarray, rows: np.ndarray, named: bool, columns: np.ndarray | None = None) -> GridSent:
        """Predict `request_rows` of the given numbers of mini-batches, rows and columns; nothing goes where no row is."""
        table = 1 + 2 * minibatches if columns is None else 1 + 3 * minibatches + columns
        return self.alltoall(ID * np.where(rows > 0, table + (2 if named else 1) * rows, 0))

    def answers(self, rows: np.ndarray, entries: np.ndarray, values: bool) -> GridSent:
        """Predict `exchange_ragged_rows` back to the ranks that requested `rows`; each entry is an id, perhaps with a value."""
        rows, entries = rows.transpose(self._turned), entries.transpose(self._turned)
        return self.alltoall(ID * rows + (ID + VALUE if values else ID) * entries)

    def in_slots(self, entries: np.ndarray) -> GridSent:
        """Predict replies to the requesting ranks, in slots of so many ids in all."""
        return self.alltoall(ID * entries.transpose(self._turned), counts_known=True)
