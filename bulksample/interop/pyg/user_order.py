"""The order that a user's `sampler` or `batch_sampler` gives to the mini-batches of an epoch.

A state holds the digest of the mini-batches that are used. To go on from it, the order is run through again, and must have that digest.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DistributedSampler

from ...distributed.comm.agree import made_alike
from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...loading.division import EpochShare
from ...loading.epochs import Step

_CHANGED = (
    "the order of your sampler is not the one of the loader's state; give it the same order again. Ranks with samplers of their own save "
    "and load a state each"
)


def given_steps(batch_sampler: Any, count: int, used: int = 0, slot: int = 0, digest: str = "", saved: Any = None) -> Iterator[Step]:
    """Yield the mini-batches after those that are used, in this and later slots.

    Raises `UsageError` for what is no list of positions among `count` examples, and unless those that are used have the digest, which
    comes from the [rank, ranks] `saved` of a `DistributedSampler`.
    Mini-batch t of rank r of p of a `DistributedSampler` has number t p + r, as with a `comm`.
    """
    place = place_of(batch_sampler)
    rank, ranks = place or (0, 1)
    if used and saved not in (None, place):
        digest = _digest_of_this_rank(batch_sampler, used, digest, saved)
    taken, order = 0, ""
    for taken, index in enumerate(map(np.asarray, batch_sampler), 1):
        check_positions(index, count)
        order = _chained(order, index)
        if taken == used and order != digest:
            raise UsageError(_CHANGED)
        if taken > used:
            yield Step(slot + taken - used - 1, (taken - 1) * ranks + rank, index, order)
    if taken < used:
        raise UsageError(_CHANGED)


def steps_of_rank(batch_sampler: Any, count: int, used: int, step: int, digest: str, share: EpochShare, comm: Comm) -> Iterator[Step]:
    """Return this rank's share of the mini-batches after those that are used, from a step on; collective.

    Raises `UsageError` on every rank if the sampler of one fails, or their orders differ.
    """

    def run_through() -> tuple[list[Step], dict[str, Any], dict[str, Any]]:
        every = list(given_steps(batch_sampler, count))
        if used and (used > len(every) or every[used - 1].order != digest):
            raise UsageError(_CHANGED)
        order = every[-1].order[:16] if every else ""
        return every, {"the number of mini-batches of your sampler": len(every)}, {"the order of your sampler": order}

    every = made_alike(comm, run_through)
    share = replace(share, minibatches=len(every))

    def of_step(t: int) -> Step:
        id = share.id(t)
        assert id is not None
        last = min(share.first + (t + 1) * share.ranks, len(every)) - 1
        return every[id]._replace(slot=t, order=every[last].order)

    return map(of_step, range(step, share.steps))


def distributed_sampler(sampler: Any) -> DistributedSampler[Any] | None:
    """Return the `DistributedSampler` that a sampler of vertices or of mini-batches is or holds."""
    inner = getattr(sampler, "sampler", sampler)
    return inner if isinstance(inner, DistributedSampler) else None


def place_of(sampler: Any) -> list[int] | None:
    """Return the rank and the number of ranks of a `DistributedSampler`."""
    distributed = distributed_sampler(sampler)
    return None if distributed is None else [distributed.rank, distributed.num_replicas]


def has_length(sampler: Any) -> bool:
    """Return whether `len` works: a batch sampler of torch has the method, but not the length, if its sampler has none."""
    try:
        len(sampler)
    except (TypeError, NotImplementedError):
        return False
    return True


def check_positions(index: Any, count: int, found: str = "your sampler gave") -> None:
    """Raise `UsageError`, which begins with `found`, unless a mini-batch is a list of positions in a list of `count` examples."""
    array = np.asarray(index)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(f"{found} {index!r} for a mini-batch; use a list of whole numbers from 0 to {count - 1}")
    bad = np.flatnonzero((array < 0) | (array >= count))
    if len(bad):
        raise UsageError(f"{found} the position {array[bad[0]]}, and there are {count} examples; use 0 to {count - 1}")


def called_positions(index: Any, count: int) -> torch.Tensor:
    """Return the positions that ``loader(index)`` names among `count` examples, by number or by a mask: int64.

    Raises `UsageError` for anything else.
    """
    array = np.asarray(index)
    if array.dtype == bool and array.ndim:
        if array.shape != (count,):
            raise UsageError(f"loader(index) got a mask of shape {array.shape}; use one of shape ({count},), or positions")
        array = np.flatnonzero(array)
    check_positions(array, count, "loader(index) got")
    return torch.from_numpy(array.astype(np.int64))


def _digest_of_this_rank(batch_sampler: Any, used: int, digest: str, saved: Any) -> str:
    """Return the digest of this rank's order, if the state's is that of another rank of the same `DistributedSampler`."""
    sampler = distributed_sampler(batch_sampler)
    if sampler is None or not isinstance(saved, list) or saved[1:] != [sampler.num_replicas] or saved[0] not in range(saved[1]):
        got = "no DistributedSampler" if sampler is None else f"rank {sampler.rank} of {sampler.num_replicas} ranks"
        raise UsageError(f"the loader's state was saved on [rank, ranks] {saved} of a DistributedSampler; got {got}: use as many ranks")
    if type(sampler).__iter__ is not DistributedSampler.__iter__ or type(batch_sampler) is not BatchSampler:
        got = " in a ".join(type(one).__name__ for one in (sampler, batch_sampler))
        raise UsageError(
            f"the loader's state was saved on rank {saved[0]}, whose order cannot be derived on rank {sampler.rank} from a {got}; save "
            "and load a state on each rank"
        )
    other = copy.copy(sampler)
    other.rank = saved[0]
    size, drop_last = batch_sampler.batch_size, batch_sampler.drop_last
    theirs, ours = (reduce(_chained, islice(BatchSampler(one, size, drop_last), used), "") for one in (other, sampler))
    if theirs != digest:
        raise UsageError(_CHANGED)
    return ours


def _chained(digest: str, index: Any) -> str:
    """Return the digest of an order that one more mini-batch makes longer."""
    return hashlib.sha256(digest.encode() + np.ascontiguousarray(index, np.int64).tobytes()).hexdigest()
