"""The behaviour that only a GPU shows: pools, DLPack, pinned memory, streams under load, processes that share a device."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from launch import ROOT, run_fresh
from zoo import random_matrix

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.backends.cuda import cubins
from bulksample.backends.cuda.device import kernels
from bulksample.backends.cuda.products import gather

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(backends.why_not("cuda") is not None, reason=str(backends.why_not("cuda")))]
MATRIX = random_matrix(2000, 60_000, 4)
LONG = 20_000_000_000  # clock cycles, some ten seconds: the end of a spin that nobody ends


@pytest.fixture
def engine():
    return backends.make("cuda")


@pytest.fixture
def spin():
    """A kernel that keeps the current stream busy: spin(flag, cycles)."""
    import cupy

    module = cupy.RawModule(path=str(cubins.compiled(Path(__file__).parent / "on_card" / "spin.cu", cupy.cuda.Device().compute_capability)))
    kernel = module.get_function("spin")

    def run(flag=None, cycles=LONG):
        kernel((1,), (1,), (np.uintp(0 if flag is None else flag.ctypes.data), np.int64(cycles)))

    return run


@contextmanager
def held_back(spin):
    """The current stream does nothing until the context ends, or `release` is called, which it is given."""
    import cupyx

    flag = cupyx.zeros_pinned(1, np.int32)

    def release():
        flag[0] = 1

    spin(flag)
    try:
        yield release
    finally:
        release()


def digests(engine, setting="sage", fanouts=(15, 40)):
    seeds = Selection.of([np.arange(j, 2000, 41) for j in range(5)], 2000)
    return [m.digest() for m in samplers.make(setting, fanouts).sample_bulk(LocalAdjacency(MATRIX, engine), seeds, Stream(2))]


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("dtype", [np.uint16, np.float16, np.int32, np.int64, np.float32, np.uint8])
def test_arrays_of_any_length_and_type_go_to_torch_and_back(engine, size, dtype):
    torch = pytest.importorskip("torch")
    cupy = pytest.importorskip("cupy")
    with engine.device.phase("put"):
        array = engine.device.put(np.arange(size).astype(dtype))
    cupy.cuda.Device().synchronize()
    tensor = torch.from_dlpack(array)
    assert (tuple(tensor.shape), tensor.device.type, tensor.element_size()) == ((size,), "cuda", np.dtype(dtype).itemsize)
    if size:
        assert tensor.data_ptr() == array.data.ptr
    if dtype == np.uint16:  # how bfloat16 is kept
        tensor = tensor.view(torch.bfloat16).view(torch.uint16)
    back = engine.device.arrays.from_dlpack(tensor)
    assert back.dtype == dtype
    assert (engine.device.get(back) == np.arange(size).astype(dtype)).all()


def test_a_slice_without_elements_goes_to_torch(engine):
    torch = pytest.importorskip("torch")
    array = engine.device.full(10, 3, np.int32)
    assert torch.from_dlpack(array[4:4]).shape == (0,)
    assert torch.from_dlpack(array[10:]).tolist() == []


@pytest.mark.parametrize("pool", ["cupy", "torch"])
@pytest.mark.parametrize("program", ["uses", "out_of_memory"])
def test_memory_comes_from_the_pool_and_may_run_out(program, pool):
    pytest.importorskip("torch")
    ended = run_fresh(1, [str(ROOT / "tests" / "card_programs.py"), program, pool], {}, "torchrun")
    assert ended.code == 0, ended
    assert "well" in ended.out


def test_processes_share_a_device_and_compile_at_the_same_time(tmp_path):
    pytest.importorskip("torch")
    ended = run_fresh(2, [str(ROOT / "tests" / "card_programs.py"), "samples", "cupy"], {"XDG_CACHE_HOME": str(tmp_path)}, "torchrun")
    assert ended.code == 0, ended
    assert ended.out.count("well") == 2


@pytest.mark.filterwarnings("ignore:.*pinned memory:UserWarning")
@pytest.mark.parametrize("setting", ["sage", "labor", "ladies", "full"])
def test_kernels_read_a_graph_in_pinned_memory(engine, setting):
    engine.device.free_bytes = 0
    assert digests(engine, setting) == digests(backends.make("reference"), setting)
    assert isinstance(engine.device.matrix(MATRIX).indices, np.ndarray)


def test_pinned_memory_is_read_and_not_copied(engine):
    device, rows = engine.device, np.arange(99, -1, -1, dtype=np.int32)
    held = device.arrays.pinned(np.arange(400, dtype=np.float32))
    for factor in (1, 2):
        with device.phase("gather"):
            got = device.get(gather(device, held, 4, device.put(rows))).reshape(100, 4)
        assert (got == factor * np.arange(400).reshape(100, 4)[::-1]).all()
        held *= 2


@pytest.mark.parametrize("setting", ["sage", "labor", "ladies"])
def test_samples_are_right_on_a_stream_that_lags_behind(engine, spin, setting):
    """Every launch is queued behind a kernel that spins: what is read before its time, or on another stream, is wrong."""
    expected = digests(backends.make("reference"), setting)
    digests(engine, setting)
    launch = engine.device.launch

    class Slow:
        """The launcher, with a spin before each kernel."""

        most_blocks, phase = launch.most_blocks, launch.phase

        def __call__(self, *arguments):
            spin(cycles=2_000_000)
            launch(*arguments)

    engine.device.launch, engine.device.prepares = Slow(), False
    assert digests(engine, setting) == expected


@pytest.mark.parametrize("fanouts", [(4, 3), (40, 3, 2)])
def test_a_bulk_enqueued_in_one_call_is_right_behind_a_kernel_that_spins(engine, spin, fanouts):
    device, expected = engine.device, digests(backends.make("reference"), fanouts=fanouts)
    assert device.prepares, "the driver or the native back end is missing"
    for _ in range(3):
        with device.phase("spin"):
            spin(cycles=20_000_000)
        assert digests(engine, fanouts=fanouts) == expected
    assert len(device.recordings) == 1


def test_the_driver_holds_as_many_blocks_as_we_compute(engine):
    launch, driver = engine.device.launch, pytest.importorskip("cupy").cuda.driver
    processors = launch._device.attributes["MultiProcessorCount"]
    with engine.device.phase("occupancy"):
        for name, kernel in kernels().items():
            told = driver.occupancyMaxActiveBlocksPerMultiprocessor(launch._function(name).kernel.ptr, kernel.threads, 0)
            assert launch.most_blocks(name) == told * processors, name


@pytest.fixture
def cuda():
    """torch and the back end on one device, their streams open."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} sees no device")
    from bulksample.training.cuda.compute import open_cuda

    return open_cuda()


