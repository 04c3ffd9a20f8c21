"""The sections of `make sweep` find what they look for, and the frame counts what it ran and nothing else."""

import json
import os
import random
import threading
from types import SimpleNamespace

import keep
import numpy as np
import pytest
from communities import community_graph
from launch import Ended
from training_runs import run_training
from waiting import PATIENCE

from bulksample.data import store
from bulksample.distributed.comm.ledger import PHASES, Ledger
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods import METHODS
from bulksample.methods.readers import WHOLE_GRAPH
from sweep import SECTIONS, damage, disk, files, imports, memory, rank_faults, record, resume, soak, stores, verdict
from sweep.child import in_child
from sweep.journal import Journal
from sweep.run_sections import cases_of, command_of, sweep, told

CASES = [{"group": "even" if number % 2 == 0 else "odd", "value": number} for number in range(5)]
SECTION = SimpleNamespace(run=lambda case: {"passed": case["value"] != 3, "seen": "fine" if case["value"] != 3 else "bad"})


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    path, ran = tmp_path / "s.jsonl", []
    section = SimpleNamespace(run=lambda case: ran.append(case["value"]) or SECTION.run(case))
    sweep(section, Journal(path, CASES, "a"), 2)
    path.write_text(path.read_text() + '{"number": 2, "pas')  # killed while it wrote
    sweep(section, Journal(path, CASES, "a"), None)
    assert ran == [0, 1, 2, 3, 4]
    assert Journal(path, [*CASES[:4], {"group": "odd", "value": 7}], "a").outcomes.keys() == {0, 1, 2, 3}


@pytest.mark.parametrize(("goes_on", "kept"), [(False, 0), (True, 2)])
def test_another_commit_starts_anew_unless_it_is_told_to_go_on(tmp_path, goes_on, kept):
    sweep(SECTION, Journal(tmp_path / "s.jsonl", CASES, "a"), 2)
    journal = Journal(tmp_path / "s.jsonl", CASES, "b", goes_on)
    assert len(journal.outcomes) == kept
    sweep(SECTION, journal, 3)
    assert record.summarize(journal, 1)["commits"] == (["a", "b"] if goes_on else ["b"])


def test_survivors_run_beside_the_first_cases_and_both_are_counted(tmp_path):
    journal = Journal(tmp_path / "s.jsonl", CASES, "a")
    sweep(SECTION, journal, 1, [3, 4])
    assert sorted(journal.outcomes) == [0, 3, 4]
    assert (told(journal, range(1)), told(journal, [3, 4])) == ("1 fine", "1 failed: bad; 1 fine")


def test_cases_that_failed_run_again_on_request(tmp_path):
    sweep(SECTION, Journal(tmp_path / "s.jsonl", CASES, "a"))
    assert Journal(tmp_path / "s.jsonl", CASES, "a", again=True).outcomes.keys() == {0, 1, 2, 4}


def test_a_summary_counts_what_ran(tmp_path):
    journal = Journal(tmp_path / "s.jsonl", CASES, "a")
    sweep(SECTION, journal, 4)
    found = record.summarize(journal, 1)
    assert (found["planned"], found["run"], found["passed"]) == (5, 4, 3)
    assert found["groups"]["odd"] == {"planned": 2, "run": 2, "passed": 1, "seen": {"fine": 1}}
    assert found["groups"]["even"] == {"planned": 3, "run": 2, "passed": 2, "seen": {"fine": 2}}
    assert "figures" not in found
    journal.outcomes[0]["figures"] = {"share": 0.5}
    assert record.summarize(journal, 1)["figures"] == {"even": {"share": 0.5}}
    assert found["failures"] == [{"number": 3, "case": CASES[3], "seen": "bad"}]


