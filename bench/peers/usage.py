"""Count seconds and memory of this process; needs the standard library alone, so that contestants of any Python share it."""

from __future__ import annotations

import resource
import time
from pathlib import Path


class Clock:
    """Seconds since it was made: by the wall clock, and of the processor, of all threads, in this program and in the system for it."""

    def __init__(self) -> None:
        self._began = _now()

    def spent(self) -> dict[str, float]:
        """Return ``seconds``, ``user`` and ``system``, and ``processor``, the sum of both."""
        seconds, user, system = (now - began for now, began in zip(_now(), self._began, strict=True))
        return {"seconds": seconds, "processor": user + system, "user": user, "system": system}


def _now() -> tuple[float, float, float]:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), spent.ru_utime, spent.ru_stime


def memory() -> dict[str, float]:
    """Return MiB of the resident set, mapped files included: the peak of the process so far, and now."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return {name: int(lines[which].split()[0]) / 1024 for name, which in (("peak_mib", "VmHWM"), ("rss_mib", "VmRSS"))}
