"""A training step beside another checkout and DGL: who takes part, what is counted, and the floor."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import bench_step
import graphs
import numpy as np
import pytest
from peers import operator_groups

import bulksample as bs
from bulksample import UsageError, backends
from bulksample.data.rmat import rmat
from bulksample.methods.run import make_trainer

ROOT = Path(__file__).parents[2]
DGL = os.environ.get("BULKSAMPLE_DGL_PYTHON") or (sys.executable if importlib.util.find_spec("dgl") else None)
SMALL = bench_step.StepOptions(
    graphs=("tiny",), hidden=(8,), threads=(1,), fanouts=(1000, 1000), batch_size=16, features=5, steps=1, rounds=2
)  # fmt: skip


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "CACHE", tmp_path / "graphs")
    monkeypatch.setitem(graphs.GRAPHS, "tiny", lambda: rmat(8, 4, seed=1).adjacency)
    monkeypatch.setattr(bench_step, "COPIED", 2**18)
    if "native" not in backends.available():
        pytest.skip("no native back end")
    return graphs.load("tiny")


def with_(**changed):
    return bench_step.StepOptions(**(vars(SMALL) | changed))


def neighbors(matrix, vertices):
    return np.concatenate([matrix.indices[matrix.indptr[v] : matrix.indptr[v + 1]] for v in vertices])


@pytest.mark.long
def test_a_step_is_measured_beside_a_checkout(tiny):
    *_, result = bench_step.step(with_(before=ROOT, profile=True))
    (found,) = result["configurations"]
    assert list(found["results"]) == ["now", "before"]
    for one in found["results"].values():
        assert 0 < one["milliseconds"]["min"] <= one["milliseconds"]["max"]
        assert 0 < sum(one["phases"].values()) <= 1.01 * one["milliseconds"]["max"]
        assert 0 < one["rss_mib"] <= one["peak_mib"]
    (seeds,) = graphs.seeds(tiny, 1, 16)
    reached = np.union1d(seeds, neighbors(tiny, seeds))
    inputs = np.union1d(reached, neighbors(tiny, reached))
    assert found["minibatch"] == {
        "inputs": len(inputs), "destinations": [len(reached), 16], "edges": [len(neighbors(tiny, reached)), len(neighbors(tiny, seeds))]
    }  # fmt: skip
    for told in found["profiles"].values():
        assert sum(told["shares"].values()) == pytest.approx(1, abs=0.01)
        assert {"matrix products", "our sparse products", "sampling", "features", "optimizer"} <= told["shares"].keys()
    assert found["ratios"]["now / before"]["min"] > 0 < found["processor_ratios"]["now / before"]["min"]


@pytest.mark.long
@pytest.mark.skipif(DGL is None, reason="DGL is not installed, and BULKSAMPLE_DGL_PYTHON names no Python that has it")
def test_a_step_is_measured_beside_dgl(tiny):
    *_, result = bench_step.step(with_(python=DGL))
    (found,) = result["configurations"]
    _, dgl = found["results"]
    assert (dgl.startswith("dgl 2"), found["left_out"]) == (True, {})
    assert found["ratios"][f"{dgl} / now"]["min"] > 0


@pytest.mark.long
@pytest.mark.skipif(DGL is None, reason="DGL is not installed, and BULKSAMPLE_DGL_PYTHON names no Python that has it")
def test_dgl_drops_hidden_rows():
    code = """
import dgl, torch
from contestants.dgl import Sage
block = dgl.to_block(dgl.graph(([0, 1], [1, 0])))
for share, equal in ((0.0, False), (1.0, True)):  # with all dropped, a row is the bias of the last layer
    first, second = Sage([4, 64, 3], share)([block, block], torch.tensor([[1.0] * 4, [-2.0] * 4]))
    assert torch.equal(first, second) == equal, share
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench" / "peers"), "DGLBACKEND": "pytorch"}
    subprocess.run([DGL, "-c", code], env=environment, check=True)


