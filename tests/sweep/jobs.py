"""Store a graph for sections that launch ranks, and turn assertions into outcomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import pytest
from communities import community_graph

from bulksample.data import store

_FOLDER = TemporaryDirectory(prefix="bulksample-sweep-")
_LOCK = Lock()


def store_for_jobs() -> str:
    """Return the path of a store of 300 vertices."""
    place = Path(_FOLDER.name) / "graph"
    with _LOCK:
        if not place.exists():
            store.save(community_graph(), place)
    return str(place)


def verdict_of(attempt: Callable[[], str]) -> dict[str, Any]:
    """Return the outcome of an attempt, which returns what it saw, or fails as a test does."""
    try:
        return {"passed": True, "seen": attempt()}
    except (AssertionError, pytest.fail.Exception) as failed:
        return {"passed": False, "seen": str(failed)[-3000:]}
