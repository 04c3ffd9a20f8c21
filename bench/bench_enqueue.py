"""The host's time for a bulk on a GPU: launches enqueued in one call, and one by one; kernels that do nothing take the place of the device.

Arrays are numpy's and the driver is a stand-in, so neither the allocations of CuPy nor the work of the real driver is included. Three hops
of 15, 10 and 5 for 1,024 seeds a mini-batch, direct table; and for 8 seeds with times on 7 relations, each bulk then cut into its
(empty) mini-batches. Processor time, medians in alternation.
"""

from __future__ import annotations

import ctypes
import statistics
import time
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import bulksample._native
import numpy as np
from emulation.host import arrays, driver
from harness import compare
from relation_bulks import sampler_of
from relations_zoo import library

from bulksample import Selection, Stream
from bulksample.backends.cuda.backend import Cuda
from bulksample.backends.cuda.bulk import expand
from bulksample.backends.cuda.device import kernels
from bulksample.graph.seed_list import SeedList
from bulksample.local_adjacency import LocalAdjacency
from bulksample.rng import Law
from bulksample.sparse import CSR

FANOUTS = (15, 10, 5)


class Idle:
    """A launcher whose driver does nothing."""

    can_enqueue = True

    def __init__(self) -> None:
        ctypes.CDLL(str(driver())).bs_driver_idle(1)
        self._driver = bulksample._native.Driver(str(driver()))

    def __call__(self, name: str, blocks: int, *values: Any) -> None:
        kernels()[name].arguments(values, self.address)

    def most_blocks(self, name: str) -> int:
        return 2112

    def functions(self, names: Sequence[str | None]) -> np.ndarray:
        return np.array([int(name is not None) for name in names], np.uint64)

    def address(self, array: Any) -> int:
        return 0 if array is None else int(array.__array_interface__["data"][0])

    def enqueue(self, functions: np.ndarray, blocks: np.ndarray, threads: np.ndarray, starts: np.ndarray, words: np.ndarray) -> None:
        self._driver.enqueue(functions, blocks, threads, starts, words, 0)

    def phase(self, name: str, stream: Any = None) -> AbstractContextManager[Any]:
        return nullcontext()


def microseconds(k: int, prepares: bool, repeats: int) -> Callable[[], float]:
    """Sample bulks of k mini-batches; the call returns the processor time of one, a median."""
    n, device = 100_000, _engine(prepares).device
    device.numbering = "direct"
    matrix = device.matrix(CSR(np.arange(n + 1), np.arange(n, dtype=np.int32), None, (n, n)))
    seeds = Selection.of([np.arange(1024) + j for j in range(k)], n)
    draws = [Stream(1).draw(Law.UNIFORM, layer=h) for h in range(len(FANOUTS))]

    return _median(lambda: expand(device, matrix, seeds, FANOUTS, draws, False), repeats)


def relational(k: int, prepares: bool, repeats: int) -> Callable[[], float]:
    """Sample bulks of k mini-batches of 8 seeds with times on 7 relations; the call returns the processor time of one, a median."""
    graph, engine = library("vertices"), _engine(prepares)
    listed = SeedList.of(graph, {"paper": np.arange(60)}, np.arange(60))
    seeds = listed.select([np.arange(8) + j % 50 for j in range(k)])
    adjacency, sampler = LocalAdjacency(graph, engine, by_type=True), sampler_of("vertices", "sage", FANOUTS)
    trees, owners = sampler._trees(seeds)
    lists = [seeds.vertices.astype(np.int32), *[np.empty(0, np.int32)] * (len(graph.types) - 1)]
    trees = trees._replace(seeds=lists, tree_of_seed=[owners, *[owners[:0]] * (len(graph.types) - 1)])
    laws = sampler.laws(adjacency, Stream(1), 0)
    return _median(lambda: adjacency.expand_trees(trees, laws, "vertices", False), repeats)


def _engine(prepares: bool) -> Cuda:
    module = types.SimpleNamespace(**{**vars(arrays), "empty": np.empty, "full": lambda count, value, dtype: np.empty(count, dtype)})
    module.asnumpy = np.zeros_like  # counts: nothing was drawn
    engine = Cuda(module, Idle(), 1 << 36)
    engine.device.prepares = prepares
    return engine


def _median(work: Callable[[], object], repeats: int) -> Callable[[], float]:
    def run() -> float:
        taken = []
        for _ in range(repeats):
            began = time.process_time_ns()
            work()
            taken.append((time.process_time_ns() - began) / 1e3)
        return statistics.median(taken)

    return run


def enqueue(repeats: int = 300) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for k in (1, 16):
        ways = {"enqueued in one call": True, "launched one by one": False}
        for what, measured in (("", microseconds), (", relations in time", relational)):
            found[f"k = {k}{what}"] = compare({name: measured(k, prepares, repeats) for name, prepares in ways.items()}, 5)
    return {"microseconds": found}
