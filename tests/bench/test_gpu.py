"""The GPU benchmark rehearsed on an emulated device: it checks and measures; the times mean nothing here."""

import json
import subprocess
import sys
from pathlib import Path

import gpu
import gpu_peers
import numpy as np
import pytest
from emulation.host import compiler
from launch import MPIRUN
from waiting import PATIENCE

from bulksample.backends.cuda.features import aggregate

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


@pytest.fixture
def bench():
    return gpu.rehearsed()[0]


def test_sections_that_need_no_library_give_their_figures(bench):
    found = gpu.measure(bench, 1000, ("digests", "sampling", "numbering", "copying"))
    assert found["digests"]["minibatches_compared"] == 9 * 17 + 4 * 6
    assert not found["digests"]["differ"]
    assert {name: result["edges"] > 0 for name, result in found["sampling"].items()} == {f"k = {k}": True for k in (1, 8, 16, 32, 3)}
    assert all(0 < own["host_seconds"]["min"] <= own["host_seconds"]["max"] for own in found["sampling"].values())
    assert "get" not in vars(bench.device)
    for own in found["numbering"].values():
        assert own.pop("chosen") in own
        assert all(own[name]["edges_per_second"] > 0 for name in ("direct", "hash"))
    assert bench.device.numbering is None
    halves = {f"rows of {size}" for size in ("256 bytes, float16", "256 bytes, bfloat16", "200 bytes, float16")}
    assert set(found["copying"]["share_of_copy"]) == {"copy", "rows of 400 bytes", "the same to fp16", "R-MAT rows", *halves}


def test_results_stand_beside_the_goals():
    rates, host = {1: 3e9, 8: 4e9, 16: 6e9, 64: 2.5e9}, {"median": 5e-5}
    sampling = {f"k = {k}": {"edges_per_second": rate, "host_seconds": host} for k, rate in rates.items()}
    found = {
        "sampling": sampling, "copying": {"share_of_copy": {"copy": 1.0, "rows of 400 bytes": 0.68}},
        "baselines": {"sorted": {"edges_per_second": 1e9}, "quiver": "left out: none"}, "layers": "failed: no memory",
        "training": {"fp32": {"seconds": [2.0, 3.0, 4.0]}, "fp32, settled": {"seconds": [6.0, 4.5]}},
        "numbering": {
            "k = 1": {"chosen": "hash", "hash": {"edges_per_second": 1e9}, "direct": {"edges_per_second": 2e9}},
            "k = 8": {"chosen": "direct", "hash": {"edges_per_second": 1e9}, "direct": {"edges_per_second": 2e9}},
            "k = 32": {"chosen": "hash", "hash": {"edges_per_second": 1e9}, "direct": "left out: no memory"},
        },
        "sharing": {"digests": {"1": "a", "2": "a", "4": "b"}, "alike": False},
    }  # fmt: skip
    lines = gpu.against(found)
    ratios = {name: line if isinstance(line, str) else round(line["ratio"], 9) for name, line in lines.items()}
    assert ratios == {
        "edges a second, k = 1": 2.0, "edges a second, k = 16, at least": 1.2, "edges a second, k = 16, aim": 0.6,
        "edges a second, k = 64, at least": 0.5, "edges a second, k = 64, aim": 0.25,
        **{f"seconds of the host for a bulk, k = {k}": 2.0 for k in (1, 16, 64)},
        "share of copy bandwidth, rows of 400 bytes": 0.8, "edges a second against sorted": 4.0,
        "edges a second against quiver": "left out: none", "layers": "failed: no memory",
        "seconds of an epoch against the settled one": 1.75, "edges a second, numbered as chosen, k = 1": 0.5,
        "edges a second, numbered as chosen, k = 8": 2.0, "edges a second, numbered as chosen, k = 32": "left out: no memory",
        "ranks that draw what one rank does": 0.666666667,
    }  # fmt: skip
    sections = ("sampling", "numbering", "copying", "training", "baselines", "layers", "sharing")
    assert gpu.against({}) == dict.fromkeys(sections, "not measured")
    assert gpu.against({"baselines": {"sorted": {}}})["baselines"] == "need sampling at k = 8"


