"""The CUDA back end keeps matrices on the device and seldom waits for it."""

import gc
import weakref

import battery
import numpy as np
import pytest
from bulks import assert_same_hops, mixed_seeds
from emulation.host import compiler, emulated
from oracles import assert_identical
from zoo import random_matrix

from bulksample import BackendUnavailable, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.backends.cuda.node_wise import BOUND_SHARE, expand
from bulksample.backends.cuda.predicted import bulk_bytes
from bulksample.backends.cuda.tables import STRUCTURES
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
        ((4, 3, 2), Law.UNIFORM, 1),
        ((40, 3), Law.UNIFORM, 1),
        ((4, 3, 2), Law.RACE, 1),
        ((4, -1, 2), Law.UNIFORM, 2),
        ((40, 3), Law.LABOR, 2),
    ],
)
def test_a_bulk_waits_once(fanouts, law, waits):
    """Once more where a hop takes all neighbours, or more than 32 of them by key. Without room for the bounds also before each hop."""
    engine, matrix, seeds = emulated(), random_matrix(200, 3000, 1), mixed_seeds(200)
    device, there = engine.device, engine.device.matrix(matrix)
    device.numbering = "direct"
    peak = bulk_bytes(200, matrix.nnz, len(seeds), len(seeds.vertices), fanouts, False, device.free_bytes, "direct").peak
    for room, more in ((0, 0), (-1, len(fanouts))):
        device.free_bytes = BOUND_SHARE * peak + room
        counted = Waits(device)
        expand(device, there, seeds, fanouts, draws_of(law, len(fanouts)), False)
        assert counted.count == waits + more


@pytest.mark.parametrize("numbering", STRUCTURES)
@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("law", Law)
def test_sizes_by_bounds_and_by_waiting_give_the_same_hops(reference, law, only_new, numbering):
    matrix, seeds = random_matrix(300, 6000, 1, weighted=True), mixed_seeds(300)
    for fanouts in ((4, 3, 2), (40, -1, 2), (0, 3)):
        expected = reference.expand(matrix, seeds, fanouts, draws_of(law, len(fanouts)), only_new)
        for free in (8 << 30, 0):
            engine = emulated()
            engine.device.matrix(matrix)
            engine.device.numbering, engine.device.free_bytes = numbering, free
            assert_same_hops(engine.expand(matrix, seeds, fanouts, draws_of(law, len(fanouts)), only_new), expected)


def test_a_bulk_of_no_hop_and_one_of_empty_minibatches(reference):
    """Nothing to draw, and no seeds at all: no row is drawn, and no array read beyond its end."""
    matrix = random_matrix(50, 300, 1)
    for seeds, fanouts in ((mixed_seeds(50), ()), (Selection.of([[], []], 50), (3, 2)), (Selection.of([[], [4]], 50), (0,))):
        got, expected = (one.expand(matrix, seeds, fanouts, draws_of(Law.UNIFORM, len(fanouts)), False) for one in (emulated(), reference))
        assert_same_hops(got, expected)


@pytest.mark.parametrize(("law", "launches"), [(Law.UNIFORM, 18), (Law.RACE, 21)])
@pytest.mark.parametrize("numbering", STRUCTURES)
def test_a_bulk_of_three_hops_is_so_many_launches(numbering, law, launches):
    """Beside two fills. A race with weights counts the positive ones first."""
    engine, matrix = emulated(), random_matrix(200, 3000, 1, weighted=True)
    device, asked, fanouts = engine.device, [], (15, 10, 5)
    device.numbering, device.prepares = numbering, False
    launch, full = device._launch, device.full
    device._launch = lambda name, *more: asked.append(name) or launch(name, *more)
    device.full = lambda *arguments: asked.append("fill") or full(*arguments)
    there = device.matrix(matrix)
    for only_new, more in ((False, 0), (True, 2)):
        asked.clear()
        expand(device, there, mixed_seeds(200), fanouts, draws_of(law, 3), only_new)
        assert (len(asked) - asked.count("fill"), asked.count("fill")) == (launches + more, 2)
    device.prepares = True
    expand(device, there, mixed_seeds(200), fanouts, draws_of(law, 3), False)
    (recording,) = device.recordings.values()
    assert [name for name in recording.names if name] == [name for name in asked if name not in ("fill", "drop_known")]
    assert recording.names.count(None) == 2


@pytest.mark.parametrize(("name", "launches", "fills"), [("ladies", 14, 3), ("ladies squared_sum", 14, 3), ("fastgcn", 8, 1)])
def test_a_layer_wise_hop_is_so_many_launches(name, launches, fills):
    """Beside those of the seeds: three, and two fills."""
    engine, matrix = emulated(), random_matrix(200, 3000, 1)
    device, asked, counts = engine.device, [], []
    adjacency = LocalAdjacency(matrix, engine)
    for fanouts in ((20,), (20, 20), (20, 20, 20)):
        sampler, draws = battery.make(name, fanouts), [Stream(1).layer_draw(layer=h) for h in range(len(fanouts))]
        drawn = sampler.law(adjacency, mixed_seeds(200), draws)
        launch, full = device._launch, device.full
        device._launch = lambda name, *more, launch=launch: asked.append(name) or launch(name, *more)
        device.full = lambda *arguments, full=full: asked.append("fill") or full(*arguments)
        adjacency.expand_layers(mixed_seeds(200), drawn, fanouts, draws, False, True, True)
        device._launch, device.full = launch, full
        counts.append((len(asked) - asked.count("fill"), asked.count("fill")))
        asked.clear()
    assert counts == [(3 + h * launches, 2 + h * fills) for h in range(1, 4)]


@pytest.mark.parametrize(("name", "fanouts", "waits"), [("ladies", (20, 10), 3), ("ladies", (20, -1), 5), ("fastgcn", (20, 10), 3)])
def test_a_layer_waits_once(name, fanouts, waits):
    """And once at the end; if a hop takes all neighbors, also for the seeds and the vertices held.

    Then the copies of the result: two arrays of a bulk and four of a hop."""
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
