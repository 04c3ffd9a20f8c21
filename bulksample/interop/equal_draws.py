"""Tell ranks that divide the examples of a drop-in loader by hand if they draw the same random numbers.

Loaders without a `comm` send nothing to each other. Where torch.distributed has begun, each rank leaves its seed in the store by which the
ranks have met, and reads those of the others when all are there; nobody waits.
"""

from __future__ import annotations

import warnings

from torch.utils.data import get_worker_info

from ..distributed.comm.launchers import launched, rank_of_torch
from .default_seed import torch_is_seeded

_SETTLED: set[str] = set()  # loaders of which this rank knows whether others draw alike


def warn_of_equal_draws(loader: str, seed: int) -> None:
    """Warn once if this process is one of several ranks, whose loaders have no `comm` and draw with one seed that no one has given."""
    rank, ranks = rank_of_torch()
    by_torch = ranks > 1
    if not by_torch:
        launch = launched()
        rank, ranks = launch.rank or 0, launch.ranks
    if ranks == 1 or loader in _SETTLED:
        return
    alone = not by_torch or get_worker_info() is not None  # a worker that was forked must not use its parent's connection to the store
    other = -1 if alone else _rank_with_seed(loader, seed, rank, ranks)  # others wait for the seed of a rank that needs no answer, too
    if not torch_is_seeded():
        alike = f"it draws with seed {seed}, as all ranks do for which nobody has set torch's seed"
    elif other is None:
        return
    elif other < 0:
        alike = f"it draws as all ranks do whose torch has the seed {seed}"
    else:
        alike = "" if other == rank else f"it draws with torch's seed {seed}, as rank {other} does"
    _SETTLED.add(loader)
    if alike:
        warnings.warn(
            f"{loader}: rank {rank} of {ranks} got neither comm nor seed, so {alike}: a vertex gets the same neighbors on each of them in "
            "the same step. Use comm=bulksample.init() to share mini-batches, or for ids divided by hand another seed on each rank, such "
            "as seed=rank",
            stacklevel=3,
        )


def _rank_with_seed(loader: str, seed: int, rank: int, ranks: int) -> int | None:
    """Return the first other rank whose loader has this seed, `rank` if none has it, None if some have not begun to iterate yet."""
    from torch.distributed import distributed_c10d  # some builds of torch lack it; here it has begun

    try:
        store = distributed_c10d._get_default_store()
        keys = [f"bulksample/seed of {loader}/{one}" for one in range(ranks)]
        store.set(keys[rank], str(seed))
        if not store.check(keys):
            return None
        return next((one for one in range(ranks) if one != rank and int(store.get(keys[one])) == seed), rank)
    except (RuntimeError, ValueError):  # no such store, or its process has ended
        return None
