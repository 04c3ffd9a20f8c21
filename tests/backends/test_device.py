"""The CUDA back end keeps matrices on the device and seldom waits for it."""

import gc
import weakref

import numpy as np
import pytest
from bulks import mixed_seeds
from emulation.host import compiler, emulated
from oracles import assert_identical
from zoo import random_matrix

from bulksample import BackendUnavailable, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.backends.cuda.bulk import expand
from bulksample.rng import Law

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


class Waits:
    """Counts the copies to the host, each of which waits for the device."""

    def __init__(self, device):
        self.count, self._get = 0, device.get
        device.get = self

    def __call__(self, array):
        self.count += 1
        return self._get(array)


def draws_of(law, hops):
    return [Stream(4).draw(law, layer=h) for h in range(hops)]


@pytest.mark.parametrize(
    ("fanouts", "law", "waits"),
    [
        ((4, 3, 2), Law.UNIFORM, 4),
        ((40, 3), Law.UNIFORM, 3),
        ((4, 3, 2), Law.RACE, 4),
        ((4, -1, 2), Law.UNIFORM, 5),
        ((40, 3), Law.LABOR, 4),
    ],
)
def test_a_bulk_waits_once_a_hop(fanouts, law, waits):
    """And once for the seeds; once more where a hop takes all neighbours, or more than 32 of them by key."""
    engine, matrix = emulated(), random_matrix(200, 3000, 1)
    counted = Waits(engine.device)
    expand(engine.device, engine.device.matrix(matrix), mixed_seeds(200), fanouts, draws_of(law, len(fanouts)), False)
    assert counted.count == waits


@pytest.mark.parametrize(("numbering", "launches", "fills"), [("direct", 24, 8), ("hash", 39, 19)])
def test_a_bulk_of_three_hops_is_so_many_launches(numbering, launches, fills):
    engine, matrix = emulated(), random_matrix(200, 3000, 1)
    device, asked = engine.device, []
    device.numbering = numbering
    launch, full = device._launch, device.full
    device._launch = lambda name, *more: asked.append(name) or launch(name, *more)
    device.full = lambda *arguments: asked.append("fill") or full(*arguments)
    expand(device, device.matrix(matrix), mixed_seeds(200), (15, 10, 5), draws_of(Law.UNIFORM, 3), False)
    assert (len(asked) - asked.count("fill"), asked.count("fill")) == (launches, fills)


@pytest.mark.parametrize(("name", "fanouts", "waits"), [("ladies", (20, 10), 5), ("ladies", (20, -1), 7), ("fastgcn", (20, 10), 5)])
def test_a_layer_waits_twice(name, fanouts, waits):
    """And once for the seeds; twice more where a hop takes all. Then the copies of the result: two arrays of a bulk and four of a hop."""
    engine, matrix = emulated(), random_matrix(200, 3000, 1)
    adjacency, sampler = LocalAdjacency(matrix, engine), samplers.make(name, fanouts)
    sampler.sample_bulk(adjacency, mixed_seeds(200), Stream(1))
    drawn = sampler.law(adjacency, mixed_seeds(200), [Stream(1).layer_draw(layer=h) for h in range(2)])
    counted = Waits(engine.device)
    adjacency.expand_layers(mixed_seeds(200), drawn, fanouts, [Stream(1).layer_draw(layer=h) for h in range(2)], False, True, True)
    assert counted.count == waits + 2 + 4 * len(fanouts)


def test_a_matrix_that_does_not_fit_is_read_from_the_host():
    matrix = random_matrix(100, 2000, 2, weighted=True)
    engine = emulated(free_bytes=2 * (matrix.indptr.nbytes + matrix.indices.nbytes))
    with pytest.warns(UserWarning, match=f"{matrix.values.nbytes} bytes of a matrix stay in pinned memory"):
        got = engine.extract_rows(matrix, np.arange(100, dtype=np.int32))
    assert_identical((got.indices, got.values), (matrix.indices, matrix.values))


def test_a_matrix_is_placed_once_and_leaves_with_its_owner():
    engine = emulated()
    matrix = random_matrix(100, 2000, 2, weighted=True)
    puts = []
    put = engine.device.put
    engine.device.put = lambda array: puts.append(array.nbytes) or put(array)
    there, pattern = engine.device.matrix(matrix), engine.device.matrix(matrix.with_values(None))
    assert engine.device.matrix(matrix) is there
    assert pattern.indices is there.indices
    assert puts == [matrix.values.nbytes, matrix.indptr.nbytes, matrix.indices.nbytes]
    del matrix, there, pattern
    gc.collect()
    assert not engine.device._matrices
    assert engine.device._matrix_bytes == 0


def test_a_back_end_that_is_no_longer_used_leaves_the_device_while_its_graph_lives():
    engine, matrix, sums = emulated(), random_matrix(100, 2000, 2), np.arange(3.0)
    held = [weakref.ref(array) for array in (engine.device.matrix(matrix).indices, engine.device.constant(sums))]
    assert all(array() is not None for array in held)
    del engine
    gc.collect()
    assert all(array() is None for array in held)
    del matrix, sums  # nothing is left to be told
    gc.collect()


def test_a_sampler_gives_the_digest_of_the_reference_on_a_larger_graph(reference):
    """200 rows a minibatch and hop, so that every kernel of `draw.cu` has more than one block to do."""
    matrix = random_matrix(5000, 200_000, 9, skew=2.0)
    seeds = Selection.of([np.random.default_rng(j).integers(0, 5000, 30) for j in range(5)], 5000)
    for fanouts in ((6, 5), (12, 2), (20, 3)):
        sampler = samplers.make("sage", fanouts)
        one, other = (sampler.sample_bulk(LocalAdjacency(matrix, engine), seeds, Stream(1)) for engine in (emulated(), reference))
        assert [m.digest() for m in one] == [m.digest() for m in other]


def test_where_there_is_no_device_the_back_end_says_so():
    if "cuda" in backends.available():
        pytest.skip("there is a device here")
    with pytest.raises(BackendUnavailable, match=r"backend 'cuda' was asked for, but CuPy .*; available here: reference"):
        backends.make("cuda")
