"""The runner of experiments: its table, the options that it makes of parameters, and the files that it writes."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import harness
import keep
import pytest
import run

ROOT = Path(__file__).parents[2]
NOTES = [*keep.RESULTS.rglob("*.md"), *keep.RESULTS.rglob("latest.json")]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *NOTES, ROOT / "Makefile"]
ALL = run.EXPERIMENTS | run.TOOLS


def adds(size: int, others: harness.Numbers = (1, 2), name: Annotated[str, "the sum's"] = "sum") -> dict[str, Any]:
    """Add numbers."""
    return {name: size + sum(others)}


@harness.quick(rounds=1)
def counts(rounds: int = 3, kept: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yield rounds after those of an earlier call, and fail."""
    done = (kept or {}).get("done", [])
    for _ in range(rounds):
        done.append(len(done))
        yield {"done": done}
    raise SystemExit(3)


@dataclass
class Options:
    folder: Path
    deep: bool = False


def shows(options: Options) -> dict[str, Any]:
    """Show the options."""
    return {"folder": options.folder.name, "deep": options.deep}


@pytest.fixture(autouse=True)
def table(monkeypatch):
    for name in ("adds", "counts", "shows"):
        monkeypatch.setitem(run.EXPERIMENTS, name, run.Experiment(f"test_run:{name}", "theme", ""))


def called(name, *words):
    with pytest.raises(SystemExit, match=r"^\d$") as ended:
        run.run(name, list(map(str, words)))
    return ended.value.code


@pytest.mark.parametrize("one", ALL.values(), ids=ALL)
def test_an_experiment_is_a_function_with_a_page(one):
    module, _, name = one.where.partition(":")
    tree = ast.parse((ROOT / "bench" / f"{module.replace('.', '/')}.py").read_text())
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    assert ast.get_docstring(function) or ast.get_docstring(tree)
    assert not one.theme or (keep.RESULTS / one.theme / "README.md").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_name_experiments_that_exist(page):
    if page.name == "CHANGELOG.md":
        pytest.skip("history")
    text = page.read_text()
    assert set(re.findall(r"python bench/run\.py ([a-z][\w-]*)", text)) <= set(ALL)
    assert not re.search(r"python bench/(?!run\.py|gpu|sweep)", text)


def test_parameters_are_options_and_the_result_goes_to_a_file_or_is_printed(tmp_path, capsys):
    assert called("adds", 5, "--others", "10,20", "--json", tmp_path / "x.json") == 0
    found = json.loads((tmp_path / "x.json").read_text())
    assert (list(found), found["sum"]) == (["machine", "sum"], 35)
    assert capsys.readouterr().out == ""
    assert called("adds", 5) == 0
    assert json.loads(capsys.readouterr().out)["sum"] == 8
    assert called("adds", "--help") == 0
    assert re.search(r"--name <str>\s+the sum's", capsys.readouterr().out)


def test_a_result_that_is_yielded_is_kept_and_continued(tmp_path):
    for rounds in (3, 4):
        assert called("counts", *(["--quick"] if rounds == 4 else []), "--json", tmp_path / "x.json") == 3
        assert json.loads((tmp_path / "x.json").read_text())["done"] == list(range(rounds))


def test_fields_of_a_dataclass_are_options(capsys):
    assert called("shows", "/a/b", "--deep") == 0
    assert json.loads(capsys.readouterr().out)["deep"] is True


def test_a_part_of_a_theme_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(keep, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["bench/run.py", "adds", "5", "--keep", "small"])
    keep.add("theme", "other", {}, "")
    assert called("adds", 5, "--keep", "small") == 0
    parts = keep.load("theme")
    assert (list(parts), parts["small"]["result"]["sum"]) == (["other", "small"], 8)
    assert parts["small"]["command"] == "python bench/run.py adds 5"


def test_unknown_experiments_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench/run.py", "nothing"])
    with pytest.raises(SystemExit, match=r"^2$"):
        run.main()
    assert "there is no experiment 'nothing'" in capsys.readouterr().err
