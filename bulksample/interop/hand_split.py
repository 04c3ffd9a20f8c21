"""Tell ranks that divide the examples of a drop-in loader by hand that they draw the same random numbers."""

from __future__ import annotations

import warnings
from functools import cache

from ..distributed.comm.launchers import launched, rank_of_torch


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def warn_of_equal_draws(loader: str) -> None:
    """Warn once if this process is one of several ranks, whose loaders have no `comm` and the same default seed."""
    rank, ranks = rank_of_torch()
    if ranks == 1:
        launch = launched()
        rank, ranks = launch.rank or 0, launch.ranks
    if ranks > 1:
        _warn_once(
            f"{loader}: rank {rank} of {ranks} got neither comm nor seed, so all ranks draw with seed 0: a vertex gets the same neighbors "
            "on each of them in the same step. Use comm=bulksample.init() to share mini-batches, or for ids divided by hand another seed "
            "on each rank, such as seed=rank"
        )