def test_a_sweep_goes_on_after_the_summary_of_another_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(keep, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "PAGES", ())
    (tmp_path / record.THEME).mkdir()
    figures = SimpleNamespace(run=lambda case: {**SECTION.run(case), "figures": {"value": case["value"]}})
    for name, section in (("plain", SECTION), ("figures", figures)):
        first, rest = Journal(tmp_path / "here.jsonl", CASES, "a"), Journal(tmp_path / "there.jsonl", CASES, "b", after=2)
        sweep(section, first, 2)
        record.record(name, record.summarize(first, 1), "")
        sweep(section, rest)
        assert rest.outcomes.keys() == {2, 3, 4}
        found = record.joined(record.recorded(name, 2, 1, 5), record.summarize(rest, 1))
        whole = Journal(tmp_path / "whole.jsonl", CASES, "a")
        sweep(section, whole)
        apart = ("machine", "seconds", "commits")  # of each run
        wanted = {key: value for key, value in record.summarize(whole, 1).items() if key not in apart}
        assert {key: value for key, value in found.items() if key not in apart} == wanted
        assert found["commits"] == ["a", "b"]


@pytest.mark.parametrize("asked", [(3, 1, 5), (2, 9, 5), (2, 1, 6)])
def test_a_summary_of_other_cases_is_not_added_to(tmp_path, monkeypatch, asked):
    monkeypatch.setattr(keep, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "PAGES", ())
    journal = Journal(tmp_path / "s.jsonl", CASES, "a")
    sweep(SECTION, journal, 2)
    record.record("s", record.summarize(journal, 1), "")
    with pytest.raises(SystemExit, match=r"s: the summary that is kept has \(run, seed, planned\) = \(2, 1, 5\), and --after needs"):
        record.recorded("s", *asked)


def test_numbers_that_cases_count_are_added_up(tmp_path):
    journal = Journal(tmp_path / "s.jsonl", CASES, "a")
    sweep(SimpleNamespace(run=lambda case: {**SECTION.run(case), "counted": {"inputs": case["value"]}}), journal)
    found = record.summarize(journal, 1)["groups"]
    assert [found[name]["seen"] for name in ("even", "odd")] == [{"fine": 3, "inputs": 6}, {"fine": 1, "inputs": 4}]


def test_minutes_are_for_the_sections_that_last_for_a_time():
    assert [case["minutes"] for case in cases_of(soak, 1, None)] == [10] * 12
    assert [case["minutes"] for case in cases_of(soak, 1, 25)] == [10, 10, 5]
    assert cases_of(soak, 1, 25)[:2] == cases_of(soak, 1, None)[:2]  # a longer soak goes on where a shorter one stopped
    assert cases_of(memory, 1, 25) == memory.cases(1)
    assert command_of("soak", 3, None) == "make sweep SECTION=soak LIMIT=3"
    assert command_of("fuzz", None, 0.5) == "make sweep SECTION=fuzz MINUTES=0.5"


def test_the_tables_show_the_figures_that_are_kept():
    made = record.table(keep.load(record.THEME))
    for page in record.PAGES:
        assert f"<!-- sweep -->\n{made}<!-- end of sweep -->" in page.read_text()


def test_cases_are_a_function_of_the_seed():
    for section in (resume, rank_faults, memory):
        assert section.cases(5) == section.cases(5)
    assert resume.cases(5) != resume.cases(6)
    known = "files resume faults disk memory allocations sanitizers coverage mutants fuzz soak"
    assert list(SECTIONS) == known.split()
    assert len(resume.cases(5)) == 200
    assert {(case["method"], case["ranks"]) for case in resume.cases(5)} >= {("llcg", p) for p in (1, 2, 4)}


