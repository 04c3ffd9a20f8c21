"""The GPU benchmark rehearsed on an emulated device: it checks and measures; the times mean nothing here."""

import time

import gpu
import numpy as np
import pytest
from emulation.host import compiler, emulated

from bulksample.data.generate import rmat

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


def seconds_of(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(gpu, "BATCH", 16)
    return gpu.Bench(emulated(), seconds_of, seconds_of, gpu.like_products(500, 8000), rmat(8, edges=1500, seed=1).adjacency, rounds=2)


def test_sections_that_need_no_library_give_their_figures(bench):
    found = gpu.measure(bench, 1000, ("digests", "sampling", "copying"))
    assert found["digests"]["minibatches_compared"] == 9 * 17 + 4 * 6
    assert not found["digests"]["differ"]
    assert {name: result["edges"] > 0 for name, result in found["sampling"].items()} == {f"k = {k}": True for k in (1, 8, 32, 3)}
    assert set(found["copying"]["share_of_copy"]) == {"copy", "rows of 400 bytes", "the same to fp16", "R-MAT rows"}


def test_a_wrong_sample_is_named(bench):
    right = bench.engine.expand
    bench.engine.expand = lambda *arguments: [part._replace(vertices=part.vertices[::-1]) for part in right(*arguments)]
    assert {"sage, small", "labor, large"} <= set(gpu.digests(bench)["differ"])


def test_what_fails_is_said_and_the_rest_goes_on(bench, monkeypatch):
    monkeypatch.setitem(gpu.SECTIONS, "copying", lambda bench: 1 / 0)
    found = gpu.measure(bench, 1000, ("copying", "baselines"))
    assert found["copying"].startswith("failed: ZeroDivisionError")
    assert set(found["baselines"]) == {"products, prefix sums, search", "torch, sorted keys", "torch-quiver"}
    assert gpu.measure(bench, -1.0, ("digests",))["digests"].startswith("left out")


def test_the_large_graph_is_one_that_a_store_would_take():
    graph = gpu.like_products(300, 4000)
    graph.validate()
    assert abs(graph.nnz / 4000 - 1) < 0.2
    assert np.diff(graph.indptr).max() > 3 * 4000 / 300
