"""Bulks of one shape are enqueued in one call with the patched arguments of the first; they are those that single launches give."""

import ctypes
import gc

import battery
import numpy as np
import pytest
from bulks import assert_same_hops, mixed_seeds
from emulation.fake_cupy import installed
from emulation.host import compiler, driver, emulated
from engines import engine
from hypothesis import given
from hypothesis import strategies as st
from zoo import random_matrix

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends
from bulksample.backends.cuda import nvrtc
from bulksample.backends.cuda.device import Processor, kernels
from bulksample.backends.cuda.recording import RECORDINGS, Memory, _placed, _Recorder
from bulksample.backends.cuda.tables import STRUCTURES
from bulksample.rng import Law

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
MATRIX = random_matrix(300, 6000, 1, weighted=True)
FANOUTS = (5, 3, 2)


def drawn(backend, seeds, stream, epoch=0, matrix=MATRIX, law=Law.UNIFORM, only_new=False):
    return backend.expand(matrix, seeds, FANOUTS, [stream.draw(law, layer=h, epoch=epoch) for h in range(len(FANOUTS))], only_new)


def turned(matrix):
    """The same graph with its vertices in the opposite order."""
    indptr = np.concatenate([[0], np.cumsum(np.diff(matrix.indptr)[::-1])])
    return CSR(indptr, matrix.shape[0] - 1 - matrix.indices[::-1], matrix.values[::-1], matrix.shape)


def shifted(seeds, by, ids):
    """The same numbers of seeds, other seeds in other mini-batches."""
    return Selection(seeds.minibatches + ids, seeds.pointers, (seeds.vertices + by) % seeds.n, seeds.n)


@pytest.mark.parametrize("numbering", STRUCTURES)
@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("law", Law)
def test_another_bulk_of_the_shape_has_its_own_seeds_ids_stream_epoch_and_graph(reference, law, only_new, numbering):
    one, other, backend = mixed_seeds(300), shifted(mixed_seeds(300), 77, 1000), emulated()
    backend.device.numbering = numbering
    same_size = turned(MATRIX)
    for seeds, stream, epoch, matrix in ((one, 1, 0, MATRIX), (other, 1, 0, MATRIX), (one, 2**63, 7, MATRIX), (one, 1, 0, same_size)):
        got, expected = (drawn(b, seeds, Stream(stream), epoch, matrix, law, only_new) for b in (backend, reference))
        assert_same_hops(got, expected)
    assert len(backend.device.recordings) == 1


@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize(("name", "size"), [("ladies", 300), ("ladies squared_sum", 300), ("fastgcn", 300), ("fastgcn", 3000)])
def test_another_layer_wise_bulk_of_the_shape_is_that_of_the_reference(reference, name, size, only_new):
    """Also without room for its bounds, when nothing is recorded. FastGCN races in a short row and waits for arrivals in a long one."""
    matrix = random_matrix(size, 6000, 1, weighted=True)
    one, other = mixed_seeds(size), shifted(mixed_seeds(size), 77, 1000)
    sampler = battery.make(name, (12, 30, 5), frontier="new" if only_new else "all")
    for free, recordings in ((8 << 30, 1), (0, 0)):
        backend = emulated()
        graphs = [[LocalAdjacency(graph, b) for b in (backend, reference)] for graph in (matrix, turned(matrix))]
        for graph, _ in graphs:  # what belongs to a graph is on the device before its memory is said to be full
            sampler.sample_bulk(graph, one, Stream(1))
        backend.device.recordings.clear()
        backend.device.free_bytes = free
        for seeds, stream, epoch, graph in ((one, 1, 0, 0), (other, 1, 0, 0), (one, 2**63, 7, 0), (one, 1, 0, 1)):
            got, expected = (sampler.sample_bulk(adjacency, seeds, Stream(stream), epoch) for adjacency in graphs[graph])
            assert [m.digest() for m in got] == [m.digest() for m in expected]
        assert len(backend.device.recordings) == recordings


