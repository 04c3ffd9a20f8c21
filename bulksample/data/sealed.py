"""Files of arrays with a SHA-256 of their own: `links.npz` and partitions.

The checksums of an `.npz` file find damage by a disk. The hash also finds an array that a program has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from ..errors import DataError
from .atomic import save_npz, sweep
from .npy import Archive

_SEAL, _STORE = "sha256", "store"


def save_sealed(path: Path, arrays: Mapping[str, np.ndarray], store: str = "") -> None:
    """Write an `.npz` file with a hash, completely or not at all. Raises `UsageError` if it cannot be written.

    `store` is the digest of the store that the file belongs to, in hexadecimal digits; empty for a file that belongs to none.
    """
    save_npz(path, sealed({**arrays, _STORE: np.frombuffer(bytes.fromhex(store), np.uint8)} if store else arrays))


def sealed(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays and, as `sha256`, the hash of their names, dtypes, shapes and bytes."""
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return {**arrays, _SEAL: np.frombuffer(total.digest(), np.uint8)}


def read_sealed(path: Path, names: Iterable[str], writer: str, store: Callable[[], str] | None = None) -> dict[str, np.ndarray]:
    """Read arrays that `save_sealed` wrote, and compare them with their hash. `names` are all arrays of the file, except the hash.

    `writer` is the command that writes such a file, for messages. `store` returns the digest of the store beside the file; files of earlier
    versions name no store and are accepted. Raises `DataError` if the file is damaged, lacks an array or the hash, was changed, or belongs
    to another store.
    """
    sweep(path.parent)
    with Archive(path) as archive:
        arrays = {name: archive.read(name) for name in names}
        if _SEAL not in archive:
            raise DataError(f"{path.name}: holds no {_SEAL} of its arrays; write it again with `{writer}`")
        seal = archive.read(_SEAL)
        if store is not None and _STORE in archive:
            arrays[_STORE] = archive.read(_STORE)
    if not np.array_equal(seal, sealed(arrays)[_SEAL]):
        raise DataError(f"{path.name}: was changed after it was written: its arrays do not fit its {_SEAL}; write it again with `{writer}`")
    if store is not None and _STORE in arrays and arrays.pop(_STORE).tobytes().hex() != store():
        raise DataError(f"{path.name}: belongs to another store than the one beside it; write both with `{writer}`")
    return arrays
