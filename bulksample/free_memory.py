"""Measure the memory that is left on this machine, and refuse what needs more."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .errors import UsageError

_MEMINFO, _GROUPS, _OWN_GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def free_memory() -> int:
    """Return the bytes of memory that are free or can be freed, within the limit of the control group of this process.

    Cached files count as free. Where the system does not say so much, the bytes of unused memory are returned.
    """
    try:
        fields = dict(line.split(":") for line in _MEMINFO.read_text(encoding="utf-8").splitlines())
        free = 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError, KeyError):
        group = _GROUPS / _OWN_GROUP.read_text(encoding="utf-8").rpartition("::/")[2].strip()
        used = dict(line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines())
        cached = int(used["inactive_file"]) + int(used["active_file"])
        free = min(
            free,
            int((group / "memory.max").read_text(encoding="utf-8")) - int((group / "memory.current").read_text(encoding="utf-8")) + cached,
        )
    return max(0, free)


def check_free(size: int, what: str, remedy: str) -> None:
    """Raise `UsageError` if `what` needs more bytes than are free; the message names both, and the remedy."""
    if size > (free := free_memory()):
        raise UsageError(f"{what} take {size} bytes of memory, and {free} are free; {remedy}")
