"""Share what every benchmark needs: types of options, a description of the machine, alternating rounds, medians with their spread."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from bulksample.training.environment import processor

RUNNER = str(Path(__file__).with_name("run.py"))


def numbers(text: str | tuple[int, ...]) -> tuple[int, ...]:
    """Parse ``10,5`` into numbers; numbers stay."""
    if not isinstance(text, str):
        return text
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"got {text!r}; use numbers such as 10,5") from error


def some_of(*known: str) -> Any:
    """Return the type of an option that takes names joined by commas; without known names it takes any."""

    def names(text: str | tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(text.split(",")) if isinstance(text, str) else tuple(text)
        if unknown := [name for name in found if known and name not in known]:
            raise typer.BadParameter(f"got {','.join(unknown)!r}; use some of {','.join(known)}")
        return found

    return Annotated[Any, typer.Option(parser=names, metavar="NAME,NAME")]


Numbers = Annotated[Any, typer.Option(parser=numbers, metavar="N,N")]
Names = some_of()
Data = Annotated[Path, typer.Option(metavar="FOLDER", help="folder of the .npz files")]


def quick(**sizes: Any) -> Callable[[Any], Any]:
    """Give an experiment the option ``--quick``, which replaces these defaults."""

    def given(experiment: Any) -> Any:
        experiment.quick = sizes
        return experiment

    return given


def call(function: Callable[..., object], *words: object) -> list[str]:
    """Return the command that calls a function of a benchmark with these words, as text, in a process of its own."""
    return [sys.executable, RUNNER, f"{function.__module__}:{function.__name__}", *map(str, words)]


def machine() -> dict[str, Any]:
    """Describe the processor, the number of usable cores, and the load."""
    python = platform.python_version()
    return {"processor": processor(), "processors": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "python": python}


def milliseconds(call: Callable[[], object]) -> Callable[[], float]:
    """Time a call by the wall clock."""

    def run() -> float:
        began = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - began)

    return run


def alternate(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Warm up each contestant once, then run `rounds` rounds of all in turn, so that a drifting machine is fair to all."""
    for contestant in contestants.values():
        contestant()
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            figures[name].append(contestant())
    return figures


def summary(figures: list[float]) -> dict[str, float]:
    """Return median, minimum and maximum."""
    return {"median": statistics.median(figures), "min": min(figures), "max": max(figures)}


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return mean and standard deviation; that of one value is 0."""
    found = list(values)
    return {"mean": statistics.mean(found), "std": statistics.stdev(found) if len(found) > 1 else 0.0}


def check_edges(name: str, edges: float, expected: float, tolerance: float = 0.02) -> None:
    """Exit with the reason if a peer draws another number of edges: its time would mean nothing."""
    if abs(edges / expected - 1) > tolerance:
        raise SystemExit(f"{name} drew {edges} edges where {expected} were expected: its time would mean nothing")


def compare(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, dict[str, float]]:
    """Alternate; return median, minimum and maximum of each contestant."""
    return {name: summary(values) for name, values in alternate(contestants, rounds).items()}


def report(result: dict[str, Any], path: Path | None) -> None:
    """Print the result, and write it as JSON if a path is given."""
    text = json.dumps(result, indent=2, default=str)
    print(text)
    if path is not None:
        path.write_text(text + "\n")
