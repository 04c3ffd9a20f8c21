"""Fetch rows of a matrix in block rows (features or hidden rows) from the ranks that hold them, each row at most once.

    X = decode(encode(H[vertices]))        H: n x f, rank i holds rows bounds[i] .. bounds[i+1] - 1

Let U_r be the distinct vertices that rank r of p requests and neither holds nor caches, and U_rq the ones that rank q holds. A
fetch sends exactly

========= ======================== ============================== =============================
kind      what                     bytes that rank r sends        messages of rank r
========= ======================== ============================== =============================
topology  ids, int32               ``4 |U_r|``                    the q with U_rq not empty
`kind`    rows, encoded            row_bytes(f) sum_q ``|U_qr|``  the q with U_qr not empty
control   counts of ids            8 (p - 1)                      p - 1
========= ======================== ============================== =============================

in three collectives. W fetches whose ids travel at once (`RowExchange.ask`) take W + 2: the rows of each fetch as above, then one message
of ids to each rank q that any fetch requests rows from, with 4 (W - 1) bytes more, and the counts once.
(Rows without columns send nothing.) Ids are places of a `Layout`. `SparseRowExchange` fetches rows of a sparse matrix in the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ...errors import PeerLost, UsageError
from ...sparse import CSR, row_pointers
from ..comm.base import Comm, Pending, PendingRows
from .codec import codec_named
from .layout import checked_bounds
from .messages import RowRequests, RowsToSend, request_ids, start_ragged_rows


class RowExchange:
    """An n x f matrix in block rows over the ranks of a communicator (a process column), whose rows any rank can fetch.

    Parameters
    ----------
    comm : Comm, p ranks
    bounds : int64, shape (p + 1,)
        Rank i holds the rows ``bounds[i]:bounds[i + 1]``; some ranks may hold none. The same on all ranks.
    rows : float32 or float16, shape (bounds[rank + 1] - bounds[rank], f)
        This rank's block; may be a memmap, and is not copied.
    codec : {"fp32", "fp16", "bf16", "int8", "int4", "int2"}
        How rows are encoded, one of `codec.CODECS`. Own rows are encoded too, so that p does not change the fetched rows.
    cache_bytes : int
        Memory for a cache of the most fetched rows, encoded. It is filled once, here. By `access_count` all ranks cache the same rows: a
        rank sends p - 1 copies of those that it holds (`kind`), and 16 bytes for each of its candidates (kind "control"). By `wanted` each
        rank caches rows of its own choice, which it fetches as in the table above.
    access_count : int or float, shape (bounds[rank + 1] - bounds[rank],), optional
        How often each own row is expected to be fetched: its column count in A, or a measured frequency. Required if
        `cache_bytes` is not 0 and there is no `wanted`. Of rows with equal counts the lower id is cached.
    wanted : integers, shape (m,), optional
        Distinct rows that this rank expects to need, the most likely first; it caches as many as fit. Its own rows are passed over.
    kind : {"features", "activations", ...}
        The kind under which sent rows are counted.
    names : int32, shape (bounds[rank + 1] - bounds[rank],), optional
        Ids of the own rows from which a codec draws its rounding noise; their places by default.

    Raises
    ------
    UsageError
        If shapes or dtypes do not match, or on all ranks, if width, bounds, codec or cache_bytes differ between ranks.
    """

    def __init__(
        self, comm: Comm, bounds: np.ndarray, rows: np.ndarray, codec: str = "fp32", cache_bytes: int = 0,
        access_count: np.ndarray | None = None, kind: str = "features", names: np.ndarray | None = None, wanted: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.comm, self.codec, self.kind = comm, codec_named(codec), kind
        self.bounds = bounds_of_ranks(bounds, comm.size)
        self._first, self._end = (int(bound) for bound in self.bounds[comm.rank : comm.rank + 2])
        if rows.ndim != 2 or rows.dtype not in (np.float32, np.float16) or len(rows) != self._end - self._first:
            raise UsageError(
                f"rank {comm.rank} holds rows {self._first} to {self._end} of a float32 or float16 matrix; got {rows.dtype} of {rows.shape}"
            )
        self._rows, self.width, self._names = rows, rows.shape[1], names
        self._agree(cache_bytes, wanted is not None)
        self.cache = HotRows(np.empty(0, np.int64), np.empty((0, self.codec.columns(self.width)), self.codec.dtype))
        if cache_bytes:
            room = min(self.n, cache_bytes // max(1, self.codec.row_bytes(self.width)))
            self.cache = self._fill(room, access_count) if wanted is None else self._fill_own(room, np.asarray(wanted))

    @property
    def n(self) -> int:
        """Rows of the whole matrix."""
        return int(self.bounds[-1])

    def fetch(self, vertices: np.ndarray) -> np.ndarray:
        """Fetch rows of the matrix in the requested order; collective.

        Parameters
        ----------
        vertices : integers, shape (m,)
            Global ids. They may repeat; m may be 0.

        Returns
        -------
        float32, shape (m, f)

        Raises
        ------
        UsageError
            If an id is not a row of the matrix.
        """
        return self.start(vertices).wait()

    def start(self, vertices: np.ndarray) -> Fetch:
        """Begin a fetch; collective. On return the ids have been exchanged and the rows are under way."""
        return self.ask([vertices])[0]()

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], Fetch]]:
        """Exchange the ids of several fetches at once; collective. All ranks pass equally many.

        Returns
        -------
        A function for each fetch that begins it: its rows are then under way. Calling it is collective, and all ranks call those of a
        list in one order; a fetch that no rank begins costs nothing more. Until then a fetch holds at most 9 bytes for each of its rows,
        8 more for each cached one, and 4 for each row that others request.
        """
        named = [self._named(vertices) for vertices in fetches]
        requests = request_ids(self.comm, self.bounds, [one.ids[one.away].astype(np.int32) for one in named])
        return [partial(self.begin, one, request) for one, request in zip(named, requests, strict=True)]

    def _named(self, vertices: np.ndarray) -> NamedRows:
        """Divide the rows of a fetch into own, cached and those of others."""
        vertices = np.asarray(vertices)
        if vertices.dtype.kind not in "iu" or vertices.ndim != 1:
            raise UsageError(f"vertices must be integers in one dimension; got {vertices.dtype} of shape {vertices.shape}")
        if (vertices[1:] > vertices[:-1]).all():  # the sources of exact inference
            unique, position = vertices, None
        else:
            unique, position = np.unique(vertices, return_inverse=True)
        if len(unique) and not 0 <= unique[0] <= unique[-1] < self.n:
            raise UsageError(f"vertices must be rows of the matrix, 0 to {self.n - 1}; got {unique[0]} to {unique[-1]}")
        return divided(unique, position, self._first, self._end, self.cache.find(unique))

    def begin(self, named: NamedRows, requests: RowRequests) -> Fetch:
        """Begin the fetch of rows that have been asked for: send the requested ones, and put own and cached ones in place; collective."""
        requested = self._encoded(requests.requested)
        rows = np.empty((len(named.ids), self.codec.columns(self.width)), self.codec.dtype)
        pending = self.comm.start_alltoall_rows(requested, requests.requested_counts, self.kind, incoming=requests.expected)
        self._encoded(named.ids[named.own], rows[named.own])
        if len(named.slots):
            cached = ~named.away
            cached[named.own] = False
            rows[cached] = self.cache.rows[named.slots]
        return Fetch(pending, rows, named, requests, self)

    def encoded_rows(self) -> np.ndarray:
        """Return all own rows, encoded; with codec fp32 in their stored dtype."""
        return self._rows if self.codec.name == "fp32" else self._encoded(np.arange(self._first, self._end, dtype=np.int32))

    def check_own(self, low: int, high: int) -> None:
        """Raise `PeerLost` if another rank requests rows `low` to `high` and this rank does not hold them."""
        if not self._first <= low <= high < self._end:
            raise PeerLost(f"rank {self.comm.rank} was asked for rows {low} to {high}; it holds {self._first} to {self._end}")

    def _encoded(self, ids: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return some own rows, encoded, after checking that this rank holds them; written to `out` if given."""
        if len(ids):
            self.check_own(ids.min(), ids.max())
        at = ids - self._first
        if self._rows.dtype == self.codec.dtype:  # they travel as they are: one copy
            return np.take(self._rows, at, axis=0, out=out, mode="clip")  # with "raise", numpy would copy `out` as well
        encoded = self.codec.encode(self._rows[at], ids if self._names is None else self._names[at])
        if out is not None:
            out[:] = encoded
        return encoded

    def _agree(self, cache_bytes: int, own_cache: bool) -> None:
        """Raise `UsageError` on all ranks if the arguments that must be equal differ between ranks."""
        codec = zlib.crc32(f"{self.codec.name}{' wanted' * own_cache}".encode())
        described = [self.width, self.n, zlib.crc32(self.bounds.tobytes()), codec, int(cache_bytes)]
        everyone = self.comm.allgather(np.array(described, np.int64), "control")
        names = ("the width of the rows", "n", "bounds", "the codec or the choice of cached rows", "cache_bytes")
        for name, column in zip(names, everyone.T, strict=True):
            if (column != column[0]).any():
                raise UsageError(f"the ranks do not agree on {name} of a row exchange: {column.tolist()}")
        if cache_bytes < 0:
            raise UsageError(f"cache_bytes must not be negative; got {cache_bytes}")

    def _fill(self, room: int, access_count: np.ndarray | None) -> HotRows:
        """Gather the most fetched rows on every rank. Ids ascend, so the rows of one owner are consecutive."""
        shape = None if access_count is None else np.shape(access_count)
        if shape != (len(self._rows),):
            raise UsageError(f"a cache needs the access_count of {len(self._rows)} own rows; got {shape}")
        ids = hottest(self.comm, self._first, np.asarray(access_count, np.float64), room)
        counts = np.diff(np.searchsorted(ids, self.bounds))
        encoded = self._encoded(ids[(ids >= self._first) & (ids < self._end)])
        return HotRows(ids, self.comm.allgather_rows(encoded, counts, self.kind))

    def _fill_own(self, room: int, wanted: np.ndarray) -> HotRows:
        """Fetch the rows that this rank wants most and does not hold."""
        away = wanted[(wanted < self._first) | (wanted >= self._end)]
        ids = np.sort(away[:room].astype(np.int64))
        (requests,) = request_ids(self.comm, self.bounds, [ids.astype(np.int32)])
        requested = self._encoded(requests.requested)
        return HotRows(ids, self.comm.alltoall_rows(requested, requests.requested_counts, self.kind, incoming=requests.expected))


