"""Removal of the shared memory through which MPICH's ranks of one machine communicate.

MPICH removes the file in /dev/shm when it ends. After a kill the memory would stay allocated until the machine restarts.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")
_NAME = re.compile(r"/mpich_shm_\w+")
_OLD_SECONDS = 600.0  # ranks may be about to open a younger file


def forget_names() -> None:
    """Unlink the files that this process has mapped. Call it once all ranks have mapped them; the last to exit frees the memory."""
    for path in _mapped(Path("/proc/self")):
        with suppress(OSError):
            path.unlink()


def sweep(old: float = _OLD_SECONDS) -> list[Path]:
    """Unlink this user's shared memory files that no process maps; ranks killed while MPI started leave such files.

    Parameters
    ----------
    old : float
        Seconds; younger files are kept.

    Returns
    -------
    list of Path
        The files that were unlinked.
    """
    found = [path for path in FOLDER.glob("mpich_shm_*") if _is_old(path, old)]
    in_use = set().union(*(_mapped(process) for process in Path("/proc").glob("[0-9]*"))) if found else set()
    unused = [path for path in found if path not in in_use]
    for path in unused:
        with suppress(OSError):
            path.unlink()
    return unused


def _is_old(path: Path, seconds: float) -> bool:
    with suppress(OSError):
        status = path.stat()
        return status.st_uid == os.getuid() and time.time() - status.st_mtime > seconds
    return False


def _mapped(process: Path) -> set[Path]:
    """Return the shared memory files that a process has mapped; empty for a process of another user."""
    with suppress(OSError):
        return {FOLDER / name[1:] for name in _NAME.findall((process / "maps").read_text(encoding="utf-8", errors="replace"))}
    return set()
