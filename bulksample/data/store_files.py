"""The files of a store: write them, compare their sizes and hashes with the manifest, and map them into memory.

A cache remembers which files were compared, so a store is hashed when it is first opened after it changed. It is the user's: one small JSON
file for each store in ``$XDG_CACHE_HOME/bulksample/verified``, by default below ``~/.cache``. It holds the size, mtime, ctime and inode of
each file when its SHA-256 was computed. An unreadable or unwritable cache costs time alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from ..errors import DataError, UsageError
from ..mapped import Mark, mark_of, pieces
from .atomic import PIECE, pieces_of, sync, write_file
from .manifest_file import ArrayEntry
from .npy import open_npy, regular_size

CHECKS = ("auto", "full", "none")
_MOST_STORES = 256
_COARSE, _FINE = 2 * 10**9, 5 * 10**7  # ns; a file changed again so soon may keep its mtime; some file systems count whole seconds
_FEATURES = re.compile(r"((types|relations)\.\d+\.)?(edge_)?features")


class NpyAppender:
    """A `.npy` file of a known shape, written by rows in pieces; between pieces it is closed, so thousands may be under way."""

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._path, self._dtype, self._shape = path, dtype.newbyteorder("<"), shape
        self._digest, self._size = hashlib.sha256(), 0
        head = io.BytesIO()
        npy_format.write_array_header_1_0(head, {"descr": self._dtype.str, "fortran_order": False, "shape": shape})
        self._write(head.getvalue())
        self._whole = self._size + math.prod(shape) * self._dtype.itemsize

    def append(self, rows: np.ndarray) -> None:
        """Write further rows. Raises OSError."""
        if len(rows):
            self._write(np.ascontiguousarray(rows, self._dtype).tobytes())

    def finish(self) -> ArrayEntry:
        """Sync the file and return its entry of a manifest; raises `DataError` if rows are missing."""
        if self._size != self._whole:
            raise DataError(f"{self._path.name}: {self._size} bytes were written of {self._whole}; the store has changed meanwhile")
        with open(self._path, "ab") as stream:
            sync(stream)
        return ArrayEntry(file=self._path.name, dtype=self._dtype.str, shape=self._shape, bytes=self._size, sha256=self._digest.hexdigest())

    def _write(self, data: bytes) -> None:
        with open(self._path, "ab") as stream:
            stream.write(data)
        self._digest.update(data)
        self._size += len(data)


def write_npy(path: Path, array: np.ndarray) -> ArrayEntry:
    """Write one array by rows, sync its file, and return its entry of a manifest."""
    file, flat = NpyAppender(path, array.dtype, array.shape), np.asanyarray(array, order="C").reshape(-1)
    for _, part in pieces(flat, max(1, PIECE // max(1, array.dtype.itemsize))):
        file.append(part)
    return file.finish()


def check_sums(folder: Path, entries: Iterable[ArrayEntry], check: str) -> None:
    """Compare files with their SHA-256 and remember those that are intact; see `stale`. Raises `DataError` listing all that differ."""
    sums = Sums(folder)
    for _ in sums.compare(stale(folder, entries, check)):
        pass
    sums.finish()


class Sums:
    """Compares files of a store with the SHA-256 in its manifest, a piece at a time.

    `intact` holds a mark and the SHA-256 by file name, without the files that changed just before or while they were read; `faults` a
    message for each file that differs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.intact: dict[str, tuple[Mark, str]] = {}
        self.faults: list[str] = []

    def compare(self, entries: Iterable[ArrayEntry]) -> Iterator[None]:
        """Hash the files one after another; yields after each piece of 16 MiB."""
        for entry in entries:
            digest = hashlib.sha256()
            try:
                path, fault = _locate(self.folder, entry)
                before = mark_of(path)
                now = time.time_ns()  # settled: the clock of the file system has moved on, so a change from now on changes the mark
                settled = all(now - at > (_FINE if at % 10**9 else _COARSE) for at in (before.mtime_ns, before.ctime_ns))
                for piece in pieces_of(path):
                    digest.update(piece)
                    yield
                unchanged = mark_of(path) == before
            except (DataError, OSError) as error:
                self.faults.append(str(error))
                continue
            if digest.hexdigest() != entry.sha256:
                what = fault or f"{self.folder.name}/{entry.file}: is damaged"
                self.faults.append(f"{what}: sha256 expected {entry.sha256}, found {digest.hexdigest()}")
            elif settled and unchanged:
                self.intact[entry.file] = before, entry.sha256

    def finish(self) -> None:
        """Remember the intact files. Raises `DataError` if others differ."""
        remember(self.folder, self.intact)
        if self.faults:
            raise DataError("\n".join(self.faults))


