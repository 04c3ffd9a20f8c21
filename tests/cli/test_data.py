"""`bulksample data`: each command matches the library function, prints a summary, and refuses existing stores."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from bulksample import DataError, UsageError
from bulksample.cli.data import app
from bulksample.data import store
from bulksample.data.dcsbm import PRESETS, dcsbm
from bulksample.data.rmat import rmat


def run(*arguments, code=0):
    """Run a command and return the JSON object that it prints."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json", "-"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else None


def test_make_rmat(tmp_path):
    made = run("make", "rmat", "--scale", 6, "--edge-factor", 4, "--seed", 3, "-o", tmp_path / "g")
    graph = store.load(tmp_path / "g", check="full")
    np.testing.assert_array_equal(graph.adjacency.indices, rmat(6, 4, seed=3).adjacency.indices)
    assert (made["vertices"], made["edges"], made["name"]) == (64, graph.adjacency.nnz, "rmat-6")
    assert made["digest"] == store.verify(tmp_path / "g").digest


@pytest.mark.parametrize("preset", ["products", "reddit"])
def test_make_dcsbm(tmp_path, preset):
    made = run("make", "dcsbm", "--preset", preset, "--vertices", 300, "--degree", 12, "--seed", 5, "-o", tmp_path / "g", "--name", "tiny")
    graph, expected = store.load(tmp_path / "g"), dcsbm(300, 12, preset, seed=5)
    np.testing.assert_array_equal(graph.features, expected.features)
    np.testing.assert_array_equal(graph.labels, expected.labels)
    assert (made["classes"], made["features"], made["name"]) == (PRESETS[preset].classes, PRESETS[preset].features, "tiny")
    assert made["splits"] == ["train", "val", "test"]
    assert sorted(made["extra"]) == ["community", "planted_class"]


def test_a_preset_is_changed_by_option(tmp_path):
    options = ["--classes", 4, "--features", 6, "--communities", 2, "--homophily", 0.5, "--class-signal", 1, "--train", 0.5, "--val", 0.2]
    made = run("make", "dcsbm", "--vertices", 200, "--degree", 4, *options, "-o", tmp_path / "g")
    assert (made["classes"], made["features"]) == (4, 6)
    shown = run("info", tmp_path / "g", "--statistics")
    assert shown["split_sizes"] == {"train": 100, "val": 40, "test": 60}
    assert 0.2 < shown["homophily"] < 0.8


def test_any_backend_makes_the_same(tmp_path):
    digests = {run("make", "rmat", "--scale", 5, "--backend", name, "-o", tmp_path / name)["digest"] for name in ("auto", "reference")}
    assert len(digests) == 1


def test_import_edgelist(tmp_path):
    (tmp_path / "e.txt.gz").write_bytes(gzip.compress(b"# head\n5 9\n9 9\n5 9\n"))
    options = ["--undirected", "--self-loops", "drop", "--duplicates", "max"]
    made = run("import", "edgelist", tmp_path / "e.txt.gz", *options, "-o", tmp_path / "g")
    assert made["read"] == {
        "edges_read": 3,
        "self_loops": 1,
        "duplicates": 1,
        "ignored": "",
        "derived": "",
        "form": "source,target separated by blanks",
    }
    assert (made["vertices"], made["edges"], made["name"]) == (2, 2, "e")
    assert store.load(tmp_path / "g").extra["original_ids"].tolist() == [5, 9]


def test_import_edgelist_with_text_ids_and_titles(tmp_path):
    (tmp_path / "e.csv").write_text("from,to\na,b\n")
    run("import", "edgelist", tmp_path / "e.csv", "--ids", "text", "--skip", 1, "-o", tmp_path / "g")
    assert store.load(tmp_path / "g").extra["original_ids"].tolist() == ["a", "b"]


def test_import_edgelist_with_columns_by_name(tmp_path):
    (tmp_path / "e.csv").write_text("when;user;item;note\n2009-03-29;5;9;x\n2009-03-30 12:00;9;5;y\n")
    options = ["--columns", "source=user,target=item,time=when", "--separator", ";", "--time-unit", "h", "--duplicates", "keep"]
    made = run("import", "edgelist", tmp_path / "e.csv", *options, "-o", tmp_path / "g")
    assert made["read"]["form"] == "time,source,target,- separated by ';', header in line 1"
    assert made["read"]["ignored"] == "column 4 (note)"
    assert sorted(store.load(tmp_path / "g").relations[0].times.tolist()) == [14332 * 24, 14333 * 24 + 12]
    with pytest.raises(DataError, match="line 1: 'when' is not an integer"):
        run("import", "edgelist", tmp_path / "e.csv", "--columns", "source,target,-,-", "--no-header", "-o", tmp_path / "h")


