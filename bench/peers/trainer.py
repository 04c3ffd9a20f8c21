"""Run the trainer of a checkout as a contestant: `bs.train` waits between epochs for a line on standard input, and answers it.

    PYTHONPATH=CHECKOUT:bench/peers python -P trainer.py TASK.json

The first answer names the package that was imported. "go" trains an epoch: its answer has the seconds, the phases of the run's ledger and
memory. "profile" does the same under torch's profiler, and answers with a table by group of operators. "sizes" samples the first epoch with
a loader. The same code runs on this checkout and on earlier ones, so it uses nothing but the façade of the package.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from operator_groups import shares
from usage import Clock, memory

import bulksample as bs

SEED, MOST_EPOCHS = 1, 2**20 - 1
PHASES = ("sample", "fetch", "forward", "backward", "reduce", "step")


def graph_of(asked: dict[str, Any]) -> bs.Graph:
    """Map the graph of a task; the seeds are its training split."""
    folder = Path(asked["folder"])
    indptr, indices = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
    n, classes = len(indptr) - 1, asked["classes"]
    trained = np.zeros(n, bool)
    trained[np.load(asked["seeds"]).reshape(-1)] = True
    features = np.load(asked["features"], mmap_mode="r")
    labels = (np.arange(n) % classes).astype(np.int64)
    adjacency = bs.CSR(indptr, indices, None, (n, n))
    return bs.Graph(adjacency, features=features, labels=labels, num_classes=classes, masks={"train": trained}, name="step")


def options_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `bs.train` for a task; whatever they leave out has its default."""
    same = {name: asked[name] for name in ("fanouts", "hidden", "dropout", "threads", "batch_size", "precision")}
    return {**same, "method": "sync", "model": "sage", "evaluate": "none", "epochs": MOST_EPOCHS, "seed": SEED}


def sizes(graph: bs.Graph, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the digest of the first epoch, and the means over its mini-batches: inputs, and destinations and edges by layer."""
    loader = bs.Loader(graph, "sage", asked["fanouts"], seeds="train", batch_size=asked["batch_size"], seed=SEED, threads=asked["threads"])
    minibatches = [batch.minibatch for batch in loader]
    blocks = [minibatch.blocks for minibatch in minibatches]
    return {
        "digest": bs.digest(minibatches), "minibatches": len(minibatches),
        "inputs": float(np.mean([len(minibatch.vertices) for minibatch in minibatches])),
        "destinations": np.mean([[block.num_destinations for block in layers] for layers in blocks], axis=0).tolist(),
        "edges": np.mean([[block.num_edges for block in layers] for layers in blocks], axis=0).tolist(),
    }  # fmt: skip


class Turns(bs.Callback):
    """A callback that lets the run go on by an epoch for each line, until standard input ends."""

    def __init__(self, graph: bs.Graph, asked: dict[str, Any]) -> None:
        self._graph, self._asked = graph, asked
        self._profiler: Any = None
        self._steps = 0

    def begin(self, epoch: int, epochs: int, steps: int) -> None:
        self._steps = steps
        self._wait()

    def epoch(self, line: dict[str, Any]) -> None:
        told = self._clock.spent() | {"minibatches": self._steps, "parts": {name: line["phases"][name] for name in PHASES}} | memory()
        if self._profiler is not None:
            self._profiler.stop()
            told["profile"], self._profiler = shares(self._profiler.events(), self._steps), None
        answer(told)
        self._wait()

    def _wait(self) -> None:
        word = sys.stdin.readline().strip()
        while word == "sizes":
            answer(sizes(self._graph, self._asked))
            word = sys.stdin.readline().strip()
        if not word:
            raise SystemExit
        if word == "profile":
            from torch.profiler import ProfilerActivity, profile

            self._profiler = profile(activities=[ProfilerActivity.CPU])
            self._profiler.start()
        self._clock = Clock()


def answer(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answer({"name": "bulksample", "rule": "all", "package": bs.__path__[0]})
    graph = graph_of(asked)
    bs.train(graph, callbacks=[Turns(graph, asked)], **options_of(asked))


if __name__ == "__main__":
    main()
