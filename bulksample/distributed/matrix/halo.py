"""The halo of a block row: the rows of other ranks that its own aggregate from, and both ways they travel.

    forward    rank q sends h[u] to every rank r with an edge v <- u, v in block r, u in block q
    backward   rank r sends the gradient of each halo row back; rank q adds them up in rank order

Who sends what is agreed once. With n_qr rows that q sends to r, a forward exchange of width f sends f * itemsize * n_qr bytes
from q to r and a backward one as many from r to q (kind "activations"), and 8 (p - 1) bytes of kind "control" from each rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...errors import PeerLost
from ...sparse import CSR
from ..comm.base import Comm, PendingAlltoall
from .layout import Layout


class MessageFormat(Protocol):
    """How rows look on their way between two ranks. The plain form is the rows themselves."""

    def pack(self, rows: np.ndarray, peer: int, key: str) -> np.ndarray:
        """What is sent of the rows, shape (m, f), to a rank; `key` names the layer and the direction."""

    def unpack(self, message: np.ndarray, count: int, width: int, peer: int, key: str) -> np.ndarray:
        """The rows, shape (count, width), of what came from a rank."""


class PlainFormat:
    """Rows as they are."""

    def pack(self, rows: np.ndarray, peer: int, key: str) -> np.ndarray:
        return rows

    def unpack(self, message: np.ndarray, count: int, width: int, peer: int, key: str) -> np.ndarray:
        return message


class Halo:
    """The halo of one rank's block row.

    Parameters
    ----------
    comm : Comm
        Block row i lies on rank i.
    layout : Layout
    matrix : CSR, shape (m, n)
        The block row; its columns are vertices.

    Attributes
    ----------
    vertices : int32, shape (h,)
        The halo rows, owner by owner.
    sources : int32, shape (entries,)
        For each entry of the matrix, the row it aggregates from: own rows are 0 .. m - 1, halo rows m .. m + h - 1.
    requested : list of int32 arrays
        Own rows that each rank has in its halo.
    counts : int64, shape (p,)
        Halo rows that each rank owns.

    Notes
    -----
    Collective: 4 bytes per halo row (kind "topology").
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

    def start(self, own: np.ndarray, messages: MessageFormat, key: str) -> HaloExchange:
        """Begin to send own rows, shape (m, f), to where they are in the halo; collective. `wait` brings the halo rows, (h, f)."""
        parts = [own[asked] for asked in self.requested]
        return HaloExchange(self, parts, self.counts, messages, key)

    def start_back(self, halo: np.ndarray, messages: MessageFormat, key: str) -> HaloExchange:
        """Begin to send what belongs to halo rows, shape (h, f), to their owners; collective. `wait_sum` brings the sums."""
        parts = np.split(halo, np.cumsum(self.counts)[:-1])
        return HaloExchange(self, parts, np.array([len(asked) for asked in self.requested]), messages, key)


class HaloExchange:
    """Rows on their way from every rank to every other."""

    def __init__(self, halo: Halo, parts: Sequence[np.ndarray], counts: np.ndarray, messages: MessageFormat, key: str) -> None:
        self._halo, self._counts, self._messages, self._key = halo, counts, messages, key
        self._width = parts[0].shape[1]
        self._dtype = parts[0].dtype
        packed = [messages.pack(np.ascontiguousarray(rows), peer, key) for peer, rows in enumerate(parts)]
        self._arrival: PendingAlltoall = halo.comm.start_alltoall(packed, "activations")

    def parts(self) -> list[np.ndarray]:
        """The rows that came from each rank, in rank order."""
        arrived = enumerate(zip(self._arrival.wait(), self._counts, strict=True))
        return [self._messages.unpack(message, int(count), self._width, peer, self._key) for peer, (message, count) in arrived]

    def wait(self) -> np.ndarray:
        """The rows that came, owner by owner."""
        return np.concatenate(self.parts())

    def wait_sum(self) -> np.ndarray:
        """For each own row, the sum of what came for it, in rank order: shape (m, f)."""
        total = np.zeros((self._halo.rows, self._width), self._dtype)
        for asked, rows in zip(self._halo.requested, self.parts(), strict=True):
            total[asked] += rows  # no rank asks for a row twice
        return total
