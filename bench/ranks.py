"""Run `bulksample sample` and `bulksample train` on real ranks: their options, their launch, and their results.

Every rank has one thread, whatever the number of cores, so that only the ranks vary.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from harness import Numbers, some_of

from bulksample.data import store
from bulksample.data.dcsbm import PRESETS, dcsbm
from bulksample.report.launch import launch as run
from bulksample.report.launch import starter

EXCHANGES = ("owner", "rows", "rows-oblivious")


@dataclass(frozen=True)
class Work:
    """A workload: what is sampled and trained, whatever the placement of the graph."""

    directory: Path
    sampler: str
    fanouts: tuple[int, ...]
    batch_size: int
    bulk_size: int
    hidden: int
    seed: int = 0

    def options(self) -> list[str]:
        """Return the options common to `sample` and `train`."""
        return [
            str(self.directory), "--sampler", self.sampler, "--fanouts", ",".join(map(str, self.fanouts)), "--threads", "1",
            "--batch-size", str(self.batch_size), "--bulk-size", str(self.bulk_size), "--seed", str(self.seed),
        ]  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """A placement of the graph in block rows on p / c x c ranks, and how features travel there."""

    ranks: int
    replication: int
    exchange: str
    codec: str = "fp32"
    cache_bytes: int = 0
    together: int = 1

    def options(self) -> list[str]:
        return ["--graph", "partitioned", "--replication", str(self.replication), "--exchange", self.exchange]

    def feature_options(self) -> list[str]:
        return ["--feature-codec", self.codec, "--cache-bytes", str(self.cache_bytes), "--fetch-together", str(self.together)]


_PROGRAM = [sys.executable, "-m", "bulksample"]

# A process inherits the peak memory of its parent, so a small process starts the launcher.
_MEASURED = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:], env={**os.environ, "OMP_NUM_THREADS": "1"})
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""

Start = Callable[[int, list[str]], list[str]]  # (ranks, program) -> command


def mpirun() -> str:
    """Return the launcher beside this Python or on the path."""
    return starter(2, None)[0]


def report(words: list[str], ranks: int, start: Start, timeout: float) -> dict[str, Any]:
    """Run a command of bulksample on ranks; return its JSON with "peak_bytes" and "launch_seconds".

    That of `train` has an object for each epoch in "lines".
    """
    with tempfile.TemporaryDirectory() as folder:
        result, lines = Path(folder) / "result.json", Path(folder) / "lines.jsonl"
        metrics = ["--quiet", "--metrics", str(lines)] if words[0] == "train" else []
        launched = launch(start(ranks, [*_PROGRAM, *words, *metrics, "--json", str(result)]), timeout)
        found = launched | json.loads(result.read_text())
        return found | ({"lines": [json.loads(line) for line in lines.read_text().splitlines()]} if metrics else {})


def sample(work: Work, grid: Grid, start: Start, timeout: float) -> dict[str, Any]:
    """Run one epoch of `bulksample sample`; return its report."""
    return report(["sample", *work.options(), *grid.options()], grid.ranks, start, timeout)


def train(work: Work, grid: Grid, start: Start, timeout: float) -> dict[str, Any]:
    """Run two epochs of `bulksample train`; return its report. Evaluation follows the second epoch."""
    words = ["train", *work.options(), *grid.options(), *grid.feature_options(), "--hidden", str(work.hidden)]
    return report([*words, "--epochs", "2", "--eval-every", "2"], grid.ranks, start, timeout)


def launch(command: list[str], timeout: float) -> dict[str, Any]:
    """Run a command to its end; raise `RuntimeError` with its output if it fails.

    Returns
    -------
    dict
        "launch_seconds" by the wall clock, "peak_bytes" of the largest process.
    """
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        ended = run([sys.executable, "-S", "-c", _MEASURED, str(peak), *command], Path(folder) / "log", timeout)
        if ended.code or ended.late:
            how = f"longer than {timeout:.0f} s" if ended.late else f"exit code {ended.code}"
            raise RuntimeError(f"{how}: {' '.join(command)}\n{ended.printed}")
        return {"launch_seconds": ended.seconds, "peak_bytes": 1024 * int(peak.read_text())}


def graph_in(folder: Path, vertices: int, degree: int, features: int) -> Path:
    """Store a graph of the block model that imitates ogbn-products, with seed 1, unless it exists."""
    directory = folder / f"dcsbm-{vertices}-{degree}-{features}"
    if not (directory / "manifest.json").exists():
        store.save(dcsbm(vertices, degree, replace(PRESETS["products"], features=features), seed=1), directory)
    return directory


@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """Options of a workload on a block model like ogbn-products, and of its launches."""

    vertices: int = 2**15
    degree: int = 30
    features: int = 64
    hidden: int = 32
    fanouts: Numbers = (10, 5)
    batch_size: int = 32
    bulk_size: Annotated[int, "k, mini-batches of a rank"] = 4
    sampler: Literal["sage", "ladies", "fastgcn", "labor"] = "sage"
    train_exchanges: Annotated[some_of(*EXCHANGES), "exchanges for train; sample runs all of them"] = ("owner",)
    work: Annotated[Path | None, "folder for the graph; default: a temporary folder"] = None
    timeout: Annotated[float, "seconds allowed per launch"] = 300.0
    plot: Path | None = None

    def of(self, *names: str) -> dict[str, Any]:
        """Return some options by name."""
        return {name: getattr(self, name) for name in names}


def work_of(options: WorkOptions, folder: Path) -> Work:
    """Return the workload of the options; generate the graph unless it is in the folder."""
    directory = graph_in(folder, options.vertices, options.degree, options.features)
    return Work(directory, options.sampler, options.fanouts, options.batch_size, options.bulk_size, options.hidden)
