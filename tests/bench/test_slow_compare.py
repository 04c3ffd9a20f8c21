"""Seconds to a score, from the lines of runs; and processes that run for a share of the time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import on_a_host
import pytest
import slow_compare
from slow_compare import Condition, Moment
from waiting import PATIENCE

PACED = """
import sys
sys.path.insert(0, {bench!r})
from on_a_host import paced
print(paced(lambda: {{"sum": sum(range(2 * 10**6))}}, 0.2)["sum"])
"""


def run_of(folder, served, scores):
    """Files that `train` leaves after rounds of 1 s, each followed by an evaluation of 0.25 s."""
    lines = [{"seconds": 1.0, "steps": 3 * (i + 1), "phases": {"evaluate": 0.25}} for i in range(len(scores))]
    for line, score in zip(lines, scores, strict=True):
        line |= {} if score is None else {"val_accuracy": score}
    rounds = [{"steps": {"0": 5, "1": i}} for i in range(len(scores))]
    report = {"metric": "accuracy", "config": {"tolerate_failures": served}} | ({"rounds": rounds} if served else {})
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_ranks_stop_for_evaluation_and_its_seconds_are_apart(tmp_path):
    found = slow_compare.course(run_of(tmp_path, False, [0.1, None, 0.5]), ranks=4)
    assert found == [Moment(1.0, 1.0, 12, 0.1), Moment(3.0, 3.5, 36, 0.5)]


def test_trainers_go_on_while_a_server_evaluates(tmp_path):
    found = slow_compare.course(run_of(tmp_path, True, [0.1, 0.3, 0.5]), ranks=4)
    assert found == [Moment(1.0, 1.0, 5, 0.1), Moment(2.25, 2.25, 11, 0.3), Moment(3.5, 3.5, 18, 0.5)]


def test_the_target_is_a_share_of_the_lowest_of_the_best():
    scored = [0.2, 0.7, 0.9], [0.3, 0.5, 0.4]
    good, poor = ([Moment(second, second, 1, score) for second, score in enumerate(scores)] for scores in scored)
    lines = [{"courses": [good, poor]}, {"courses": [good]}]
    assert slow_compare.add_target(lines, 0.5) == 0.25
    assert [[moment.seconds for moment in line["reached"]] for line in lines] == [[1, 0], [1]]
    assert slow_compare.add_target([{"courses": [good, []]}], 0.5) is None


def test_conditions_have_folders_of_their_own():
    assert [str(Condition("none", 1.0)), str(Condition("100mbit", 4.0))] == ["none", "100mbit-slower-4"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a pacing process goes before others, which needs root")
def test_a_paced_process_comes_to_its_end():
    program = PACED.format(bench=str(Path(on_a_host.__file__).parent))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert int(done.stdout) == sum(range(2 * 10**6))
