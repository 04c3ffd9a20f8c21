"""A learned matrix in block rows on a process grid: ranks look up rows, and the gradients of these rows return to their owners.

    E[ids]                                 looked up in the process column, as `feature_exchange` describes; the ids of several
                                           look-ups may travel at once
    G = sum over ranks r of  S_r^T g_r     S_r selects the distinct ids of rank r, g_r holds their gradients

Let U_rq be the distinct ids of rank r that rank q of its process column holds, and T_j the rows of a block that member j of a process row
was sent gradients of. After a look-up an owner knows the ids, so gradients return without them:

========= ========================== ========================================= ================================
kind      what                       bytes that rank r sends                   messages of rank r
========= ========================== ========================================= ================================
gradients rows, encoded              row_bytes(h) sum_q ``|U_rq|``, q not r    the q with U_rq not empty
========= ========================== ========================================= ================================

With c > 1 the members of a process row then add their sums: each sends the others its ids (4 ``|T_j|``, kind "topology"), its rows
(row_bytes(h) ``|T_j|``, kind "gradients") and a count (8 bytes, kind "control"). All add in the same order, so that all hold the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .codec import Codec
from .feature_exchange import Fetch, NamedRows, RowExchange, divided
from .grid import ProcessGrid
from .layout import Layout
from .messages import RowRequests, request_ids


class AskedRows(NamedTuple):
    """The learned rows of a look-up, which their owners have been asked for."""

    rows: NamedRows  # distinct, in the order of their places
    requests: RowRequests
    position: np.ndarray  # int64, shape of the ids: the row of each id among them


def ask_for_rows(grid: ProcessGrid, layout: Layout, lookups: Sequence[np.ndarray]) -> list[AskedRows]:
    """Exchange the ids of several look-ups of a learned matrix at once; collective in the process column. The rows may change meanwhile.

    All ranks pass equally many look-ups, and begin them in this order; the last ones may be left out.
    """
    comm, (first, end) = grid.column_comm, (int(bound) for bound in layout.bounds[grid.row : grid.row + 2])
    named = []
    for ids in lookups:
        unique, position = np.unique(layout.places(ids), return_inverse=True)
        named.append((divided(unique, None, first, end, np.full(len(unique), -1)), position))
    requests = request_ids(comm, layout.bounds, [rows.ids[rows.away].astype(np.int32) for rows, _ in named])
    return [AskedRows(rows, request, position) for (rows, position), request in zip(named, requests, strict=True)]


class LearnedRows:
    """This rank's block row of a learned matrix E; making one is collective in the process column.

    `rows`, float32 of shape (m, h), are in the order of the block's members. They are read at every look-up, so an optimizer changes them
    in place.
    """

    def __init__(self, grid: ProcessGrid, layout: Layout, rows: np.ndarray) -> None:
        self.grid, self.layout = grid, layout
        self._exchange = RowExchange(grid.column_comm, layout.bounds, rows)

    def start(self, lookup: AskedRows) -> Fetch:
        """Begin to look up rows that were asked for; collective. ``wait`` gives the distinct rows: float32, shape (u, h)."""
        return self._exchange.begin(lookup.rows, lookup.requests)

    def add_gradients(self, fetches: list[Fetch], gradients: list[np.ndarray], codec: Codec) -> np.ndarray:
        """Send the gradients of looked-up rows to their owners, and add them there; return the sums over all ranks: float32, shape (m, h).

        Collective. `fetches` are the look-ups of a step, equally many on every rank, and `gradients` (float32, shape (u, h)) those of the
        distinct rows of each. They travel by `codec`; the rank's own are encoded too.
        """
        first, last = (int(bound) for bound in self.layout.bounds[self.grid.row : self.grid.row + 2])
        width = self._exchange.width
        total, touched = np.zeros((last - first, width), np.float32), np.zeros(last - first, bool)

        def add(places: np.ndarray, rows: np.ndarray) -> None:
            total[places] += codec.decode(rows, width)
            touched[places] = True

        for fetch, rows in zip(fetches, gradients, strict=True):
            named, requests, encoded = fetch.named, fetch.requests, codec.encode(rows)
            counts = requests.requested_counts
            received = self.grid.column_comm.alltoall_rows(encoded[named.away], requests.expected, "gradients", incoming=counts)
            add(named.ids[named.own] - first, encoded[named.own])
            for end, count in zip(np.cumsum(counts), counts, strict=True):  # the ids of one rank are distinct
                add(requests.requested[end - count : end] - first, received[end - count : end])
        return self._add_in_row(total, touched, codec)

    def _add_in_row(self, total: np.ndarray, touched: np.ndarray, codec: Codec) -> np.ndarray:
        """Add the sums of the ranks that hold the same block row."""
        comm = self.grid.row_comm
        if comm.size == 1:
            return total
        places = np.flatnonzero(touched).astype(np.int32)
        counts = comm.allgather(np.array([len(places)], np.int64), "control")[:, 0]
        all_places = comm.allgather_rows(places, counts, "topology")
        rows = codec.decode(comm.allgather_rows(codec.encode(total[places]), counts, "gradients"), total.shape[1])
        out, ends = np.zeros_like(total), np.cumsum(counts)
        for end, count in zip(ends, counts, strict=True):
            out[all_places[end - count : end]] += rows[end - count : end]
        return out
