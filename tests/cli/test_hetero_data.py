"""`bulksample data` and the other commands on stores of heterogeneous graphs."""

import json

import numpy as np
import pytest
from hetero_samples import assert_same_hetero, small_hetero
from ogb_layouts import write_mag
from test_data import run
from typer.testing import CliRunner

import bulksample as bs
from bulksample import DataError, UsageError
from bulksample.cli.app import app as whole
from bulksample.cli.data import app
from bulksample.data import store
from bulksample.data.hetero import hetero, papers
from bulksample.data.link_split import load_links


@pytest.fixture
def folder(tmp_path):
    small_hetero().save(tmp_path / "g")
    return tmp_path / "g"


def test_info_shows_types_and_relations(folder):
    shown = run("info", folder)
    assert shown == store.info(folder)
    assert run("info", folder, "--statistics")["relations"]["paper cites paper"]["destinations_without_edge"] == 5
    text = CliRunner().invoke(app, ["info", str(folder), "--statistics"], env={"COLUMNS": "200"}).output
    assert "types.field of study" in text
    assert "last_time 9," in text


def test_verify_names_every_file(folder):
    assert len(run("verify", folder)["files"]) == len(list(folder.glob("*.npy")))
    (folder / "relations_0_times.npy").write_bytes(b"")
    with pytest.raises(DataError, match=r"relations_0_times\.npy: is truncated"):
        run("verify", folder)


@pytest.mark.parametrize(
    "command",
    [
        ["partition", "--parts", "2", "-o", "p"],
    ],
)
def test_commands_of_one_vertex_type_refuse_it(folder, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*command[:2], str(folder), *command[2:]] if command[0] == "data" else [command[0], str(folder), *command[1:]]
    result = CliRunner().invoke(whole, words)
    with pytest.raises(UsageError, match="holds a heterogeneous graph; use a store of a graph of one vertex type"):
        raise result.exception


def test_split_edges_takes_the_relation_by_its_name_or_its_ends(tmp_path):
    run("make", "hetero", "--type", "a:60", "--type", "b:30", "--relation", "a:r:b:200", "--relation", "b:rev_r:a:50", "-o", tmp_path / "g")
    for i, name in enumerate(("r", "a:r:b")):
        made = run(
            "split-edges", tmp_path / "g", "--relation", name, "--val", 0.1, "--test", 0.2, "--negatives", 7, "-o", tmp_path / f"s{i}"
        )
        assert (made["relation"], made["reverses"], made["by_time"], made["negatives"]) == ("a:r:b", ["b:rev_r:a"], False, 7)
        links = load_links(store.load(tmp_path / f"s{i}"), tmp_path / f"s{i}").held_out
        assert [made[f"{part}_edges"] for part in ("val", "test")] == [len(links.pairs[part]) for part in ("val", "test")]
    with pytest.raises(UsageError, match="name the relation to predict with --relation: a:r:b, b:rev_r:a"):
        run("split-edges", tmp_path / "g", "-o", tmp_path / "s")
    with pytest.raises(UsageError, match="has no relations 'a:x:b'; use SOURCE:NAME:DESTINATION of a:r:b, b:rev_r:a"):
        run("split-edges", tmp_path / "g", "--relation", "a:x:b", "-o", tmp_path / "s")


def test_split_edges_tells_of_shares_that_few_times_do_not_allow(tmp_path):
    run("make", "hetero", "--type", "a:60", "--type", "b:30", "--relation", "a:r:b:200", "--edge-times", 5, "-o", tmp_path / "g")
    with pytest.raises(UsageError, match=r"val: a share of 0.05 gives none of \d+ edges, which have 5 distinct times"):
        run("split-edges", tmp_path / "g", "--relation", "r", "--val", 0.05, "--test", 0.05, "-o", tmp_path / "s")
    assert not (tmp_path / "s").exists()
    result = CliRunner().invoke(
        app,
        ["split-edges", str(tmp_path / "g"), "--relation", "r", "--val", "0", "--test", "0.05", "-o", str(tmp_path / "s"), "--json", "-"],
    )
    made = json.loads(result.stdout)
    assert made["test_edges"] > 0.1 * (made["test_edges"] + made["edges"])
    (warning,) = made["warnings"]
    assert "0.05 was asked for" in warning
    assert result.stderr.startswith(f"bulksample: warning: test: got {made['test_edges'] / (made['test_edges'] + made['edges']):.3g} of")


