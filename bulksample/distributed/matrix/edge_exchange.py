"""Fetch the features and the numbers of sampled edges from the ranks that hold them: the owner of a row of A holds its edges.

    E[entry(v, u)]      entry(v, u): the position of u in row v of A; edges are named by their ends, so a rank needs no row pointers

A rank requests every distinct edge of other ranks once: 8 bytes (kind "topology"). It receives d numbers of 4 or 2 bytes (kind "features")
and, if it asks for numbers, 8 bytes (kind "topology"). The requests of several fetches may travel at once: see `request_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ...errors import PeerLost
from ...sparse import CSR
from ..comm.base import Comm, Pending
from .layout import Layout
from .messages import RowRequests, request_ids

EdgeFetch = Pending[tuple[np.ndarray | None, np.ndarray | None]]


class EdgeExchange:
    """The edges of a matrix in block rows over the ranks of a communicator (a process column).

    `block` holds the rows of this rank's vertices, and `first_entries` (int64, shape (m,)) the position in the whole matrix of the first
    entry of each. `features` are float32 or float16, shape (entries of the block, d).
    """

    def __init__(self, comm: Comm, layout: Layout, block: CSR, first_entries: np.ndarray, features: np.ndarray | None) -> None:
        self.comm, self._layout, self._block, self._features = comm, layout, block, features
        self._shift = first_entries - block.indptr[:-1]
        self._first = int(layout.bounds[comm.rank])

    def ask(self, fetches: Sequence[tuple[np.ndarray, np.ndarray]], numbers: bool) -> list[Callable[[], EdgeFetch]]:
        """Exchange the requests of several fetches at once; return a function for each that begins it. See `RowExchange.ask`.

        A fetch is the ends of its edges, (destinations, sources) of shape (m,) each; every pair is an edge. With `numbers`, the same on
        every rank, it brings the positions of the edges in the whole matrix. ``wait`` of the begun fetch returns numbers (int64, shape
        (m,)) and features (shape (m, d)) in the requested order; None for what was not fetched.
        """
        n = self._layout.n
        named = [np.unique(self._layout.places(v).astype(np.int64) * n + u, return_inverse=True) for v, u in fetches]
        wanted = [np.stack([keys // n, keys % n], axis=1).astype(np.int32) for keys, _ in named]
        requests = request_ids(self.comm, self._layout.bounds, wanted)
        return [partial(self._begin, position, request, numbers) for (_, position), request in zip(named, requests, strict=True)]

    def _begin(self, position: np.ndarray, requests: RowRequests, numbers: bool) -> EdgeFetch:
        """Send the numbers and the features of the requested edges."""
        (rows, entries), pending = self._entries(requests.requested), []
        counts, incoming = requests.requested_counts, requests.expected
        if numbers:
            pending.append(self.comm.start_alltoall_rows(entries + self._shift[rows], counts, "topology", incoming=incoming))
        if self._features is not None:
            pending.append(self.comm.start_alltoall_rows(self._features[entries], counts, "features", incoming=incoming))

        def in_order() -> tuple[np.ndarray | None, np.ndarray | None]:
            received = [one.wait()[position] for one in pending]
            return received.pop(0) if numbers else None, received[0] if received else None

        return Pending(in_order)

    def _entries(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the own rows of requested edges, and their positions in the block; raise `PeerLost` if this rank does not hold an edge."""
        rows = ends[:, 0] - np.int32(self._first)
        is_own = not len(rows) or 0 <= rows.min() <= rows.max() < self._block.shape[0]
        entries = self._block.find(rows, ends[:, 1]) if is_own else np.array([-1])
        if entries.min(initial=0) < 0:
            raise PeerLost(f"rank {self.comm.rank} was asked for an edge that it does not hold")
        return rows, entries
