"""Exchange the ids of rows that ranks request from each other, for one fetch or for several at once.

A request to one rank, in words of 4 bytes, for W fetches:

    how many ids are of each fetch but the last, W - 1 words | the ids of the first fetch | ... | those of the last

It is empty if it names no row, and for one fetch it is the ids alone. All ranks pass equally many fetches. An id may take several words:
then the first one names a row that its owner holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...errors import PeerLost
from ...sparse import row_pointers, runs
from ..comm.base import Comm
from .packed_messages import Section, pack, unpack


class RowRequests(NamedTuple):
    """The ids that ranks request for one fetch.

    Parameters
    ----------
    expected : int64, shape (p,)
        How many rows each rank sends to this one.
    requested : int32, shape (w,), or (w, words)
        The ids that others ask of this rank, in rank order; distinct for each rank.
    requested_counts : int64, shape (p,)
        How many of them each rank asks for.
    """

    expected: np.ndarray
    requested: np.ndarray
    requested_counts: np.ndarray


def request_rows(comm: Comm, bounds: np.ndarray, wanted: Sequence[np.ndarray]) -> list[RowRequests]:
    """Request rows from the ranks that hold them, and receive the requests of all ranks; collective.

    Parameters
    ----------
    bounds : int64, shape (p + 1,)
        Rank i holds the rows ``bounds[i]:bounds[i + 1]``.
    wanted : arrays of int32, shape (m,), or (m, words)
        The distinct ids that this rank wants for each of W fetches, ascending; all with equally many words.

    Returns
    -------
    One for each fetch, in their order.

    Notes
    -----
    4 bytes for each word of an id and, if there are several fetches, 4 (W - 1) for each rank that is asked (kind "topology"); 8 bytes to
    each other rank for the lengths (kind "control").

    Raises
    ------
    PeerLost
        If another rank has sent a request that does not add up.
    """
    words, fetches = int(np.prod(wanted[0].shape[1:])), len(wanted)
    own = np.array([np.diff(np.searchsorted(ids.reshape(len(ids), words)[:, 0], bounds)) for ids in wanted])
    used = own.sum(axis=0) > 0
    starts = row_pointers(own.reshape(-1))[:-1].reshape(own.shape)
    ids = np.concatenate(wanted).reshape(-1)[runs(words * starts.T.reshape(-1), words * own.T.reshape(-1))]
    sections = [Section(ids, words * np.asarray(own.sum(axis=0)))]
    if fetches > 1:
        sections.insert(0, Section(own[:-1, used].T.astype(np.int32).reshape(-1), used * (fetches - 1)))
    message, lengths = pack(sections)
    pending = comm.start_alltoall_rows(message, lengths, "topology")
    received = pending.wait()
    sizes = _sizes(received, pending.counts, fetches, words)
    at = row_pointers(pending.counts)[:-1] + (pending.counts > 0) * (fetches - 1)
    found = []
    for expected, counts in zip(own, sizes.T, strict=True):
        found.append(RowRequests(expected, unpack(received, at, words * counts).reshape(-1, *wanted[0].shape[1:]), counts))
        at = at + words * counts
    return found


def _sizes(received: np.ndarray, lengths: np.ndarray, fetches: int, words: int) -> np.ndarray:
    """Return how many ids each rank requests for each fetch: int64, shape (p, W)."""
    used, heads = lengths > 0, (lengths > 0) * (fetches - 1)
    named, rest = np.divmod(lengths - heads, words)
    if (lengths < heads).any():
        raise PeerLost(f"rank {np.flatnonzero(lengths < heads)[0]} sent a request that is shorter than its counts")
    if rest.any():
        raise PeerLost(f"rank {np.flatnonzero(rest)[0]} sent a request that ends within an id")
    sizes = np.zeros((len(lengths), fetches), np.int64)
    sizes[used, :-1] = unpack(received, row_pointers(lengths)[:-1], heads).reshape(np.count_nonzero(used), fetches - 1)
    sizes[:, -1] = named - sizes.sum(axis=1)
    if (sizes < 0).any():
        raise PeerLost(f"rank {np.flatnonzero((sizes < 0).any(axis=1))[0]} sent a request whose counts do not add up to its length")
    return sizes