def test_a_split_store_is_not_split_again_nor_replaced_by_its_split(tmp_path):
    run("make", "hetero", "--type", "a:60", "--type", "b:30", "--relation", "a:r:b:200", "-o", tmp_path / "g")
    with pytest.raises(UsageError, match="g is the store that is split, and would lose its held-out edges; use another folder"):
        run("split-edges", tmp_path / "g", "--relation", "r", "-o", tmp_path / "g", "--overwrite")
    run("split-edges", tmp_path / "g", "--relation", "r", "-o", tmp_path / "s")
    with pytest.raises(UsageError, match="s holds out edges already; split the store that it was made of"):
        run("split-edges", tmp_path / "s", "--relation", "r", "-o", tmp_path / "t")


def test_verify_reads_held_out_edges(tmp_path):
    run("make", "hetero", "--type", "a:60", "--type", "b:30", "--relation", "a:r:b:200", "-o", tmp_path / "g")
    run("split-edges", tmp_path / "g", "--relation", "r", "-o", tmp_path / "s")
    run("verify", tmp_path / "s")
    links = tmp_path / "s" / "links.npz"
    links.write_bytes(links.read_bytes()[:700] + b"?" + links.read_bytes()[701:])
    with pytest.raises(DataError, match=r"links\.npz"):
        run("verify", tmp_path / "s")


