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
from bulksample.backends.cuda.bulk import BOUND_SHARE, expand
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


@pytest.mark.parametrize(("law", "launches"), [(Law.UNIFORM, 14), (Law.RACE, 17)])
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


class Launches:
    """Counts the launches and the fills of bulks that are not recorded."""

    def __init__(self, device):
        self.names, device.prepares = [], False
        launch, full = device._launch, device.full
        device._launch = lambda name, *more: self.names.append(name) or launch(name, *more)
        device.full = lambda *arguments: self.names.append("fill") or full(*arguments)

    def counted(self):
        names, self.names = self.names, []
        return len(names) - names.count("fill"), names.count("fill")


@pytest.mark.parametrize(
    ("name", "size", "launches"), [("ladies", 200, 6), ("ladies squared_sum", 200, 6), ("fastgcn", 200, 5), ("fastgcn", 3000, 5)]
)
@pytest.mark.parametrize("numbering", STRUCTURES)
def test_a_layer_wise_hop_is_so_many_launches(numbering, name, size, launches):
    """Beside two for the seeds and three fills of a bulk, which without room for its bounds takes more. FastGCN races in a short row."""
    engine, matrix = emulated(), random_matrix(size, 3000, 1)
    engine.device.numbering, adjacency, asked = numbering, LocalAdjacency(matrix, engine), Launches(engine.device)
    for free, more, fills in ((8 << 30, 0, 3), (0, 1 if "ladies" in name else 0, 2)):
        engine.device.free_bytes = free
        for hops in (1, 2, 3):
            sampler, draws = battery.make(name, (20,) * hops), [Stream(1).layer_draw(layer=h) for h in range(hops)]
            drawn = sampler.law(adjacency, mixed_seeds(size), draws)
            asked.counted()  # what FastGCN computes once of a graph
            adjacency.expand_layers(mixed_seeds(size), drawn, (20,) * hops, draws, False, True, True)
            if free:
                assert asked.counted() == (2 + hops * launches, fills)
            else:  # the tables of the picks are made and filled in each hop
                assert asked.counted() == (2 + hops * (launches + more + 2), fills + hops)


@pytest.mark.parametrize("fanout", [0, 5])
def test_a_row_without_columns_is_not_drawn_from(fanout):
    """No vertex has an edge, so FastGCN's row is empty: a kernel that reads its last sum would read in front of an array."""
    engine = emulated()
    asked, sampler, adjacency = (
        Launches(engine.device),
        samplers.make("fastgcn", (fanout, fanout)),
        LocalAdjacency(random_matrix(30, 0, 1), engine),
    )
    drawn = sampler.sample_bulk(adjacency, mixed_seeds(30), Stream(1))
    assert not {"first_arrivals", "race_layers"} & set(asked.names)
    assert {block.num_edges for minibatch in drawn for block in minibatch.blocks} == {0}


@pytest.mark.parametrize(
    ("name", "fanouts", "waits"), [("ladies", (20, 10), 1), ("ladies", (20, -1), 5), ("fastgcn", (20, 10), 1), ("fastgcn", (20, -1), 1)]
)
def test_a_layer_wise_bulk_waits_once(name, fanouts, waits):
    """At its end; also for the seeds, each hop and the vertices held if LADIES takes all neighbors; and once a hop without room for bounds.

    Then the copies of the result: two arrays of a bulk and three of a hop."""
    engine, matrix = emulated(), random_matrix(200, 3000, 1)
    adjacency, sampler = LocalAdjacency(matrix, engine), samplers.make(name, fanouts)
    expected = sampler.sample_bulk(adjacency, mixed_seeds(200), Stream(1))
    for free, more in ((8 << 30, 0), (0, 2 if waits == 1 else 0)):
        engine.device.free_bytes, counted = free, Waits(engine.device)
        got = sampler.sample_bulk(adjacency, mixed_seeds(200), Stream(1))
        assert counted.count == waits + more + 2 + 3 * len(fanouts)
        assert [m.digest() for m in got] == [m.digest() for m in expected]


def test_a_matrix_that_does_not_fit_is_read_from_the_host():
    matrix = random_matrix(100, 2000, 2, weighted=True)
    engine = emulated(free_bytes=2 * (matrix.indptr.nbytes + matrix.indices.nbytes))
    with pytest.warns(UserWarning, match=f"{matrix.values.nbytes} bytes of a matrix stay in pinned memory"):
        got = engine.extract_rows(matrix, np.arange(100, dtype=np.int32))
    assert_identical((got.indices, got.values), (matrix.indices, matrix.values))


@pytest.mark.long
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
    assert not engine.device._placed_bytes


@pytest.mark.long
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
