"""The method, the back end, threads, deadline and device of a run: who computes, seen while it computes."""

import ctypes
import json
import os

import numpy as np
import pytest
import torch
from commands import train
from plain import WHOLE, copied, graph, sage, trained, trainer, training_loss, without_scores

from bulksample import BackendUnavailable, Callback, UsageError
from bulksample.backends.reference import Reference
from bulksample.distributed.comm import world
from bulksample.distributed.comm.threads import SerialComm
from bulksample.training import opening

CORES = os.cpu_count() or 1


def test_method_full_makes_one_dense_step_an_epoch(folder):
    options = {**WHOLE, "batch_size": 4, "method": "full", "epochs": 3}
    start = copied(trainer(folder, **options).model)
    _, recorder, _ = trained(folder, **options)
    assert len(recorder.losses) == 3
    assert recorder.losses[0] == pytest.approx(training_loss(graph(), sage(graph(), start)).item(), rel=1e-4)


def test_backend_draws():
    assert isinstance(trainer(graph(), backend="reference").context.view.adjacency.backend, Reference)


def test_threads_compute_and_sample(threads_seen):
    """From eight on, an eighth samples ahead and an eighth gathers; the others compute. It is not the share of this machine."""
    asked = 2 * CORES + 10
    computing, sampling, _ = threads_seen(threads=asked)
    ahead = asked // 8
    assert (computing, sampling) == ({asked - 2 * ahead}, ahead)


def test_sampling_threads_work_ahead_or_not_at_all(threads_seen):
    assert threads_seen(threads=7, sampling_threads=3) == ({4}, 3, {False})
    assert threads_seen(threads=7, sampling_threads=0) == ({7}, 7, {True})


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_allocator_system_maps_large_arrays_anew():
    """An array of 2 GB, which nobody touches, is one more mapping in the statistics of glibc, or it lies in the heap."""
    more = {}
    for allocator in ("system", "keep"):
        mapped = []

        class Look(Callback):
            def step(self, epoch, step, loss, mapped=mapped):
                before, _array, after = mapped_by_malloc(), np.empty(2**31, np.uint8), mapped_by_malloc()
                mapped.append(after - before)

        made = trainer(graph(), allocator=allocator)
        made.callbacks.append(Look())
        made.run()
        more[allocator] = set(mapped)
    assert more == {"system": {1}, "keep": {0}}


def test_allocator_is_a_flag(folder, tmp_path):
    train(folder, "--allocator", "system", "--json", tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["allocator"] == "system"
    with pytest.raises(UsageError, match="--allocator: got 'kept'; did you mean 'keep'"):
        train(folder, "--allocator", "kept")


def mapped_by_malloc():
    """Return the number of arrays that glibc has mapped: the fourth field of its struct mallinfo2."""
    fields = type("Fields", (ctypes.Structure,), {"_fields_": [(f"f{i}", ctypes.c_size_t) for i in range(10)]})
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = fields
    return mallinfo2().f3


def test_timeout_is_the_deadline_of_the_ranks(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(world, "world", lambda timeout: asked.append(timeout) or SerialComm())
    train(folder, "--timeout", 12.5)
    assert asked == [12.5]


def test_device_is_taken_or_refused(monkeypatch):
    monkeypatch.setattr(opening, "why_no_cuda", lambda: "it is out")
    with pytest.raises(BackendUnavailable, match="device 'cuda' was asked for, but it is out"):
        trainer(graph(), device="cuda")
    monkeypatch.setattr(opening, "why_no_cuda", lambda: None)  # a GPU that nobody may touch
    assert trainer(graph(), device="cpu").context.compute.where == torch.device("cpu")


def test_device_comm_between_gpus_is_refused_without_one():
    for transport in ("nccl", "mpi"):
        with pytest.raises(UsageError, match=f"device_comm {transport} moves tensors between GPUs"):
            trainer(graph(), device="cpu", device_comm=transport)


def test_precision_bf16_rounds_products_to_eight_bits():
    """The loss is off by the rounding of bfloat16, 2^-9 of a number, and not by less; tf32 is for GPUs."""
    source = without_scores()
    options = {**WHOLE, "hidden": 16}
    exact = training_loss(source, sage(source, copied(trainer(source, **options).model))).item()
    off = abs(trained(source, **options, precision="bf16")[1].losses[0] - exact) / exact
    assert 2**-14 < off < 2**-5
    with pytest.raises(UsageError, match="precision tf32 needs a GPU"):
        trainer(source, device="cpu", precision="tf32")
