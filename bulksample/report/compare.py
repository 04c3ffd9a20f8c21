"""Train methods one after another on the same graph, partition, seeds and model, and keep the files of every run.

    OUT/runs/METHOD/seed-S/    report.json and metrics.jsonl, written by `bulksample train` on rank 0
                               log.txt, everything the run printed
                               run.json, the command, the exit code and the reason of a failure

A run succeeded if it wrote a whole report, which rank 0 writes last. Exit codes decide nothing: launchers return 0 after failures and
other codes after successes. A finished run is kept, one that failed is repeated. A finished run with other options is
replaced only if the user says so.

A round of one method makes several steps and a round of another makes one. So by default every run trains until its validation score no
longer rises, by the same patience.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..data.atomic import write_file
from ..data.parts_manifest import graph_manifest
from ..errors import UsageError, unknown
from ..version import __version__
from .launch import Ended, launch
from .network import name_and_options

_ERROR = re.compile(r"(bulksample: )?[\w.]+(Error|Exception|Unavailable|Lost|Interrupt|Exit)\b")
ALL = "all"  # stands for every method with its defaults, and for _EXTRA
_EXTRA = ("sync:graph=partitioned",)  # the synchronous baseline that fetches neighbors and features from other ranks (GGS)
CONVERGENCE = ("--epochs", "200", "--eval-every", "5", "--patience", "8")  # 40 epochs without a better score, at most 200
DECIDE_LENGTH = ("epochs", "eval_every", "patience", "evaluate", "eval_splits")  # options of train that replace CONVERGENCE
_SWITCHES = {"true": "--{}", "false": "--no-{}"}


@dataclass(frozen=True)
class Contestant:
    """A method to compare: the user's text ``name:key=value``, its own options of `train`, and those of a file, which these override."""

    label: str
    method: str
    options: tuple[str, ...]
    base: tuple[str, ...] = ()


@dataclass(frozen=True)
class SharedSetup:
    """The graph, the ranks and the options that all contestants share."""

    graph: Path
    ranks: int
    start: tuple[str, ...]  # the command that starts a program on the ranks, such as mpirun -n 4
    options: tuple[str, ...]  # of `bulksample train`
    limit: float  # seconds that a run may take


@dataclass(frozen=True)
class ContestantRun:
    """One contestant trained with one seed: its report and the lines of its epochs, or the reason of its failure."""

    label: str
    seed: int
    folder: Path
    report: dict[str, Any] | None
    lines: list[dict[str, Any]]
    failure: str | None
    exit_code: int
    seconds: float
    kept: bool


def contestants(text: str, known: Iterable[str], partitioners: Container[str] = ()) -> list[Contestant]:
    """Parse ``sync,full,adaqp:bits=4:overlap=false``; ``all`` stands for every known method.

    `partitioners` partition vertices themselves, and so ignore a common --partition. Raises `UsageError` if a method is unknown, or
    appears twice with the same options.
    """
    known = tuple(known)
    words = [label.strip() for label in text.split(",") if label.strip()]
    if not words:
        raise UsageError(f"--methods: got {text!r}; name some, joined by commas, such as sync,full, or all")
    chosen = []
    for label in (label for word in words for label in ((*known, *_EXTRA) if word == ALL else (word,))):
        method, settings = name_and_options(label)
        options = ["--partition", "block"] if method in partitioners else []
        for key, value in settings.items():
            name = key.replace("_", "-")
            options += [_SWITCHES[value].format(name)] if value in _SWITCHES else [f"--{name}", value]
        chosen.append(Contestant(label, method, tuple(options)))
    if any(one.method == ALL for one in chosen):
        raise UsageError("all stands for every method and takes no options; give options of train for all methods after --")
    for one in chosen:
        if one.method not in known:
            raise UsageError(f"--methods: {unknown('method', one.method, known)}")
    labels = [one.label for one in chosen]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise UsageError(f"{twice[0]} appears twice; use {twice[0]}:KEY=VALUE to compare it with itself under other options")
    return chosen


