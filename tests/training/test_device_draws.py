"""Training on minibatches that a device draws: the same ones, so the same run; with a stand-in for CuPy."""

import pytest
import torch
from communities import community_graph
from emulation.fake_cupy import installed
from emulation.host import compiler

from bulksample.methods.run import train
from bulksample.training.compute import sampling_backend

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
SMALL = {"fanouts": (3, 2), "hidden": 8, "batch_size": 64, "epochs": 1, "threads": 1, "seed": 4}


@pytest.mark.parametrize("sampler", ["sage", "ladies"])
def test_a_run_is_the_same_whoever_draws(monkeypatch, sampler):
    graph = community_graph(300)
    expected = train(graph, backend="reference", sampler=sampler, **SMALL)
    with installed(monkeypatch):
        got = train(graph, backend="cuda", sampler=sampler, **SMALL)
    assert got["backend"] == "cuda"
    assert (got["train_loss"], got["val_accuracy"]) == (expected["train_loss"], expected["val_accuracy"])


def test_sampling_and_torch_share_a_pool(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    taken = []
    monkeypatch.setattr(torch.cuda, "caching_allocator_alloc", lambda size, device, stream: taken.append((size, device, stream)) or 5)
    with installed(monkeypatch) as cupy:
        sampling_backend("cuda", 1)
        assert cupy.allocator[0](128, 1) == 5
    assert taken == [(128, 1, 77)]
