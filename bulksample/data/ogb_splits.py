"""Read the splits of an OGB node property data set: ``split/SCHEME/{train,valid,test}.csv.gz``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import DataError, UsageError
from .ogb_raw import integer_table

_FILES = {"train": "train", "val": "valid", "test": "test"}


def split_folder(root: Path, scheme: str | None) -> Path | None:
    """Return the folder of a scheme of splits; None if the set has no splits.

    Parameters
    ----------
    scheme : str, optional
        Required only if there are several; raises `UsageError` if it is missing or unknown.
    """
    folder = root / "split"
    schemes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    if scheme is None and not schemes:
        return None
    if scheme is None and len(schemes) > 1:
        raise UsageError(f"{root.name} has several split schemes; use {' or '.join(f'scheme={one!r}' for one in schemes)}")
    chosen = folder / (scheme or schemes[0])
    if chosen.name not in schemes:
        raise UsageError(f"{root.name} has no split scheme {scheme!r}; use {', '.join(schemes) or 'none'}")
    return chosen


def read_masks(folder: Path, n: int) -> dict[str, np.ndarray]:
    """Read a split of n vertices as masks: bool, shape (n,). Raises `DataError` naming the file."""
    masks = {}
    for split, name in _FILES.items():
        path = folder / f"{name}.csv.gz"
        if not path.exists() and (folder / "split_dict.pt").exists():
            raise DataError(f"{folder.name}/split_dict.pt: is a pickle, which is never read; use {name}.csv.gz")
        members = integer_table(path, 1)[0]
        bad = np.flatnonzero(members >= n)
        if len(bad):
            raise DataError(f"{folder.name}/{path.name}: entry {bad[0]} is {members[bad[0]]}; vertices run from 0 to {n - 1}")
        masks[split] = np.zeros(n, bool)
        masks[split][members] = True
    return masks
