"""The memory that MPICH shares between the ranks of a machine. It has a name in /dev/shm, and stays taken where nobody removes that.

The library does so when it ends. After a kill, it would stay until the machine is started again.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")
_NAME = re.compile(r"/mpich_shm_\w+")
_OLD_SECONDS = 600.0  # a younger one may belong to ranks that are about to open it


def forget_names() -> None:
    """Take the names from the memory of this process, once all ranks of the machine have found it; it goes with the last of them."""
    for path in _mapped(Path("/proc/self")):
        with suppress(OSError):
            path.unlink()


def sweep(old: float = _OLD_SECONDS) -> list[Path]:
    """Remove what nobody holds any more, as a rank leaves it that was killed while MPI started.

    Parameters
    ----------
    old : float
        Seconds; younger memory is left alone.

    Returns
    -------
    list of Path
        What was removed: files of this user that no process maps.
    """
    found = [path for path in FOLDER.glob("mpich_shm_*") if _is_old(path, old)]
    held = set().union(*(_mapped(process) for process in Path("/proc").glob("[0-9]*"))) if found else set()
    lost = [path for path in found if path not in held]
    for path in lost:
        with suppress(OSError):
            path.unlink()
    return lost


def _is_old(path: Path, seconds: float) -> bool:
    with suppress(OSError):
        status = path.stat()
        return status.st_uid == os.getuid() and time.time() - status.st_mtime > seconds
    return False


def _mapped(process: Path) -> set[Path]:
    """What of it a process has mapped; nothing where it may not be looked at, as it is another user's then."""
    with suppress(OSError):
        return {FOLDER / name[1:] for name in _NAME.findall((process / "maps").read_text())}
    return set()
