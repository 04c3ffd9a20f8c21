"""Run one contestant in a process of its own: it answers every line on standard input with one timed round.

    python worker.py CONTESTANT TASK.json

The first answer is "ready" or a reason. Each further answer is a JSON object with seconds, edges and mini-batches, and the parts of the
time that the contestant measures, CPU seconds and memory. Needs only numpy besides the contestant's own packages.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from usage import Clock, memory


class RelationTask:
    """A task on a graph of relations: its matrices by place, their keys, vertices by type, seeds of one type."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.what, self.threads, self.fanouts, self.folder = asked["what"], asked["threads"], asked["fanouts"], asked["folder"]
        self.relations, self.counts, self.seed_type = asked["relations"], asked["counts"], asked["seed_type"]
        self.batches = list(np.load(asked["seeds"]))


class Task:
    """The task of all contestants: the same files, seeds, fanouts and threads."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.what, self.threads = asked["what"], asked["threads"]
        self.fanouts, self.hidden, self.classes, self.dropout = (asked[name] for name in ("fanouts", "hidden", "classes", "dropout"))
        folder = Path(asked["folder"])
        self.indptr, self.indices = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
        self.n = len(self.indptr) - 1
        self.batches = list(np.load(asked["seeds"]))
        self.features = np.load(asked["features"], mmap_mode="r") if asked["features"] else None
        self.labels = np.arange(self.n) % self.classes


class Parts:
    """Seconds by part of a round."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def end(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now


def main() -> None:
    warnings.simplefilter("ignore")
    name, asked = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    task = RelationTask(asked) if asked["what"] == "relations" else Task(asked)
    try:
        contestant = importlib.import_module(f"contestants.{name}")
        play = getattr(contestant, task.what, None)
        if play is None:
            raise ImportError(f"{name} takes no part in {task.what}")
        made = contestant.make(task)
    except (ImportError, OSError) as error:
        print(json.dumps({"left_out": f"{type(error).__name__}: {error}"}), flush=True)
        return
    task.batches = task.batches[: getattr(contestant, "MOST", None)]
    print(json.dumps({"name": contestant.NAME, "rule": getattr(contestant, "RULE", "all")}), flush=True)
    for _ in sys.stdin:
        parts, clock = Parts(), Clock()
        edges = play(task, made, parts)
        counts = {"edges": int(edges), "minibatches": len(task.batches)}
        print(json.dumps({**clock.spent(), **counts, "parts": parts.seconds, **memory()}), flush=True)


if __name__ == "__main__":
    main()
