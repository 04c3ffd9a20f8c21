"""`bench/on_a_card.sh` where there is no device, up to the first launch; its sections with commands that fail, hang and go on."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import gpu
import numpy as np
import pytest
from gpu import libraries, plan, runner
from gpu.benchmark import SECTIONS
from gpu.checks import PARTS
from gpu.kernels import first_launch
from gpu.plan import Section, all_sections, sections_of
from gpu.runner import Run
from waiting import PATIENCE, until

from bulksample import backends

SCRIPT = Path(gpu.__file__).parents[1] / "on_a_card.sh"


def shell(name, command, seconds=20.0, **options):
    return Section(name, seconds, "log.txt", ["bash", "-c", command], **options)


def states(out):
    return {name: result["state"] for name, result in json.loads((out / "on_a_card.json").read_text())["sections"].items()}


def test_without_a_device_it_runs_up_to_the_first_launch(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", "SECTIONS": "tools,compile,device,samples"}
    done = subprocess.run(["bash", SCRIPT, tmp_path / "out"], capture_output=True, text=True, timeout=PATIENCE, env=environment)
    if "device: passed" in done.stdout:
        pytest.skip("there is a device here")
    assert done.returncode == 2, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "on_a_card.json").read_text())["sections"]
    assert found["tools"]["state"] == "passed"
    assert found["tools"]["found"]["packages"]["found"]["torch-quiver"] == "missing"
    compiled = [check for name, check in found["compile"]["found"].items() if name.endswith(".cu")]
    if found["compile"]["state"] == "passed":
        assert all(check["found"]["bytes"] > 5000 for check in compiled)
    else:  # the part that is missing is named
        assert all("cupy" in check["error"] or "nvrtc" in check["error"].lower() for check in compiled)
    assert found["device"]["state"] == "failed: exit 1"
    assert "on_a_card needs a GPU, but CuPy " in found["device"]["found"]["device"]["error"]
    assert found["samples"]["state"] == "not run: stopped"
    assert "NOT WELL: " in done.stdout
    assert "failed: device: RuntimeError: on_a_card needs a GPU, but CuPy " in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"on_a_card.json", "checks.txt", "setup.txt"}


def test_what_passed_in_a_rehearsal_is_run_again_on_a_card(tmp_path, monkeypatch):
    sections = [shell("a", f"echo run >> {tmp_path}/runs"), shell("beside", f"echo beside >> {tmp_path}/runs", beside=True)]
    for rehearses in ("1", "1", "", ""):
        monkeypatch.setenv("REHEARSE", rehearses)
        assert Run(tmp_path, 60).run(sections) == 0
    lines = (tmp_path / "runs").read_text().split()
    assert (lines.count("run"), lines.count("beside")) == (2, 4)


@pytest.mark.parametrize("limit", ["abc", "-5", "nan", "inf", "0"])
def test_a_limit_is_a_number_of_seconds(limit):
    with pytest.raises(ValueError, match=f"LIMIT is '{limit}'; use a number of seconds"):
        runner.seconds_of(limit)


def test_what_an_earlier_call_left_damaged_is_put_aside(tmp_path, capsys):
    for text in ('{"sections": {"a": {"st', "[]", '{"sections": {"a": 1}}'):
        (tmp_path / "on_a_card.json").write_text(text)
        assert Run(tmp_path, 60).run([shell("a", "true")]) == 0
        assert states(tmp_path) == {"a": "passed"}
        assert (tmp_path / "on_a_card.damaged").read_text() == text
        assert "on_a_card.json cannot be read, all sections are run" in capsys.readouterr().out


@pytest.fixture
def checkout(tmp_path):
    """The script in a folder whose name has a blank, with our package and sources beside it."""
    root, ours = tmp_path / "a check out", SCRIPT.parents[1]
    (root / "bench").mkdir(parents=True)
    shutil.copy(SCRIPT, root / "bench")
    shutil.copytree(SCRIPT.parent / "gpu", root / "bench" / "gpu")
    (root / "bulksample").symlink_to(ours / "bulksample")
    shutil.copytree(ours / "csrc", root / "csrc")
    return root


def called(root, *arguments, **environment):
    placed = {"PYTHON": sys.executable, "XDG_CACHE_HOME": str(root / "a cache"), "CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **placed, **environment}
    done = subprocess.run(
        ["bash", root / "bench" / "on_a_card.sh", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment,
        cwd=root.parent,
    )
    return done.returncode, done.stdout + done.stderr


def wheel(folder, name, version, tag):
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as made:
        info = f"{name}-{version}.dist-info"
        made.writestr(f"{name}.py", "")
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        made.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        made.writestr(f"{info}/RECORD", "")


@pytest.mark.long
def test_paths_with_blanks_a_folder_by_the_environment_and_a_wheel_for_another_python(checkout):
    """The wheels that fit are used, behind those of the machine; the one that does not fit is named."""
    (checkout / ".whl").mkdir()
    wheel(checkout / ".whl", "torch_quiver", "9.9", "py3-none-any")
    wheel(checkout / ".whl", "dgl", "9.9", "cp27-cp27m-linux_x86_64")
    wheel(checkout / ".whl", "numpy", "0.1", "py3-none-any")
    code, told = called(checkout, OUT=str(checkout / "an out"), SECTIONS="tools")
    assert code == 0, told
    assert ".whl/dgl-9.9-cp27-cp27m-linux_x86_64.whl could not be installed" in told
    assert "numpy" not in told
    found = json.loads((checkout / "an out" / "on_a_card.json").read_text())["sections"]["tools"]["found"]["packages"]["found"]
    assert (found["torch-quiver"], found["dgl"], found["numpy"]) == ("9.9", "missing", np.__version__)


@pytest.mark.long
def test_wheels_without_pip_are_an_error(checkout):
    python = checkout / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" = pip ] && exit 1\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert called(checkout, checkout / "out", PYTHON=str(python), SECTIONS="tools")[0] == 0  # there are no wheels
    (checkout / ".whl").mkdir()
    wheel(checkout / ".whl", "torch_quiver", "9.9", "py3-none-any")
    code, told = called(checkout, checkout / "out", PYTHON=str(python), SECTIONS="tools")
    assert code == 1
    assert f"{python} has no pip, which installs the wheels in .whl/: install pip, name another Python by PYTHON" in told


@pytest.mark.long
def test_a_native_back_end_of_other_sources_is_built_again(checkout):
    if reason := backends.why_not("native"):
        pytest.skip(reason)
    (checkout / "setup.py").write_text("print('built again')")
    code, told = called(checkout, checkout / "out", SECTIONS="native")
    assert code == 0, told
    assert "the native back end is there: bulksample/_native" in (checkout / "out" / "setup.txt").read_text()
    header = checkout / "csrc" / "philox.h"
    header.write_text(header.read_text() + "// edited")
    os.utime(header, (0, 0))  # as a copy of a working tree may leave it
    code, told = called(checkout, checkout / "out", SECTIONS="native")
    assert code == 1
    said = (checkout / "out" / "setup.txt").read_text()
    assert "built again" in said
    assert "was compiled from other sources" in said


@pytest.mark.long
def test_what_cannot_be_meant_is_said_at_once(checkout):
    code, told = called(checkout, checkout / "out", SECTIONS="tools,benchmark")
    assert code == 1
    assert "no section is called benchmark; there are: tools, native, libraries, products, R-MAT, compile, device, launch" in told
    (checkout / "file").write_text("")
    code, told = called(checkout, checkout / "file", SECTIONS="tools")
    assert code == 1
    assert f"cannot write to {checkout / 'file'}" in told
    old = checkout / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    code, told = called(checkout, checkout / "out", PYTHON=str(old))
    assert code == 1
    assert "is not Python 3.11 or newer: name another by PYTHON" in told


@pytest.mark.parametrize("call", ["1", "2"])
def test_the_sections_of_a_call_end_within_its_limit_and_leave_eight_files_at_most(call, tmp_path):
    sections = sections_of(call, tmp_path, [], [])
    names = [section.name for section in sections]
    assert all(names.index(need) < names.index(section.name) for section in sections for need in section.needs)
    assert sum(section.seconds for section in sections if not section.beside) <= plan.LIMITS[call] - plan.START
    assert len({section.log for section in sections} | {"on_a_card.json", "gpu.json"}) <= 7


def test_every_check_and_every_part_of_the_benchmark_is_a_section(tmp_path):
    sections = all_sections(tmp_path)
    assert {section.asked for section in sections if section.asked} == set(SECTIONS)
    assert {section.command[3] for section in sections if section.command[2] == "gpu.checks"} | {"unpooled"} == set(PARTS)
    assert {"memcheck", "samples", "gpu training"} < {section.name for section in sections_of("", tmp_path, [], [])}


def test_sections_bring_what_they_need_and_mended_ones_are_run_again(tmp_path):
    assert [section.name for section in sections_of("1", tmp_path, ["repeat"], [])] == ["native", "products", "R-MAT", "repeat"]
    names = [section.name for section in sections_of("2", tmp_path, [], ["samples"])]
    assert names.index("device") < names.index("samples") < names.index("gpu samplers")
    assert "memory" not in names
    assert {section.name for section in sections_of("", tmp_path, ["tools"], ["launch"])} == {"tools", "launch"}
    with pytest.raises(ValueError, match=r"there is no call 3; there are: 1, 2"):
        sections_of("3", tmp_path, [], [])


def test_every_file_with_a_test_marked_cuda_is_collected():
    root = Path(__file__).parents[1]
    marked = [file for file in root.rglob("test_*.py") if "pytest.mark.cuda" in file.read_text() and file != Path(__file__)]
    assert len(marked) > 3
    assert not [file for file in marked if not any(file.is_relative_to(root / path) for path in plan.ALL_CUDA_TESTS)]
    assert all((root / path).exists() for path in (*plan.ALL_CUDA_TESTS, *plan.CUDA_TESTS))


def test_a_dead_section_leaves_what_it_found_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "LEAST", 0.1)
    lacking = {"error": "No module named 'cupy'\n  more"}
    (tmp_path / "found").write_text(json.dumps(found := {"first": {"found": 1}, "a.cu": lacking, "b.cu": lacking}))
    code = Run(tmp_path, 60).run([
        shell("hangs", """echo '{"half": {"found": 2}}' > $FOUND; sleep 1000 & wait""", 1.0),
        shell("dies", f"""cp {tmp_path}/found $FOUND; echo said; kill -SEGV $$"""),
        shell("passes", "true"), shell("lacks", "true", missing="a part is missing"), shell("follows", "true", needs=("dies",)),
    ])  # fmt: skip
    assert code == 1
    known = json.loads((tmp_path / "on_a_card.json").read_text())["sections"]
    assert known["dies"]["state"] == "failed: exit -11"
    assert known["hangs"]["state"] in ("ended at its limit of 1 s", "ended at its limit of 0 s")  # half a second, after a late start
    assert known["hangs"]["seconds"] >= 0.45
    assert [known[name]["found"] for name in ("dies", "hangs")] == [found, {"half": {"found": 2}}]
    assert [known[name]["state"] for name in ("passes", "lacks", "follows")] == [
        "passed", "missing: a part is missing", "not run: it needs dies, which has not passed",
    ]  # fmt: skip
    assert "said" in (tmp_path / "log.txt").read_text()
    assert " s)\n  failed: a.cu, b.cu: No module named 'cupy'\npasses: " in capsys.readouterr().out  # once on the screen


def test_a_second_call_goes_on_with_what_is_missing(tmp_path):
    order = tmp_path / "order"
    commands = {"a": "true", "b": "false", "c": "true", "d": "true"}
    sections = [shell(name, f"echo {name} >> {order}; {command}", 1000) for name, command in commands.items()]
    assert Run(tmp_path, 60).run(sections[:3]) == 1
    assert Run(tmp_path, 1).run(sections) == 1
    assert states(tmp_path) == {"a": "passed", "b": "failed: exit 1", "c": "passed", "d": "not run: no time left"}
    assert Run(tmp_path, 60).run(sections) == 1
    assert order.read_text().split() == ["a", "b", "c", "d", "b"]  # the one that failed comes last
    other = Run(tmp_path, 60)
    other._sources = "edited"
    other.run(sections)
    assert sorted(order.read_text().split()[5:]) == ["a", "b", "c", "d"]


def test_what_runs_beside_is_waited_for_and_run_by_every_call(tmp_path):
    gate = tmp_path / "gate"
    beside = shell("beside", f"until [ -e {gate} ]; do sleep 0.05; done", beside=True)
    sections = [beside, shell("after", "true", needs=("beside",)), shell("opens", f"touch {gate}")]
    assert Run(tmp_path, 60).run([sections[0], sections[2], sections[1]]) == 0
    gate.unlink()
    stops = shell("stops", "false", stops=True)
    assert Run(tmp_path, 60).run([beside, stops, sections[1]]) == 2
    assert states(tmp_path)["beside"] != "passed"


def test_a_section_that_begins_while_others_are_ended_is_ended_too(tmp_path, monkeypatch):
    """Between the choice of a section and the start of its process another section may have stopped the call."""
    run, start = Run(tmp_path, 60), subprocess.Popen

    def stopped_meanwhile(*arguments, **options):
        run._stopped = True
        return start(*arguments, **options)

    monkeypatch.setattr(runner.subprocess, "Popen", stopped_meanwhile)
    assert run.run([shell("late", "sleep 30")]) == 1
    assert states(tmp_path)["late"].startswith("failed")


def test_what_runs_beside_may_end_after_all_others(tmp_path):
    beside = shell("beside", f"until grep -q passed {tmp_path}/on_a_card.json; do sleep 0.05; done; sleep 0.2", beside=True)
    assert Run(tmp_path, 60).run([beside, shell("quick", "true")]) == 0
    assert states(tmp_path) == {"beside": "passed", "quick": "passed"}


def test_long_logs_are_cut_in_the_middle(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "LARGEST_LOG", 1000)
    Run(tmp_path, 60).run([shell("long", "echo first; head -c 5000 /dev/zero | tr '\\0' x; echo; echo last")])
    text = (tmp_path / "log.txt").read_text()
    assert len(text) < 1000
    assert "first" in text
    assert text.endswith("last\n")
    assert "bytes left out" in text


# a signal that comes while a process starts, before it is known
WHILE_STARTING = """
import os, signal, subprocess, time
class Popen(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Popen
"""


@pytest.mark.parametrize("before", ["", WHILE_STARTING])
def test_no_process_outlives_a_call_that_is_ended(before, tmp_path):
    mark = tmp_path / "pid"
    program = f"""{before}
import sys; sys.path.insert(0, {str(SCRIPT.parent)!r})
from gpu import runner
from gpu.plan import Section
runner.sections_of = lambda *asked: [Section("s", 99, "log.txt", ["bash", "-c", "echo $$ > {mark}; sleep 1000 & wait"])]
runner.main()
"""
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "OUT": str(tmp_path)})
    try:
        until(lambda: mark.exists() and mark.read_text().strip())
    finally:
        process.terminate()
    assert process.wait(PATIENCE) == 143
    until(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists())


def test_programs_of_the_toolkit_are_found_where_it_keeps_them(tmp_path, monkeypatch):
    for folder in ("cuda-13.0/bin", "nsight/2025.3"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(plan, "TOOLS", (f"{tmp_path}/cuda*/bin", f"{tmp_path}/nsight/*", f"{tmp_path}/missing"))
    assert plan.with_tools("/bin").split(":") == ["/bin", f"{tmp_path}/cuda-13.0/bin", f"{tmp_path}/nsight/2025.3"]


def test_only_what_nothing_can_do_without_stops_a_call(tmp_path):
    assert [section.name for section in all_sections(tmp_path) if section.stops] == ["device"]
    assert list(first_launch()) == ["device", "random words"]


def test_a_peer_that_lacks_what_samples_is_left_out_before_its_graph_is_made(monkeypatch):
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs pyg_lib or torch_sparse"):
        libraries.torch_geometric(None, [], ())


@pytest.mark.parametrize("marks", ["cuda", "not cuda"])
def test_tests_of_a_card_use_the_cache_that_they_are_given(tmp_path, marks):
    (tmp_path / "told.py").write_text("import os\ndef pytest_collection_finish(): print('cache:', os.environ['XDG_CACHE_HOME'])\n")
    words = ["-m", marks, "-n", "0", "-p", "told", "-p", "no:cacheprovider", "--collect-only", "-q", "tests/backends/test_on_card.py"]
    environment = {**os.environ, "XDG_CACHE_HOME": "/given", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=SCRIPT.parents[1], env=environment, capture_output=True, text=True)
    assert ("cache: /given\n" in done.stdout) == (marks == "cuda"), done.stdout + done.stderr
