"""Reading results: the lines of each run, names, series, and errors for other files."""

import json
import re
import shutil

import pytest
from communities import community_graph
from launch import ROOT
from typer.testing import CliRunner

from bulksample.cli.app import app
from bulksample.data import store
from bulksample.errors import DataError
from bulksample.report.reading import read
from bulksample.report.series import differences, series_of


def names(reading):
    return [run.name for run in reading.runs]


def test_lines_are_found_beside_their_run(trained):
    found = read([trained / "one.json"])
    assert names(found) == ["one"]
    assert [line["epoch"] for line in found.runs[0].lines] == [0, 1, 2]
    assert found.skipped == []


def test_a_folder_stands_for_all_files_under_it(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "a" / "b")
    assert names(read([tmp_path])) == ["one", "one-other", "two"]


def test_a_run_in_a_folder_of_its_own_has_the_name_of_the_folder(trained, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(trained / f"{name}.json", tmp_path / name / "report.json")
        shutil.copy(trained / f"{name}.jsonl", tmp_path / name / "metrics.jsonl")
    found = read([tmp_path])
    assert names(found) == ["one", "two"]
    assert all(len(run.lines) == 3 for run in found.runs)


def test_runs_of_one_name_are_distinguished_by_their_folders(trained, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(trained / "one.json", tmp_path / folder / "x.json")
    assert names(read([tmp_path / "a", tmp_path / "b"])) == ["a/x", "b/x"]


def test_lines_alone_are_an_unfinished_run(trained, tmp_path):
    shutil.copy(trained / "one.jsonl", tmp_path / "now.jsonl")
    with open(tmp_path / "now.jsonl", "a") as stream:
        stream.write('{"epoch": 3, "lo')  # cut short by a crash
    (run,) = read([tmp_path / "now.jsonl"]).runs
    assert (run.name, run.report, len(run.lines)) == ("now", {}, 3)


def test_runs_that_differ_in_the_seed_are_one_series(trained):
    series = series_of(read([trained]).runs)
    assert [(one.label, len(one.runs)) for one in series] == [("one", 2), ("two", 1)]
    assert differences(series)["ranks"] == ["1", "2"]
    assert "seed" not in differences(series)
    assert "lr" not in differences(series)


def compared(trained, out):
    """Write a comparison of two methods as `compare` does."""
    for label in ("full", "adaqp:bits=4"):
        folder = out / "runs" / label.replace(":", "+") / "seed-0"
        folder.mkdir(parents=True)
        shutil.copy(trained / "one.json", folder / "report.json")
        shutil.copy(trained / "one.jsonl", folder / "metrics.jsonl")
        (folder / "run.json").write_text(json.dumps({"asked": {}, "exit_code": 0, "failure": None, "seconds": 1.0}))
    rows = [{"method": "full", "failed": "no"}, {"method": "adaqp:bits=4", "failed": "no"}]
    (out / "table.json").write_text(json.dumps({"methods": rows, "networks": {}, "runs": []}))


def test_runs_of_a_comparison_have_the_labels_and_the_order_of_its_table(trained, tmp_path):
    compared(trained, tmp_path / "out")
    found = read([trained / "one.json", tmp_path / "out"])
    assert [one.label for one in series_of(found.runs)] == ["one", "full", "adaqp:bits=4"]
    assert [name for name, _ in found.comparisons] == ["out"]
    assert found.skipped == []


def test_two_comparisons_with_the_same_methods_are_distinguished(trained, tmp_path):
    compared(trained, tmp_path / "a")
    compared(trained, tmp_path / "b")
    labels = [one.label for one in series_of(read([tmp_path]).runs)]
    assert labels == ["a/full", "a/adaqp:bits=4", "b/full", "b/adaqp:bits=4"]


def test_files_of_other_kinds_are_skipped_with_a_reason(trained, tmp_path):
    store.save(community_graph(), tmp_path / "g")
    plan = ["plan", "--vertices", "1000", "--edges", "9000", "--feature-width", "8", "--ranks", "1", "--json", str(tmp_path / "plan.json")]
    for words in (plan, ["info", "--json", str(tmp_path / "info.json")]):
        assert CliRunner().invoke(app, words).exit_code == 0
    (tmp_path / "package.json").write_text('{"name": "x"}')
    found = read([tmp_path, trained / "one.json"])
    assert {file.name: reason for file, reason in found.skipped} == {
        "manifest.json": "is the manifest of a graph", "plan.json": "is a result of `bulksample plan`",
        "info.json": "is a result of `bulksample info`", "package.json": "is no result of `train`, `sample` or `compare`",
    }  # fmt: skip
    with pytest.raises(DataError, match=r"plan\.json: holds no result; use files that"):
        read([tmp_path / "plan.json"])


LINE = '{"epoch": 0, "loss": 1, "seconds": 1, "training_bytes": {"total": 0}}\n'
BAD = {
    "broken.json": ('{"method": "sync", ', r"broken\.json: is not JSON: .*line 1"),
    "list.json": ("[1]", r"list\.json: a result is one JSON object; got list"),
    "other.json": ('{"name": "x"}', r"other\.json: is no result; it holds 'name'"),
    "empty.json": ("{}", r"empty\.json: is no result; it holds nothing"),
    "odd.jsonl": (LINE + '{"epo\n{"epoch": 1, "loss": 1}\n', r"odd\.jsonl, line 2: is not JSON"),
    "else.jsonl": ('{"epoch": 0, "loss": 1}\n{"a": 1}\n', r"else\.jsonl, line 2: is not the line of an epoch"),
    "poor.jsonl": ('{"epoch": 0, "loss": 1}\n', r"poor\.jsonl, line 1: is not a complete result: seconds is missing"),
    "prose.jsonl": ("once upon a time", r"prose\.jsonl, line 1: is not the line of an epoch"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_file_is_named(tmp_path, name):
    text, said = BAD[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        read([tmp_path / name])


def test_a_binary_file_is_named(tmp_path):
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"b\.json: is not text"):
        read([tmp_path / "b.json"])


def test_missing_and_empty_paths_are_named(tmp_path):
    with pytest.raises(DataError, match="nowhere: there is no such file or folder"):
        read([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: holds no \.json or \.jsonl file"):
        read([tmp_path / "empty"])


def test_runs_of_several_versions_need_mixed_versions(trained, tmp_path):
    old = json.loads((trained / "one.json").read_text())
    old["environment"]["version"] = "0.0.1"
    (tmp_path / "old.json").write_text(json.dumps(old))
    paths = [trained / "one.json", tmp_path / "old.json"]
    with pytest.raises(DataError, match=r"old\.json: was made by bulksample 0\.0\.1, and .*one\.json by .*--mixed-versions"):
        read(paths)
    series = series_of(read(paths, mixed_versions=True).runs)
    assert len(series) == 2
    assert differences(series)["version"][1] == "0.0.1"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("phases", 3, "phases.sample is missing"),
        ("training_bytes", {"total": "many"}, "training_bytes.total is 'many'"),
        ("seconds_per_epoch", None, "seconds_per_epoch is missing"),
        ("balance", {}, "balance.seconds.sample.median is missing"),
        ("config", [], "config is '[]'"),
        ("sampler", 5, "sampler is '5'"),
        ("environment", {}, "environment.version is missing"),
        ("data", {"name": "x"}, "vertices is missing"),
    ],
)  # fmt: skip
def test_an_incomplete_result_is_named(trained, tmp_path, key, value, said):
    odd = json.loads((trained / "one.json").read_text()) | {key: value}
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    with pytest.raises(DataError, match=rf"odd\.json: is not a complete result: {re.escape(said)}"):
        read([tmp_path / "odd.json"])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"methods": 3, "networks": {}, "runs": []}, "methods is '3'"),
        ({"methods": [{"method": "sync"}], "networks": {}, "runs": []}, "epochs is missing"),
        ({"unit": "s", "results": {"ours": {"median": 1.0}}}, "min is missing"),
    ],
)  # fmt: skip
def test_an_incomplete_table_is_named(tmp_path, found, said):
    (tmp_path / "odd.json").write_text(json.dumps(found))
    with pytest.raises(DataError, match=rf"odd\.json.*: is not a complete result: {said}"):
        read([tmp_path / "odd.json"])


def test_kept_results_of_comparisons_and_benchmarks_are_read(tmp_path):
    for theme, part in (("compare", "cora"), ("sampling", "1-thread")):
        parts = json.loads((ROOT / "bench" / "results" / theme / "latest.json").read_text())["parts"]
        (tmp_path / f"{theme}.json").write_text(json.dumps(parts[part]["result"]))
    found = read([tmp_path / "compare.json", tmp_path / "sampling.json"])
    assert (len(found.comparisons), len(found.benches)) == (1, 1)
