"""Compare the digests of every sampler on the device with those of the reference back end."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import battery
import numpy as np
import relation_bulks
import relations_zoo

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends

from .checks import Checks
from .hardware import this_gpu

FANOUTS = ((15, 40, 5), (25, -1))  # in registers, by blocks, all neighbors
UNPOOLED = ("sage", "labor", "ladies", "fastgcn")
FEW_RELATIONS = [("window", "weighted, replace"), ("trees", "sage")]


class Samples:
    """Digests of a graph's samples on the device and by the reference.

    Parameters
    ----------
    n : int
    """

    def __init__(self, n: int = 5000) -> None:
        rng = np.random.default_rng(0)
        degrees = rng.integers(0, min(90, n // 4), n)
        degrees[7] = n * 4 // 5  # a hub
        columns = np.concatenate([np.sort(rng.choice(n, degree, replace=False)) for degree in degrees]).astype(np.int32)
        weights = rng.integers(0, 2**30, len(columns))
        self.matrix = CSR(np.concatenate([[0], np.cumsum(degrees)]), columns, None, (n, n))
        self.weighted = self.matrix.with_values(weights)
        self.seeds = Selection.of([rng.permutation(n)[: n // 80] for _ in range(6)], n)
        self._expected = cache(self._by_reference)

    def compare(self, setting: str, engine: Any, fanouts: Iterable[tuple[int, ...]] = FANOUTS) -> str:
        """Raise if a sample of a setting of `battery` differs from the reference; both rules of the frontier are drawn."""
        compared = 0
        for hops in fanouts:
            for rule in ("all", "new"):
                got, expected = self._digests(engine, setting, hops, rule), self._expected(setting, hops, rule)
                wrong = [number for number, (one, other) in enumerate(zip(got, expected, strict=True)) if one != other]
                if wrong:
                    raise AssertionError(f"{setting}, fanouts {hops}, frontier {rule}: mini-batches {wrong} of {len(got)} differ")
                compared += len(got)
        return f"{compared} mini-batches as the reference"

    def _by_reference(self, setting: str, fanouts: tuple[int, ...], rule: str) -> list[str]:
        return self._digests(backends.make("reference"), setting, fanouts, rule)

    def _digests(self, engine: Any, setting: str, fanouts: tuple[int, ...], rule: str) -> list[str]:
        matrix = self.weighted if battery.needs_weights(setting) else self.matrix
        bulk = battery.make(setting, fanouts, frontier=rule).sample_bulk(LocalAdjacency(matrix, engine), self.seeds, Stream(1))
        return [minibatch.digest() for minibatch in bulk]


def samples() -> Checks:
    """Compare every sampler, on one relation and on many. Launches are enqueued in one call, as they are in use."""
    gpu = this_gpu()
    held, fewer = (Samples(400 if gpu.small else n) for n in (5000, 1500))
    fanouts, cases = FANOUTS[:1] if gpu.small else FANOUTS, FEW_RELATIONS if gpu.small else relation_bulks.CASES
    slow = {name for name in battery.SETTINGS if battery.needs_weights(name) or name == "shadow"}  # by the reference
    plain = _plain(held, set(battery.SETTINGS) - slow, fanouts) | _plain(fewer, slow, fanouts)
    checks: Checks = {"launches in one call": _enqueues, **{name: plain[name] for name in battery.SETTINGS}}
    return checks | {_name(*case): partial(relational, *case) for case in cases}


def _enqueues() -> str:
    if not this_gpu().engine().device.prepares:
        raise RuntimeError("the CUDA driver or the native back end is missing: launches cannot be enqueued in one call")
    return "in one call"


def unpooled() -> Checks:
    """Compare a few samplers of a small graph while every array is an allocation of its own, for compute-sanitizer."""
    this_gpu()
    few = {_name(*case): partial(relational, *case, hops=((15, 10, 5),)) for case in FEW_RELATIONS}
    return {"no pool": without_pool, **_plain(Samples(400), UNPOOLED, FANOUTS[:1]), **few}


def without_pool() -> None:
    """Make every array of CuPy an allocation of its own, so that an access past its end is one outside all memory.

    Launches are then not prepared: the arrays of a bulk whose launches were recorded lie side by side in two allocations.
    """
    import cupy

    from bulksample.backends.cuda import nvrtc

    cupy.cuda.set_allocator(None)
    nvrtc._driver = lambda: None


def relational(rule: str, law: str, hops: tuple[tuple[int, ...], ...] = ((15, 10, 5), (40, -1))) -> str:
    """Raise if a sample on the relations of the tests' zoo, by a rule of time and a law, differs from the reference."""
    kind, compared = relation_bulks.kind_of_times(rule), 0
    graph = relations_zoo.library(kind, weighted="weighted" in law, parallel=law != "labor")
    seeds = relation_bulks.bulk(graph, kind is not None)
    for frontier in ("all", "new"):
        for fanouts in hops:
            sampler = relation_bulks.sampler_of(rule, law, fanouts, None, frontier)
            got, expected = (relation_bulks.drawn(graph, sampler, seeds, backends.make(name)) for name in ("cuda", "reference"))
            if got != expected:
                raise AssertionError(f"relations by {rule} and {law}, fanouts {fanouts}, frontier {frontier} differ from the reference")
            compared += len(got)
    return f"{compared} mini-batches as the reference"


def _plain(held: Samples, settings: Iterable[str], fanouts: tuple[tuple[int, ...], ...]) -> Checks:
    return {name: lambda name=name: held.compare(name, this_gpu().engine(), fanouts) for name in settings}


def _name(rule: str, law: str) -> str:
    return f"relations, {rule}, {law}"
