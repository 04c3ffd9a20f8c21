"""Programs that tests run on a GPU in processes of their own, since a pool of memory belongs to a process.

python card_programs.py uses|out_of_memory|samples cupy|torch
"""

import gc
import sys
import warnings

import cupy
import numpy as np
from zoo import random_matrix

from bulksample import LocalAdjacency, backends, samplers
from bulksample.backends.cuda.nvrtc import share_pool
from bulksample.loading.loader import BulkLoader

MATRIX = random_matrix(20_000, 800_000, 1)
MIB = 1 << 20


class CupyPool:
    """CuPy's own pool."""

    def used(self):
        return cupy.get_default_memory_pool().used_bytes()

    def held(self):
        return cupy.get_default_memory_pool().total_bytes()

    def forget(self):
        cupy.get_default_memory_pool().free_all_blocks()

    def limit(self, size):
        cupy.get_default_memory_pool().set_limit(size=size)


class TorchPool:
    """The pool of torch, from which CuPy allocates as well."""

    def __init__(self):
        import torch

        self._torch = torch
        torch.cuda.init()
        share_pool(torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete)

    def used(self):
        return self._torch.cuda.memory_allocated()

    def held(self):
        return self._torch.cuda.memory_reserved()

    def forget(self):
        cupy.cuda.Device().synchronize()
        self._torch.cuda.empty_cache()

    def limit(self, size):
        self._torch.cuda.set_per_process_memory_fraction(size / self._torch.cuda.get_device_properties(0).total_memory)


POOLS = {"cupy": CupyPool, "torch": TorchPool}


def digests(engine, bulk_size=8):
    seeds = np.arange(0, 20_000, 5)
    loader = BulkLoader(LocalAdjacency(MATRIX, engine), samplers.make("sage", (15, 10, 5)), seeds, 250, bulk_size, seed=3, prefetch=False)
    return [minibatch.digest() for minibatch in loader]


def uses(name):
    """Memory comes from the pool, and goes back to it."""
    pool = POOLS[name]()
    engine = backends.make("cuda")
    before = pool.used()
    array = engine.device.empty(8 * MIB, np.uint8)
    assert 8 * MIB <= pool.used() - before <= 9 * MIB, (before, pool.used())
    del array
    assert pool.used() == before
    for size in (0, 1, 3):
        assert len(engine.device.get(engine.device.empty(size, np.int32))) == size
    assert digests(engine) == digests(backends.make("reference"))
    del engine
    gc.collect()
    assert pool.used() <= before + MIB, "a graph and its bulks are freed with the back end"


def out_of_memory(name):
    """A pool that is exhausted in the middle of a bulk: it is halved with a warning, and the samples are the same."""
    pool = POOLS[name]()
    engine, needs = backends.make("cuda"), {}
    engine.device.matrix(MATRIX)
    for bulk_size in (4, 8):
        pool.forget()
        digests(engine, bulk_size)
        needs[bulk_size] = pool.held()
    assert needs[4] < needs[8], needs
    pool.forget()
    pool.limit((needs[4] + needs[8]) // 2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        got = digests(engine, 8)
    assert any("out of memory with 8 mini-batches in a bulk" in str(warning.message) for warning in told), [str(w.message) for w in told]
    assert got == digests(backends.make("reference"))
    assert digests(engine, 2) == got  # the device works on


def samples(name):
    """Several processes compile, sample and train on one device at the same time."""
    POOLS[name]()
    assert digests(backends.make("cuda")) == digests(backends.make("reference"))


if __name__ == "__main__":
    {"uses": uses, "out_of_memory": out_of_memory, "samples": samples}[sys.argv[1]](sys.argv[2])
    print("well")
