"""Memory of 10,000 bulks of each sampler: the resident memory grows by less than 1 % after a warm-up."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
from battery import SETTINGS, make, needs_weights
from communities import community_graph

from bulksample import LocalAdjacency, Selection, Stream, backends

from .child import in_child

BULKS, WARM_UP, MOST_GROWTH = 10_000, 1_000, 0.01
LONGEST = 3600.0  # seconds for the bulks of one sampler
K, B = 4, 16


def cases(seed: int) -> list[dict[str, Any]]:
    """Return every sampler in every setting of the tests."""
    return [{"group": "samplers", "sampler": setting, "bulks": BULKS, "seed": seed} for setting in SETTINGS]


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Sample in a process of its own and compare its memory after the warm-up and at the end."""
    found = in_child(lambda: _sampled(case), LONGEST)
    if "after" not in found:
        return {"passed": False, "seen": f"no answer: {found}"}
    growth = found["after"] / found["before"] - 1
    grown = growth >= MOST_GROWTH
    return {"passed": not grown, "seen": f"grown by {growth:.2%}" if grown else "grown by less than 1 %", "growth": growth, **found}


def _sampled(case: dict[str, Any]) -> dict[str, Any]:
    """Return the resident bytes after a tenth of the bulks and after all."""
    graph = community_graph(n=2000, degree=10, weighted=needs_weights(case["sampler"]))
    adjacency, sampler = LocalAdjacency(graph.adjacency, backends.make(threads=1)), make(case["sampler"])
    rng, before = np.random.default_rng(case["seed"]), 0
    for bulk in range(case["bulks"]):
        if bulk == case["bulks"] * WARM_UP // BULKS:
            before = resident_bytes()
        sampler.sample_bulk(adjacency, Selection.of(rng.integers(0, graph.n, (K, B)), graph.n), Stream(1), bulk)
    return {"before": before, "after": resident_bytes()}


def resident_bytes() -> int:
    """Return the resident memory of this process, after the allocator has returned what is free."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
