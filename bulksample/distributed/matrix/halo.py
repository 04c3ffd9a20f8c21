"""The halo of a block row: the rows of other ranks from which its own rows aggregate, and the exchange of halo rows.

    forward    rank q sends h[u] to every rank r with an edge v <- u, v in block r, u in block q
    backward   rank r sends the gradient of each halo row back; rank q adds them up in rank order

Ranks exchange the lists of requested rows once. If q sends n_qr rows to r, a forward exchange of width f sends f * itemsize * n_qr
bytes from q to r and a backward exchange as many from r to q (kind "activations"). In each, every rank also sends 8 (p - 1) bytes of
kind "control".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import PeerLost
from ...sparse import CSR
from ..comm.base import Comm
from .layout import Layout


class MessageFormat:
    """An encoding of rows that travel between two ranks; this one leaves them as they are."""

    def pack(self, rows: np.ndarray, peer: int, key: str) -> np.ndarray:
        """Encode rows of shape (m, f) for rank `peer`; `key` names the layer and the direction."""
        return rows

    def unpack(self, message: np.ndarray, count: int, width: int, peer: int, key: str) -> np.ndarray:
        """Decode a message from rank `peer` to rows of shape (count, width)."""
        return message


class Halo:
    """The halo of one rank's block row: rank i holds block row i, `matrix` of shape (m, n). Making it is collective.

    It sends 4 bytes for each halo row (kind "topology"). `vertices` (int32, shape (h,)) are those of the halo rows, sorted by owner.
    `sources` (int32) is the row that each entry aggregates from: own rows are 0 .. m - 1, halo rows m .. m + h - 1. `requested` lists for
    each rank the own rows that are in its halo, int32, and `counts` (int64, shape (p,)) how many halo rows it owns.
    """

    def __init__(self, comm: Comm, layout: Layout, matrix: CSR) -> None:
        self.comm, self.rows = comm, matrix.shape[0]
        first, last = int(layout.bounds[comm.rank]), int(layout.bounds[comm.rank + 1])
        places = layout.places(matrix.indices)
        away = (places < first) | (places >= last)
        halo = np.unique(places[away]).astype(np.int32)
        cuts = np.searchsorted(halo, layout.bounds)
        self.vertices, self.counts = layout.vertices(halo), np.diff(cuts)
        self.sources = np.where(away, self.rows + np.searchsorted(halo, places), places - first).astype(np.int32)
        self.requested = [part - np.int32(first) for part in comm.alltoall(np.split(halo, cuts[1:-1]), "topology")]
        for peer, part in enumerate(self.requested):
            if len(part) and not 0 <= part.min() <= part.max() < self.rows:
                raise PeerLost(f"rank {comm.rank} was asked by rank {peer} for rows that it does not hold")

    def start(self, x: np.ndarray, messages: MessageFormat, key: str) -> HaloExchange:
        """Begin to exchange own rows, x of shape (m, f), for halo rows; collective. `wait` of the result returns them, shape (h, f)."""
        return HaloExchange(self, [x[rows] for rows in self.requested], self.counts, messages, key)

    def start_back(self, halo: np.ndarray, messages: MessageFormat, key: str) -> HaloExchange:
        """Begin to send gradients of halo rows, shape (h, f), to their owners; collective. `wait_sum` returns the sums, (m, f)."""
        parts = np.split(halo, np.cumsum(self.counts)[:-1])
        return HaloExchange(self, parts, np.array([len(rows) for rows in self.requested]), messages, key)


class HaloExchange:
    """An exchange of halo rows under way."""

    def __init__(self, halo: Halo, parts: Sequence[np.ndarray], counts: np.ndarray, messages: MessageFormat, key: str) -> None:
        self._halo, self._counts, self._messages, self._key = halo, counts, messages, key
        self._width = parts[0].shape[1]
        self._dtype = parts[0].dtype
        packed = [messages.pack(np.ascontiguousarray(rows), peer, key) for peer, rows in enumerate(parts)]
        self._pending = halo.comm.start_alltoall(packed, "activations")

    def parts(self) -> list[np.ndarray]:
        """Return the rows received from each rank, in rank order."""
        received = enumerate(zip(self._pending.wait(), self._counts, strict=True))
        return [self._messages.unpack(message, int(count), self._width, peer, self._key) for peer, (message, count) in received]

    def wait(self) -> np.ndarray:
        """Return the received rows, concatenated in rank order."""
        return np.concatenate(self.parts())

    def wait_sum(self) -> np.ndarray:
        """Return for each own row the sum of the received rows, added in rank order: shape (m, f)."""
        total = np.zeros((self._halo.rows, self._width), self._dtype)
        for requested, rows in zip(self._halo.requested, self.parts(), strict=True):
            total[requested] += rows  # no rank requests a row twice
        return total