def test_each_fault_strikes_each_phase_of_each_method_on_each_number_of_ranks():
    found = rank_faults.cases(5)
    counts = {group: [case for case in found if case["group"] == group] for group in ("kill", "stop", "exception", "early exit")}
    entered = [(method, phase) for method in METHODS for phase in PHASES if phase not in rank_faults.NEVER.get(method, ())]
    wanted = sorted((*one, ranks) for one in entered for ranks in (2, 4, 8))
    for group in ("exception", "early exit"):
        assert sorted((case["method"], case["where"][1], case["ranks"]) for case in counts[group]) == wanted
    exits = {(case["method"], case["where"][1]): set() for case in counts["early exit"]}
    for case in counts["early exit"]:
        exits[case["method"], case["where"][1]].add(case["act"])
    assert all(acts == set(rank_faults.EXITS) for acts in exits.values())
    assert (len(counts["kill"]), len(counts["stop"])) == (200, 60)
    assert all(case["rank"] for case in found if case["where"][:2] == ["phase", "backward"]), "rank 0 of an average has no such phase"
    for group in ("kill", "stop"):
        assert {case["ranks"] for case in counts[group]} == {2, 4, 8}
        assert {case["method"] for case in counts[group]} == set(METHODS)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_the_phases_without_a_case_are_those_that_no_rank_enters(method, tmp_path, monkeypatch):
    entered, enter = [], Ledger.phase
    monkeypatch.setattr(Ledger, "phase", lambda self, name: entered.append((self._comm.rank, name)) or enter(self, name))
    options = {"epochs": 4, "fanouts": "3,3", "batch_size": 16, "checkpoint": str(tmp_path / "c"), "checkpoint_every": 2, "quiet": True}
    store.save(community_graph(), tmp_path / "g")
    on_threads(4, lambda comm: run_training(tmp_path / "g", comm, method=method, threads=1, **options))
    assert set(PHASES) - {phase for rank, phase in entered if rank == 3} == set(rank_faults.NEVER.get(method, ()))
    assert {(rank, phase) for rank in range(4) for phase in rank_faults.STEPWISE if rank or phase != "backward"} <= set(entered)
    assert (0, "checkpoint") in entered


def test_methods_that_never_sample_are_those_of_the_command_line():
    assert {method for method, phases in rank_faults.NEVER.items() if "sample" in phases} == set(WHOLE_GRAPH)


def test_a_point_that_is_never_reached_fails(monkeypatch):
    ended = Ended(0, "", "", 1.0)
    monkeypatch.setattr(rank_faults, "run_with_fault", lambda *_: ended)
    case = next(case for case in rank_faults.cases(5) if case["where"][0] == "phase")
    assert "never reached" in rank_faults.run(case)["seen"]


def test_cases_that_may_run_in_pairs_do(tmp_path):
    both = threading.Barrier(2, timeout=PATIENCE)
    section = SimpleNamespace(
        workers=lambda case: 2 if case["group"] == "even" else 1,
        run=lambda case: {"passed": case["group"] == "odd" or both.wait() in (0, 1), "seen": "fine"},
    )
    journal = Journal(tmp_path / "s.jsonl", [*CASES, {"group": "even", "value": 6}], "a")
    sweep(section, journal)
    assert [outcome["passed"] for outcome in journal.outcomes.values()] == [True] * 6
    assert list(journal.outcomes)[4:] == [1, 3]


def test_files_are_damaged_in_as_many_ways_as_are_promised():
    found = files.cases(5)
    counts = {group: sum(case["group"] == group for case in found) for group in files.GROUPS}
    assert counts["stores"] >= 500
    assert counts["checkpoints"] >= 200
    assert counts["imports"] + counts["configs"] >= 1000
    assert len({json.dumps(case, sort_keys=True) for case in found}) == len(found)


def test_a_damaged_store_is_refused(monkeypatch):
    case = {"graph": "dense", "file": "features.npy", "damage": "flip", "draw": "1", "opened": True}
    monkeypatch.setattr(stores, "TRAIN", ("--fanouts", "x"))  # exit code 2 is no answer to damage
    assert not stores.run(case)["passed"]
    monkeypatch.undo()
    assert stores.run(case) | {"said": ""} == {"passed": True, "seen": "refused", "said": ""}


@pytest.mark.long
@pytest.mark.parametrize("group", files.GROUPS)
def test_damaged_files_are_refused_or_harmless(group):
    cases = [case for case in files.cases(2024) if case["group"] == group][:8]
    assert [outcome for outcome in map(files.run, cases) if not outcome["passed"]] == []


def test_malformed_text_is_refused():
    case = {"group": "imports", "kind": "edgelist", "damage": "word", "column": 1, "word": "foo", "draw": "1"}
    assert imports.run(case)["seen"] == "refused"


