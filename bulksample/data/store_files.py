"""The files of a store: compare their sizes and hashes with the manifest, and map them into memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from ..errors import DataError, UsageError
from ..mapped import Mark, mark_of
from .files import pieces_of
from .manifest_file import ArrayEntry
from .npy import open_npy, regular_size
from .verified import is_settled, known_sums, remember

CHECKS = ("auto", "full", "none")
_FEATURES = re.compile(r"((types|relations)\.\d+\.)?(edge_)?features")


def check_sums(folder: Path, entries: Iterable[ArrayEntry], check: str) -> None:
    """Compare files with their SHA-256 and remember those that are intact; raises `DataError` listing all that differ.

    Parameters
    ----------
    check : {"auto", "full", "none"}
        Files that changed since they were last hashed, all files, or none.
    """
    sums = Sums(folder)
    for _ in sums.compare(stale(folder, entries, check)):
        pass
    sums.finish()


class Sums:
    """Compares files of a store with the SHA-256 in its manifest, a piece at a time.

    Attributes
    ----------
    intact : dict of file names to (Mark, SHA-256), without the files that changed just before or while they were read
    faults : list of str, a message for each file that differs
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
                settled = is_settled(before)
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
    """Return the files to hash: those without a known hash that is the one of the manifest, all, or none. Raises `UsageError`."""
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
