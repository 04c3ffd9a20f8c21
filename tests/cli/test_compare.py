"""`bulksample compare`: its tables, runs that are kept or repeated, refusals, time limits and signals."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from launch import MPIRUN, ROOT, alive, run_alone, run_ranks
from waiting import PATIENCE, until

from bulksample.errors import UsageError
from bulksample.methods import METHODS
from bulksample.methods.options import AVERAGING
from bulksample.report import compare as comparison
from bulksample.report.compare import Contestant, contestants
from bulksample.report.launch import Ended

LONG = pytest.mark.long  # runs `train` several times as processes
SMALL = ["--fanouts", "5,5", "--hidden", "8", "--batch-size", "32", "--epochs", "3", "--threads", "1", "--eval-every", "2"]
FAILING = "full:graph=replicated"
REFUSAL = "UsageError: the method 'full' needs a partitioned graph; got graph replicated"


def compare(graph, out, methods, *more, options=SMALL, environment=None, fresh=False):
    words = ["-m", "bulksample", "compare", graph, "--methods", methods, "-o", out, *more, "--", *options]
    return run_alone(words, environment, fresh)


@pytest.fixture(scope="module")
def compared(graph, tmp_path_factory):
    """A comparison of two methods and one that fails, on two ranks, with two seeds."""
    if MPIRUN is None:
        pytest.skip("mpirun is missing: pip install mpich")
    out = tmp_path_factory.mktemp("out") / "compared"
    networks = ["--network", "ethernet-10g", "--network", "loopback:inside=1e6:latency=1e-3"]
    more = ["--ranks", 2, "--repeats", 2, "--seed", 5, *networks, "--json", out.with_suffix(".json")]
    return out, more, compare(graph, out, f"sync,{FAILING},full", *more)


def table(out):
    return json.loads((out / "table.json").read_text())


def reports(out, method):
    return [json.loads((out / "runs" / method / f"seed-{seed}" / "report.json").read_text()) for seed in (5, 6)]


@LONG
def test_a_failed_method_is_reported_and_the_others_run(compared):
    out, _, ended = compared
    assert ended.returncode == 1, ended.stderr
    found = table(out)
    assert found["failed"] == [FAILING]
    assert [row["method"] for row in found["methods"]] == ["sync", FAILING, "full"]
    assert found["methods"][1] == {"method": FAILING, "failed": f"seed 5: {REFUSAL} (exit code 2)"}
    assert [(run["method"], run["seed"], bool(run["failure"])) for run in found["runs"]] == [
        ("sync", 5, False), (FAILING, 5, True), ("full", 5, False), ("sync", 6, False), ("full", 6, False),
    ]  # fmt: skip
    assert REFUSAL in ended.stderr
    assert ended.stdout == (out / "table.md").read_text()
    assert json.loads(out.with_suffix(".json").read_text()) == found


@LONG
@pytest.mark.parametrize("method", ["sync", "full"])
def test_the_table_holds_the_numbers_of_the_reports(compared, method):
    out, _, _ = compared
    row = next(row for row in table(out)["methods"] if row["method"] == method)
    said = reports(out, method)
    assert [report["seed"] for report in said] == [5, 6]
    assert [report["method"] for report in said] == [method] * 2
    assert row["score"]["values"] == [report["test_accuracy"] for report in said]
    assert row["score"]["mean"] == pytest.approx((row["score"]["values"][0] + row["score"]["values"][1]) / 2)
    assert row["seconds_per_epoch"]["values"] == [report["seconds_per_epoch"] for report in said]
    for kind, mean in row["bytes"].items():
        assert mean == sum(report["training_bytes"][kind] for report in said) / 2
    for kind, mean in row["messages"].items():
        assert mean == sum(report["training_messages"][kind] for report in said) / 2
    for network, (latency, rate) in {"ethernet-10g": (50e-6, 1.25e9), "loopback:inside=1e6:latency=1e-3": (1e-3, 1e6)}.items():
        for seconds, report in zip(row["networks"][network]["seconds"]["values"], said, strict=True):
            sent = report["busiest_rank"]
            assert seconds == pytest.approx(report["compute_seconds"] + latency * sent["messages"] + sent["bytes"] / rate)


@LONG
def test_bytes_of_gradients_and_activations_match_the_method(compared):
    out, _, _ = compared
    for method in ("sync", "full"):
        report = reports(out, method)[0]
        gradients = 2 * 4 * (report["parameters"] + 3) * report["steps"]
        assert report["training_bytes"]["gradients"] == report["bytes_sent"]["gradients"] == gradients
        assert report["training_bytes"]["total"] < report["bytes_sent"]["total"]  # evaluation sends, too
    assert reports(out, "sync")[0]["training_bytes"]["activations"] == 0 < reports(out, "full")[0]["training_bytes"]["activations"]


@LONG
def test_a_run_equals_one_of_train(compared, graph, tmp_path):
    out, _, _ = compared
    alone = tmp_path / "alone.json"
    arguments = ["-m", "bulksample", "train", str(graph), "--method", "full", *SMALL, "--seed", "6", "--json", str(alone), "--quiet"]
    assert run_ranks(2, arguments).code == 0
    alone, beside = json.loads(alone.read_text()), reports(out, "full")[1]
    for what in ("test_accuracy", "train_loss", "training_messages", "parameters", "graph"):
        assert beside[what] == alone[what]
    assert {**beside["training_bytes"], "control": 0, "total": 0} == {**alone["training_bytes"], "control": 0, "total": 0}


@LONG
def test_the_csv_holds_the_same_numbers(compared):
    out, _, _ = compared
    lines = list(csv.DictReader((out / "table.csv").open()))
    rows = table(out)["methods"]
    assert [line["method"] for line in lines] == [row["method"] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        if row["failed"]:
            assert line["failed"] == row["failed"]
        else:
            assert float(line["score.mean"]) == row["score"]["mean"]
            assert float(line["bytes.total"]) == row["bytes"]["total"]


@LONG
def test_plots_are_drawn_if_matplotlib_is_installed(compared):
    out, _, ended = compared
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "no plots were drawn: plots need matplotlib" in ended.stderr
        assert table(out)["plots"] == []
    else:
        names = ["accuracy_bytes.png", "accuracy_bytes.pdf", "accuracy_seconds.png", "accuracy_seconds.pdf"]
        assert table(out)["plots"] == names
        assert all((out / name).stat().st_size > 0 for name in names)


@LONG
def test_finished_runs_are_kept_and_others_repeated(compared, graph, tmp_path):
    done, more, _ = compared
    out = shutil.copytree(done, tmp_path / "compared")  # other tests read what the first call wrote
    more = [*more[:-1], out.with_suffix(".json")]
    before = {file: file.stat().st_mtime_ns for file in out.rglob("report.json")}
    rows = table(out)["methods"]
    cut_short = out / "runs" / "sync" / "seed-6" / "report.json"
    cut_short.write_text(cut_short.read_text()[:-20])
    ended = compare(graph, out, f"sync,{FAILING},full", *more)
    assert ended.returncode == 1
    repeated = {file for file, when in before.items() if file.stat().st_mtime_ns != when}
    assert repeated == {cut_short}
    kept = {(run["method"], run["seed"]): run["kept"] for run in table(out)["runs"]}
    assert kept == {("sync", 5): True, (FAILING, 5): False, ("full", 5): True, ("sync", 6): False, ("full", 6): True}
    assert ended.stderr.count("finished before") == 3
    assert table(out)["methods"][2] == rows[2]


@LONG
def test_a_run_is_repeated_with_other_options_only_if_asked_for(graph, tmp_path):
    other = [*SMALL, "--lr", "0.1"]
    for more, options, code in (([], SMALL, 0), ([], other, 2), (["--overwrite"], other, 0), (["--overwrite"], other, 0)):
        ended = compare(graph, tmp_path, "sync", "--no-plots", *more, options=options)
        assert ended.returncode == code, ended.stderr
        assert [run["kept"] for run in table(tmp_path)["runs"]] == [False], (more, options)
        assert ("holds a finished run with other options; use another folder, or --overwrite" in ended.stderr) is (code == 2)
        assert table(tmp_path)["options"] == (SMALL if code or options is SMALL else other)


@LONG
def test_one_rank_needs_no_mpi(graph, tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no MPI here')")
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "PATH": str(tmp_path), "SLURM_NTASKS": "4"}
    ended = compare(graph, tmp_path / "out", "sync,full", "--quiet", environment=environment, fresh=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    rows = table(tmp_path / "out")["methods"]
    assert [row["bytes"]["total"] for row in rows] == [0, 0]
    assert all(row["score"]["mean"] > 0.3 for row in rows)


@LONG
def test_a_run_over_the_time_limit_is_ended(graph, tmp_path):
    ended = compare(graph, tmp_path, "sync", "--limit", "5", "--no-plots", options=[*SMALL, "--epochs", "1000000"])
    assert ended.returncode == 1
    assert table(tmp_path)["methods"][0]["failed"] == "seed 0: not finished after 5 s, the time limit"


@LONG
def test_a_signal_leaves_no_process_and_the_next_call_continues(graph, tmp_path):
    if MPIRUN is None:
        pytest.skip("mpirun is missing: pip install mpich")
    arguments = ["compare", str(graph), "--methods", "sync,full", "-o", str(tmp_path), "--ranks", "2", "--no-plots", "--", *SMALL]
    mark = f"COMPARE_TEST={os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COMPARE_TEST": str(os.getpid())}
    process = subprocess.Popen([sys.executable, "-m", "bulksample", *arguments], env=environment, stderr=subprocess.PIPE, text=True)
    second = tmp_path / "runs" / "full" / "seed-0" / "log.txt"
    until(second.exists)
    process.send_signal(signal.SIGTERM)
    assert "stopped by SIGTERM" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 75
    assert alive(mark) == {}
    ended = compare(graph, tmp_path, "sync,full", "--ranks", "2", "--no-plots", fresh=True)  # as the run that is kept started
    assert ended.returncode == 0, ended.stderr
    assert [run["kept"] for run in table(tmp_path)["runs"]] == [True, False]


@pytest.mark.parametrize(
    ("methods", "more", "said"),
    [
        ("sync,gossip", [], f"there is no method 'gossip'; use {', '.join(METHODS)}"),
        ("sync,ramdom-tma", [], "there is no method 'ramdom-tma'; did you mean 'random-tma'?"),
        ("sync,sync", [], "sync appears twice"),
        ("sync:", [], "NAME:KEY=VALUE"),
        ("sync", ["--network", "token-ring"], "no network 'token-ring'"),
        ("sync", ["--launcher", "mpirun"], "must contain {ranks}"),
        ("sync", ["--limit", "0"], "limit must be positive"),
        ("sync,full:colour=red", [], "full:colour=red: train refuses its options: No such option: --colour"),
        ("sync", ["--", "--epochs", "many"], "train refuses its options"),
        ("sync", ["--", "elsewhere"], "train refuses its options"),
        ("sync", ["--", "--seed", "4"], "compare itself sets --seed"),
        ("sync", ["--", "--json", "x"], "compare itself sets --json"),
        ("full,sync:evaluate=none", [], "sync:evaluate=none: train refuses its options: runs stop when their validation score no longer"),
        ("full,sync:eval_every=0", [], "give --epochs after -- to train all methods for a number of epochs"),
        ("sync:method=full", [], "compare itself sets --method"),
        ("all:hidden=8", [], "all stands for every method and takes no options"),
        ("sync", ["--epochs", "4"], "No such option"),
    ],
)
def test_bad_use_exits_2_before_anything_is_run(command, graph, tmp_path, methods, more, said):
    code, _, err = command("compare", graph, "--methods", methods, "-o", tmp_path / "out", *more)
    assert code == 2
    assert said in err
    assert not (tmp_path / "out").exists()


LENGTHS = [
    ([], None, True),
    (["--lr", "0.1"], "lr: 0.1", True),
    (["--patience=3"], None, False),
    (["--epochs", "4"], None, False),
    (["--evaluate", "none"], None, False),
    ([], "epochs: 4", False),
]


@pytest.mark.parametrize(("options", "file", "converges"), LENGTHS)
def test_runs_train_to_convergence_unless_told_how_long(command, graph, tmp_path, monkeypatch, options, file, converges):
    """A round is several steps of one method and one step of another, so equal rounds are no equal conditions."""
    asked = []

    def stop(setup, *_):
        asked.extend(setup.options)
        raise UsageError("enough")

    monkeypatch.setattr(comparison, "compare", stop)
    (tmp_path / "run.yaml").write_text(file or "{}")
    more = [*(["--config", tmp_path / "run.yaml"] if file else []), "-o", tmp_path / "out", "--", *options]
    code, _, err = command("compare", graph, "--methods", "sync,full:hidden=4", *more)
    assert (code, "enough" in err) == (2, True)
    assert asked == [*(comparison.CONVERGENCE if converges else ()), *options]


def test_a_folder_without_a_graph_exits_65(command, tmp_path):
    code, _, err = command("compare", tmp_path, "--methods", "sync", "-o", tmp_path / "out")
    assert code == 65, err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inside", [".", "results/one"])
def test_results_stay_out_of_the_folder_of_the_graph(command, graph, inside):
    before = sorted(graph.iterdir())
    code, _, err = command("compare", graph, "--methods", "sync", "-o", graph / inside)
    assert code == 2, err
    assert f"in the folder of the graph {graph}; use a folder of its own" in err
    assert sorted(graph.iterdir()) == before


def test_options_of_a_method_become_options_of_train():
    assert contestants("sync, adaqp:bits=4:feature_codec=int8:overlap=false:batch-norm=true", ["sync", "adaqp"]) == [
        Contestant("sync", "sync", ()),
        Contestant(
            "adaqp:bits=4:feature_codec=int8:overlap=false:batch-norm=true", "adaqp",
            ("--bits", "4", "--feature-codec", "int8", "--no-overlap", "--batch-norm"),
        ),
    ]  # fmt: skip


def test_a_method_is_compared_with_itself_under_other_options_only():
    assert [one.label for one in contestants("full:form=naive,full", METHODS)] == ["full:form=naive", "full"]
    with pytest.raises(UsageError, match="appears twice"):
        contestants("full:form=naive,full:form=naive", METHODS)


def test_all_is_every_method_and_the_partitioned_synchronous_baseline():
    every = [one.label for one in contestants("all", METHODS)]
    assert set(every) == {*METHODS, "sync:graph=partitioned"}
    assert len(every) == len(set(every))
    assert [one.label for one in contestants("grappa:view=strict,all", METHODS)] == ["grappa:view=strict", *every]
    with pytest.raises(UsageError, match="sync appears twice"):
        contestants("all,sync", METHODS)


def test_a_method_with_its_own_partition_ignores_the_common_one():
    (one,), (given,) = (contestants(label, METHODS, AVERAGING) for label in ("super-tma", "super-tma:partition=FILE"))
    assert one.options == ("--partition", "block")
    assert given.options[-2:] == ("--partition", "FILE")


@LONG
def test_a_method_with_its_own_partition_runs_beside_a_common_one(command, graph, tmp_path):
    options = ["--no-plots", "-o", tmp_path / "out", "--", *SMALL, "--partition", "random"]
    code, _, err = command("compare", graph, "--methods", "super-tma", *options)
    assert code == 0, err


@pytest.mark.parametrize(
    ("report", "code", "late", "said", "failure"),
    [
        ('{"stopped": false}', 0, False, "", None),
        ('{"stopped": false}', 75, False, "bulksample: rank 1 left", None),  # the report is what counts
        ('{"stopped": false}', 143, True, "", None),
        ('{"stopped": true, "steps": 7}', 0, False, "", "stopped by a signal after step 7"),
        ('{"stopped": fal', 0, False, "", "no report was written and nothing was printed (exit code 0)"),
        (None, 143, True, "half way", "not finished after 60 s, the time limit"),
        (None, -9, False, "half way\n", "half way (ended by signal 9)"),
        (None, 1, False, "bulksample: rank 1 of 2 failed\nTraceback\n  raise\nKeyError: 3\n", "KeyError: 3 (exit code 1)"),
        (None, 2, False, "bulksample: UsageError: no\nbulksample: UsageError: no\n", "UsageError: no (exit code 2)"),
        (None, 75, False, "bulksample: rank 1 was killed\nmpirun: oh", "rank 1 was killed (exit code 75)"),
    ],
)
def test_a_run_is_judged_by_its_report(tmp_path, report, code, late, said, failure):
    if report is not None:
        (tmp_path / "report.json").write_text(report)
    assert comparison._failure(tmp_path, Ended(code, 1.0, late, said), 60.0) == failure


def test_warnings_of_a_run_stand_beside_its_end(tmp_path):
    report = {"warnings": ["the test scores are of seeds"]}
    run = comparison.ContestantRun("sync", 3, tmp_path, report, [], None, 0, 1.0, False)
    assert comparison._progress(run).splitlines() == ["sync, seed 3: 1.0 s", "sync, seed 3: warning: the test scores are of seeds"]
    assert comparison._progress(replace(run, report={})) == "sync, seed 3: 1.0 s"
