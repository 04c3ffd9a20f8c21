"""The GPU benchmark rehearsed on an emulated device: it checks and measures; the times mean nothing here."""

import json
import os
import subprocess
import sys
import time

import graphs as bench_graphs
import numpy as np
import pytest
from emulation.host import compiler
from gpu import baselines, files, goals, input_layer, libraries, relations
from gpu.benchmark import SECTIONS, Bench, added, digests, is_well, measured, training
from gpu.hardware import this_gpu
from gpu.inputs import FANOUTS
from graphs import like_products
from harness import RUNNER
from launch import MPIRUN, ROOT
from waiting import PATIENCE

from bulksample.backends.cuda.products import aggregate
from bulksample.training.cuda.device_features import CachedRows

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


@pytest.fixture
def bench(rehearsal):
    return Bench(this_gpu())


def test_sections_that_need_no_library_give_their_figures(bench):
    found = {name: measured(bench, name) for name in ("digests", "sampling", "numbering", "copying", "samplers")}
    assert found["digests"]["minibatches_compared"] == 4 * 6
    assert not found["digests"]["differ"]
    assert {name: result["edges"] > 0 for name, result in found["sampling"].items()} == {f"k = {k}": True for k in (1, 8, 16, 32, 3)}
    assert all(0 < own["host_seconds"]["min"] <= own["host_seconds"]["max"] for own in found["sampling"].values())
    assert "get" not in vars(bench.device)
    for own in found["numbering"].values():
        assert own.pop("chosen") in own
        assert all(own[name]["edges_per_second"] > 0 for name in ("direct", "hash"))
    assert bench.device.numbering is None
    assert all(own["times_native"] == own["native_seconds"] / own["seconds"]["median"] for own in found["samplers"].values())
    halves = {f"rows of {size}" for size in ("256 bytes, float16", "256 bytes, bfloat16", "200 bytes, float16")}
    assert set(found["copying"]["share_of_copy"]) == {"copy", "rows of 400 bytes", "the same to fp16", "R-MAT rows", *halves}


def test_results_stand_beside_the_goals():
    rates, host = {1: 3e9, 8: 4e9, 16: 6e9, 64: 2.5e9}, {"median": 5e-5}
    sampling = {f"k = {k}": {"edges_per_second": rate, "host_seconds": host} for k, rate in rates.items()}
    found = {
        "sampling": sampling, "copying": {"share_of_copy": {"copy": 1.0, "rows of 400 bytes": 0.68}, "bytes_per_second": {"copy": 2e12}},
        "baselines": {"sorted": {"edges_per_second": 1e9}, "quiver": "left out: none"}, "sums": "failed: no memory",
        "input_layer": {"edges": 9, "float32": {"gathered_to_in_place": 2.5}, "fp16": {"gathered_to_in_place": 0.8}},
        "torch_geometric": {"edges_per_second": {"ours": 6e9, "theirs": 2e8}},
        "counters": {"parts": {"draw": {"bytes": 8e9, "predicted": 4e9}}},
        "samplers": {"labor": {"times_native": 30.0, "edges_per_second": 3e9}},
        "traced": {"k = 1": {"idle_share": 0.5}, "training step": {"idle_share": 0.1, "during_training": {"sampling": 0.7}}},
        "training": {
            "fp32": {"seconds": [2.0, 3.0, 4.0], "host_seconds_per_step": {"forward": 1e-4, "step": 2e-4}},
            "fp32, settled": {"seconds": [6.0, 4.5]},
        },
        "numbering": {
            "k = 1": {"chosen": "hash", "hash": {"edges_per_second": 1e9}, "direct": {"edges_per_second": 2e9}},
            "k = 8": {"chosen": "direct", "hash": {"edges_per_second": 1e9}, "direct": {"edges_per_second": 2e9}},
            "k = 32": {"chosen": "hash", "hash": {"edges_per_second": 1e9}, "direct": "left out: no memory"},
        },
        "sharing": {"digests": {"1": "a", "2": "a", "4": "b"}, "alike": False},
    }  # fmt: skip
    lines = goals.against(found)
    alone = {name: line["measured"] for name, line in lines.items() if not isinstance(line, str) and "ratio" not in line}
    assert alone == {
        "edges a second of labor": 3e9, "idle share of a device's time, k = 1": 0.5, "idle share of a device's time, training step": 0.1,
        "share of sampling during which training ran": 0.7, "bytes a second of a copy": 2e12,
        "seconds of an epoch, fp32": 3.0, "seconds of an epoch, fp32, settled": 5.25,
        "seconds of the host for a step, fp32": pytest.approx(3e-4),
    }  # fmt: skip
    ratios = {name: line if isinstance(line, str) else round(line["ratio"], 9) for name, line in lines.items() if name not in alone}
    assert ratios == {
        "edges a second of labor against native": 30.0, "sums": "failed: no memory", "relations": "not measured", "bf16": "not measured",
        "bytes of DRAM, draw": 0.5,
        "input layer in place against gathered rows, float32": 2.5, "input layer in place against gathered rows, fp16": 0.8,
        **dict.fromkeys(("dgl", "pylibcugraph", "quiver"), "not measured"), "edges a second against torch_geometric": 30.0,
        "edges a second, k = 1": 2.0, "edges a second, k = 16, at least": 1.2, "edges a second, k = 16, aim": 0.6,
        "edges a second, k = 64, at least": 0.5, "edges a second, k = 64, aim": 0.25,
        **{f"seconds of the host for a bulk, k = {k}": 2.0 for k in (1, 16, 64)},
        "share of copy bandwidth, rows of 400 bytes": 0.8, "edges a second against sorted": 4.0,
        "edges a second against quiver": "left out: none",
        "seconds of an epoch, fp32, against the settled one": 1.75, "edges a second, numbered as chosen, k = 1": 0.5,
        "edges a second, numbered as chosen, k = 8": 2.0, "edges a second, numbered as chosen, k = 32": "left out: no memory",
        "ranks that draw what one rank does": 0.666666667,
    }  # fmt: skip
    sections = set(SECTIONS) - {"digests"}
    assert goals.against({}) == dict.fromkeys(sections, "not measured")
    assert goals.against({"baselines": {"sorted": {}}})["baselines"] == "need sampling at k = 8"