@pytest.mark.parametrize(
    ("attempt", "seen"),
    [
        (lambda place: {"code": 0, "err": "", "digest": "other"}, "accepted, with another result"),
        (lambda place: {"code": 0, "err": "", "digest": "whole"}, "harmless"),
        (lambda place: {"code": 2, "err": "bulksample: UsageError: x"}, "exit code 2"),
        (lambda place: {"code": 65, "err": "Traceback\nbulksample: DataError: x"}, "exit code 65"),
        (lambda place: {"code": 65, "err": "bulksample: DataError: x"}, "refused"),
        (lambda place: os.kill(os.getpid(), 9), "the process died: -9"),
        (lambda place: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_only_a_refusal_or_the_same_result_passes(attempt, seen):
    found = verdict.judged(attempt, "whole", (65,))
    assert seen in found["seen"]
    assert found["passed"] == (seen in ("harmless", "refused"))


def test_a_case_that_hangs_is_ended():
    assert in_child(lambda: os.read(os.pipe()[0], 1), 0.05) == {"hung": 0.05}


@pytest.mark.parametrize("name", damage.BYTES)
def test_bytes_always_change(name):
    for size in (1, 2, 500):
        assert damage.damaged(name, bytes(size), random.Random(size)) != bytes(size)


FULL = {"group": "file of results", "call": "write", "nth": 1, "error": "ENOSPC"}


def test_a_full_disk_leaves_the_old_content():
    assert disk.run(FULL) == {"passed": True, "seen": "refused with the old content whole"}
    assert "the call was never made" in disk.run(FULL | {"nth": 5})["seen"]


def test_a_writer_that_writes_in_place_is_found(monkeypatch):
    def write(folder, which):
        with open(folder / "r.json", "wb") as stream:
            stream.write(b"%d" % which * 20_000)

    monkeypatch.setitem(disk.WRITERS, FULL["group"], disk.WRITERS[FULL["group"]]._replace(write=write))
    assert "neither the old nor the new" in disk.run(FULL)["seen"]


def test_a_sampler_that_keeps_its_bulks_is_found(monkeypatch):
    case = {"group": "samplers", "sampler": "sage", "bulks": 60, "seed": 1}
    kept, real = [], memory.make

    class Hoarder:
        def __init__(self, setting):
            self.sampler = real(setting)

        def sample_bulk(self, *arguments):
            kept.append(np.ones(10**6))
            return self.sampler.sample_bulk(*arguments)

    monkeypatch.setattr(memory, "make", Hoarder)
    found = memory.run(case)
    assert not found["passed"], found
    assert "grown by" in found["seen"]


@pytest.mark.long
@pytest.mark.parametrize("section", [resume, rank_faults], ids=lambda section: section.__name__)
def test_a_kill_is_survived(section, monkeypatch, tmp_path):
    monkeypatch.setattr(resume, "UNBROKEN", tmp_path)
    case = next(case for case in section.cases(2024) if case["ranks"] == 2 and case.get("act", "kill") == "kill")
    assert section.run(case) == {"passed": True, "seen": {resume: "resumed, same bits", rank_faults: "ended, rank named"}[section]}


@pytest.mark.parametrize(
    ("epochs", "bits", "said"),
    [
        ([0, 1, 2], "same", ""),
        ([0, 2], "same", "the records are of epochs [0, 2]"),
        ([0, 1, 1, 2], "same", "the records are of epochs [0, 1, 1, 2]"),
        ([0, 1, 2], "other", "it ends with other bits"),
    ],
)
def test_a_lost_epoch_is_found(tmp_path, monkeypatch, epochs, bits, said):
    monkeypatch.setattr(soak, "newest", lambda place: place)
    monkeypatch.setattr(soak, "digest_of", lambda place: bits)
    lines = [{"epoch": epoch, "loss": 0.5, "seconds": 1, "bytes_sent": {}} for epoch in epochs]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "report.json").write_text(json.dumps({"epochs": len(epochs)}))
    whole = {"digest": "same", "epochs": [{"epoch": epoch, "loss": 0.5} for epoch in range(3)]}
    found = soak.verdict_of(lambda: str(soak._compare(tmp_path, whole, "a training")))
    assert found["passed"] == (not said)
    assert said in found["seen"]


@pytest.mark.long
def test_pre_empted_trainings_lose_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(resume, "UNBROKEN", tmp_path)
    found = soak.run({"group": "slots", "minutes": 0.1, "draw": "1"})
    assert found["passed"], found["seen"]
    assert found["counted"]["pre-emptions"] >= 1
