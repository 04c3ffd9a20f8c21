"""`bulksample sample` and `bulksample train` on real ranks: what is asked for, how it is started, what it says.

Every rank has one thread, however many processors there are: ranks are the only thing that is varied.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from bulksample.data import store
from bulksample.data.blockmodel import PRESETS
from bulksample.data.dcsbm import dcsbm
from bulksample.errors import UsageError
from bulksample.report.launch import launch as run
from bulksample.report.launch import starter

EXCHANGES = ("owner", "rows", "rows-oblivious")
EXIT_REFUSED = 2


@dataclass(frozen=True)
class Work:
    """What is drawn and trained, wherever the graph lies."""

    directory: Path
    sampler: str
    fanouts: tuple[int, ...]
    batch_size: int
    bulk_size: int
    hidden: int
    seed: int = 0

    def options(self) -> list[str]:
        """Those that `sample` and `train` share."""
        return [
            str(self.directory), "--sampler", self.sampler, "--fanouts", ",".join(map(str, self.fanouts)), "--threads", "1",
            "--batch-size", str(self.batch_size), "--bulk-size", str(self.bulk_size), "--seed", str(self.seed),
        ]  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Where the graph lies: in block rows on p / c x c ranks; and how features travel there."""

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

# A process starts out with the peak of the one it was forked from, so the launcher is started from a small one.
_MEASURED = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:], env={**os.environ, "OMP_NUM_THREADS": "1"})
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""

Start = Callable[[int, list[str]], list[str]]  # the command that runs a program on so many ranks


def mpirun() -> str:
    """The launcher beside this Python, or the one on the path; ends with code 2 where there is none."""
    try:
        return starter(2, None)[0]
    except UsageError as error:
        refuse(str(error))


def refuse(reason: str) -> NoReturn:
    """End with code 2."""
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    raise SystemExit(EXIT_REFUSED)


def sample(work: Work, grid: Grid, start: Start, timeout: float) -> dict[str, Any]:
    """One epoch of `bulksample sample`: its JSON, with "peak_bytes" and "launch_seconds"."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [*_PROGRAM, "sample", *work.options(), *grid.options(), "--json", str(result)]
        return launch(start(grid.ranks, command), timeout) | json.loads(result.read_text())


def train(work: Work, grid: Grid, start: Start, timeout: float) -> dict[str, Any]:
    """Two epochs of `bulksample train`: the same, and a line for each epoch in "lines". An evaluation follows the second."""
    with tempfile.TemporaryDirectory() as folder:
        result, lines = Path(folder) / "result.json", Path(folder) / "lines.jsonl"
        command = [*_PROGRAM, "train", *work.options(), *grid.options(), *grid.feature_options(), "--hidden", str(work.hidden)]
        command += ["--epochs", "2", "--eval-every", "2", "--quiet", "--metrics", str(lines), "--json", str(result)]
        launched = launch(start(grid.ranks, command), timeout)
        return launched | json.loads(result.read_text()) | {"lines": [json.loads(line) for line in lines.read_text().splitlines()]}


def launch(command: list[str], timeout: float) -> dict[str, Any]:
    """Run a command to its end; a failure raises `RuntimeError` with what was printed.

    Returns
    -------
    dict
        "launch_seconds" by the clock, "peak_bytes" of the largest process.
    """
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        ended = run([sys.executable, "-S", "-c", _MEASURED, str(peak), *command], Path(folder) / "log", timeout)
        if ended.code or ended.late:
            how = f"longer than {timeout:.0f} s" if ended.late else f"exit code {ended.code}"
            raise RuntimeError(f"{how}: {' '.join(command)}\n{ended.said}")
        return {"launch_seconds": ended.seconds, "peak_bytes": 1024 * int(peak.read_text())}


def graph_in(folder: Path, vertices: int, degree: int, features: int) -> Path:
    """A graph of the block model that imitates ogbn-products, drawn with seed 1 unless it is there already."""
    directory = folder / f"dcsbm-{vertices}-{degree}-{features}"
    if not (directory / "manifest.json").exists():
        store.save(dcsbm(vertices, degree, replace(PRESETS["products"], features=features), seed=1), directory)
    return directory


def numbers(text: str) -> tuple[int, ...]:
    """``10,5`` as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"numbers such as 10,5 would fit; got {text!r}") from error


def some_of(*known: str) -> Callable[[str], list[str]]:
    """What reads ``owner,rows`` as a list of known names."""

    def read(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"some of {','.join(known)} would fit; got {','.join(unknown)!r}")
        return found

    return read


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The text as it stands, and every default."""


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser that shows a script's own text."""
    return argparse.ArgumentParser(description=text, formatter_class=_Help)


def read_work_options(parser: argparse.ArgumentParser, full: dict[str, Any], quick: dict[str, Any]) -> argparse.Namespace:
    """Add the options of the graph and of the work on it, and read the command line; ``--quick`` has defaults of its own."""
    for name, what in (
        ("vertices", "of a block model like ogbn-products"), ("degree", "of the model; repeated pairs are dropped"), ("features", "f"),
        ("hidden", "width of the hidden layers"), ("batch-size", "b"), ("bulk-size", "k, minibatches of a rank"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, help=what)
    parser.add_argument("--sampler", default="sage", choices=("sage", "ladies", "fastgcn", "labor"))
    parser.add_argument("--fanouts", type=numbers, help="of each hop, such as 10,5")
    parser.add_argument("--train-exchanges", type=some_of(*EXCHANGES), default=["owner"], help="of train; sample takes all")
    parser.add_argument("--work", type=Path, help="folder that keeps the graph; a temporary one unless given")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one launch may take")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--plot", type=Path, help="file for the plots, such as grid.png")
    parser.set_defaults(**full)
    if parser.parse_args().quick:
        parser.set_defaults(**quick)
    return parser.parse_args()


def work_of(options: argparse.Namespace, folder: Path) -> Work:
    """What the options ask for; the graph is drawn unless it lies in the folder."""
    directory = graph_in(folder, options.vertices, options.degree, options.features)
    return Work(directory, options.sampler, options.fanouts, options.batch_size, options.bulk_size, options.hidden)
