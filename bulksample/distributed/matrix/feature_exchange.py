"""Rows of a matrix that lives in block rows: fetched from whoever holds them, each at most once, over few bytes.

    X = decode(encode(H[vertices]))        H: n x f, rank i holds rows bounds[i] .. bounds[i+1] - 1

With p ranks, let U_r be the distinct vertices that rank r asks for and that are neither its own nor cached, and U_rq
those of them that rank q holds. A fetch sends exactly

========= ======================== ============================== =============================
kind      what                     bytes that rank r sends        messages of rank r
========= ======================== ============================== =============================
topology  ids, int32               ``4 |U_r|``                    the q with U_rq not empty
(given)   rows, encoded            row_bytes(f) sum_q ``|U_qr|``  the q with U_qr not empty
control   counts, twice            16 (p - 1)                     2 (p - 1)
========= ======================== ============================== =============================

which `predict` computes from the same layout. (Rows without columns send nothing.) Ids are places of a `Layout`.
"""

from __future__ import annotations

import zlib

import numpy as np

from ...errors import PeerLost, UsageError
from ..comm.base import Comm, PendingAlltoall
from .codec import codec_named
from .hot_rows import HotRows, hottest, no_rows
from .layout import checked_bounds


class RowExchange:
    """The rows of an n x f matrix in block rows over the ranks of a communicator (a process column).

    Parameters
    ----------
    comm : Comm, p ranks
    bounds : int64, shape (p + 1,)
        Rank i holds the rows ``bounds[i]:bounds[i + 1]``; some ranks may hold none. The same on all ranks.
    rows : float32 or float16, shape (bounds[rank + 1] - bounds[rank], f)
        This rank's block; may be a memmap, and is not copied.
    codec : {"fp32", "fp16", "bf16", "int8", "int4", "int2"}
        How rows travel, one of `codec.CODECS`. All rows pass through it, own ones too, so that p does not change what is fetched.
    cache_bytes : int
        Every rank keeps as many of the hottest rows, encoded, as fit. Filled here, once: a rank sends p - 1 copies of
        those of the rows that are its own (features), and of its candidates, 16 bytes each (control).
    heat : int or float, shape (bounds[rank + 1] - bounds[rank],), optional
        How often each own row is expected to be asked for: how many rows of A name it (its degree), or measured
        frequencies. Needed where `cache_bytes` is not 0. Of equally hot rows the lower id is kept.
    kind : {"features", "activations", ...}
        What the rows count as.
    names : int32, shape (bounds[rank + 1] - bounds[rank],), optional
        What the random words of a codec call the own rows; their ids unless given.

    Raises
    ------
    UsageError
        If the arguments do not fit together, or differ over ranks; the latter on all ranks.
    """

    def __init__(
        self, comm: Comm, bounds: np.ndarray, rows: np.ndarray, codec: str = "fp32", cache_bytes: int = 0,
        access_count: np.ndarray | None = None, kind: str = "features", names: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.comm, self.codec, self.kind = comm, codec_named(codec), kind
        self.bounds = bounds_of_ranks(bounds, comm.size)
        self._first, self._end = (int(bound) for bound in self.bounds[comm.rank : comm.rank + 2])
        if rows.ndim != 2 or rows.dtype not in (np.float32, np.float16) or len(rows) != self._end - self._first:
            raise UsageError(
                f"rank {comm.rank} holds rows {self._first} to {self._end} of a float32 or float16 matrix; got {rows.dtype} of {rows.shape}"
            )
        self._rows, self.width, self._names = rows, rows.shape[1], names
        self._agree(cache_bytes)
        self.cache = self._fill(cache_bytes, access_count) if cache_bytes else no_rows(self.codec.columns(self.width), self.codec.dtype)

    @property
    def n(self) -> int:
        """Rows of the whole matrix."""
        return int(self.bounds[-1])

    def fetch(self, vertices: np.ndarray) -> np.ndarray:
        """Rows of the matrix, in the order asked for; collective.

        Parameters
        ----------
        vertices : integers, shape (m,)
            Global ids; they may repeat, and there may be none.

        Returns
        -------
        float32, shape (m, f)

        Raises
        ------
        UsageError
            If an id is no row of the matrix.
        """
        return self.start(vertices).wait()

    def start(self, vertices: np.ndarray) -> Fetch:
        """Begin a fetch; collective. Ids have been exchanged when it returns, rows are under way."""
        vertices = np.asarray(vertices)
        if vertices.dtype.kind not in "iu" or vertices.ndim != 1:
            raise UsageError(f"vertices must be integers in one dimension; got {vertices.dtype} of shape {vertices.shape}")
        unique, place = np.unique(vertices, return_inverse=True)
        if len(unique) and not 0 <= unique[0] <= unique[-1] < self.n:
            raise UsageError(f"vertices must be rows of the matrix, 0 to {self.n - 1}; got {unique[0]} to {unique[-1]}")
        at = self.cache.find(unique)
        own = (unique >= self._first) & (unique < self._end)
        away = ~own & (at < 0)
        wanted = self.comm.alltoall(_by_owner(unique[away].astype(np.int32), self.bounds), "topology")
        parts = [self._encoded(ids) for ids in wanted]
        rows = np.empty((len(unique), self.codec.columns(self.width)), self.codec.dtype)
        arrival = self.comm.start_alltoall(parts, self.kind)
        rows[own] = self._encoded(unique[own])
        cached = ~own & ~away
        rows[cached] = self.cache.rows[at[cached]]
        return Fetch(arrival, rows, away, place, self)

    def encoded_rows(self) -> np.ndarray:
        """All own rows as they travel; as they are where codec fp32 would widen them."""
        return self._rows if self.codec.name == "fp32" else self._encoded(np.arange(self._first, self._end, dtype=np.int32))

    def check_own(self, low: int, high: int) -> None:
        """Raise `PeerLost` where this rank is asked for rows that it does not hold."""
        if not self._first <= low <= high < self._end:
            raise PeerLost(f"rank {self.comm.rank} was asked for rows {low} to {high}; it holds {self._first} to {self._end}")

    def _encoded(self, ids: np.ndarray) -> np.ndarray:
        """Some own rows as they travel; what others ask for is checked."""
        if len(ids):
            self.check_own(ids.min(), ids.max())
        at = ids - self._first
        return self.codec.encode(self._rows[at], ids if self._names is None else self._names[at])

    def _agree(self, cache_bytes: int) -> None:
        """What must be alike on all ranks is compared."""
        described = [self.width, self.n, zlib.crc32(self.bounds.tobytes()), zlib.crc32(self.codec.name.encode()), int(cache_bytes)]
        everyone = self.comm.allgather(np.array(described, np.int64), "control")
        for name, column in zip(("the width of the rows", "n", "bounds", "the codec", "cache_bytes"), everyone.T, strict=True):
            if (column != column[0]).any():
                raise UsageError(f"the ranks do not agree on {name} of a row exchange: {column.tolist()}")
        if cache_bytes < 0:
            raise UsageError(f"cache_bytes must not be negative; got {cache_bytes}")

    def _fill(self, cache_bytes: int, access_count: np.ndarray | None) -> HotRows:
        """The hottest rows of all, on every rank; ids ascend, so the rows of one owner come together."""
        if access_count is None or np.shape(access_count) != (len(self._rows),):
            raise UsageError(
                f"a cache needs the access_count of {len(self._rows)} own rows; got {None if access_count is None else np.shape(access_count)}"
            )
        room = min(self.n, cache_bytes // max(1, self.codec.row_bytes(self.width)))
        ids = hottest(self.comm, self._first, np.asarray(access_count, np.float64), room)
        counts = np.diff(np.searchsorted(ids, self.bounds))
        mine = self._encoded(ids[(ids >= self._first) & (ids < self._end)])
        return HotRows(ids, self.comm.allgather_rows(mine, counts, self.kind))


class Fetch:
    """Rows under way. Every fetch is waited for, in any order; `wait` may be called again."""

    def __init__(self, arrival: PendingAlltoall, rows: np.ndarray, away: np.ndarray, place: np.ndarray, of: RowExchange) -> None:
        self._arrival, self._rows, self._away, self._place, self._of = arrival, rows, away, place, of
        self._result: np.ndarray | None = None

    def done(self) -> bool:
        """Whether all rows have come; does not wait."""
        return self._arrival.done()

    def wait(self) -> np.ndarray:
        """The rows in the order asked for: float32, shape (m, f)."""
        if self._result is None:
            came = np.concatenate(self._arrival.wait())  # owners ascend as the ids do
            if len(came) != np.count_nonzero(self._away):
                raise PeerLost(f"{np.count_nonzero(self._away)} rows were asked for; {len(came)} came")
            self._rows[self._away] = came
            self._result = self._of.codec.decode(self._rows, self._of.width)[self._place]
        return self._result


def bounds_of_ranks(bounds: np.ndarray, p: int) -> np.ndarray:
    """The bounds of p block rows as int64, or `UsageError`."""
    if np.shape(bounds) != (p + 1,):
        raise UsageError(f"bounds must be {p + 1} integers, one more than there are ranks; got shape {np.shape(bounds)}")
    return checked_bounds(bounds)


def _by_owner(ids: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
    """Ascending ids, cut where a new owner begins."""
    return np.split(ids, np.searchsorted(ids, bounds[1:-1]))