def test_train_names_the_models_that_it_has_for_it(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is heterogeneous; got model sage: use model hetero-sage or hetero-gat"):
        raise CliRunner().invoke(whole, ["train", str(folder)]).exception


def test_import_parquet(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    source = tmp_path / "tables"
    source.mkdir()
    pandas.DataFrame({"id": [3, 1], "at": pandas.to_datetime(["2020-01-01", "2021-01-01"])}).to_parquet(source / "a.parquet")
    pandas.DataFrame({"a": [1, 3, None], "x": [1.0, 2.0, 3.0]}).to_parquet(source / "b.parquet")
    (source / "schema.yaml").write_text("tables:\n  a: {primary_key: id, time: at}\n  b: {foreign_keys: {a: a}}\n")
    made = run("import", "parquet", source, "-o", tmp_path / "g", "--time-unit", "D", "--until", "2020-06-01", "--name", "shop")
    assert (made["name"], made["vertices"], made["edges"]) == ("shop", 4, 2)
    assert made["read"]["tables"]["a"]["rows_after_until"] == 1
    assert made["digest"] == store.verify(tmp_path / "g").digest
    assert run("info", tmp_path / "g", "--statistics")["types"]["a"]["last_time"] == 18262
    made = run("import", "parquet", source, "-o", tmp_path / "h", "--no-reverse", "--schema", source / "schema.yaml", "--until", 0)
    assert (made["vertices"], list(made["relations"])) == (3, ["b f2p_a a"])
    with pytest.raises(DataError, match=r"there is no such folder"):
        run("import", "parquet", tmp_path / "gone", "-o", tmp_path / "i")


def test_make_hetero(tmp_path):
    made = run(
        "make",
        "hetero",
        "--scale",
        0.0005,
        "--features",
        4,
        "--classes",
        3,
        "--times",
        9,
        "--edge-times",
        8,
        "--seed",
        2,
        "-o",
        tmp_path / "g",
    )
    expected = hetero(*papers(0.0005), features=4, classes=3, times=9, edge_times=8, seed=2)
    assert_same_hetero(bs.load(tmp_path / "g"), expected)
    assert (made["name"], list(made["types"])) == ("hetero", ["paper", "author", "institute", "fos"])
    made = run(
        "make", "hetero", "--type", "a:5", "--type", "b:3", "--relation", "a:r:b:40", "--power", 1, "--name", "ab", "-o", tmp_path / "h"
    )
    assert_same_hetero(bs.load(tmp_path / "h"), hetero({"a": 5, "b": 3}, [("a", "r", "b", 40)], power=1, name="ab"))
    with pytest.raises(UsageError, match="--relation: got no --type"):
        run("make", "hetero", "--relation", "a:r:b:40", "-o", tmp_path / "i")
    digests = {run("make", "hetero", "--backend", name, "-o", tmp_path / name)["digest"] for name in ("auto", "reference")}
    assert len(digests) == 1


def test_import_npz_of_several_types(tmp_path):
    arrays = {
        "node_types": np.array(["a", "b"]), "num_nodes": np.array([2, 3]), "edge_types": np.array([["a", "r", "b"]]),
        "a/r/b/edge_index": np.array([[0, 1, 1], [2, 0, 0]]), "b/y": np.array([0, 2, -1]), "b/train_mask": np.array([True, False, False]),
    }  # fmt: skip
    np.savez(tmp_path / "g.npz", **arrays)
    made = run("import", "npz", tmp_path / "g.npz", "-o", tmp_path / "g", "--reverse")
    assert list(made["relations"]) == ["a r b", "b rev_r a"]
    assert (made["edges"], made["types"]["b"]["classes"], made["types"]["b"]["splits"]) == (6, 3, ["train"])
    assert "1 of the 3 classes have no vertex" in made["warnings"][0]
    assert made["digest"] == store.verify(tmp_path / "g").digest
    assert list(run("import", "hetero-npz", tmp_path / "g.npz", "-o", tmp_path / "h")["relations"]) == ["a r b"]


def test_import_ogbn_mag_by_name(tmp_path):
    write_mag(tmp_path / "ogbn_mag")
    made = run("import", "ogb", "ogbn-mag", "--root", tmp_path, "--no-download", "-o", tmp_path / "g", "--reverse")
    assert (made["name"], made["vertices"], made["edges"], made["read"]["edges_read"]) == ("ogbn-mag", 9, 14, 7)
    assert made["types"]["paper"]["splits"] == ["train", "val", "test"]
    assert made["types"]["paper"]["times"]
    with pytest.raises(UsageError, match="--undirected, --directed and --self-loops do not apply; use --reverse"):
        run("import", "ogb", tmp_path / "ogbn_mag", "--undirected", "-o", tmp_path / "h")
    (tmp_path / "ogbn_arxiv" / "raw").mkdir(parents=True)
    with pytest.raises(UsageError, match="--reverse does not apply; use --undirected"):
        run("import", "ogb", tmp_path / "ogbn_arxiv", "--reverse", "-o", tmp_path / "h")


def test_split_edges_tells_of_reverses_that_stay(tmp_path):
    run("make", "hetero", "--type", "a:40", "--relation", "a:r:a:900", "-o", tmp_path / "g")
    line = ["split-edges", str(tmp_path / "g"), "--relation", "r", "--json", "-"]
    result = CliRunner().invoke(app, [*line, "-o", str(tmp_path / "s")])
    share = json.loads(result.stdout)["reverses_left"]["a:r:a"]
    assert 0.2 < share < 0.6
    said = f"bulksample: warning: {share:.2g} of the held-out edges keep their reverse in the graph for training (a:r:a), which gives"
    assert result.stderr.startswith(said)
    both = CliRunner().invoke(app, [*line, "-o", str(tmp_path / "t"), "--hold-out", "both"])
    assert json.loads(both.stdout)["reverses_left"] == {}
    assert both.stderr == ""
