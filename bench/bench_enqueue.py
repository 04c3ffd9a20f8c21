"""The host's time for a bulk on a GPU: launches enqueued in one call, and one by one; kernels that do nothing take the place of the device.

    PYTHONPATH=.:tests python bench/bench_enqueue.py [--repeats 300] [--json FILE]

Arrays are numpy's and the driver is a stand-in, so neither the allocations of CuPy nor the work of the real driver is included. Three hops
of 15, 10 and 5 for 1,024 seeds a mini-batch, direct table; processor time, medians in alternation.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import bulksample._native
import numpy as np
from emulation.host import arrays, driver
from harness import alternate, machine, report, summary

from bulksample import Selection, Stream
from bulksample.backends.cuda.backend import Cuda
from bulksample.backends.cuda.kernels import THREADS, kernels
from bulksample.backends.cuda.node_wise import expand
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

    def enqueue(self, functions: np.ndarray, blocks: np.ndarray, starts: np.ndarray, words: np.ndarray) -> None:
        self._driver.enqueue(functions, blocks, THREADS, starts, words, 0)

    def phase(self, name: str, stream: Any = None) -> AbstractContextManager[Any]:
        return nullcontext()


def microseconds(k: int, prepares: bool, repeats: int) -> Callable[[], float]:
    """Sample bulks of k mini-batches; the call returns the processor time of one, a median."""
    n = 100_000
    module = types.SimpleNamespace(**{**vars(arrays), "empty": np.empty, "full": lambda count, value, dtype: np.empty(count, dtype)})
    module.asnumpy = np.zeros_like  # counts: nothing was drawn
    device = Cuda(module, Idle(), 1 << 36).device
    device.prepares, device.numbering = prepares, "direct"
    matrix = device.matrix(CSR(np.arange(n + 1), np.arange(n, dtype=np.int32), None, (n, n)))
    seeds = Selection.of([np.arange(1024) + j for j in range(k)], n)
    draws = [Stream(1).draw(Law.UNIFORM, layer=h) for h in range(len(FANOUTS))]

    def run() -> float:
        taken = []
        for _ in range(repeats):
            began = time.process_time_ns()
            expand(device, matrix, seeds, FANOUTS, draws, False)
            taken.append((time.process_time_ns() - began) / 1e3)
        return statistics.median(taken)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "microseconds": {}}
    for k in (1, 16):
        ways = {"enqueued in one call": True, "launched one by one": False}
        figures = alternate({name: microseconds(k, prepares, asked.repeats) for name, prepares in ways.items()}, 5)
        result["microseconds"][f"k = {k}"] = {name: summary(values) for name, values in figures.items()}
    report(result, asked.json)


if __name__ == "__main__":
    main()
