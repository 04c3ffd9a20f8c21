"""A missing package of an extra gives one line with its pip command, and disables nothing else."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from communities import community_graph
from launch import ROOT
from planted_relations import planted
from waiting import PATIENCE

from bulksample.cli.info import EXTRAS
from bulksample.data import store

OWN = {"docs", "examples", "sweep", "test"}  # of those who work on the package
WITHOUT = """
import sys
hidden, sys.argv = sys.argv[1].split(","), ["bulksample", *sys.argv[2:]]
for name in hidden:
    sys.modules[name] = None
from bulksample.cli import main
main()
"""
TRAIN = ["train", "g", "--epochs", "1", "--fanouts", "2,2", "--hidden", "4"]
NEEDS = [
    ("train", "torch", ["train", "g"]),
    ("mpi", "mpi4py", ["sample", "g"]),
    ("cuda", "cupy", ["sample", "g", "--backend", "cuda"]),
]
NEEDS_LATE = [  # imported so late that this process can do without them
    ("train", "safetensors", [*TRAIN, "--checkpoint", "c"]),
    ("partition", "pymetis", ["partition", "g", "--parts", "2", "--by", "metis", "-o", "p"]),
    ("tables", "pyarrow", ["data", "import", "parquet", "g", "--schema", "keys.yaml", "-o", "o"]),
    ("tensorboard", "tensorboard", [*TRAIN, "--track", "tensorboard:t"]),
    ("wandb", "wandb", [*TRAIN, "--track", "wandb:p"]),
    ("mlflow", "mlflow", [*TRAIN, "--track", "mlflow:m"]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("graph")
    store.save(community_graph(), place / "g")
    (place / "keys.yaml").write_text("tables: {races: {primary_key: number}}")
    return place


def run(folder, hidden, words, **environment):
    line = [sys.executable, "-c", WITHOUT, hidden, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(("extra", "package", "words"), NEEDS, ids=[f"{extra}-{package}" for extra, package, _ in NEEDS])
def test_one_line_says_what_to_install(folder, extra, package, words):
    ended = run(folder, package, words, **({"PMI_SIZE": "2"} if extra == "mpi" else {}))
    names_what_to_install(ended.returncode, ended.stderr, extra, package)


def names_what_to_install(code, err, extra, package):
    assert code == 2, err
    assert "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("bulksample: ")]
    assert re.search(rf"pip install ('bulksample\[{extra}\]'|.*{package})", line), line


@pytest.mark.parametrize(("extra", "package", "words"), NEEDS_LATE, ids=[f"{extra}-{package}" for extra, package, _ in NEEDS_LATE])
def test_one_line_says_what_to_install_in_this_process(command, folder, monkeypatch, extra, package, words):
    monkeypatch.chdir(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = command(*words)
    names_what_to_install(code, err, extra, package)


@pytest.mark.long
def test_info_names_the_pip_command_of_every_extra(folder):
    ended = run(folder, ",".join(EXTRAS), ["info", "--json", "-"])
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout)["extras"]
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys() - OWN
    assert declared == set(EXTRAS.values())
    assert shown.keys() == EXTRAS.keys()
    for package, said in shown.items():
        assert said[0].isdigit() or said == f"missing: pip install 'bulksample[{EXTRAS[package]}]'"


@pytest.mark.parametrize("store", ["g", "papers"])
def test_sampling_needs_none_of_them(folder, store):
    if store == "papers":
        planted(times=True).save(folder / store, overwrite=True)
    ended = run(folder, ",".join(name.replace("-skinny", "") for name in EXTRAS), ["sample", store, "--fanouts", "3,3", "--json", "-"])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["sampled_edges"] > 0


def test_a_missing_module_of_no_extra_shows_a_traceback(folder):
    ended = run(folder, "scipy.sparse", ["data", "info", "g", "--statistics"])
    assert "bulksample[" not in ended.stderr
