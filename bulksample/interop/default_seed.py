"""The seed of a drop-in loader that was given none: torch's, if somebody has set it, and 0 otherwise.

torch's own generator begins with a random seed, which is no choice of the user's. So a seed counts if it has changed since this module was
imported, or is a number such as people choose: below 2**32, which a random one is once in four billion processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from ..distributed.comm.base import Comm

_AT_IMPORT = torch.initial_seed()
_CHOSEN = 2**32
_OF_RANK_0: ContextVar[int | None] = ContextVar("bulksample_seed_of_rank_0", default=None)  # where ranks make a loader together


def seed_or_default(seed: int | None) -> int:
    """Return the seed that the user gave, or that of torch, of rank 0 where ranks make a loader together; 0 if nobody has set one.

    It reads no random number. In a worker process of torch's `DataLoader`, whose seed torch changes for each worker and epoch, it is 0.
    """
    if seed is not None:
        return seed
    shared = _OF_RANK_0.get()
    return seed_of_torch() if shared is None else shared


def seed_of_torch() -> int:
    """Return the seed that somebody has given to torch's generator, 0 if nobody has: 0 to 2**64 - 1."""
    return torch.initial_seed() if torch_is_seeded() else 0


def torch_is_seeded() -> bool:
    """Return True if somebody has set the seed of torch's generator; False in a worker process of its `DataLoader`."""
    seed = torch.initial_seed()
    return torch.utils.data.get_worker_info() is None and (seed != _AT_IMPORT or seed < _CHOSEN)


@contextmanager
def seed_of_rank_0(comm: Comm) -> Iterator[None]:
    """Let `seed_or_default` return the default of rank 0 on all ranks; collective, in one exchange."""
    mark = _OF_RANK_0.set(int(comm.gather_control(seed_of_torch())[0]))
    try:
        yield
    finally:
        _OF_RANK_0.reset(mark)