def test_a_row_of_another_width_is_another_shape(reference):
    """Two graphs with equal degrees; FastGCN draws from the 3000 vertices with edges of one, and from 1500 of the other."""
    n, backend, sampler, seeds = 3000, emulated(), battery.make("fastgcn", (12, 30, 5)), mixed_seeds(3000)
    for width in (n, n // 2):
        columns = np.sort((np.arange(n)[:, None] + [0, 1]) % width, axis=1)
        graph = CSR(2 * np.arange(n + 1), columns.reshape(-1).astype(np.int32), None, (n, n))
        got, expected = (sampler.sample_bulk(LocalAdjacency(graph, b), seeds, Stream(1)) for b in (backend, reference))
        assert [m.digest() for m in got] == [m.digest() for m in expected]


def test_shapes_that_are_remembered_are_few():
    backend = emulated()
    for b in range(1, RECORDINGS + 4):
        drawn(backend, Selection.of([np.arange(b)], 300), Stream(1))
    assert len(backend.device.recordings) == RECORDINGS
    assert len(drawn(backend, Selection.of([np.arange(1)], 300), Stream(1))) == 1  # forgotten, and recorded again


def test_a_recording_keeps_no_graph_alive_and_its_bulk_no_scratch():
    backend, matrix = emulated(), random_matrix(200, 3000, 1)
    kept = drawn(backend, mixed_seeds(200), Stream(1), matrix=matrix)
    assert len(backend.device.recordings) == len(backend.device._matrices) == 1
    (recording,) = backend.device.recordings.values()
    assert 0 < recording.kept_bytes < 4 * recording.scratch_bytes
    del matrix
    gc.collect()
    assert not backend.device._matrices
    assert kept[0].held


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 9), st.integers(-1, 9)), max_size=12))
def test_arrays_share_bytes_only_if_they_live_at_different_times(lives):
    memories = [Memory(nbytes, born) for nbytes, born, _ in lives]
    for memory, (_, born, lasts) in zip(memories, lives, strict=True):
        memory.died = -1 if lasts < 0 else born + lasts
    total = _placed(memories, shared=True)
    assert total <= sum(-(-m.nbytes // 256) * 256 for m in memories)
    for i, a in enumerate(memories):
        assert a.offset % 256 == 0
        assert a.offset + a.nbytes <= total
        for b in memories[:i]:
            together = set(range(a.born, a.died if a.died >= 0 else 99)) & set(range(b.born, b.died if b.died >= 0 else 99))
            if together and a.nbytes and b.nbytes:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_one_that_waits_is_not_recorded(reference):
    backend, seeds = emulated(), mixed_seeds(300)
    draws = [Stream(1).draw(Law.UNIFORM, layer=h) for h in range(2)]
    for fanouts in ((4, -1), (40, 3)):
        assert_same_hops(backend.expand(MATRIX, seeds, fanouts, draws, False), reference.expand(MATRIX, seeds, fanouts, draws, False))
    assert [key[0][4] for key in backend.device.recordings] == [(40, 3)]


def native():
    engine("native")  # skips where it is missing
    import bulksample._native

    return bulksample._native


def test_the_driver_is_called_once_for_each_launch(monkeypatch, reference):
    """CuPy's stand-in loads kernels, the driver's runs them."""
    native()
    library = ctypes.CDLL(str(driver()))
    with installed(monkeypatch):
        backend = backends.make("cuda")
        assert backend.device.prepares
        got, before = drawn(backend, mixed_seeds(300), Stream(1)), library.bs_driver_launches()
        drawn(backend, mixed_seeds(300), Stream(1))
        assert library.bs_driver_launches() - before == 14
        assert_same_hops(got, drawn(reference, mixed_seeds(300), Stream(1)))
        library.bs_driver_refuse(ctypes.c_longlong(library.bs_driver_launches() + 5))
        with pytest.raises(RuntimeError, match="refuses launch 7 of a bulk: error 719"):  # two fills are before it
            drawn(backend, mixed_seeds(300), Stream(1))
        library.bs_driver_refuse(ctypes.c_longlong(-1))


def test_without_a_driver_kernels_are_launched_one_by_one(monkeypatch, reference):
    with installed(monkeypatch):
        monkeypatch.setattr(nvrtc, "DRIVER", "libno-such-driver.so")
        with pytest.warns(UserWarning, match=r"launched one by one, .*libno-such-driver.so"):
            backend = backends.make("cuda")
        assert not backend.device.prepares
        assert_same_hops(drawn(backend, mixed_seeds(300), Stream(1)), drawn(reference, mixed_seeds(300), Stream(1)))


def test_arguments_that_are_not_there_are_refused():
    opened, some = native().Driver(str(driver())), np.zeros(1, np.uint64)
    for blocks, threads, starts in ((2, 1, 2), (1, 2, 2), (1, 1, 1)):
        with pytest.raises(ValueError, match="differ in length"):
            opened.enqueue(some, np.ones(blocks, np.uint32), np.full(threads, 128, np.uint32), np.zeros(starts, np.int64), some, 0)
    for starts in ([0, 2], [-1, 1], [0, 1]):
        with pytest.raises(ValueError, match="launch 0 has arguments that are not there"):
            opened.enqueue(some, np.ones(1, np.uint32), np.full(1, 128, np.uint32), np.array(starts), some, 0)
    with pytest.raises(RuntimeError, match=r"cannot be loaded: .*no-such"):
        native().Driver("no-such.so")


@pytest.mark.parametrize(
    ("registers", "shared", "blocks"),
    [(40, 0, 12), (48, 0, 10), (78, 17900, 6), (32, 0, 16), (20, 0, 16), (16, 30000, 7), (255, 0, 2), (0, 0, 16)],
)
def test_blocks_that_a_multiprocessor_holds(registers, shared, blocks):
    """The multiprocessor is that of an H100; the first figures are those that nvcc's occupancy gave for our kernels."""
    assert Processor(2048, 32, 65536, 233472, 1024).blocks(registers, shared) == blocks


def test_a_number_that_is_not_whole_is_refused():
    """An argument of a recording is a word; a float would be cut without a word."""
    notes = _Recorder(lambda name: 1)
    name, kernel = next((name, kernel) for name, kernel in kernels().items() if kernel.parameters[-1] is not None)
    with pytest.raises(TypeError, match="float"):
        notes(name, 1, *[None] * (len(kernel.parameters) - 1), 0.5)
