"""examples/relational_f1.py: the graph of the Formula 1 database and its tasks, against joins by pandas and the published sizes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

import bulksample as bs

pd = pytest.importorskip("pandas")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT.parent / "shared" / "data" / "f1"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the Formula 1 tables are not here")


@pytest.fixture(scope="module")
def example():
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import relational_f1
    finally:
        sys.path.pop(0)
    return relational_f1


@pytest.fixture(scope="module")
def tables(example):
    return example.read_tables(FOLDER)


@pytest.fixture(scope="module")
def graph(example, tables):
    return example.make_graph(tables)


def test_the_graph_has_the_vertices_and_edges_of_the_database(example, tables, graph):
    assert (graph.n, len(graph.types), len(graph.relations)) == (74_063, 9, 26)
    assert sum(relation.edges for relation in graph.relations) == 338_842
    until = pd.Timestamp(example.T_TEST)
    rows = {name: table[table["date"] <= until] if "date" in table else table for name, table in tables.items()}
    for name, schema in example.SCHEMA.items():
        for column, other in schema.get("foreign_keys", {}).items():
            left = rows[name].reset_index(drop=True).reset_index(names="row")[["row", column]]
            right = rows[other].reset_index(drop=True).reset_index(names="one")[["one", example.SCHEMA[other]["primary_key"]]]
            joined = left.merge(right, left_on=column, right_on=example.SCHEMA[other]["primary_key"])
            there, back = graph.relation((name, f"f2p_{column}", other)), graph.relation((other, f"rev_f2p_{column}", name))
            expected = sorted(zip(joined["row"], joined["one"], strict=True))
            assert sorted(zip(there.adjacency.indices, there.adjacency.row_of_entry(), strict=True)) == expected
            assert sorted(zip(back.adjacency.row_of_entry(), back.adjacency.indices, strict=True)) == expected


def test_no_row_is_later_than_the_test_and_times_are_unix_seconds(graph):
    for kind in graph.types:
        assert (kind.times is None) == (kind.name in ("circuits", "drivers", "constructors"))
        if kind.times is not None:
            assert kind.times.max() <= np.datetime64("2010-01-01", "s").astype(int)
            assert (np.diff(kind.times) >= 0).all()
    assert graph.type("races").times[0] == np.datetime64("1950-05-13", "s").astype(int)


@pytest.mark.parametrize(
    ("task", "sizes", "means"),
    [
        ("driver-dnf", (11_411, 566, 702), (88.0, 77.9, 70.5)),
        ("driver-top3", (1_353, 588, 726), (17.1, 20.2, 17.6)),
        ("driver-position", (7_453, 499, 760), (1390, 1108, 1193)),
    ],
)
def test_tasks_have_their_published_sizes(example, tables, task, sizes, means):
    table = example.task_table(tables, task)
    assert tuple(len(seeds.driver) for seeds in table.values()) == sizes
    assert tuple(round(100 * seeds.label.mean(), 1 if max(means) < 100 else 0) for seeds in table.values()) == means
    assert table["train"].time.max() < table["val"].time.min()
    assert table["val"].time.max() < table["test"].time.min()


def test_the_answer_lies_after_its_time(example, tables):
    """One seed by hand: all results of a driver in the 30 days after the time."""
    seeds = example.task_table(tables, "driver-dnf")["val"]
    results = tables["results"]
    for i in (0, 100, 565):
        key = tables["drivers"]["driverId"].iloc[seeds.driver[i]]
        after = results["date"] - pd.Timestamp(seeds.time[i], unit="s")
        window = results[(results["driverId"] == key) & (after > pd.Timedelta(0)) & (after <= pd.Timedelta(days=30))]
        assert len(window)
        assert seeds.label[i] == float((window["statusId"] != 1).any())


def test_batches_of_a_task_hold_all_that_was_known_at_its_time_and_nothing_later(example, tables, graph):
    """A full first hop around drivers at dates, against a filter by pandas."""
    seeds = example.task_table(tables, "driver-dnf")["val"]
    some = np.array([0, 7, 100, 300, 565])
    loader = bs.Loader(graph, fanouts=[-1], batch_size=5, seeds=("drivers", seeds.driver[some]), times=seeds.time[some], shuffle=False)
    minibatch = next(iter(loader)).minibatch
    for name in ("results", "driver_standings", "qualifying"):
        kind, rows = graph.type(name), minibatch.rows[name]
        drivers = tables[name]["driverId"].to_numpy()[: kind.count]
        for tree, i in enumerate(some):
            of_driver = drivers == tables["drivers"]["driverId"].iloc[seeds.driver[i]]
            known = np.flatnonzero(of_driver & (kind.times <= seeds.time[i]))
            assert sorted(rows.vertices[rows.trees == tree].tolist()) == known.tolist()
    assert (minibatch.latest <= seeds.time[some]).all()


@pytest.mark.long
def test_the_example_runs():
    done = subprocess.run(
        [sys.executable, "examples/relational_f1.py", str(FOLDER)], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert "74063 vertices of 9 types, 338842 edges of 26 relations" in done.stdout, done.stderr


@pytest.fixture(scope="module")
def model(example, graph):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from relational_model import RelationalSAGE
    finally:
        sys.path.pop(0)
    torch.manual_seed(0)
    return RelationalSAGE(graph, "drivers", channels=8).eval()


def answers(model, graph, drivers, times, fanouts=(-1, -1)):
    """Return the outputs of a model for some seeds, in their order."""
    import torch

    import bulksample as bs

    loader = bs.Loader(
        graph, "sage", fanouts, seeds=("drivers", drivers), times=times, batch_size=64, shuffle=False, frontier="new", backend="reference"
    )
    with torch.no_grad():
        return torch.cat([model(batch) for batch in loader])


def test_an_answer_is_that_of_the_seed_alone_and_of_the_past_alone(model, graph):
    """Rows later than a seed are overwritten; its answer stays, and that of a seed of a later time changes."""
    from dataclasses import replace

    import torch

    drivers, times = np.array([0, 3, 3, 9]), np.array(["2004-06-01", "2003-01-01", "2006-01-01", "2009-09-01"], "datetime64[s]").astype(int)
    whole = answers(model, graph, drivers, times)
    for i in range(4):
        torch.testing.assert_close(answers(model, graph, drivers[i : i + 1], times[i : i + 1]), whole[i : i + 1])
    cut = int(times[0])
    types = []
    for kind in graph.types:
        x = None if kind.features is None else np.array(kind.features)
        if x is not None and kind.times is not None:
            x[kind.times > cut] += 7
        types.append(replace(kind, features=x))
    changed = answers(model, replace(graph, types=tuple(types)), drivers, times)
    torch.testing.assert_close(changed[:2], whole[:2], rtol=0, atol=0)
    assert (changed[2:] != whole[2:]).all()


def test_scores_are_those_of_the_definitions(example):
    rng = np.random.default_rng(0)
    label, predicted = (rng.random(40) < 0.3).astype(float), rng.integers(0, 9, 40).astype(float)
    pairs = [(p > q) + 0.5 * (p == q) for p in predicted[label > 0] for q in predicted[label == 0]]
    assert example.score("rocauc", label, predicted) == pytest.approx(np.mean(pairs))
    assert example.score("mae", label, predicted) == pytest.approx(np.mean([abs(a - b) for a, b in zip(label, predicted, strict=True)]))


@pytest.mark.long
def test_training_beats_the_constant_of_a_driver(tmp_path):
    pytest.importorskip("torch_geometric")
    options = ["--task", "driver-top3", "--epochs", "4", "--json", tmp_path / "run.json"]
    command = [sys.executable, "examples/relational_f1.py", str(FOLDER), *map(str, options)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert "a driver's constant: test rocauc 0.5" in done.stdout, done.stderr
    (run,) = json.loads((tmp_path / "run.json").read_text())["runs"]
    assert run["test"] > 0.65
