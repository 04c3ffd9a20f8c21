"""Run methods on the same graph, with the same partition, seeds and model, one after another, and keep what each run wrote.

    OUT/runs/METHOD/seed-S/    report.json and metrics.jsonl as `bulksample train` writes them on rank 0,
                               log.txt, all that was printed, run.json, what was asked and how it ended

A run is judged by its report, which rank 0 writes last: launchers are known to end with code 0 after a failure, and with
others after a success. A finished run is kept and not repeated; one that failed, or was asked for differently, is run again.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..config.train import AVERAGED
from ..data.manifest import load_manifest
from ..errors import UsageError
from ..version import __version__
from .launch import Ended, launch
from .network import name_and_options

_ERROR = re.compile(r"(bulksample: )?[\w.]+(Error|Exception|Unavailable|Lost|Interrupt|Exit)\b")
ALL = "all"  # in a list of methods, every one of them with its defaults, and
_BESIDES = ("sync:graph=partitioned",)  # the synchronous baseline that fetches neighbours and features from other ranks (GGS)
_SWITCHES = {"true": "--{}", "false": "--no-{}"}


@dataclass(frozen=True)
class Contestant:
    """A method, with the options of `train` that are its own. `label` is how it was asked for, ``name:key=value``.

    `base` are options that all others go before: those of a configuration file that concern this method.
    """

    label: str
    method: str
    options: tuple[str, ...]
    base: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """What all contestants are given.

    Attributes
    ----------
    start : words that start a program on the ranks
    options : of `bulksample train`, common to all
    limit : seconds that a run may take
    """

    graph: Path
    ranks: int
    start: tuple[str, ...]
    options: tuple[str, ...]
    limit: float


@dataclass(frozen=True)
class Run:
    """One contestant with one seed, as it ended: its report and the lines of its epochs, or why there are none."""

    label: str
    seed: int
    folder: Path
    report: dict[str, Any] | None
    lines: list[dict[str, Any]]
    failure: str | None
    exit_code: int
    seconds: float
    kept: bool


def contestants(text: str, known: Iterable[str]) -> list[Contestant]:
    """``sync,full,adaqp:bits=4:period=50``, each once; ``true`` and ``false`` are switches; ``all`` is every known one.

    Raises
    ------
    UsageError
        If a method is not among the known ones, or is asked for twice with the same options.
    """
    known = tuple(known)
    words = [label.strip() for label in text.split(",")]
    found = [_contestant(label) for word in words for label in ((*known, *_BESIDES) if word == ALL else (word,))]
    if any(one.method == ALL for one in found):
        raise UsageError("all stands for every method and takes no options; those of train for all of them follow --")
    strange = [one.method for one in found if one.method not in known]
    if strange:
        raise UsageError(f"there is no method {', '.join(map(repr, strange))}; {', '.join(known)} would fit")
    labels = [one.label for one in found]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise UsageError(f"{twice[0]} is asked for twice; it can be compared with itself under other options, {twice[0]}:KEY=VALUE")
    return found


def _contestant(label: str) -> Contestant:
    """The contestant of a label; one that deals vertices itself leaves the --partition that others share."""
    method, given = name_and_options(label)
    options = ["--partition", "block"] if method in AVERAGED else []
    for key, value in given.items():
        name = key.replace("_", "-")
        options += [_SWITCHES[value].format(name)] if value in _SWITCHES else [f"--{name}", value]
    return Contestant(label, method, tuple(options))


def compare(work: Work, methods: list[Contestant], seeds: list[int], out: Path, fresh: bool, quiet: bool) -> list[Run]:
    """Run every contestant with every seed; all contestants with the first seed come first.

    Parameters
    ----------
    fresh : bool
        Repeat also what is finished.

    Returns
    -------
    list of Run
        In the order in which they ran. A contestant that failed with one seed is not run with the next.
    """
    identity = {"version": __version__, "graph": load_manifest(work.graph).digest, "start": list(work.start), "ranks": work.ranks}
    runs: list[Run] = []
    for seed in seeds:
        for one in methods:
            if any(run.label == one.label and run.failure for run in runs):
                continue
            folder = out / "runs" / quote(one.label, safe="=:").replace(":", "+") / f"seed-{seed}"
            options = ["--method", one.method, *one.base, *work.options, *one.options, "--seed", str(seed)]
            asked = {**identity, "options": options}
            run = None if fresh else _finished(one.label, seed, folder, asked)
            run = run or _run(work, one.label, seed, folder, asked)
            runs.append(run)
            if not quiet:
                print(_in_words(run), file=sys.stderr)
    return runs


def _run(work: Work, label: str, seed: int, folder: Path, asked: dict[str, Any]) -> Run:
    """Train, and leave in the folder what is needed to know it again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("run.json", "report.json", "metrics.jsonl"):
        (folder / name).unlink(missing_ok=True)
    files = ["--json", str(folder.absolute() / "report.json"), "--metrics", str(folder.absolute() / "metrics.jsonl"), "--quiet"]
    command = [*work.start, sys.executable, "-m", "bulksample", "train", str(work.graph.absolute()), *asked["options"], *files]
    ended = launch(command, folder / "log.txt", work.limit, alone=not work.start)
    record = {"asked": asked, "exit_code": ended.code, "seconds": ended.seconds, "failure": _failure(folder, ended, work.limit)}
    new = folder / "run.json.tmp"
    new.write_text(json.dumps(record, indent=2) + "\n")
    os.replace(new, folder / "run.json")
    return _read(label, seed, folder, record, kept=False)


def _finished(label: str, seed: int, folder: Path, asked: dict[str, Any]) -> Run | None:
    """The same run, if it was made before and did not fail."""
    record = _object(folder / "run.json")
    if record is None or record.get("asked") != asked or record.get("failure") or _object(folder / "report.json") is None:
        return None
    return _read(label, seed, folder, record, kept=True)


def _read(label: str, seed: int, folder: Path, record: dict[str, Any], kept: bool) -> Run:
    failure = record["failure"]
    report = None if failure else _object(folder / "report.json")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] if report else []
    return Run(label, seed, folder, report, lines, failure, record["exit_code"], record["seconds"], kept)


def _failure(folder: Path, ended: Ended, limit: float) -> str | None:
    """Why there is no report of the whole run; None where there is one."""
    report = _object(folder / "report.json")
    if report is not None and not report["stopped"]:
        return None
    if ended.late:
        return f"not finished after {limit:g} s, the time limit"
    if report is not None:
        return f"stopped by a signal after step {report['steps']}"
    how = f"exit code {ended.code}" if ended.code >= 0 else f"ended by signal {-ended.code}"
    return f"{_last_words(ended.said)} ({how})"


def _last_words(said: str) -> str:
    """The first line that names an error; otherwise the first message of the package, or the last line."""
    lines = [line.rstrip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("bulksample: ")]
    errors = [line for line in lines if _ERROR.match(line)]
    telling = [*errors[:1], *own[:1], *lines[-1:], "no report was written and nothing was said"]
    return telling[0].removeprefix("bulksample: ")


def _object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is none, or not all of one."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _in_words(run: Run) -> str:
    how = f"failed: {run.failure}" if run.failure else "finished before" if run.kept else f"{run.seconds:.1f} s"
    return f"{run.label}, seed {run.seed}: {how}"