def compare(
    setup: SharedSetup, methods: list[Contestant], seeds: list[int], out: Path, overwrite: bool, quiet: bool
) -> list[ContestantRun]:
    """Train every contestant with every seed; all contestants with the first seed come first.

    Returns the runs in the order of training. A contestant that failed with one seed is not trained with the next. `overwrite` repeats
    finished runs, too; without it, raises `UsageError` before the first run if a folder holds a finished run with other options.
    """
    identity = {"version": __version__, "graph": graph_manifest(setup.graph).digest, "start": list(setup.start), "ranks": setup.ranks}
    planned = []
    for seed, one in itertools.product(seeds, methods):
        folder = out / "runs" / quote(one.label, safe="=:").replace(":", "+") / f"seed-{seed}"
        options = ["--method", one.method, *one.base, *setup.options, *one.options, "--seed", str(seed)]
        recipe = {**identity, "options": options}  # by which a run is recognised
        record = None if overwrite else _finished(folder)
        if record and record["asked"] != recipe:
            other = ", ".join(key for key in recipe if record["asked"].get(key) != recipe[key])
            raise UsageError(f"{folder} holds a finished run with other {other}; use another folder, or --overwrite")
        planned.append((one.label, seed, folder, recipe, record))
    runs: list[ContestantRun] = []
    for label, seed, folder, recipe, record in planned:
        if any(run.label == label and run.failure for run in runs):
            continue
        run = _read(label, seed, folder, record, kept=True) if record else _run(setup, label, seed, folder, recipe)
        runs.append(run)
        if not quiet:
            print(_progress(run), file=sys.stderr)
    return runs


def _run(setup: SharedSetup, label: str, seed: int, folder: Path, recipe: dict[str, Any]) -> ContestantRun:
    """Train, and write run.json, by which a later call recognises the run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("run.json", "report.json", "metrics.jsonl"):
        (folder / name).unlink(missing_ok=True)
    place = folder.absolute()
    files = ["--overwrite", "--json", str(place / "report.json"), "--metrics", str(place / "metrics.jsonl"), "--quiet"]
    command = [*setup.start, sys.executable, "-m", "bulksample", "train", str(setup.graph.absolute()), *recipe["options"], *files]
    ended = launch(command, folder / "log.txt", setup.limit, alone=not setup.start)
    record = {"asked": recipe, "exit_code": ended.code, "seconds": ended.seconds, "failure": _failure(folder, ended, setup.limit)}
    write_file(folder / "run.json", json.dumps(record, indent=2) + "\n")
    return _read(label, seed, folder, record, kept=False)


def _finished(folder: Path) -> dict[str, Any] | None:
    """Return the record of the run in a folder if it did not fail."""
    record = _object(folder / "run.json") or {}
    whole = isinstance(record.get("asked"), dict) and not record.get("failure") and _object(folder / "report.json") is not None
    return record if whole else None


def _read(label: str, seed: int, folder: Path, record: dict[str, Any], kept: bool) -> ContestantRun:
    failure = record["failure"]
    report = None if failure else _object(folder / "report.json")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()] if report else []
    return ContestantRun(label, seed, folder, report, lines, failure, record["exit_code"], record["seconds"], kept)


def _failure(folder: Path, ended: Ended, limit: float) -> str | None:
    """Return the reason why a run has no report of all its epochs; None if it has one."""
    report = _object(folder / "report.json")
    if report is not None and not report["stopped"]:
        return None
    if ended.late:
        return f"not finished after {limit:g} s, the time limit"
    if report is not None:
        return f"stopped by a signal after step {report['steps']}"
    how = f"exit code {ended.code}" if ended.code >= 0 else f"ended by signal {-ended.code}"
    return f"{_reason(ended.printed)} ({how})"


def _reason(printed: str) -> str:
    """Return the first line that names an error; otherwise the first message of the package, or the last line."""
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith("bulksample: ")]
    errors = [line for line in lines if _ERROR.match(line)]
    candidates = [*errors[:1], *messages[:1], *lines[-1:], "no report was written and nothing was printed"]
    return candidates[0].removeprefix("bulksample: ")


def _object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if the file is missing or incomplete."""
    try:
        parsed = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _progress(run: ContestantRun) -> str:
    """Return a line on how a run ended, and the warnings of its report."""
    how = f"failed: {run.failure}" if run.failure else "finished before" if run.kept else f"{run.seconds:.1f} s"
    warnings = [f"warning: {text}" for text in (run.report or {}).get("warnings", [])]
    return "\n".join(f"{run.label}, seed {run.seed}: {said}" for said in (how, *warnings))
