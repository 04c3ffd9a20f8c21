"""Run bulksample and its peers in alternation: sampling, a loader with features, training steps.

All contestants read the same graph from disk and use the same seeds and fanouts, each in a process of its own, one round in turn. The
first round is a warm-up. Each ``--python`` is a Python with peers installed (DGL 2.1.0 needs its own). The output names the peers that none
of them can import. A peer must draw as many edges as bulksample under the same frontier rule, within 2 %. Quote ratios.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from graphs import GRAPHS, folder, load, seeds
from harness import Numbers, check_edges, some_of, summary

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.report.drawing import COLOURS, new_figure

PEERS = ("dgl", "graphbolt", "pyg", "pyg_layers", "matrix")
TASKS = ("sampling", "loader", "step")
WIDTH, CLASSES = 100, 47


@dataclass(frozen=True, kw_only=True)
class ContestOptions:
    graphs: some_of(*GRAPHS) = tuple(GRAPHS)
    what: some_of(*TASKS) = TASKS
    threads: Numbers = (1, 2)
    rounds: int = 5
    fanouts: Numbers = (15, 10, 5)
    batch_size: int = 1024
    minibatches: int = 16
    hidden: int = 256
    dropout: Annotated[float, "dropout of hidden rows in a step"] = 0.0
    peers: some_of(*PEERS) = PEERS
    python: Annotated[list[str] | None, "a Python with peers installed; once for each"] = None
    plot: Path | None = None


class Worker:
    """A contestant that waits for its turn."""

    def __init__(self, name: str, command: list[str], **environment: str) -> None:
        env = {**os.environ, **environment}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.first = first = self._answer()
        self.name, self.rule, self.left_out = first.get("name", name), first.get("rule"), first.get("left_out")

    def round(self, word: str = "go") -> dict[str, Any]:
        """Ask for a round, and return its figures; ``left_out`` has the reason if the process has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and the answer says so
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return {"left_out": f"it ended with {self._process.wait()}"}

    def end(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def peer(python: str, contestant: str, task: Path, threads: int) -> Worker:
    """Start one of `peers.contestants` in a Python that may have its packages."""
    command = [python, str(Path(__file__).with_name("worker.py")), contestant, str(task)]
    return Worker(contestant, command, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS="1", DGLBACKEND="pytorch")


def features_of(path: Path, n: int, width: int = WIDTH) -> Path:
    """Generate random features beside the graph, once; return their file."""
    made = path / f"features-{width}.npy"
    if not made.exists():
        x = np.lib.format.open_memmap(path / "features.part.npy", "w+", np.float32, (n, width))
        rng = np.random.default_rng(0)
        for first in range(0, n, 2**16):
            x[first : first + 2**16] = rng.standard_normal((min(2**16, n - first), width), dtype=np.float32)
        x.flush()
        (path / "features.part.npy").rename(made)
    return made


def edges_by_rule(matrix: CSR, fanouts: list[int], batches: list[np.ndarray]) -> dict[str, list[int]]:
    """Count the edges of each mini-batch under each frontier rule."""
    adjacency, chosen = LocalAdjacency(matrix, backends.make()), Selection.of(batches, matrix.shape[0])
    drawn = {}
    for rule in ("all", "new"):
        bulk = samplers.make("sage", fanouts, frontier=rule).sample_bulk(adjacency, chosen, Stream(1))
        drawn[rule] = [minibatch.num_edges for minibatch in bulk]
    return drawn


def contest(graph: str, what: str, threads: int, options: ContestOptions) -> dict[str, Any]:
    matrix, fanouts = load(graph), list(options.fanouts)
    minibatches = options.minibatches if what == "sampling" else max(2, options.minibatches // 2)
    batches = seeds(matrix, minibatches, options.batch_size)
    features = "" if what == "sampling" else str(features_of(folder(graph), matrix.shape[0]).absolute())
    expected = edges_by_rule(matrix, fanouts, batches)
    with tempfile.TemporaryDirectory() as scratch:
        np.save(Path(scratch) / "seeds.npy", np.stack(batches))
        task = Path(scratch) / "task.json"
        task.write_text(json.dumps({
            "what": what, "threads": threads, "fanouts": fanouts, "hidden": options.hidden, "classes": CLASSES,
            "dropout": options.dropout, "folder": str(folder(graph).absolute()), "seeds": str(Path(scratch) / "seeds.npy"),
            "features": features,
        }))  # fmt: skip
        workers, left_out = gather(task, what, threads, options)
        try:
            rounds = play(workers, options.rounds, expected)
        finally:
            for worker in workers:
                worker.end()
    results = {name: figures(turns) for name, turns in rounds.items()}
    print(line(graph, what, threads, results), file=sys.stderr, flush=True)
    return {
        "graph": graph, "vertices": matrix.shape[0], "edges": matrix.nnz, "what": what, "threads": threads, "fanouts": fanouts,
        "batch_size": options.batch_size, "minibatches": minibatches, "results": results, "left_out": left_out,
    }  # fmt: skip


def gather(task: Path, what: str, threads: int, options: ContestOptions) -> tuple[list[Worker], dict[str, str]]:
    """Return every contestant that some Python has, and the reasons why others are missing."""
    inside = 1 if what == "sampling" else threads  # a peer samples a minibatch on each of its own threads
    workers, left_out = [peer(sys.executable, "ours", task, threads)], {}
    for contestant in options.peers:
        found = []
        for python in [*(options.python or []), sys.executable]:
            worker = peer(python, contestant, task, threads if contestant == "graphbolt" else inside)
            if worker.left_out is None and worker.name not in [other.name for other in workers]:
                workers.append(worker)
                found.append(worker)
            else:
                worker.end()
                why = worker.left_out or "it is there already"
                if contestant not in left_out or not why.startswith("ModuleNotFoundError"):
                    left_out[contestant] = why
        if found:
            left_out.pop(contestant, None)
    return workers, left_out


def play(workers: list[Worker], rounds: int, expected: dict[str, list[int]]) -> dict[str, list[dict[str, Any]]]:
    """Warm up each contestant, then run the rounds; raise `SystemExit` if a contestant draws another number of edges."""
    turns: dict[str, list[dict[str, Any]]] = {worker.name: [] for worker in workers}
    for number in range(rounds + 1):
        for worker in workers:
            turn = worker.round()
            if "edges" not in turn:
                raise SystemExit(f"{worker.name}: {turn['left_out']}")
            due = sum(expected[worker.rule][: turn["minibatches"]])
            check_edges(worker.name, turn["edges"], due, 0.02 if turn["minibatches"] > 1 else 0.04)
            if number:
                turns[worker.name].append(turn)
    return turns


def figures(turns: list[dict[str, Any]]) -> dict[str, Any]:
    parts = {part: statistics.median(1e3 * turn["parts"][part] / turn["minibatches"] for turn in turns) for part in turns[0]["parts"]}
    return {
        "million_edges_per_second": summary([turn["edges"] / turn["seconds"] / 1e6 for turn in turns]),
        "milliseconds_per_minibatch": summary([1e3 * turn["seconds"] / turn["minibatches"] for turn in turns]),
        "processor_milliseconds_per_minibatch": summary([1e3 * turn["processor"] / turn["minibatches"] for turn in turns]),
        "milliseconds_by_part": parts,
        "edges_per_minibatch": turns[0]["edges"] / turns[0]["minibatches"],
        "peak_mib": max(turn["peak_mib"] for turn in turns),
    }


def line(graph: str, what: str, threads: int, results: dict[str, Any]) -> str:
    medians = {name: result["milliseconds_per_minibatch"]["median"] for name, result in results.items()}
    told = ", ".join(f"{name} {value:.1f} ms" for name, value in medians.items())
    return f"{graph}, {what}, {threads} threads: {told}"


def plot(contests: list[dict[str, Any]], path: Path) -> None:
    """Draw a panel per task: milliseconds per mini-batch by graph and threads, a bar per contestant, a line for the spread."""
    tasks = list(dict.fromkeys(contest["what"] for contest in contests))
    names = list(dict.fromkeys(name for contest in contests for name in contest["results"]))
    with new_figure(len(tasks), (4.2, 3.2)) as (figure, axes):
        for axis, task in zip(axes, tasks, strict=True):
            shown = [contest for contest in contests if contest["what"] == task]
            for i, name in enumerate(names):
                results = [(place, one["results"]) for place, one in enumerate(shown) if name in one["results"]]
                held = [(place, result[name]["milliseconds_per_minibatch"]) for place, result in results]
                if not held:
                    continue
                places = [place + (i - len(names) / 2) * 0.8 / len(names) for place, _ in held]
                middle = [value["median"] for _, value in held]
                spread = [[v["median"] - v["min"] for _, v in held], [v["max"] - v["median"] for _, v in held]]
                bars = {"yerr": spread, "error_kw": {"linewidth": 0.8}}
                axis.bar(places, middle, 0.8 / len(names), label=name, color=COLOURS[i % len(COLOURS)], **bars)
            axis.set_xticks(range(len(shown)), [f"{one['graph']}\n{one['threads']} thr." for one in shown], fontsize=7)
            axis.set(yscale="log", title=task)
        axes[0].set_ylabel("milliseconds a minibatch")
        axes[-1].legend(fontsize=7)
        figure.savefig(path)


def peers(options: ContestOptions) -> dict[str, Any]:
    contests = [contest(*asked, options) for asked in product(options.graphs, options.what, options.threads)]
    if options.plot:
        plot(contests, options.plot)
    return {"rounds": options.rounds, "contests": contests}