@pytest.mark.parametrize("check", ["waits_for_events_alone", "reuses_memory_after_its_last_use"])
def test_streams_under_load(cuda, spin, check):
    """Once to load the kernels, which a device may not do while another kernel runs; then with a stream that is held back."""
    for loading in (True, False):
        {"waits_for_events_alone": waits_for_events_alone, "reuses_memory_after_its_last_use": reuses_memory}[check](cuda, spin, loading)


def waits_for_events_alone(cuda, spin, loading):
    """Training does not wait for a stream that samples under load, until it is told to wait for an event of it."""
    import torch

    sample, train = cuda.streams.sample, cuda.streams.train
    with train.on("make"):
        shared, before, after = (torch.zeros(1 << 20, device=cuda.where) for _ in range(3))
    torch.cuda.synchronize()
    with sample.on("sample"), held_back(spin) as release:
        if loading:
            release()
        shared.fill_(7.0)
        ready = sample.record()
        with train.on("train"):
            before.copy_(shared)
            torch.cuda.current_stream().synchronize()  # returns while the other stream spins
            assert loading or not ready.query()
            train.wait(ready)
            after.copy_(shared)
            assert loading or not torch.cuda.current_stream().query()
        release()
    torch.cuda.synchronize()
    assert float(after.mean()) == 7.0
    assert loading or float(before.sum()) == 0.0


def reuses_memory(cuda, spin, loading):
    """Arrays of a bulk are read by a stream that is held back, and freed: the next bulk does not write over them before."""
    import torch

    sample, train, device = cuda.streams.sample, cuda.streams.train, cuda.kernels
    with sample.on("first"):
        array = device.full(1 << 20, 1, np.int32)
        address, ready = array.data.ptr, sample.record()
    train.wait(ready)
    with train.on("train"), held_back(spin) as release:
        if loading:
            release()
        total = cuda.tensor(array).sum()
        sample.wait(train.record())
        del array
        with sample.on("second"):
            again = device.full(1 << 20, 5, np.int32)
        assert again.data.ptr == address, "the pool gave other memory: the test shows nothing"
        release()
    torch.cuda.synchronize()
    assert int(total) == 1 << 20


def test_two_threads_sample_on_one_device(engine):
    from concurrent.futures import ThreadPoolExecutor

    expected = digests(backends.make("reference"))
    with ThreadPoolExecutor(4) as pool:
        assert all(got == expected for got in pool.map(lambda _: digests(backends.make("cuda")), range(8)))