def test_results_of_a_writer_that_was_killed_are_put_aside(tmp_path, capsys):
    file = tmp_path / "gpu.json"
    assert gpu.earlier(file) == {}
    for text in ('{"sampling": {"k', "7", ""):
        file.write_text(text)
        assert gpu.earlier(file) == {}
        assert "gpu.json cannot be read, and is written anew" in capsys.readouterr().out
    file.write_text('{"sampling": 1}')
    assert gpu.earlier(file) == {"sampling": 1}


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


@pytest.mark.long
def test_an_epoch_of_training_gives_its_seconds(bench):
    found = gpu.training(bench)
    assert set(found) == {"fp32", "tf32", "bf16", "fp32, settled"}
    assert found["fp32"]["loss"] == found["fp32, settled"]["loss"]
    assert [len(found["fp32"]["seconds"]), found["fp32"]["steps"]] == [2, 5]
    assert set(found["fp32"]["waiting_share"]) == {"sample", "fetch"}
    assert found["fp32, settled"]["phases_per_epoch"]["forward"] > 0


def test_relations_are_drawn_as_on_the_host_and_trained(bench):
    found = gpu.relations(bench)
    assert found["alike"]
    assert not found["differ"]
    assert {name: own["edges"] > 0 for name, own in found["sampling"].items()} == dict.fromkeys(("static", "in time", "the newest"), True)
    assert set(found["training"]) == {"hetero-sage, fp32", "hetero-sage, tf32", "hetero-gat, fp32"}
    assert found["training"]["hetero-sage, fp32"]["features_on"] == "device"
    assert found["training"]["hetero-sage, fp32"]["loss"] == found["training"]["hetero-sage, tf32"]["loss"]  # emulated: the same products


def test_sums_are_compared_with_torch_and_with_a_copy(bench, monkeypatch):
    found = gpu.sums(bench)
    assert (found["rows"], found["entries"]) == (500, bench.large.nnz)
    assert found["bytes"] == bench.large.nnz * 52 + 500 * 48  # 12 columns
    assert set(found["times_ours"]) == {"torch.sparse.mm", "torch index_add_", "copy of the same bytes", "our CPU back end"}
    assert found["times_ours"]["torch.sparse.mm"] == found["seconds"]["torch.sparse.mm"] / found["seconds"]["ours"]
    monkeypatch.setattr(gpu_peers, "aggregate", lambda device, block, x, width, mean: 2 * aggregate(device, block, x, width, mean))
    with pytest.raises(AssertionError, match=r"torch.sparse.mm: Tensor-likes are not close"):
        gpu.sums(bench)


def test_a_peer_that_samples_is_measured_beside_ours_and_a_missing_one_named(bench):
    asked = []

    def peer(matrix, batches, fanouts):
        asked.append((matrix.nnz, [len(batch) for batch in batches], fanouts))
        return lambda: 1000

    found = gpu_peers.sampled(bench, peer, gpu.FANOUTS)
    assert asked == [(bench.large.nnz, [16] * 8, (15, 10, 5))]
    ours, theirs = found["edges"]["ours"] / found["seconds"]["ours"], 1000 / found["seconds"]["theirs"]
    assert found["ours_to_theirs"] == pytest.approx(ours / theirs)

    def missing(*_):
        raise ModuleNotFoundError("No module named 'dgl'")

    assert gpu_peers.sampled(bench, missing, gpu.FANOUTS) == {"left_out": "ModuleNotFoundError: No module named 'dgl'"}


@pytest.mark.long
@pytest.mark.skipif(MPIRUN is None, reason="no mpirun: pip install mpich would bring one")
def test_the_script_runs_to_its_end_without_a_gpu(tmp_path):
    script = Path(gpu.__file__)
    command = [sys.executable, script, "--check-only", "--json", tmp_path / "found.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(gpu.SECTIONS) <= set(found)
    assert found["card"] == "none: emulated"
    assert found["sharing"]["alike"]
    assert found["goals"]["ranks that draw what one rank does"]["ratio"] == 1
    assert {name for name in gpu.against({}) if name in found["goals"]} == set()  # each section has lines of its own


def test_the_large_graph_is_one_that_a_store_would_take():
    graph = gpu.like_products(300, 4000)
    graph.validate()
    assert abs(graph.nnz / 4000 - 1) < 0.2
    assert np.diff(graph.indptr).max() > 3 * 4000 / 300
