"""The places where a run writes its results: each can be written, loses nothing of an earlier run, and belongs to one run at a time.

A run holds its places from its first write to its last. It locks a small file beside each, ``.NAME.bulksample-held``, which names the
process. The system lets go of a lock when its process ends, however it ends, so what a killed run held is free at once; the next run that
holds a place in that folder removes the file. On the file systems of clusters other machines see the lock too; where a file system has no
locks, a warning says so.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..errors import UsageError
from ..process_lock import process_lock
from .atomic import check_writable, is_device

_HELD: dict[str, int] = {}  # the places that this process holds, and the thread that does
_OPEN: set[int] = set()  # file descriptors of the locks
# endings that no folder of ours has
_OF_FILES = frozenset({
    ".npz", ".npy", ".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".toml", ".txt", ".md", ".html", ".png",
    ".pdf", ".svg", ".zip", ".tar", ".gz", ".xz", ".bz2", ".zst", ".pt", ".pth", ".safetensors", ".bin", ".pkl", ".h5", ".hdf5", ".mtx",
})  # fmt: skip
_ENDING = ".bulksample-held"
_CHANGES = process_lock()
_WAIT = "wait for its end, or use another place"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
_MAY_NOT = {errno.EACCES, errno.EPERM, errno.EROFS}


def check_outputs(overwrite: bool, *files: Path | None) -> None:
    """Raise `UsageError` unless each file can be written, and none exists or `overwrite` is given.

    None and ``-`` stand for no file. Pipes and devices never exist in this sense. Missing folders above a file are made later.
    """
    named = _named(files)
    for number, file in enumerate(named):
        check_writable(file)
        if file.is_file() and not overwrite:
            raise UsageError(f"{file} exists already; use another file, or overwrite=True")
        if not is_device(file) and os.path.realpath(file) in map(os.path.realpath, named[:number]):
            raise UsageError(f"two results would be written to {file}; use two files")


def check_ending(option: str, file: Path | str | None, *endings: str, bare: bool = True, prints: bool = False) -> None:
    """Raise `UsageError` if the name of a result promises another format than the option writes.

    `endings` are those that fit, such as ".csv", in any case; without one, the option makes a folder, and endings of files do not fit. With
    `bare` a name without an ending fits too. `prints`: ``-`` stands for standard output; else it is refused, as no name of a file. Devices
    and pipes have no format.
    """
    if str(file) == "-" and not prints:
        raise UsageError(f"{option} writes no results to standard output; got -: use the name of a {'file' if endings else 'folder'}")
    if file is None or str(file) == "-" or is_device(path := Path(file)):
        return
    suffix = path.suffix.lower()
    if not endings:
        if suffix in _OF_FILES:
            raise UsageError(f"{option} makes a folder; got {file}, which is named as a {suffix} file: use {_bare(path)}")
    elif suffix not in endings and not (bare and not _promises(suffix)):
        inner = _bare(path)
        while path.suffix.lower() not in endings and path != inner:  # of p.parquet.gz, p.parquet fits
            path = path.with_suffix("")
        bare_name = path.with_suffix("") if suffix not in _OF_FILES and _promises(suffix) else path
        names = [str(path)] if path.suffix.lower() in endings else [f"{bare_name}{ending}" for ending in endings]
        raise UsageError(f"{option} writes {' or '.join(endings)}; got {file}: use {' or '.join(names)}")


def companion(file: Path, ending: str) -> Path:
    """Return the path beside a report of which `ending` takes the place of .json; a name without it, such as lr0.5, is kept whole."""
    return file.with_name(f"{file.stem if file.suffix.lower() == '.json' else file.name}{ending}")


def _bare(file: Path) -> Path:
    """Return a name without the endings of files, such as g for g.tar.gz."""
    while file.suffix.lower() in _OF_FILES:
        file = file.with_suffix("")
    return file


def _promises(ending: str) -> bool:
    """Return True for the ending of a format: not of a version or a rate, such as ``.v2``, or ``.5`` of ``lr0.5``."""
    return bool(ending) and re.fullmatch(r"\.v?\d.*", ending) is None


def check_folder(overwrite: bool, folder: Path | None) -> None:
    """Raise `UsageError` unless files can be written into a folder, and it is new or empty or `overwrite` is given."""
    if folder is None:
        return
    check_writable(folder / "file")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise UsageError(f"{folder} exists already and is not empty; use another folder, or overwrite=True")


@contextmanager
def holding(*places: Path | None, inside: Path | None = None) -> Iterator[None]:
    """Hold the places of results, files or folders, while the block runs; check what lies there after this call, not before.

    None and ``-`` stand for no place. Devices and pipes are shared, and so is a file whose folder this process may not write to. A thread
    may hold again what it holds. Missing folders above a place are made; those that stay empty are removed at the end. The folder `inside`
    is held by a lock within it, so one that is mounted, or whose parent is not writable, can be held. Raises `UsageError`, naming the
    process, if another run holds one of them, and OSError if a lock cannot be written.
    """
    real = {os.path.realpath(place): place for place in _named(places) if not is_device(place)}
    if inside is not None:
        real[os.path.realpath(inside / "checkpoints")] = inside
    with ExitStack() as locks:
        for path in sorted(real):
            locks.enter_context(_holding(path, real[path]))
        yield


def _named(files: tuple[Path | None, ...]) -> list[Path]:
    return [file for file in files if file is not None and str(file) != "-"]


@contextmanager
def _holding(path: str, place: Path) -> Iterator[None]:
    """Hold one place by its real path; `place` is the name that the user gave it."""
    with _CHANGES:
        owner = _HELD.get(path)
        if owner not in (None, threading.get_ident()):
            raise UsageError(f"{place} is held by another thread of this process; {_WAIT}")
        _HELD[path] = threading.get_ident()
    try:
        with _with_parents(Path(path).parent), ExitStack() as locked:
            if owner is None:
                locked.enter_context(_locked(Path(path), place))
            yield
    finally:
        if owner is None:
            _HELD.pop(path, None)  # a forked child has forgotten it


@contextmanager
def _with_parents(folder: Path) -> Iterator[None]:
    """Make a folder and the missing ones above it; at the end remove those of them that are empty."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for one in missing:
                one.rmdir()