def test_our_layers_of_the_contest_drop_hidden_rows(tiny, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench" / "peers")
    task = SimpleNamespace(
        indptr=tiny.indptr, indices=tiny.indices, n=tiny.shape[0], threads=1, fanouts=[2, 2], hidden=8, classes=3, dropout=0.25,
        features=np.ones((tiny.shape[0], 5), np.float32),
    )  # fmt: skip
    assert importlib.import_module("contestants.ours").make(task)["model"].dropout == 0.25


@pytest.mark.long
def test_a_peer_that_cannot_start_is_left_out(tiny, tmp_path):
    (tmp_path / "no-dgl").write_text(f"#!/bin/sh\nexec {sys.executable} -c 'raise SystemExit(9)'\n")
    (tmp_path / "no-dgl").chmod(0o755)
    *_, result = bench_step.step(with_(python=str(tmp_path / "no-dgl"), rounds=1))
    assert result["configurations"][0]["left_out"] == {"dgl": "it ended with 9"}
    assert list(result["configurations"][0]["results"]) == ["now"]


def test_the_sizes_are_those_of_the_minibatches_that_are_trained(tiny, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench" / "peers")
    trainer = importlib.import_module("trainer")
    asked = bench_step.task_of("tiny", with_(steps=3, fanouts=(3, 2), dropout=0.25), tmp_path)
    graph, trained = trainer.graph_of(asked), []
    run = make_trainer(bs.TrainConfig.of(**{**trainer.options_of(asked), "epochs": 1}), graph)
    assert (run.config.dropout, run.config.evaluation, run.config.hidden) == (0.25, "none", 8)
    loss = run.method.loss
    monkeypatch.setattr(run.method, "loss", lambda context, batch: (trained.append(batch.minibatch), loss(context, batch))[1])
    run.run()
    assert [len(one.seeds) for one in trained] == [16, 16, 16]
    assert trainer.sizes(graph, asked)["digest"] == bs.digest(trained)


@pytest.mark.long
def test_the_package_of_the_checkout_is_measured(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # here lies a package, too
    (tmp_path / "bulksample").mkdir()
    (tmp_path / "bulksample" / "__init__.py").write_text("raise SystemExit(7)")
    with pytest.raises(SystemExit, match="takes no part: it ended with 7"):
        next(bench_step.step(with_(before=tmp_path)))


@pytest.mark.long
def test_a_folder_without_a_package_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit, match=r"has no package bulksample|it ended with 1"):
        next(bench_step.step(with_(before=tmp_path)))


def contestant(name, **told):
    return SimpleNamespace(name=name, left_out=None, end=lambda: None, round=lambda word="go": {"minibatches": 2, **told})


def test_checkouts_that_sample_other_minibatches_are_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_step, "trainer", lambda name, *_: contestant(name, digest=name))
    with pytest.raises(SystemExit, match="the checkouts draw other mini-batches"):
        next(bench_step.step(with_(before=tmp_path)))


def test_a_peer_that_draws_too_few_edges_is_refused():
    with pytest.raises(SystemExit, match="hasty drew 90 edges where 100 were expected"):
        bench_step.play([contestant("hasty", edges=90)], {"edges": [40, 10]}, with_(steps=2), {"threads": 1, "hidden": 8})


def test_five_steps_warm_up(monkeypatch):
    monkeypatch.setattr(bench_step, "COPIED", 2**10)
    calls = []
    worker = contestant("now")
    worker.round = lambda word="go": {"number": calls.append(0) or len(calls)}
    turns, rates = bench_step.play([worker], {"edges": [1]}, with_(steps=2, rounds=3), {"threads": 1, "hidden": 8})
    assert [told["number"] for told in turns["now"]] == [4, 5, 6]
    assert [len(values) for values in rates.values()] == [3, 3]


def test_seconds_of_the_system_are_a_share_of_all():
    one = {"seconds": 2.0, "processor": 4.0, "user": 3.0, "system": 1.0, "minibatches": 4, "parts": {"step": 1.0}}
    one |= {"peak_mib": 9, "rss_mib": 8}
    found = bench_step.figures([one, one | {"seconds": 4.0, "user": 3.5, "system": 0.5, "rss_mib": 7}])
    assert (found["milliseconds"], found["system_share"]) == ({"median": 750, "min": 500, "max": 1000}, 1.5 / 8)
    assert (found["user_milliseconds"], found["system_milliseconds"], found["phases"]) == (812.5, 187.5, {"step": 250})
    assert (found["peak_mib"], found["rss_mib"]) == (9, 7)


def test_ratios_pair_the_rounds():
    now, other = ([{"seconds": seconds, "processor": 1.0} for seconds in given] for given in ((1.0, 2.0), (4.0, 4.0)))
    assert bench_step.ratio(now, other, "seconds", inverse=False) == {"median": 3, "min": 2, "max": 4}
    assert bench_step.ratio(now, other, "seconds", inverse=True) == {"median": 0.375, "min": 0.25, "max": 0.5}
    assert bench_step.ratio(now, other, "processor", inverse=True) == {"median": 1, "min": 1, "max": 1}


def test_the_floor_counts_bytes_and_products():
    sizes = {"inputs": 100, "destinations": [30, 10, 4], "edges": [200, 50, 7]}
    rates = {"gigabytes_per_second": 2.0, "gigaflop_per_second": 4.0}
    found = bench_step.floor(sizes, [5, 8, 8, 3], rates)
    assert found["bytes"] == {
        "inputs": 4 * 5 * 130, "epilogues": 16 * 8 * 40, "aggregations": 8 * 8 * (30 + 10 + 10 + 4), "columns": 4 * 200 + 8 * 57,
        "optimizer": 28 * ((2 * 40 + 8) + (2 * 64 + 8) + (2 * 24 + 3)),
    }  # fmt: skip
    assert found["multiply_adds"] == 2 * 2 * 30 * 5 * 8 + 3 * 2 * 10 * 8 * 8 + 3 * 2 * 4 * 8 * 3
    assert found["passes_ms"] == pytest.approx(sum(found["bytes"].values()) / 2e6)
    assert found["products_ms"] == pytest.approx(2 * found["multiply_adds"] / 4e6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::addmm", "matrix products"), ("aten::mm", "matrix products"), ("aten::bernoulli_", "dropout"), ("aten::copy_", "copies"),
        ("aten::mul", "elementwise"), ("aten::threshold_backward", "elementwise"), ("aten::clamp_min", "elementwise"),
        ("aten::native_layer_norm", "elementwise"), ("aten::empty", "the rest"), ("aten::index_select", "the rest"),
        ("AddmmBackward0", "the rest"), ("bulksample: forward", "the rest"), ("_OwnAndMean", "our sparse products"),
        ("_ProductBackward", "our sparse products"), ("autograd::engine::evaluate_function: _OwnAndMeanBackward", "our sparse products"),
        ("_Epilogue", "our other passes"), ("_EpilogueBackward", "our other passes"), ("aten::_log_softmax", "loss"),
    ],
)  # fmt: skip
def test_operators_have_groups(name, expected):
    assert operator_groups.group(name) == expected


def test_a_phase_takes_all_that_is_inside_it():
    step = SimpleNamespace(name="bulksample: step", cpu_parent=None, self_cpu_time_total=1e3)
    events = [
        step, SimpleNamespace(name="aten::mul_", cpu_parent=step, self_cpu_time_total=2e3),
        SimpleNamespace(name="aten::mul", cpu_parent=None, self_cpu_time_total=3e3),
    ]  # fmt: skip
    found = operator_groups.shares(events, steps=2)
    assert (found["shares"], found["milliseconds"]) == ({"optimizer": 0.5, "elementwise": 0.5}, {"optimizer": 1.5, "elementwise": 1.5})
    assert json.loads(json.dumps(found))["operators"] == {
        "aten::mul (elementwise)": 0.5, "aten::mul_ (optimizer)": 0.3333, "bulksample: step (optimizer)": 0.1667
    }  # fmt: skip


def test_another_precision_is_not_compared_with_dgl(tiny):
    with pytest.raises(UsageError, match="DGL computes in fp32"):
        next(bench_step.step(with_(python="python", precision="bf16")))
