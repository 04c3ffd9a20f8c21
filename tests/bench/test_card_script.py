"""`bench/on_a_card.sh` without a device: it stops where it needs one and says so; its parts are those that exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import gpu
import pytest
from emulation.fake_cupy import installed
from emulation.host import compiler

SCRIPT = Path(gpu.__file__).parent / "on_a_card.sh"


def test_without_a_device_it_stops_at_once_and_says_why(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([SCRIPT, tmp_path / "out"], capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 2, done.stderr
    assert "on_a_card needs a GPU, but CuPy " in done.stdout
    assert "NOT WELL  find a device: exit 2, see machine.txt" in done.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["machine.txt"]


def test_it_runs_every_section_of_the_benchmark_and_writes_eight_files_at_most():
    text = SCRIPT.read_text()
    assert re.search(r"for name in (.*); do", text)[1].split() == list(gpu.SECTIONS)
    assert len(set(re.findall(r"\b\w+\.(?:txt|json)\b", text)) | {"checks.txt"}) <= 8


@pytest.mark.skipif(compiler() is None, reason="there is no g++")
def test_the_checks_of_digests_pass_on_an_emulated_device(monkeypatch):
    import on_a_card

    checks, names = on_a_card.Checks(["sage", "ladies"]), ("digests_by_cupy_pool", "both_structures", "graph_in_pinned_memory")
    with installed(monkeypatch):
        found = on_a_card.run({name: getattr(checks, name) for name in names} | {"load": checks.load_from_file_as_cached})
    results = [found[name]["found"] for name in names]
    assert results == [{"sage": True, "ladies": True}, {"direct": True, "hash": True}, {"sage": True}]
    assert "error" in found["load"]  # the stand-in counts no registers