def stale(folder: Path, entries: Iterable[ArrayEntry], check: str) -> list[ArrayEntry]:
    """Return the files to hash: those that changed since they were last hashed ("auto"), all ("full") or "none". Raises `UsageError`."""
    if check not in CHECKS:
        raise UsageError(f"check was {check!r}; use {', '.join(CHECKS)}")
    if check != "auto":
        return list(entries) if check == "full" else []
    known = known_sums(folder)
    return [entry for entry in entries if known.get(entry.file) != (file_mark(folder, entry), entry.sha256)]


def file_mark(folder: Path, entry: ArrayEntry) -> Mark | None:
    """Return the mark of a file; None if there is no such file."""
    try:
        return mark_of(folder / entry.file)
    except OSError:
        return None


def wanted(arrays: Mapping[str, ArrayEntry], features: bool) -> dict[str, ArrayEntry]:
    """Return the arrays of a store by role, with or without the features of its vertices and edges."""
    return {role: entry for role, entry in arrays.items() if features or not _FEATURES.match(role)}


def check_size(folder: Path, entry: ArrayEntry) -> Path:
    """Return the path of an array's file; raises `DataError` unless it is a regular file of the right size in the folder."""
    path, fault = _locate(folder, entry)
    if fault:
        raise DataError(fault)
    return path


def open_array(folder: Path, entry: ArrayEntry) -> np.ndarray:
    """Open one array of a store as a memmap; raises `DataError` if the file differs from its entry in the manifest."""
    what = f"{folder.name}/{entry.file}"
    array = open_npy(check_size(folder, entry), what)
    if array.dtype.str != entry.dtype or array.shape != entry.shape:
        raise DataError(f"{what}: holds {array.dtype.str} of shape {array.shape}; the manifest says {entry.dtype} of shape {entry.shape}")
    return array


def _locate(folder: Path, entry: ArrayEntry) -> tuple[Path, str]:
    """Return the path of an array's file, which must be a regular file in the folder, and a message if its size is wrong."""
    path, what = folder / entry.file, f"{folder.name}/{entry.file}"
    try:
        inside = path.resolve().parent == folder.resolve()
    except RuntimeError as error:  # of Python 3.11 and 3.12; later ones leave it to `regular_size`
        raise DataError(f"{what}: cannot be read: it is a link to itself") from error
    if not inside:
        raise DataError(f"{what}: is a link that leaves the folder of the store")
    size = regular_size(path, what)
    if size == entry.bytes:
        return path, ""
    word = "truncated" if size < entry.bytes else "too long"
    return path, f"{what}: is {word}: the manifest says {entry.bytes} bytes, the file has {size}"


def known_sums(folder: Path) -> dict[str, tuple[Mark, str]]:
    """Return the files of a store that were hashed: the mark of each, and its SHA-256, by name. Raises nothing."""
    with suppress(OSError, ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError):
        files = json.loads(_cache_file(folder).read_bytes())["files"]
        return {name: (Mark(*map(int, mark)), str(sum_)) for name, (*mark, sum_) in files.items() if len(mark) == len(Mark._fields)}
    return {}


def remember(folder: Path, sums: dict[str, tuple[Mark, str]]) -> None:
    """Add hashed files of a store to the cache: their marks, which were settled before the files were read. Raises nothing."""
    before = known_sums(folder)
    existing = {name: both for name, both in (before | sums).items() if os.path.exists(folder / name)}
    if existing == before:
        return
    entry: dict[str, Any] = {"folder": os.path.realpath(folder), "files": {name: [*mark, sum_] for name, (mark, sum_) in existing.items()}}
    with suppress(OSError):
        write_file(_cache_file(folder), json.dumps(entry))
        entries = sorted(_cache_file(folder).parent.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in entries[_MOST_STORES:]:  # those written longest ago
            path.unlink(missing_ok=True)


def _cache_file(folder: Path) -> Path:
    """Return the cache entry of a store; raises OSError if the user has no home folder."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(root if os.path.isabs(root) else os.path.expanduser("~/.cache"))
    if not cache.is_absolute():
        raise FileNotFoundError(f"there is no home folder for a cache: {cache}")
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return cache / "bulksample" / "verified" / f"{name}.json"
