"""Compare a store with its hashes on all ranks together: each file is hashed by one rank, and all raise together."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...data.manifest_file import ArrayEntry
from ...data.parts_manifest import graph_manifest, is_parts, load_part, load_parts
from ...data.store_files import CHECKS, Sums, file_mark, remember, stale, wanted
from ...errors import DataError, UsageError
from ...mapped import Mark
from ..comm.base import Comm

_TOLD_BYTES = 2**30  # hashing more takes seconds, so a line says what the run waits for
_MEETINGS = 10  # in one deadline: a rank that hashes for longer is not taken for a lost one


def verify_together(directory: str | os.PathLike[str], comm: Comm, check: str = "auto", features: bool = True) -> None:
    """Hash the files of a store that changed since they were last hashed, as `data.store.load` does; collective.

    Raises `DataError` on every rank if a file is damaged on one of them; the message names each such file. Ranks that see a file with the
    same size, mtime, ctime and inode see one file, as on a shared file system: it is hashed once, and is not hashed if one of them has done
    so before. Copies on several machines differ in these and are hashed on each. Files go to the ranks that see them, the largest first,
    each to the rank with the fewest bytes so far. Some 100 bytes for each file move to every rank. Of a folder of parts, a rank hashes the
    tables of ids and an even share of the parts: its own part, if there is one for each.
    """
    if check not in CHECKS:
        raise UsageError(f"check was {check!r}; use {', '.join(CHECKS)}")
    if check == "none":
        return
    folder = Path(directory)

    def arrays() -> Mapping[str, ArrayEntry]:  # that lie in the folder itself
        return load_parts(folder).arrays if is_parts(folder) else graph_manifest(folder, plain=False).arrays

    _verify_files(folder, arrays, comm, check, features)
    counts = comm.gather_control(len(load_parts(folder).parts) if is_parts(folder) else 0)
    if min(counts) != max(counts):
        raise UsageError(f"the ranks were given folders of {min(counts)} and of {max(counts)} parts; give all of them one folder")
    own_parts = range(comm.rank * counts[0] // comm.size, -(-(comm.rank + 1) * counts[0] // comm.size))
    for turn in range(-(-counts[0] // comm.size) + 1 if counts[0] else 0):
        _verify_part(folder, own_parts[turn] if turn < len(own_parts) else None, comm, check, features)


def _verify_part(folder: Path, part: int | None, comm: Comm, check: str, features: bool) -> None:
    """Hash one part of a divided graph, another one on each rank; None: this rank hashes no part now."""
    if part is None:
        _verify_files(folder, dict, comm, check, features)
        return
    parts = load_parts(folder)
    _verify_files(folder / parts.parts[part].folder, lambda: load_part(folder, parts, part).arrays, comm, check, features)


def _verify_files(folder: Path, arrays: Callable[[], Mapping[str, ArrayEntry]], comm: Comm, check: str, features: bool) -> None:
    """Hash the files of one folder on each rank; collective."""
    entries, seen, fault = _seen(folder, arrays, check, features)
    place = [socket.gethostname(), os.path.realpath(folder)]
    gathered = comm.gather_control([fault, seen, place])
    _raise([[fault] for fault, _, _ in gathered if fault])
    if not any(unknown for _, theirs, _ in gathered for _, unknown in theirs.values()):
        return
    files = _files([theirs for _, theirs, _ in gathered])
    share = _share(files, comm.size)[comm.rank]
    sums = Sums(folder)
    size = sum(mark.size for (_, mark), (_, unknown) in files.items() if unknown)
    if comm.rank == 0 and size > _TOLD_BYTES:
        print(f"bulksample: hashing {size / 1e9:.3g} GB of {folder.name}, as after each change; check none leaves it out", file=sys.stderr)
    intact = _hash_in_company(comm, sums, sums.compare(entries[name] for name in share))
    if [other for _, _, other in gathered].index(place) != comm.rank:
        return  # the lowest rank of a machine writes the cache
    intact |= {file for file, (_, unknown) in files.items() if not unknown}
    marks = {name: Mark(*mark) for name, (mark, _) in seen.items()}
    remember(folder, {name: (mark, entries[name].sha256) for name, mark in marks.items() if (name, mark) in intact})


def _seen(
    folder: Path, arrays: Callable[[], Mapping[str, ArrayEntry]], check: str, features: bool
) -> tuple[dict[str, ArrayEntry], dict[str, Any], str]:  # fmt: skip
    """Return the files of a folder by name, the mark of each and True if it is to be hashed, and what is wrong."""
    try:
        entries = {entry.file: entry for entry in wanted(arrays(), features).values()}
        to_hash = {entry.file for entry in stale(folder, entries.values(), check)}
    except (DataError, UsageError) as error:
        return {}, {}, str(error)
    marks = {name: file_mark(folder, entry) or Mark(-1, 0, 0, 0) for name, entry in entries.items()}
    return entries, {name: [list(mark), name in to_hash] for name, mark in marks.items()}, ""


def _files(seen: list[dict[str, Any]]) -> dict[tuple[str, Mark], tuple[list[int], bool]]:
    """Return each distinct file by name and mark: the ranks that see it, and True if none of them has hashed it before."""
    files: dict[tuple[str, Mark], tuple[list[int], bool]] = {}
    for rank, theirs in enumerate(seen):
        for name, (mark, unknown) in theirs.items():
            ranks, all_unknown = files.get((name, Mark(*mark)), ([], True))
            files[name, Mark(*mark)] = [*ranks, rank], all_unknown and unknown
    return files


def _share(files: dict[tuple[str, Mark], tuple[list[int], bool]], ranks: int) -> list[list[str]]:
    """Assign each file that is to be hashed to one of the ranks that see it; every rank computes the same assignment."""
    load, shares = [0] * ranks, [list[str]() for _ in range(ranks)]
    for (name, mark), (seers, unknown) in sorted(files.items(), key=lambda item: (-item[0][1].size, item[0])):
        if unknown:
            rank = min(seers, key=lambda rank: load[rank])
            load[rank] += max(0, mark.size)
            shares[rank].append(name)
    return shares


def _hash_in_company(comm: Comm, sums: Sums, work: Iterator[None]) -> set[tuple[str, Mark]]:
    """Hash the own share, meeting several times in a deadline; return name and mark of intact files. Raises `DataError` on all."""
    finished = False
    while True:
        until = time.monotonic() + comm.timeout / _MEETINGS
        while not finished and time.monotonic() < until:
            finished = next(work, StopIteration) is StopIteration
        intact = [[name, *mark] for name, (mark, _) in sums.intact.items()]
        everyone = comm.gather_control([finished, sums.faults, intact] if finished else [False, [], []])
        if all(done for done, _, _ in everyone):
            _raise([faults for _, faults, _ in everyone])
            return {(name, Mark(*mark)) for _, _, theirs in everyone for name, *mark in theirs}


def _raise(faults: list[list[str]]) -> None:
    """Raise `DataError` with all faults, each once."""
    if distinct := dict.fromkeys(fault for theirs in faults for fault in theirs):
        raise DataError("\n".join(distinct))
