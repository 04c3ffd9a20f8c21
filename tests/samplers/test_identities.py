"""A minibatch is a function of its name alone: not of its bulk, its place in it, the back end, the threads or the process."""

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from battery import SETTINGS, make, needs_weights
from bulks import K, assert_same_minibatches, bulk_of_seeds, take
from waiting import PATIENCE
from zoo import ZOO, random_matrix

from bulksample import LocalAdjacency, Selection, Stream, backends, digest
from bulksample.adjacency import Entries


@pytest.fixture(params=SETTINGS)
def setting(request):
    return request.param


@pytest.fixture(params=["all", "new"])
def frontier(request):
    return request.param


@pytest.fixture
def sampler(setting, frontier):
    return make(setting, frontier=frontier)


def test_the_bulk_does_not_change_a_minibatch(sampler, adjacency):
    seeds = bulk_of_seeds(adjacency.n)
    whole = sampler.sample_bulk(adjacency, seeds, Stream(11), epoch=4)
    for size in (1, 5):
        pieces = [take(seeds, np.arange(K)[start : start + size]) for start in range(0, K, size)]
        assert_same_minibatches([m for piece in pieces for m in sampler.sample_bulk(adjacency, piece, Stream(11), epoch=4)], whole)
    order = np.random.default_rng(1).permutation(K)
    shuffled = sampler.sample_bulk(adjacency, take(seeds, order), Stream(11), epoch=4)
    assert_same_minibatches([shuffled[j] for j in np.argsort(order)], whole)
    assert digest(shuffled) == digest(whole)


@cache
def sampled_by_the_reference(setting, frontier, graph):
    matrix = ZOO[graph]
    seeds = bulk_of_seeds(matrix.shape[0])
    return make(setting, frontier=frontier).sample_bulk(LocalAdjacency(matrix, backends.make("reference")), seeds, Stream(7), epoch=1)


def test_threads_and_back_ends_do_not_change_a_minibatch(request, setting, frontier, matrix, fast):
    """10 graphs, 13 samplers, 2 rules, 12 minibatches: about 3,000 minibatches against the reference, on the native back end."""
    got = make(setting, frontier=frontier).sample_bulk(LocalAdjacency(matrix, fast), bulk_of_seeds(matrix.shape[0]), Stream(7), epoch=1)
    assert_same_minibatches(got, sampled_by_the_reference(setting, frontier, request.node.callspec.params["matrix"]))


def test_blocks_fit_together(sampler, adjacency):
    dense = adjacency.matrix.to_scipy().toarray()
    for minibatch in sampler.sample_bulk(adjacency, bulk_of_seeds(adjacency.n), Stream(3)):
        assert np.array_equal(minibatch.vertices[minibatch.seed_rows], minibatch.seeds)
        assert minibatch.blocks[0].num_sources == len(minibatch.vertices)
        for inner, outer in zip(minibatch.blocks, minibatch.blocks[1:], strict=False):
            assert inner.num_destinations == outer.num_sources
        for block in minibatch.blocks:
            assert block.num_destinations <= block.num_sources
            assert block.indptr[0] == 0
            assert block.indptr[-1] == block.num_edges
            assert (np.diff(block.indptr) >= 0).all()
            row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
            assert not len(block.indices) or 0 <= block.indices.min() <= block.indices.max() < block.num_sources
            edges = minibatch.vertices[row], minibatch.vertices[block.indices]
            assert (dense[edges] != 0).all() or adjacency.weighted, "an edge that the graph does not have"
            same_row = np.diff(row) == 0
            assert (np.diff(edges[1])[same_row] >= 0).all() or sampler.name in ("shadow", "saint")
            assert block.weights is None or np.isfinite(block.weights).all()


def test_epochs_seeds_and_minibatches_draw_differently():
    matrix = random_matrix(300, 12_000, 5, weighted=True)
    adjacency = LocalAdjacency(matrix, backends.make())
    seeds = Selection.of([np.arange(40)] * 3, 300)
    for setting in SETTINGS:
        if setting == "full":
            continue
        sampler = make(setting)
        drawn = [
            (*tuple(block.indices.tobytes() for block in minibatch.blocks), minibatch.vertices.tobytes())
            for stream in (Stream(1), Stream(2))
            for epoch in (0, 1)
            for minibatch in sampler.sample_bulk(adjacency, seeds, stream, epoch)
        ]
        assert len(set(drawn)) == len(drawn) == 12, setting


PROGRAM = """
import sys
sys.path[:0] = {path!r}
from test_identities import everything
print(everything({threads}))
"""


def everything(threads, settings=tuple(SETTINGS)):
    """One digest over samplers, by default all of the battery, on three graphs of the zoo."""
    adjacency = [LocalAdjacency(ZOO[name], backends.make("auto", threads)) for name in ("random", "weighted", "star")]
    return digest(
        minibatch
        for at in adjacency
        for setting in settings
        if at.weighted or not needs_weights(setting)
        for minibatch in make(setting).sample_bulk(at, bulk_of_seeds(at.n), Stream(2026), epoch=9)
    )


@pytest.mark.parametrize("processes", [4, pytest.param(20, marks=pytest.mark.long)])
def test_fresh_processes_give_one_digest(processes):
    here = everything(1)
    path = [p for p in sys.path if p]
    for start in range(0, processes, 4):
        started = [
            subprocess.Popen([sys.executable, "-c", PROGRAM.format(path=path, threads=(1, 2, 4)[i % 3])], stdout=subprocess.PIPE, text=True)
            for i in range(start, start + 4)
        ]
        assert {process.communicate(timeout=PATIENCE)[0].strip() for process in started} == {here}


PINNED = "7924996af300803db35a0579ca3cc2607a9e5f83af16ad33220c86293b00af8b"
JOINED = {
    "sage weighted replace": "b07667691998e5a8af7376c98bb3666f7b40a52fa3ff50aa9c39335fde482b2b"
}  # settings that came after that digest, each with its own


def test_the_digest_is_the_one_that_was_published():
    """It moves only with a change that says why; samples drawn by earlier versions are then no longer repeatable."""
    assert everything(2, [setting for setting in SETTINGS if setting not in JOINED]) == PINNED
    assert {setting: everything(2, [setting]) for setting in JOINED} == JOINED


def test_left_multiplication_is_the_product(adjacency):
    n = adjacency.n
    q = Selection.of([np.arange(0, n, 2), np.arange(n), np.zeros(0, int)], n)
    dense = np.zeros((n, n))
    dense[adjacency.matrix.row_of_entry(), adjacency.matrix.indices] = adjacency.matrix.entries()
    indicator = np.array([[float(v in q.part(j)) for v in range(n)] for j in range(3)]).reshape(3, n)
    sums = np.maximum(dense.sum(axis=1, keepdims=True), 1)
    normalised = dense / sums
    oracle = {"ones": indicator @ (dense != 0), "weights": indicator @ dense, "squares": indicator @ normalised**2}
    for entries in Entries.__args__:
        got = adjacency.left_multiply(q, entries).validate()
        product = got.to_scipy().toarray().astype(float)
        if entries == "squares":
            product = np.ldexp(product, -adjacency._square_bits)
        if entries == "ones" and adjacency.weighted:
            continue  # stored zero weights are entries of the pattern
        assert np.allclose(product, oracle[entries], rtol=1e-9, atol=n * 2.0**-40)
