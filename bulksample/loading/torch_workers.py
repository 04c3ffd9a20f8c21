"""Loaders in the worker processes of torch's `DataLoader`, each of which iterates over a copy that the parent never hears of again."""

from __future__ import annotations

import sys
import warnings


def warn_in_worker(epoch: int, again: bool, whole: bool) -> None:
    """Warn in a worker of torch's `DataLoader` of mini-batches that come twice: in each epoch, or from each worker.

    Parameters
    ----------
    epoch : int
        The one that the first iteration of a copy begins.
    again : bool
        Nobody has named this epoch: copies made for a later iteration of the `DataLoader` would begin it again.
    whole : bool
        The loader yields all mini-batches of an epoch.
    """
    data = sys.modules.get("torch.utils.data")  # a worker has imported it
    worker = None if data is None else data.get_worker_info()
    if worker is None:
        return
    found = []
    if again:
        found.append(
            f"it begins epoch {epoch}, and so do the workers of a later iteration of the DataLoader unless they persist: set the loader's "
            "epoch before each"
        )
    if whole and worker.num_workers > 1:
        found.append(
            "each worker samples all mini-batches of an epoch: make the loader in the worker with rank=worker.id, "
            f"ranks=worker.num_workers, or skip all but every {worker.num_workers}th"
        )
    if found:
        where = f"a loader of bulksample runs in worker {worker.id} of {worker.num_workers} of torch's DataLoader"
        warnings.warn(f"{where}; {'; '.join(found)}; or iterate over the loader itself, which samples ahead on a thread", stacklevel=2)
