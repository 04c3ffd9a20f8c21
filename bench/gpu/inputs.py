"""Name the inputs of the checks and of the benchmark: a graph like ogbn-products, an R-MAT graph with large hubs, seeds and fanouts."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, NamedTuple

from graphs import like_products, load, seeds

from bulksample import CSR, LocalAdjacency, Selection, Stream, samplers
from bulksample.backends.cuda.bulk import DeviceBulk, expand
from bulksample.backends.cuda.device import CudaDevice
from bulksample.data.rmat import rmat
from bulksample.rng import Law
from bulksample.samplers import Sampler

from .hardware import this_gpu

FANOUTS = (15, 10, 5)
LADIES = ((512, 512, 512), (12, 12, 12))  # vertices of a layer; in a rehearsal


class Sizes(NamedTuple):
    """Sizes of batches and of models; `TINY` is for a rehearsal."""

    batch: int = 1024
    features: int = 100
    hidden: int = 256
    minibatches: int = 192  # of an epoch of training
    shared_scale: int = 14  # of the graph that ranks share
    papers: float = 0.25  # millions, of the graph of relations: 7 M edges


TINY = Sizes(16, 12, 16, 5, 9, 0.0004)


def sizes() -> Sizes:
    """Return the sizes for this card."""
    return TINY if this_gpu().small else Sizes()


@cache
def products() -> CSR:
    """Load the graph like ogbn-products, or make it; see `graphs.folder`."""
    return like_products(500, 8000) if this_gpu().small else load("like-products")


@cache
def skewed() -> CSR:
    """Load the R-MAT graph, or make it."""
    return rmat(8, edges=1500, seed=1).adjacency if this_gpu().small else load("rmat20")


def seeds_of(matrix: CSR, minibatches: int, batch: int) -> Selection:
    """Select seeds for at most so many mini-batches among the vertices that have neighbors."""
    return Selection.of([part for part in seeds(matrix, minibatches, batch) if len(part)], matrix.shape[0])


def sampler_of(name: str) -> Sampler:
    """Make a sampler with the sizes of its layers."""
    return samplers.make(name, LADIES[this_gpu().small] if name in ("ladies", "fastgcn") else FANOUTS)


def adjacency_on(cuda: Any, matrix: CSR) -> Any:
    """Return an adjacency whose mini-batches stay on the device of a `CudaContext`."""
    from bulksample.training.cuda.device_adjacency import DeviceAdjacency

    return DeviceAdjacency(LocalAdjacency(matrix, cuda.engine), cuda)


def drawn(device: CudaDevice, matrix: CSR, seeds: Selection) -> DeviceBulk:
    """Draw uniform hops of `FANOUTS`."""
    draws = [Stream(1).draw(Law.UNIFORM, layer=hop) for hop in range(len(FANOUTS))]
    return expand(device, device.matrix(matrix), seeds, FANOUTS, draws, False)


def edges_of(bulk: DeviceBulk) -> int:
    """Count the edges of all hops."""
    return sum(len(hop.columns) for hop in bulk.hops)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        {"like-products": products, "rmat20": skewed}[name]()
