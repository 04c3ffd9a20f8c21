"""Share what every benchmark needs: a description of the machine, alternating rounds, medians with their spread."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bulksample.training.environment import processor


def machine() -> dict[str, Any]:
    """Describe the processor, the number of usable cores, and the load."""
    python = platform.python_version()
    return {"processor": processor(), "processors": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "python": python}


def milliseconds(call: Callable[[], object]) -> Callable[[], float]:
    """Time a call by the wall clock."""

    def run() -> float:
        began = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - began)

    return run


def alternate(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Warm up each contestant once, then run `rounds` rounds of all in turn, so that a drifting machine is fair to all."""
    for contestant in contestants.values():
        contestant()
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            figures[name].append(contestant())
    return figures


def summary(figures: list[float]) -> dict[str, float]:
    """Return median, minimum and maximum."""
    return {"median": statistics.median(figures), "min": min(figures), "max": max(figures)}


def report(result: dict[str, Any], path: Path | None) -> None:
    """Print the result, and write it as JSON if a path is given."""
    text = json.dumps(result, indent=2, default=str)
    print(text)
    if path is not None:
        path.write_text(text + "\n")
