"""Graphs that ranks share, loaders over them and the mini-batches of one process; for the tests of shared loaders."""

import re
from itertools import product

import numpy as np
import pytest

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads

PLACES = list(product(["partitioned", "replicated"], repeat=2))


def opened(path, comm, **options):
    return bs.load(path, world=comm, check="none", **options)


def loader(graph, **options):
    return bs.Loader(graph, **{"fanouts": [4, 3], "batch_size": 16, "seeds": "train", "seed": 5, "threads": 1, "out": "numpy", **options})


def digests(batches):
    return [batch.digest() for batch in batches]


def shares(graph, p, epochs=1, **options):
    """The digests of every rank, as `rank` and `ranks` give them to loaders of the whole graph."""
    alone = [loader(graph, rank=rank, ranks=p, **options) for rank in range(p)]
    return [[digests(one) for _ in range(epochs)] for one in alone]


def assert_edges(batch, nnz):
    """Every sampled edge has its own features and its number in the adjacency."""
    for block, attr, number in zip(batch.blocks, batch.edge_attr, batch.e_id, strict=True):
        rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
        expected = np.stack([batch.vertices[rows], batch.vertices[block.indices], number], axis=1)
        np.testing.assert_array_equal(attr, expected.astype(np.float32))
        assert attr.dtype == np.float32
        assert number.max(initial=0) < nnz


def assert_refused(p, act, message):
    """Assert that `act` raises an error with this text on each of p ranks."""

    def rank(comm):
        with pytest.raises((bs.UsageError, bs.DataError), match=re.escape(message)):
            act(comm)
        comm.barrier()  # no rank is still in a collective of the call

    on_threads(p, rank)
