"""Divide a store into parts, out of core: one pass over each array, in pieces, whose rows are appended to the files of their parts.

Within a part vertices ascend, so pieces that come in the order of ids need no sort. Memory is 4 n bytes for the assignment and some
300 MB for a piece, whatever the size of the store; the disk reads the store once and writes it once.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np

from ..errors import UsageError
from ..mapped import forget
from ..sparse import row_pieces, row_pointers, runs
from .atomic import new_folder, sync_folder, write_synced
from .manifest import Manifest, PlainLayout, layout_of, load_manifest
from .manifest_file import FILE, ArrayEntry, file_of, signed
from .npy import open_npy
from .parts_manifest import PartManifest, PartsManifest, PartSummary
from .result_places import holding
from .store import check_target
from .store_files import NpyAppender, open_array

_PIECE_BYTES = 2**26
_PIECE_ENTRIES = 2**22
_MATRICES = {"": ("indices", "weights", "edge_features"), "features_": ("features_indices", "features_values")}


def write_parts(
    directory: str | os.PathLike[str], target: str | os.PathLike[str], assignment: np.ndarray, parts: int, by: str, seed: int = 0,
    overwrite: bool = False,
) -> PartsManifest:  # fmt: skip
    """Write the parts of a store to a folder, completely or not at all, and return the manifest of all.

    `assignment`, int32 of shape (n,), is the part of each vertex, below `parts`; `by` and `seed` name the partitioner in the manifest.
    Held-out edges of the store (`links.npz`) are copied into the folder. Raises `UsageError` if the folder exists and is not to be
    replaced, holds the store itself, or cannot be written; `DataError` if the store is damaged.
    """
    folder, out = Path(directory), Path(os.path.abspath(target))
    manifest = load_manifest(folder)
    check_parts_target(folder, out, overwrite)
    if assignment.shape != (manifest.vertices,):
        raise UsageError(f"the partition is of {len(assignment)} vertices; {folder} has {manifest.vertices}")
    try:
        with holding(out), new_folder(out) as made:
            if (links := folder / "links.npz").is_file():
                shutil.copyfile(links, made / links.name)
            return _Division(folder, manifest, made, assignment, parts).write(by, seed)
    except OSError as error:
        raise UsageError(f"cannot write parts at {out}: {error.strerror or error}") from error


def check_parts_target(directory: str | os.PathLike[str], target: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Raise `UsageError` unless the parts of a store may be written to this folder; call it before long work."""
    source, out = Path(directory).resolve(), Path(target).resolve()
    if out in (source, *source.parents):
        raise UsageError(f"{target} holds the graph that is divided; write its parts to another folder")
    check_target(target, overwrite)


