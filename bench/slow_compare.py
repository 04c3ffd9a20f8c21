"""Run `bulksample compare` over slow networks and with a slow host: seconds per epoch, and seconds to a score.

Needs root, iproute2 (ip, tc), util-linux and MPICH's mpirun; exits with code 2 and a reason if one is missing or the kernel refuses.
Ranks run on simulated hosts, one on each (see `netlab`; the network of the machine is not touched). An averaging method, with
tolerate-failures=true, has as many trainers as others have ranks, and its server has one more host (`on_hosts`). Methods are compared on
unshaped links and at every rate; OUT/RATE has the files of `compare`. With --slower 4 everything runs again with the last rank 4 times
slower (OUT/RATE-slower-4). A later call continues with unfinished runs. Each rank has one thread, and all share the cores of this
machine, so an epoch at a rate takes about

    unshaped seconds + bytes of the busiest rank / beta,    beta = rate * 1448 / 1514, the share of a frame without headers

--speed 0.4 limits each rank to that share of a core, if there are enough cores. "model" is the prediction of `compare`:
computing seconds of the slowest rank + messages * 50 us + bytes / beta, as if ranks had their own cores. "times as fast" is relative to the
first method at the same rate.

The target is a share of the lowest best validation score of all runs. Seconds to it are training seconds up to the end of the first round
with such a score. Evaluation by ranks is left out. A server evaluates while trainers continue, on the same cores, and this time is
included. "by the clock" includes all earlier evaluation.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import netlab
import typer
from harness import call
from on_hosts import on_hosts
from slow_network import PAYLOAD

from bulksample.errors import UsageError

_EVERY_RUN = ["--threads", "1"]


class Condition(NamedTuple):
    """The rate of the links, and the slowdown of the last rank."""

    rate: str
    slower: float

    def __str__(self) -> str:
        return self.rate + (f"-slower-{self.slower:g}" if self.slower > 1 else "")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    directory: Annotated[Path, "a graph in the store format"]
    options: Annotated[list[str] | None, typer.Argument(help="options of train, after --")] = None
    methods: Annotated[str, typer.Option(help="methods, as in compare; the first is the baseline")]
    out: Annotated[Path, typer.Option("-o", "--out")]
    rates: netlab.Rates = ("10mbit", "100mbit", "1gbit")
    only_shaped: Annotated[bool, "skip unshaped links"] = False
    hosts: Annotated[int, "number of hosts, with a rank or trainer on each"] = 4
    repeats: int = 1
    seed: int = 0
    limit: Annotated[float, "seconds allowed per run"] = 3600.0
    speed: Annotated[float, "share of a core for each rank; 1: no limit"] = 1.0
    slower: Annotated[float, "also run everything with the last rank slower by this factor"] = 1.0
    target: Annotated[float, "target as a share of the lowest best validation score"] = 0.99


class Moment(NamedTuple):
    """The end of an evaluated round: seconds since the first round began, steps of all ranks, the validation score."""

    seconds: float
    clock: float
    steps: int
    score: float


def network(rate: str) -> str:
    """Return the rate as a network of `bulksample plan`; unshaped links are its `loopback`."""
    return "loopback" if rate == "none" else f"ethernet-10g:between={PAYLOAD * netlab.bytes_per_second(rate):.0f}"


def launcher(slower: float, options: CompareOptions) -> str:
    """Return the launcher for `compare` that starts ranks on hosts."""
    speeds = [options.speed] * (options.hosts - 1) + [options.speed / slower]
    return shlex.join(call(on_hosts, ",".join(f"{speed:g}" for speed in speeds), "{ranks}"))


def compare(lab: netlab.Lab, condition: Condition, options: CompareOptions) -> dict[str, Any]:
    """Return the result of `bulksample compare` under a condition, with failed methods and their reasons."""
    lab.shape(condition.rate)
    command = [
        sys.executable, "-m", "bulksample", "compare", options.directory, "--methods", options.methods, "-o", folder(condition, options),
        "--seed", options.seed, "--ranks", options.hosts, "--repeats", options.repeats, "--network", network(condition.rate),
        "--launcher", launcher(condition.slower, options), "--limit", options.limit, "--json", "-",
        "--", *_EVERY_RUN, *(options.options or []),
    ]  # fmt: skip
    ended = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if not ended.stdout:
        raise SystemExit(ended.returncode or 1)
    return json.loads(ended.stdout)


def folder(condition: Condition, options: CompareOptions) -> Path:
    return options.out / str(condition)


def course(run: Path, ranks: int) -> list[Moment]:
    """Return the moments of a run, from its report and its lines."""
    report = json.loads((run / "report.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    served = report["config"].get("tolerate_failures", False)
    steps = [sum(one["steps"].values()) for one in report["rounds"]] if served else None
    found, seconds, evaluated = [], 0.0, 0.0
    for i, line in enumerate(lines):
        seconds += line["seconds"]
        made = sum(steps[: i + 1]) if steps else ranks * line["steps"]
        if (score := line.get(f"val_{report['metric']}")) is not None:
            clock = seconds + evaluated
            found.append(Moment(round(clock if served else seconds, 4), round(clock, 4), made, round(score, 5)))
        evaluated += line["phases"]["evaluate"]
    return found


def courses(said: dict[str, Any], where: Path) -> dict[str, list[list[Moment]]]:
    """Return the courses of all seeds, for every method that `compare` ran."""
    found: dict[str, list[list[Moment]]] = {}
    for run in said["runs"]:
        if not run["failure"]:
            found.setdefault(run["method"], []).append(course(where / run["folder"], said["ranks"]))
    return found


def lines(found: dict[Condition, dict[str, Any]], every: dict[Condition, dict[str, list[list[Moment]]]]) -> list[dict[str, Any]]:
    """Return one line per condition and method that did not fail."""
    made = []
    for condition, compared in found.items():
        fine = {row["method"]: row for row in compared["methods"] if not row["failed"]}
        free = found.get(Condition("none", condition.slower), {"methods": []})
        unshaped = {row["method"]: row for row in free["methods"] if not row["failed"]}
        first = fine.get(compared["methods"][0]["method"])
        for method, row in fine.items():
            seconds = row["seconds_per_epoch"]["mean"]
            made.append({
                "rate": str(condition), "method": method, "score": row["score"] and row["score"]["mean"], "seconds": seconds,
                "all_seconds": row["seconds_per_epoch"]["values"],
                "unshaped_seconds": unshaped[method]["seconds_per_epoch"]["mean"] if method in unshaped else None,
                "wire_seconds": row["busiest_rank"]["bytes"] / row["epochs"] / (PAYLOAD * netlab.bytes_per_second(condition.rate)),
                "model_seconds": row["networks"][network(condition.rate)]["seconds_per_epoch"]["mean"],
                "times_as_fast": first and first["seconds_per_epoch"]["mean"] / seconds,
                "courses": every[condition][method],
            })  # fmt: skip
    return made


def add_target(made: list[dict[str, Any]], share: float) -> float | None:
    """Compute the target, and add to each line the moment at which each seed reached it; None without validation."""
    runs = [run for line in made for run in line["courses"]]
    if not runs or not all(runs):
        return None
    target = share * min(max(moment.score for moment in run) for run in runs)
    for line in made:
        line["reached"] = [next(moment for moment in run if moment.score >= target) for run in line["courses"]]
    return target


def show(made: list[dict[str, Any]], target: float | None) -> None:
    print("| rate | method | score | s/epoch | (min to max) | unshaped | w / beta | model | times as fast |")
    print("|--:|:--|--:|--:|--:|--:|--:|--:|--:|")
    for line in made:
        times = " | ".join(_figure(line[what]) for what in ("unshaped_seconds", "wire_seconds", "model_seconds", "times_as_fast"))
        print(f"| {line['rate']} | {line['method']} | {_figure(line['score'])} | {_mean_and_spread(line['all_seconds'])} | {times} |")
    if target is None:
        return
    print(f"\nTo a validation score of {target:.4f}:\n")
    print("| rate | method | best | seconds | (min to max) | by the clock | (min to max) | steps of all ranks | (min to max) |")
    print("|--:|:--|--:|--:|--:|--:|--:|--:|--:|")
    for line in made:
        best = statistics.fmean(max(moment.score for moment in run) for run in line["courses"])
        cells = [_mean_and_spread([getattr(moment, what) for moment in line["reached"]]) for what in ("seconds", "clock", "steps")]
        print(f"| {line['rate']} | {line['method']} | {best:.4f} | {' | '.join(cells)} |")


def _mean_and_spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3g} | {min(values):.3g} to {max(values):.3g}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def slow_compare(options: CompareOptions) -> Iterator[dict[str, Any]]:
    if not 0 < options.target <= 1:
        raise UsageError(f"a target that all runs reach is a share of 1 at most; got {options.target}")
    netlab.go_inside()
    lab = netlab.Lab(1 + options.hosts)
    asked_rates = options.rates if options.only_shaped else ["none", *options.rates]
    conditions = [Condition(rate, slower) for slower in (1.0, options.slower) for rate in asked_rates]
    found = {condition: compare(lab, condition, options) for condition in dict.fromkeys(conditions)}
    made = lines(found, {condition: courses(said, folder(condition, options)) for condition, said in found.items()})
    target = add_target(made, options.target)
    about = {"hosts": options.hosts, "speed": options.speed, "slower": options.slower, "options": options.options or []}
    about |= {"seeds": next(iter(found.values()))["seeds"], "target": target}
    rows = [(condition, row) for condition, said in found.items() for row in said["methods"]]
    failed = sorted({f"{condition}: {row['method']}: {row['failed']}" for condition, row in rows if row["failed"]})
    show(made, target)
    print("\n".join(failed))
    yield {**about, "lines": made, "failed": failed}
    if failed:
        raise SystemExit(1)