def test_import_edgelist_with_isolated_vertices(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n")
    assert run("import", "edgelist", tmp_path / "e.txt", "--vertices", 5, "-o", tmp_path / "g")["vertices"] == 5


@pytest.mark.parametrize("kind", ["edgelist", "mtx"])
def test_import_takes_features_labels_and_splits(tmp_path, kind):
    (tmp_path / "e.edgelist").write_text("10 20\n20 30\n")
    (tmp_path / "e.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n2 1\n3 2\n")
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "y.npy", [0, 2, 1])
    np.savez(tmp_path / "s.npz", train=[0, 2], val=[False, True, False])
    files = ["--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--split", tmp_path / "s.npz"]
    made = run("import", kind, tmp_path / f"e.{kind}", *files, "-o", tmp_path / "g")
    assert (made["features"], made["classes"], made["splits"]) == (2, 3, ["train", "val"])
    graph = store.load(tmp_path / "g", check="full")
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert graph.labels.tolist() == [0, 2, 1]
    assert graph.masks["train"].tolist() == [True, False, True]
    np.save(tmp_path / "y.npy", np.zeros(4, int))
    with pytest.raises(DataError, match=r"y\.npy: has 4 rows; the graph has 3 vertices"):
        run("import", kind, tmp_path / f"e.{kind}", *files, "-o", tmp_path / "h")
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize("kind", ["edgelist", "mtx"])
def test_import_takes_features_of_edges(tmp_path, kind):
    (tmp_path / "e.edgelist").write_text("10 20\n30 10\n")
    (tmp_path / "e.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n2 1\n1 3\n")
    np.save(tmp_path / "rows.npy", np.array([[1, 2], [3, 4]]))
    made = run("import", kind, tmp_path / f"e.{kind}", "--edge-features", tmp_path / "rows.npy", "-o", tmp_path / "g")
    assert made["edge_features"] == run("info", tmp_path / "g")["edge_features"] == 2
    assert store.load(tmp_path / "g", check="full").edge_features.tolist() == [[3, 4], [1, 2]]


def test_import_mtx(tmp_path):
    (tmp_path / "m.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 0.5\n")
    assert run("import", "mtx", tmp_path / "m.mtx", "--transpose", "-o", tmp_path / "g")["weighted"] is True
    assert store.load(tmp_path / "g").adjacency.degrees.tolist() == [0, 1, 0]
    assert run("import", "mtx", tmp_path / "m.mtx", "--undirected", "-o", tmp_path / "h")["edges"] == 2


def test_import_npz(tmp_path):
    np.savez(tmp_path / "a.npz", indptr=np.array([0, 1, 2]), indices=np.array([1, 0], np.int32))
    assert run("import", "npz", tmp_path / "a.npz", "-o", tmp_path / "g")["edges"] == 2


def test_import_ogb(tmp_path):
    root = tmp_path / "ogbn_mine"
    for name, text in {"edge": "0,1\n", "num-node-list": "3\n", "num-edge-list": "1\n", "node-feat": "1,2\n3,4\n5,6\n"}.items():
        (root / "raw").mkdir(parents=True, exist_ok=True)
        (root / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UsageError, match="use undirected=True or undirected=False"):
        run("import", "ogb", root, "-o", tmp_path / "g")
    made = run("import", "ogb", root, "--undirected", "-o", tmp_path / "g")
    assert (made["vertices"], made["edges"], made["features"]) == (3, 2, 2)
    assert run("import", "ogb", root, "--directed", "--no-features", "-o", tmp_path / "h")["features"] == 0


def test_info_and_verify(tmp_path):
    made = run("make", "rmat", "--scale", 5, "-o", tmp_path / "g")
    shown = run("info", tmp_path / "g")
    assert {key: made[key] for key in shown} == shown
    assert run("info", tmp_path / "g", "--statistics")["degree_max"] == int(store.load(tmp_path / "g").adjacency.degrees.max())
    checked = run("verify", tmp_path / "g")
    assert checked["ok"] is True
    assert sorted(checked["files"]) == ["indices.npy", "indptr.npy"]


def test_a_table_for_people_and_json_for_a_file(tmp_path):
    result = CliRunner().invoke(app, ["make", "rmat", "--scale", "5", "-o", str(tmp_path / "g"), "--json", str(tmp_path / "r.json")])
    assert "vertices" in result.stdout
    assert json.loads((tmp_path / "r.json").read_text())["vertices"] == 32


def test_an_existing_store_is_refused_before_any_work(tmp_path, monkeypatch):
    run("make", "rmat", "--scale", 5, "-o", tmp_path / "g")
    monkeypatch.setattr("bulksample.data.rmat.rmat", lambda *a, **k: pytest.fail("work was done for nothing"))
    with pytest.raises(UsageError, match="exists already"):
        run("make", "rmat", "--scale", 5, "-o", tmp_path / "g")
    monkeypatch.undo()
    assert run("make", "rmat", "--scale", 6, "--overwrite", "-o", tmp_path / "g")["vertices"] == 64


@pytest.mark.parametrize(
    "arguments",
    [["make", "rmat"], ["make", "dcsbm", "--vertices", "5"], ["make", "rmat", "--scale", "x", "-o", "g"], ["import", "csv"], ["info"]],
)
def test_bad_use_exits_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(*arguments, code=2)


def test_the_command_as_a_process(tmp_path):
    line = [sys.executable, "-m", "bulksample", "data", "make", "rmat", "--json", "-", "-o", str(tmp_path / "g"), "--scale", "5"]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (ended.returncode, json.loads(ended.stdout)["vertices"]) == (0, 32)


@pytest.mark.parametrize(("place", "scale", "message"), [("h", 31, "scale 31 is out of range"), ("g", 5, "exists already")])
def test_a_request_that_cannot_be_met_is_one_line_and_exit_code_2(command, tmp_path, place, scale, message):
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "manifest.json").touch()
    code, out, err = command("data", "make", "rmat", "--json", "-", "-o", tmp_path / place, "--scale", scale)
    assert (code, out) == (2, "")
    assert err.startswith("bulksample: UsageError: ")
    assert message in err
    assert err.count("\n") == 1
