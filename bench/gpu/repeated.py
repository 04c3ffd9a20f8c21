"""Draw the same large bulk many times: what a device's memory model lets go wrong, it lets go wrong seldom.

A checksum of every bulk is made on the device, and compared with that of the first; one bulk is compared with the native back end.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import torch

from bulksample import LocalAdjacency, Selection, Stream
from bulksample.graph.minibatch import MiniBatch

from .checks import Checks
from .hardware import this_gpu
from .inputs import adjacency_on, products, sampler_of, seeds_of, sizes, skewed

TIMES = 50
ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # as a signed word; multiplying by an odd number loses nothing


def repeated() -> Checks:
    """Draw each of four bulks 50 times; compare one of 64 mini-batches with the native back end."""
    asked = {"sage, k = 1": (0, "sage", 1), "sage, k = 64": (0, "sage", 64), "labor on R-MAT, k = 32": (1, "labor", 32),
             "ladies, k = 32": (0, "ladies", 32)}  # fmt: skip
    checks: Checks = {name: partial(_always_alike, *of) for name, of in asked.items()}
    return checks | {"sage, k = 64, as the native back end": _as_native}


def _always_alike(which: int, name: str, k: int) -> str:
    adjacency, sampler, seeds = _asked(which, name, k)
    times, first = 3 if this_gpu().small else TIMES, 0
    for number in range(times):
        got = drawn(adjacency, sampler, seeds)
        first = got if number == 0 else first
        if got != first:
            raise AssertionError(f"bulk {number + 1} of {times} differs from the first")
    return f"{times} bulks of {len(seeds)} mini-batches, each {first & (1 << 64) - 1:016x}"


def _as_native() -> str:
    adjacency, sampler, seeds = _asked(0, "sage", 64)
    with _cuda().streams.sample.on("digests"):
        got = [minibatch.digest() for minibatch in sampler.sample_bulk(adjacency, seeds, Stream(1))]
    host = LocalAdjacency(adjacency.matrix, this_gpu().host())
    expected = [minibatch.digest() for minibatch in sampler.sample_bulk(host, seeds, Stream(1))]
    if wrong := [number for number, (one, other) in enumerate(zip(got, expected, strict=True)) if one != other]:
        raise AssertionError(f"mini-batches {wrong} of {len(got)} differ")
    return f"{len(got)} mini-batches alike"


def _asked(which: int, name: str, k: int) -> tuple[Any, Any, Selection]:
    """Return the adjacency of a graph on the device, a sampler, and the seeds of k mini-batches."""
    matrix = (products, skewed)[which]()
    return adjacency_on(_cuda(), matrix), sampler_of(name), seeds_of(matrix, k, sizes().batch)


@cache
def _cuda() -> Any:
    return this_gpu().open()


def drawn(adjacency: Any, sampler: Any, seeds: Selection) -> int:
    """Draw a bulk that stays on the device and return the checksum of all its arrays, an int64."""
    with _cuda().streams.sample.on("checksum"):
        return checksum(tensors_of(sampler.sample_bulk(adjacency, seeds, Stream(1))))


def tensors_of(bulk: Iterable[MiniBatch]) -> list[torch.Tensor]:
    """Return the arrays of mini-batches that lie on the device, in the order of `MiniBatch.digest`."""
    parts = [(m.vertices, m.seed_rows, *(part for b in m.blocks for part in (b.indptr, b.indices, b.weights))) for m in bulk]
    return [part for own in parts for part in own if isinstance(part, torch.Tensor)]


def checksum(tensors: list[torch.Tensor]) -> int:
    """Return a sum that depends on each word of some tensors and on its place; the host waits once, at its end."""
    total = torch.zeros((), dtype=torch.int64, device=tensors[0].device)
    longest = max(tensor.numel() * tensor.element_size() // 4 for tensor in tensors)
    factors = torch.arange(1, 2 * longest + 1, 2, device=total.device) * ODD
    for tensor in tensors:
        words = tensor.reshape(-1).contiguous().view(torch.int32)
        total = total * 1_000_003 + (words * factors[: len(words)]).sum() + len(words)
    return int(total)