class _Division:
    """The parts of one store while they are written."""

    def __init__(self, folder: Path, manifest: Manifest, made: Path, assignment: np.ndarray, parts: int) -> None:
        self.folder, self.manifest, self.made, self.assignment, self.parts = folder, manifest, made, assignment, parts
        self.rows = sum((np.bincount(assignment[a:b], minlength=parts) for a, b in self._pieces(8)), np.zeros(parts, np.int64))
        self.folders = [made / f"part-{part:05d}" for part in range(parts)]
        self.arrays: list[dict[str, ArrayEntry]] = [{} for _ in range(parts)]
        for part_folder in self.folders:
            part_folder.mkdir()

    def write(self, by: str, seed: int) -> PartsManifest:
        """Write all files and the manifests."""
        self._column("old_id", np.dtype(np.int32), (), lambda a, b: np.arange(a, b, dtype=np.int32))
        pointers = self._open("indptr")
        self._column("first_entry", np.dtype(np.int64), (), lambda a, b: pointers[a:b])
        for role in self.manifest.arrays:
            if not any(role in (f"{prefix}indptr", *others) for prefix, others in _MATRICES.items()):
                array = self._open(role)
                self._column(role, array.dtype, array.shape[1:], lambda a, b, array=array: array[a:b])  # type: ignore[misc]
        for prefix, roles in _MATRICES.items():
            if f"{prefix}indptr" in self.manifest.arrays:
                self._matrix(prefix, [role for role in roles if role in self.manifest.arrays])
        file = NpyAppender(self.made / "old_id.npy", np.dtype(np.int32), (len(self.assignment),))
        for part_folder in self.folders:
            file.append(open_npy(part_folder / "old_id.npy", part_folder.name))
        tables = {"old_id": file.finish(), "new_id": self._new_ids()}
        made = []
        for part, part_folder in enumerate(self.folders):
            arrays, rows = self.arrays[part], int(self.rows[part])
            entries, size = arrays["indices"].shape[0], sum(entry.bytes for entry in arrays.values())
            training = np.count_nonzero(open_npy(part_folder / file_of("mask.train"), part_folder.name)) if "mask.train" in arrays else 0
            graph, partition = self.manifest.digest, tables["new_id"].sha256
            one = signed(PartManifest(part=part, graph=graph, partition=partition, vertices=rows, entries=entries, arrays=arrays))
            write_synced(part_folder / FILE, one.dumps())
            sync_folder(part_folder)
            sizes = {"vertices": rows, "entries": entries, "training_vertices": int(training), "bytes": size}
            made.append(PartSummary(folder=part_folder.name, **sizes, digest=one.digest))
        whole = signed(PartsManifest(by=by, seed=seed, graph=cast(PlainLayout, layout_of(self.manifest)), parts=tuple(made), arrays=tables))
        write_synced(self.made / FILE, whole.dumps())
        return whole

    def _open(self, role: str) -> np.ndarray:
        return open_array(self.folder, self.manifest.arrays[role])

    def _pieces(self, row_bytes: int) -> Iterator[tuple[int, int]]:
        step = max(1, min(_PIECE_ENTRIES, _PIECE_BYTES // max(1, row_bytes)))
        for first in range(0, len(self.assignment), step):
            yield first, min(first + step, len(self.assignment))

    def _grouped(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a piece sorted by part, stable, and the bounds of each part in this order."""
        part_of_row = self.assignment[first:last]
        order = np.argsort(part_of_row, kind="stable")
        return order, np.searchsorted(part_of_row[order], np.arange(self.parts + 1))

    def _column(self, role: str, dtype: np.dtype, tail: tuple[int, ...], read: Callable[[int, int], np.ndarray]) -> None:
        """Write one array of the vertices."""
        files = [NpyAppender(at / file_of(role), dtype, (int(rows), *tail)) for at, rows in zip(self.folders, self.rows, strict=True)]
        for first, last in self._pieces(dtype.itemsize * math.prod(tail)):
            rows, (order, cuts) = read(first, last), self._grouped(first, last)
            for part in np.flatnonzero(np.diff(cuts)):
                files[part].append(rows[order[cuts[part] : cuts[part + 1]]])
            forget(rows)
        for arrays, file in zip(self.arrays, files, strict=True):
            arrays[role] = file.finish()

    def _matrix(self, prefix: str, roles: list[str]) -> None:
        """Write the row pointers and the entries of a sparse matrix, with all that is stored by entry."""
        pointers, sources = self._open(f"{prefix}indptr"), [self._open(role) for role in roles]
        totals = np.zeros(self.parts, np.int64)
        for first, last in self._pieces(8):
            counts = np.diff(pointers[first : last + 1])
            totals += np.bincount(self.assignment[first:last], counts, self.parts).astype(np.int64)
        sizes = list(zip(self.folders, self.rows, totals, strict=True))
        ends = [NpyAppender(folder / file_of(f"{prefix}indptr"), np.dtype(np.int64), (int(rows) + 1,)) for folder, rows, _ in sizes]
        files = [
            [NpyAppender(at / file_of(role), array.dtype, (int(m), *array.shape[1:])) for role, array in zip(roles, sources, strict=True)]
            for at, _, m in sizes
        ]
        for end in ends:
            end.append(np.zeros(1, np.int64))
        running = np.zeros(self.parts, np.int64)
        widest = max(1, *(source.dtype.itemsize * math.prod(source.shape[1:]) for source in sources))
        for first, last in row_pieces(pointers, max(1, min(_PIECE_ENTRIES, _PIECE_BYTES // widest))):
            order, cuts = self._grouped(first, last)
            starts, counts = pointers[first:last][order], np.diff(pointers[first : last + 1])[order]
            inside, low = row_pointers(counts), int(pointers[first])
            entries = [source[low : int(pointers[last])] for source in sources]
            for part in np.flatnonzero(np.diff(cuts)):
                rows = slice(cuts[part], cuts[part + 1])
                ends[part].append(running[part] + inside[cuts[part] + 1 : cuts[part + 1] + 1] - inside[cuts[part]])
                running[part] += inside[cuts[part + 1]] - inside[cuts[part]]
                picked = runs(starts[rows] - low, counts[rows])
                for file, array in zip(files[part], entries, strict=True):
                    file.append(array[picked])
            for array in entries:
                forget(array)
        for arrays, end, part_files in zip(self.arrays, ends, files, strict=True):
            arrays[f"{prefix}indptr"] = end.finish()
            arrays |= {role: file.finish() for role, file in zip(roles, part_files, strict=True)}

    def _new_ids(self) -> ArrayEntry:
        file, following = NpyAppender(self.made / "new_id.npy", np.dtype(np.int32), (len(self.assignment),)), row_pointers(self.rows)
        for first, last in self._pieces(8):
            order, cuts = self._grouped(first, last)
            counts = np.diff(cuts)
            places = np.empty(last - first, np.int32)
            places[order] = runs(following[:-1], counts)
            following[:-1] += counts
            file.append(places)
        return file.finish()
