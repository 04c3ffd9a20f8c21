"""`import bulksample as bs`: what it offers, what importing it costs, and what help(bs) shows."""

import ast
import inspect
import json
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from communities import community_graph
from waiting import PATIENCE

import bulksample as bs


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_loads_numpy_and_what_graphs_are_made_of():
    loaded = python("import sys; before = set(sys.modules); import bulksample; print(*sorted(set(sys.modules) - before))").split()
    ours = {name for name in loaded if name.partition(".")[0] == "bulksample"}
    assert ours == {
        "bulksample",
        *(f"bulksample.{name}" for name in ("errors", "graph", "mapped", "pickled", "printable", "sparse", "version")),
        *(f"bulksample.graph.{name}" for name in ("graph", "labels", "times", "types", "vertex_table")),
    }
    assert not {"torch", "scipy", "pydantic", "mpi4py", "typer"} & set(loaded)


def test_every_name_is_there_and_listed():
    assert dir(bs) == sorted(bs.__all__)
    for name in bs.__all__:
        assert getattr(bs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        bs.lod  # noqa: B018


def test_type_checkers_see_the_names_that_are_imported_lazily():
    tree = ast.parse(Path(bs.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    homes = {alias.name: node.module for node in block.body for alias in node.names if node.module}
    assert homes == {**bs._HOMES, "Prediction": "methods.predict"}
    now = {name for name, home in bs._HOMES.items() if home != "deprecated"}
    assert set(bs.__all__) == {*now, "Graph", "__version__", "backends", "predict", "samplers", "train"}


def test_names_stay_what_they_are_whatever_is_imported():
    code = """
import bulksample, bulksample.training.loop, bulksample.loading.loader, bulksample.data.store, bulksample.methods, bulksample.cli.app
from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.data import store
from bulksample.loading.loader import BulkLoader
print(callable(bulksample.train), bulksample.load.__name__, samplers.make("sage", (2,)).name, callable(bulksample.digest))
"""
    assert python(code).split() == ["True", "load", "sage", "True"]


def test_nothing_in_the_package_imports_the_facade():
    for path in Path(bs.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level and not node.module:
                names = {alias.name for alias in node.names}
                depth = len(path.relative_to(Path(bs.__file__).parent).parts) - node.level
                assert depth != 0 or path.name == "__init__.py" or not names & set(bs._HOMES), path


def test_help_is_a_table_of_contents():
    page = pydoc.render_doc(bs, renderer=pydoc.plaintext)
    head = page[: page.index("PACKAGE CONTENTS")]
    for name in bs.__all__:
        if not name.startswith("_"):
            assert re.search(rf"\b{name}\b", head), name
    assert len(head.splitlines()) < 60


def test_the_names_of_the_options_of_a_loader_are_those_of_bulk_loader():
    from bulksample.loading.loader import BulkLoader

    own, bulk = (inspect.signature(made.__init__).parameters for made in (bs.Loader, BulkLoader))
    shared = set(own) & set(bulk) - {"self"}
    assert shared >= {"sampler", "seeds", "batch_size", "bulk_size", "seed", "shuffle", "drop_last", "memory_budget", "prefetch"}
    for name in shared - {"sampler", "seeds", "batch_size"}:
        assert own[name].default == bulk[name].default, name


def test_a_graph_saves_itself(tmp_path):
    graph = community_graph()
    graph.save(tmp_path / "g")
    again = bs.load(tmp_path / "g")
    np.testing.assert_array_equal(again.features, graph.features)
    with pytest.raises(bs.UsageError, match="exists already"):
        graph.save(tmp_path / "g")
    graph.save(tmp_path / "g", overwrite=True)


def test_training_takes_a_graph_or_a_path(tmp_path):
    graph, options = community_graph(), {"method": "sync", "fanouts": [4, 4], "hidden": 8, "epochs": 2, "batch_size": 64, "threads": 1}
    report = bs.train(graph, **options)
    graph.save(tmp_path / "g")
    again = bs.train(tmp_path / "g", **options)
    assert report["test_accuracy"] == again["test_accuracy"] > 0.3
    json.dumps(report)
    with pytest.raises(bs.UsageError, match="no option 'epoch'; did you mean 'epochs'"):
        bs.train(graph, epoch=2)
    report = bs.train(graph, **options, checkpoint=str(tmp_path / "kept"))
    found = bs.predict(graph, tmp_path / "kept")
    assert found.scores["test_accuracy"] == report["test_accuracy"]
    assert found.embeddings.shape == (graph.n, 8)


def test_callbacks_hear_of_every_event_in_order():
    class Heard(bs.Callback):
        def __init__(self):
            self.events = []

        def begin(self, epoch, epochs, steps):
            self.events.append(("begin", epoch, epochs, steps))

        def step(self, epoch, step, loss):
            self.events.append(("step", epoch, step))

        def epoch(self, line):
            self.events.append(("epoch", line["epoch"]))

    graph, heard = community_graph(), Heard()
    options = {"fanouts": [4], "epochs": 2, "batch_size": 100, "threads": 1}
    bs.train(graph, callbacks=[heard], **options)
    steps = -(-len(graph.seeds("train")) // 100)
    expected = [("begin", 0, 2, steps)]
    for epoch in range(2):
        expected += [*(("step", epoch, step) for step in range(steps)), ("epoch", epoch)]
    assert heard.events == expected
    with pytest.raises(bs.UsageError, match=r"callbacks: <built-in function print> has no begin, step, epoch, end; derive"):
        bs.train(graph, callbacks=[print], **options)


def test_a_profiler_of_torch_names_the_phases():
    with torch.profiler.profile() as profiler:
        bs.train(community_graph(), fanouts=[4], epochs=1, batch_size=100, threads=1)
    names = {event.key for event in profiler.key_averages()}
    assert {f"bulksample: {phase}" for phase in ("sample", "fetch", "forward", "backward", "step", "evaluate")} <= names


def test_the_placement_of_the_graph_is_an_option_of_training(tmp_path):
    community_graph().save(tmp_path / "g")
    options = {"fanouts": [4], "epochs": 1, "batch_size": 100, "threads": 1}
    reports = [bs.train(tmp_path / "g", graph=placement, **options) for placement in ("replicated", "partitioned")]
    assert [report["graph"] for report in reports] == ["replicated", "partitioned"]
    assert reports[0]["train_loss"] == pytest.approx(reports[1]["train_loss"], rel=1e-5)
