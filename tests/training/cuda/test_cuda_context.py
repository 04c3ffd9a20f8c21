"""Calls of training to CuPy and to torch's streams, recorded by fakes of both."""

from contextlib import contextmanager

import pytest
import torch
from communities import community_graph
from emulation.fake_cupy import installed
from emulation.host import compiler

from bulksample import backends
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import train
from bulksample.training.cuda import compute
from bulksample.training.cuda.compute import CudaComputeContext
from bulksample.training.cuda.cuda_context import CudaContext, open_streams
from bulksample.training.opening import make_compute_context

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


class Stream:
    """A fake of a torch stream."""

    def __init__(self, seen, address):
        self.seen, self.cuda_stream = seen, address

    def record_event(self):
        self.seen.append(f"record on {self.cuda_stream}")
        return f"event of {self.cuda_stream}"

    def wait_event(self, event):
        self.seen.append(f"{self.cuda_stream} waits for {event}")


@pytest.fixture
def cupy(monkeypatch):
    """Fakes of CuPy and of torch.cuda for two GPUs; tensors stay on the host."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    with installed(monkeypatch, devices=2) as fake:

        @contextmanager
        def inside(stream):
            fake.seen.append(f"torch on {stream.cuda_stream}")
            yield

        here = {
            "is_available": lambda: True, "device_count": lambda: 2, "set_device": lambda where: fake.seen.append(str(where)),
            "current_stream": lambda where: Stream(fake.seen, 0), "ExternalStream": lambda address, where: Stream(fake.seen, address),
            "stream": inside, "synchronize": lambda where: None,
        }  # fmt: skip
        for name, value in here.items():
            monkeypatch.setattr(torch.cuda, name, value)
        yield fake


def test_a_rank_opens_the_same_gpu_for_torch_and_cupy(cupy):
    card = compute.open_cuda()
    assert card.where == torch.device("cuda", 1)
    assert "cuda:1" in cupy.seen
    assert card.engine.device.launch.number == 1
    assert cupy.allocator[0].__name__ == "taken"  # torch's pool


def test_a_stream_is_current_in_both_libraries_inside_a_profiler_range(cupy):
    sample, fetch, train_ = compute.open_cuda().streams
    for stage, torchs, cupys in ((sample, 55, "stream"), (fetch, 55, "stream"), (train_, 0, "stream at 0 of device 1")):
        cupy.seen.clear()
        with stage.on("work"):
            stage.wait(stage.record())
        around = [f"torch on {torchs}", "device 1", cupys, "work"]
        within = [f"record on {torchs}", f"{torchs} waits for event of {torchs}"]
        assert cupy.seen == [*around, *within, "pop", f"left {cupys}", "left device 1"]


def test_auto_finds_the_gpu_and_trains_on_it(cupy, monkeypatch):
    """Run with device `auto`; only torch's device is the host."""
    engine = backends.make("cuda")
    context = CudaContext(engine, torch.device("cpu"), open_streams(engine.device.launch))
    monkeypatch.setattr(compute, "open_cuda", lambda: context)
    small = {"fanouts": (3, 2), "hidden": 8, "batch_size": 64, "epochs": 1, "threads": 1, "seed": 4}
    graph = community_graph(150)
    assert isinstance(make_compute_context(TrainConfig.of()), CudaComputeContext)
    got, expected = train(graph, **small), train(graph, device="cpu", backend="reference", **small)
    assert (got["backend"], got["train_loss"]) == ("cuda", expected["train_loss"])
    ranges = {event for event in cupy.seen if isinstance(event, str)}
    assert {"sample", "fetch", "forward", "aggregate", "backward", "reduce", "step", "evaluate", "expand", "enqueue", "hand over"} <= ranges


def test_arrays_and_tensors_share_memory(cupy):
    card = CudaContext(backends.make("cuda"), torch.device("cpu"), None)
    array = card.kernels.full(5, 7, "int32")
    tensor = card.tensor(array)
    tensor[2] = 1
    assert array.tolist() == [7, 7, 1, 7, 7]
    assert card.array(tensor).ctypes.data == array.ctypes.data


def test_torchs_out_of_memory_error_becomes_a_memory_error():
    from bulksample.training.cuda.cuda_context import memory_errors

    with pytest.raises(MemoryError, match="40 GiB"), memory_errors():
        raise torch.OutOfMemoryError("CUDA out of memory: tried to allocate 40 GiB")
    with pytest.raises(ValueError, match="other"), memory_errors():
        raise ValueError("other")