def hottest(comm: Comm, first: int, access_count: np.ndarray, room: int) -> np.ndarray:
    """Return the ids of the `room` most often fetched rows of all ranks, ascending: int64, shape (min(room, n),); collective.

    Each rank sends the ids and access counts of its own most fetched rows to all others, 16 bytes each (kind "control"). `first`
    is the id of its first row. Of rows with equal counts the lower id wins.
    """
    order = np.argsort(-access_count, kind="stable")[:room]
    counts = comm.allgather(np.array([len(order)]), "control")[:, 0]
    ids = comm.allgather_rows(order + first, counts, "control")
    all_counts = comm.allgather_rows(access_count[order], counts, "control")
    return np.sort(ids[np.lexsort((ids, -all_counts))[:room]])


class HotRows(NamedTuple):
    """Cached rows: their ids (ascending, int64, shape (h,)) and the encoded rows, shape (h, f)."""

    ids: np.ndarray
    rows: np.ndarray

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return the position of each id in the cache, -1 for an id that is not cached: int64, shape of `ids`."""
        if not len(self.ids):
            return np.full(ids.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, at, -1)


class NamedRows(NamedTuple):
    """The rows of a fetch: own ones, those that others send, and the rest, which lies in the cache."""

    ids: np.ndarray  # integers, shape (u,): the distinct rows that this rank wants, ascending
    position: np.ndarray | None  # integers, shape (m,): which of them each vertex is; None if the vertices are `ids` themselves
    own: slice  # those that this rank holds
    away: np.ndarray  # bool, shape (u,): those that others send
    slots: np.ndarray  # int64, shape (h,): the slots of cached ones in the cache


def divided(ids: np.ndarray, position: np.ndarray | None, first: int, end: int, slot: np.ndarray) -> NamedRows:
    """Divide distinct ids into own ones, ``first .. end - 1``, cached ones, whose `slot` is 0 or more, and those of others."""
    own = slice(*np.searchsorted(ids, [first, end]).tolist())
    slot[own] = -1
    away = slot < 0
    away[own] = False
    return NamedRows(ids, None if position is None else position.astype(np.int32), own, away, slot[slot >= 0])


class Fetch:
    """A fetch under way. Call `wait` on every fetch, in any order; it may be called again."""

    def __init__(self, pending: PendingRows, rows: np.ndarray, named: NamedRows, requests: RowRequests, exchange: RowExchange) -> None:
        self._pending, self._rows, self.named, self.requests, self._exchange = pending, rows, named, requests, exchange
        self._result: np.ndarray | None = None

    def wait(self) -> np.ndarray:
        """Return the rows in the requested order: float32, shape (m, f)."""
        if self._result is None:
            self._rows[self.named.away] = self._pending.wait()  # owners ascend as the ids do
            decoded = self._exchange.codec.decode(self._rows, self._exchange.width)
            self._result = decoded if self.named.position is None else decoded[self.named.position]
        return self._result


def bounds_of_ranks(bounds: np.ndarray, p: int) -> np.ndarray:
    """Return the bounds of p block rows as int64, or raise `UsageError`."""
    if np.shape(bounds) != (p + 1,):
        raise UsageError(f"bounds must be {p + 1} integers, one more than there are ranks; got shape {np.shape(bounds)}")
    return checked_bounds(bounds)


class SparseRowExchange:
    """A sparse n x f matrix in block rows over the ranks of a communicator (a process column), whose rows any rank can fetch.

    Rank i holds the rows ``bounds[i]:bounds[i + 1]``, float32. A fetch sends 4 bytes for each requested id (kind "topology"), then 4 bytes
    for each row and 8 bytes for each stored entry (kind "features"). Raises `UsageError` if the rows do not match the bounds, or have no
    values.
    """

    def __init__(self, comm: Comm, bounds: np.ndarray, rows: CSR) -> None:
        self.comm, self.bounds, self._rows = comm, checked_bounds(bounds), rows
        self._first, last = (int(bound) for bound in self.bounds[comm.rank : comm.rank + 2])
        if rows.shape[0] != last - self._first or rows.values is None:
            raise UsageError(f"rank {comm.rank} holds rows {self._first} to {last} of a matrix with values; got {rows.shape[0]} rows")

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], Pending[CSR]]]:
        """Exchange the ids of several fetches at once; return a function for each that begins it. See `RowExchange.ask`.

        ``wait`` of the begun fetch returns the rows in the requested order: float32, shape (m, f).
        """
        named = [np.unique(ids, return_inverse=True) for ids in fetches]
        for unique, _ in named:
            if len(unique) and not 0 <= unique[0] <= unique[-1] < self.bounds[-1]:
                raise UsageError(f"ids must be rows of the matrix, 0 to {self.bounds[-1] - 1}; got {unique[0]} to {unique[-1]}")
        requests = request_ids(self.comm, self.bounds, [unique.astype(np.int32) for unique, _ in named])
        return [partial(self._begin, position, request) for (_, position), request in zip(named, requests, strict=True)]

    def _begin(self, position: np.ndarray, requests: RowRequests) -> Pending[CSR]:
        local = requests.requested - np.int32(self._first)
        if len(local) and not 0 <= local.min() <= local.max() < self._rows.shape[0]:
            raise PeerLost(f"rank {self.comm.rank} was asked for rows that it does not hold")
        sent, counts = self._rows.take(local), requests.requested_counts
        part = RowsToSend(counts, sent.indptr, [sent.indices, sent.entries()], requests.expected)
        pending, width = start_ragged_rows(self.comm, [part], "features"), self._rows.shape[1]

        def in_order() -> CSR:
            (received,) = pending.wait()  # owners ascend as ids do
            columns, values = received.arrays
            return CSR(row_pointers(received.counts), columns, values, (len(received.counts), width)).take(position)

        return Pending(in_order)