def test_results_of_a_writer_that_was_killed_are_put_aside(tmp_path, capsys):
    file = tmp_path / "gpu.json"
    assert files.earlier(file) == {}
    for text in ('{"sampling": {"k', "7", ""):
        file.write_text(text)
        assert files.earlier(file) == {}
        assert "gpu.json cannot be read, and is written anew" in capsys.readouterr().out
    file.write_text('{"sampling": 1}')
    assert files.earlier(file) == {"sampling": 1}


def test_a_wrong_sample_is_named(bench):
    right = bench.engine.expand
    bench.engine.expand = lambda *arguments: [part._replace(vertices=part.vertices[::-1]) for part in right(*arguments)]
    found = digests(bench)
    assert {"sage", "labor"} <= set(found["differ"])
    assert not is_well(found)


def test_what_fails_is_said_and_the_rest_goes_on(bench, monkeypatch):
    monkeypatch.setitem(SECTIONS, "copying", lambda bench: 1 / 0)
    assert measured(bench, "copying").startswith("failed: ZeroDivisionError")
    assert not is_well(measured(bench, "copying"))
    found = measured(bench, "baselines")
    assert all(found[name]["edges_per_second"] > 0 for name in ("products, prefix sums, search", "torch, sorted keys"))


@pytest.mark.long
def test_an_epoch_of_training_gives_its_seconds(bench):
    found = training(bench)
    assert set(found) == {"fp32", "tf32", "fp32, settled"}
    assert found["fp32"]["host_seconds_per_step"]["forward"] > 0
    assert found["fp32"]["loss"] == found["fp32, settled"]["loss"]
    assert [len(found["fp32"]["seconds"]), found["fp32"]["steps"]] == [2, 5]
    assert set(found["fp32"]["waiting_share"]) == {"sample", "fetch"}
    assert found["fp32, settled"]["phases_per_epoch"]["forward"] > 0


def test_relations_are_drawn_as_on_the_host_and_trained(bench):
    found = relations.relations(bench)
    assert found["alike"]
    assert not found["differ"]
    assert {name: own["edges"] > 0 for name, own in found["sampling"].items()} == dict.fromkeys(("static", "in time", "the newest"), True)
    assert set(found["training"]) == {"hetero-sage, fp32", "hetero-sage, tf32", "hetero-gat, fp32"}
    assert found["training"]["hetero-sage, fp32"]["features_on"] == "device"
    assert found["training"]["hetero-sage, fp32"]["loss"] == found["training"]["hetero-sage, tf32"]["loss"]  # emulated: the same products


def test_sums_are_compared_with_torch_and_with_a_copy(bench, monkeypatch):
    found = libraries.sums(bench)
    assert (found["rows"], found["entries"]) == (500, bench.large.nnz)
    assert found["bytes"] == bench.large.nnz * 52 + 500 * 48  # 12 columns
    assert set(found["times_ours"]) == {"torch.sparse.mm", "torch index_add_", "copy of the same bytes", "our CPU back end"}
    assert found["times_ours"]["torch.sparse.mm"] == found["seconds"]["torch.sparse.mm"] / found["seconds"]["ours"]
    monkeypatch.setattr(libraries, "aggregate", lambda device, block, x, width, mean: 2 * aggregate(device, block, x, width, mean))
    with pytest.raises(AssertionError, match=r"torch.sparse.mm: Tensor-likes are not close"):
        libraries.sums(bench)