@contextmanager
def _locked(path: Path, place: Path) -> Iterator[None]:
    """Lock the file beside a place; it is gone afterwards."""
    file = path.with_name(f".{path.name}{_ENDING}")
    try:
        lock = _lock(file, place)
    except OSError as error:
        if error.errno not in _MAY_NOT:
            raise
        lock = None  # then nobody of this user can make a file there
    _sweep(file.parent)
    try:
        yield
    finally:
        if lock in _OPEN:  # not in a forked child, whose parent goes on holding it
            with suppress(OSError):  # of another user, in a folder where only owners remove
                file.unlink()  # before the lock is free: whoever waits for it sees that it lies nowhere, and makes another
            _OPEN.discard(lock)
            os.close(lock)


def _lock(file: Path, place: Path) -> int:
    """Make and lock a file that names this process, and return its descriptor; raises `UsageError` if another process has locked it."""
    tries = 50
    while True:
        lock, is_ours = _opened(file)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner, leaves = _owner(lock), not _lies_at(lock, file) or _is_of_dead(lock)
            os.close(lock)
            if leaves and tries:  # another process is removing it, at its end or in `_sweep`
                tries -= 1
                time.sleep(0.01)
                continue
            raise UsageError(f"{place} is held by {owner}; {_WAIT}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(lock)
                raise
            print(f"bulksample: warning: {place}: no locks on this file system; see that no other run writes there", file=sys.stderr)
        if not is_ours and _lies_at(lock, file):
            with suppress(OSError):
                os.unlink(file)  # of a killed run of another user; if it may not be removed, its lock counts
        if _lies_at(lock, file):
            break
        os.close(lock)  # it was removed meanwhile
    _OPEN.add(lock)
    if not is_ours:
        return lock
    who = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S"), "command": " ".join(sys.argv)}
    os.ftruncate(lock, 0)
    os.write(lock, json.dumps(who).encode())
    return lock


def _opened(file: Path) -> tuple[int, bool]:
    """Open the file of a lock, and make it if it is missing; return its descriptor, and False if it is another user's, to be read only."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), True
    except PermissionError:
        if not file.exists():
            raise
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC), False


def _lies_at(lock: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(file))
    except FileNotFoundError:
        return False


def _sweep(folder: Path) -> None:
    """Remove the files of locks that killed processes of this machine have left in a folder. Raises nothing.

    A file is removed as its holder would: under its lock, while it lies there. Who waits for that lock sees it gone, and makes another.
    """
    with suppress(OSError):
        left = [folder / name for name in os.listdir(folder) if name.startswith(".") and name.endswith(_ENDING)]
        for file in left:
            with suppress(OSError):  # held, of another user, or gone
                _remove_left(file)


def _remove_left(file: Path) -> None:
    lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _is_of_dead(lock):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_of_dead(lock) and _lies_at(lock, file):  # not taken meanwhile
                file.unlink()
    finally:
        os.close(lock)


def _is_of_dead(lock: int) -> bool:
    """Return True if the file of a lock names a process of this machine that has ended; another machine's cannot be asked."""
    try:
        holder = json.loads(os.pread(lock, 2**16, 0))
        if holder["host"] == platform.node():
            os.kill(holder["process"], 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return False
    return False


def _owner(lock: int) -> str:
    """Return who wrote the file of a lock, in words."""
    try:
        holder = json.loads(os.pread(lock, 2**16, 0))
        return f"another run, process {holder['process']} on {holder['host']} since {holder['since']}: {holder['command']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another run that has just begun"


def _forget() -> None:
    """Close the locks in a forked child, which else would keep them when its parent is killed."""
    for lock in _OPEN:
        with suppress(OSError):
            os.close(lock)
    _OPEN.clear()
    _HELD.clear()


os.register_at_fork(after_in_child=_forget)
