"""Write a file or a folder completely or not at all, and clear away what killed processes left.

New content is written beside its target, synced and renamed. Until then its name tells who writes it:

    .NAME.bulksample-new-PID-START-HOST-RANDOM     being written
    .NAME.bulksample-old-PID-START-HOST-RANDOM     the folder that is being replaced

`sweep` removes what dead processes left in a folder, and puts an old folder back if its replacement never arrived. START is the start
time of the process, so a process that was given the id of a dead one is not mistaken for it. Processes of other hosts cannot be asked;
their leftovers are settled after an age.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import DataError, UsageError

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.bulksample-(?P<kind>new|old)-(?P<pid>\d+)-(?P<start>\d+)-(?P<host>[0-9a-f]{8})-[0-9a-z_]{8}")
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_REMOVED_AFTER = 86400.0  # seconds without a change, if the process ran on another host
RESTORED_AFTER = 600.0  # two renames follow each other at once, so a missing folder is soon known to be abandoned


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder in which to write; when the block ends without an error, it replaces `target`.

    An older folder is removed only after the new one is in place. Missing parents are created. The caller syncs the files. Raises OSError
    if a step fails: the target stays as it was, and if it could not be put back, the message names the path where it is.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    made = _beside(target, "new")
    try:
        made.mkdir()
        yield made
        sync_folder(made)
        _move(made, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)  # already renamed unless an error occurred


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a stream to write to; when the block ends without an error, its content replaces the file `target`.

    A link is followed. A pipe or a device is written directly, and so is a file in a folder that is not writable. The mode of an
    old file is kept. Missing parents are created. Raises OSError if a step fails.
    """
    if _is_written_directly(target):
        with _named(target), open(target, "wb") as stream:
            yield stream
        return
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    made = _beside(target, "new")
    try:
        with _named(target), open(made, "wb") as stream:
            if target.exists():
                os.fchmod(stream.fileno(), target.stat().st_mode & 0o777)
            yield stream
            sync(stream)
        os.replace(made, target)
        sync_folder(target.parent)
    finally:
        made.unlink(missing_ok=True)


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Add the path to the error of a full or failing disk, which has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_DISK:
            error.filename = str(target)
        raise


def _is_written_directly(target: Path) -> bool:
    """True for a pipe or a device, also by a link that has no path of its own, and for a file beside which no other one can be made."""
    return target.exists() and not (target.is_file() and os.access(target.resolve().parent, os.W_OK))


def write_file(target: Path, data: bytes | memoryview | str) -> None:
    """Replace the content of a file; text is written as UTF-8. Raises OSError, and the file then stays as it was."""
    with new_file(target) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


def save_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an `.npz` file completely or not at all. Raises `UsageError` if it cannot be written."""
    try:
        with new_file(path) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def check_writable(target: Path) -> None:
    """Raise `UsageError` unless a file could be written at `target`, or a folder; call it before long work. Nothing is left there."""
    try:
        place = target.resolve().parent
        while not place.exists():
            place = place.parent
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not _is_written_directly(target):
            with tempfile.TemporaryFile(dir=place):
                pass
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise UsageError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from error


def temporary_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder among the temporary files, deleted with the object that is returned; those of killed processes are removed first."""
    sweep(place := Path(tempfile.gettempdir()))
    start = _beside(place / name, "new").name.rpartition("-")[0]
    return tempfile.TemporaryDirectory(prefix=f"{start}-", ignore_cleanup_errors=True)


def sweep(folder: Path) -> None:
    """Remove what dead processes left in a folder; restore old folders whose replacement never arrived. Raises nothing."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if match := _LEFTOVER.fullmatch(name):
                with suppress(OSError):  # another process settles it, or this one may not
                    _settle(folder / name, folder / match["name"], match)


def replaced(target: Path) -> Path | None:
    """Return the old content of a missing folder, left by a writer that is between its two renames or was killed there."""
    with suppress(OSError):
        for name in os.listdir(target.parent):
            match = _LEFTOVER.fullmatch(name)
            if match and (match["name"], match["kind"]) == (target.name, "old"):
                return target.parent / name
    return None


def _settle(left: Path, target: Path, match: re.Match[str]) -> None:
    """Restore or remove one leftover, unless its process may still need it: it runs, or on another host changed something lately."""
    restore = match["kind"] == "old" and (not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())))
    if match["host"] == _host():
        if _runs(int(match["pid"]), int(match["start"])):
            return
    else:
        paths = [left, *left.iterdir()] if left.is_dir() else [left]
        changed = max(max(status.st_mtime, status.st_ctime) for status in map(os.lstat, paths))
        if time.time() - changed <= (RESTORED_AFTER if restore else _REMOVED_AFTER):
            return
    if restore:
        os.rename(left, target)
    elif left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)


def _beside(target: Path, kind: str) -> Path:
    """Return a new path in the folder of the target that names this process."""
    pid = os.getpid()
    return target.with_name(f".{target.name}.bulksample-{kind}-{pid}-{_started(pid)}-{_host()}-{uuid.uuid4().hex[:8]}")


def _move(made: Path, target: Path) -> None:
    """Rename the finished folder to its target; an older folder is removed only after the new one is in place."""
    old = _beside(target, "old") if target.exists() and any(target.iterdir()) else None
    try:
        if old is not None:
            os.rename(target, old)
        os.rename(made, target)
    except BaseException as error:  # Ctrl-C as well: while this process lives, no other one puts the old folder back
        if old is not None and old.exists() and made.exists():
            try:
                os.rename(old, target)
            except OSError:
                if isinstance(error, OSError):
                    raise OSError(error.errno, f"{error.strerror}; the old one is at {old}") from error
                error.add_note(f"the old one is at {old}")
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    sync_folder(target.parent)


@cache
def _host() -> str:
    """Return eight hex digits for the processes whose ids this process can look up: those of this host, boot and pid namespace."""
    known = [platform.node()]
    with suppress(OSError):
        known += [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8"), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256(" ".join(known).encode()).hexdigest()[:8]


def _started(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; -1 if it has ended, 0 if /proc does not show it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return -1 if fields[0] in "ZX" else int(fields[19])


def _runs(pid: int, started: int) -> bool:
    if started and (shown := _started(pid)):
        return shown == started
    try:  # without /proc, or one mounted with hidepid, which hides the processes of other users
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it belongs to another user
    return True


def is_device(file: Path) -> bool:
    """Return True for a device or a pipe, such as /dev/null; no result is kept there, and no other file beside it."""
    with suppress(OSError, ValueError):
        mode = os.stat(file).st_mode  # one call: between two, another process may remove the file
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


PIECE = 2**24  # bytes


def folder_of(path: Any, what: str) -> Path:
    """Return a path that the user gave for a folder; raises `UsageError` naming `what` for anything else."""
    if isinstance(path, str | os.PathLike):
        return Path(path)
    raise UsageError(f"{what}: got a {type(path).__name__}; use the path of a folder")


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and sync it."""
    with open(path, "wb") as stream:
        stream.write(data)
        sync(stream)


def sync(stream: BinaryIO) -> None:
    """Sync what was written to a stream."""
    stream.flush()
    os.fsync(stream.fileno())


def sync_folder(path: Path) -> None:
    """Sync a folder, so that the names of its files survive a crash."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def pieces_of(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, 16 MiB at a time; raises `DataError` if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            while piece := stream.read(PIECE):
                yield piece
    except OSError as error:
        raise DataError(f"{path.parent.name}/{path.name}: cannot be read: {error.strerror}") from error