def test_an_input_layer_is_timed_both_ways_and_compared(bench, monkeypatch):
    found = input_layer.input_layer(bench)
    assert found["edges"] > found["destinations"] > 0
    for kind in ("float32", "fp16"):
        seconds = found[kind]["seconds"]
        assert found[kind]["gathered_to_in_place"] == seconds["gathered"] / seconds["in place"]
    averaged = CachedRows.averaged
    monkeypatch.setattr(CachedRows, "averaged", lambda *asked: 2 * averaged(*asked))
    with pytest.raises(AssertionError, match="differ between both ways, features stored as given"):
        input_layer.input_layer(bench)


def test_a_library_that_samples_is_measured_beside_ours_and_a_missing_one_named(bench, monkeypatch):
    asked = []

    def peer(matrix, batches, fanouts):
        asked.append((matrix.nnz, [len(batch) for batch in batches], fanouts))
        return lambda: 1000

    found = libraries.sampled(bench, peer, FANOUTS)
    assert asked == [(bench.large.nnz, [16] * 8, (15, 10, 5))]
    ours, theirs = found["edges"]["ours"] / found["seconds"]["ours"], 1000 / found["seconds"]["theirs"]
    assert found["ours_to_theirs"] == pytest.approx(ours / theirs)

    def missing(*_):
        raise ModuleNotFoundError("No module named 'quiver'")

    monkeypatch.setitem(SECTIONS, "quiver", lambda bench: libraries.sampled(bench, missing, FANOUTS))
    assert measured(bench, "quiver") == "left out: ModuleNotFoundError: No module named 'quiver'"


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun: pip install mpich would bring one")
def test_the_benchmark_adds_to_its_file_and_says_what_is_wrong(tmp_path):
    file = tmp_path / "found.json"
    file.write_text('{"sampling": "of an earlier call"}')

    def call(*words):
        command = [sys.executable, RUNNER, "gpu", *words, "--json", file]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, env={**os.environ, "REHEARSE": "1"})

    done = call("--only", "sharing,copying")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(file.read_text())
    assert (found["card"], found["sampling"]) == ("none: emulated", "of an earlier call")
    assert found["goals"]["ranks that draw what one rank does"]["ratio"] == 1
    assert json.loads(call("--only", "digests", "--seconds", "-1") and file.read_text())["digests"].startswith("left out: ")
    done = call("--only", "speed")
    assert done.returncode == 2
    assert "use some of digests,sampling" in done.stderr


def test_sorted_keys_draw_rows_of_the_graph(bench):
    """All neighbors of a small graph are taken if the fanout is large, each once."""
    matrix, batches = bench.large, [np.arange(20)]
    assert baselines.by_sorting(matrix, batches, (10_000,), "cpu")() == matrix.degrees[:20].sum()
    assert baselines.by_sorting(matrix, batches, (3,), "cpu")() == np.minimum(matrix.degrees[:20], 3).sum()
    assert baselines.by_products(matrix, batches, (3,))() == 3 * (matrix.degrees[:20] > 0).sum()


def test_the_large_graph_is_one_that_a_store_would_take():
    graph = like_products(300, 4000)
    graph.validate()
    assert abs(graph.nnz / 4000 - 1) < 0.2
    assert np.diff(graph.indptr).max() > 3 * 4000 / 300


def test_rates_are_edges_and_bytes_over_seconds(bench, monkeypatch):
    """Each piece of work takes half a second by this clock."""
    monkeypatch.setattr(bench, "seconds_of", lambda work: (work(), 0.5)[1])
    found = measured(bench, "sampling")["k = 8"]
    assert found["edges_per_second"] == 2 * found["edges"]
    found, n = measured(bench, "copying"), bench.large.shape[0]
    assert isinstance(found, dict), found
    rates = found["bytes_per_second"]
    assert (rates["copy"], rates["rows of 400 bytes"]) == (2 * 8 * n * 100, 2 * (8 * n * 100 + 4 * n))
    assert rates["rows of 256 bytes, float16"] == 2 * (4 * 128 * n + 4 * n)


def test_the_seconds_of_the_host_leave_out_those_of_waiting(bench, monkeypatch):
    monkeypatch.setattr(type(bench.device), "get", lambda self, array: time.sleep(0.2) or array, raising=True)
    taken = bench.host_seconds(lambda: bench.device.get(1) and time.sleep(0.1))
    assert 0.1 <= taken["min"] <= taken["median"] < 0.3


def test_figures_of_another_card_are_not_added_to(bench):
    earlier = {"card": "another", "sampling": 1}
    assert "sampling" not in added(earlier, bench.about, {"sums": "failed"})
    assert added(earlier | {"card": bench.gpu.name}, bench.about, {"sums": "failed"})["sampling"] == 1


def test_large_graphs_are_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_graphs, "CACHE", tmp_path)
    makes = iter([lambda: like_products(300, 4000)])
    monkeypatch.setitem(bench_graphs.GRAPHS, "like-products", lambda: next(makes)())
    made = [bench_graphs.load("like-products") for _ in range(2)]
    assert all(np.array_equal(one.indices, like_products(300, 4000).indices) for one in made)
    assert {path.name for path in (tmp_path / "like-products").iterdir()} == {"indptr.npy", "indices.npy"}
