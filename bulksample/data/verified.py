"""Remember which files of a store have been compared with their hashes, so that a store is hashed when it is first opened after it changed.

The cache is the user's: one small JSON file for each store in ``$XDG_CACHE_HOME/bulksample/verified``, by default below ``~/.cache``.
It holds the size, mtime, ctime and inode of each file when its SHA-256 was computed. An unreadable or unwritable cache costs time alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..mapped import Mark
from .atomic import write_file

_MOST_STORES = 256
_COARSE, _FINE = 2 * 10**9, 5 * 10**7  # ns; a file changed again so soon after a change may keep its mtime


def is_settled(mark: Mark) -> bool:
    """Return True if a change from now on changes the mark: the clock of the file system has moved on since the last one."""
    now = time.time_ns()  # some file systems count whole seconds
    return all(now - changed > (_FINE if changed % 10**9 else _COARSE) for changed in (mark.mtime_ns, mark.ctime_ns))


def known_sums(folder: Path) -> dict[str, tuple[Mark, str]]:
    """Return the files of a store that were hashed: the mark of each, and its SHA-256, by name. Raises nothing."""
    with suppress(OSError, ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError):
        held = json.loads(_cache_file(folder).read_bytes())["files"]
        return {name: (Mark(*map(int, mark)), str(sum_)) for name, (*mark, sum_) in held.items() if len(mark) == len(Mark._fields)}
    return {}


def remember(folder: Path, sums: dict[str, tuple[Mark, str]]) -> None:
    """Add hashed files of a store to the cache: their marks, which were settled before the files were read. Raises nothing."""
    before = known_sums(folder)
    held = {name: both for name, both in (before | sums).items() if os.path.exists(folder / name)}
    if held == before:
        return
    entry: dict[str, Any] = {"folder": os.path.realpath(folder), "files": {name: [*mark, sum_] for name, (mark, sum_) in held.items()}}
    with suppress(OSError):
        write_file(_cache_file(folder), json.dumps(entry))
        _prune(_cache_file(folder).parent)


def _cache_file(folder: Path) -> Path:
    """Return the cache entry of a store; raises OSError if the user has no home folder."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(root if os.path.isabs(root) else os.path.expanduser("~/.cache"))
    if not cache.is_absolute():
        raise FileNotFoundError(f"there is no home folder for a cache: {cache}")
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return cache / "bulksample" / "verified" / f"{name}.json"


def _prune(cache: Path) -> None:
    """Remove the entries written longest ago."""
    entries = sorted(cache.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in entries[_MOST_STORES:]:
        path.unlink(missing_ok=True)
