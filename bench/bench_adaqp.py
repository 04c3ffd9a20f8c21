"""Measure what rounded messages cost in accuracy and save in bytes, on a graph where it shows: random parts, neighbors of other classes.

The graph is a degree-corrected block model with 16 classes, a third of the edges inside a class, and weak features. So a model must
aggregate, and most neighbors are on other ranks. Contestants share graphs, parts, weights and dropout for each seed; differences are
paired. Ranks are threads, with the losses and bytes of processes. Traffic counts messages (forward and backward), relative to float32 of
the same form. The naive form, the base of published ratios, sends the input in every epoch and hidden rows before their transformation.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Numbers, some_of

from bulksample.data import store
from bulksample.data.dcsbm import BlockModel, dcsbm
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.callbacks import Callback

MODEL = BlockModel(
    classes=16, class_skew=0.0, degree_spread=0.9, homophily=0.33, communities=1, features=64, class_signal=1.5, community_signal=0.0,
    label_noise=0.0, train=0.4, val=0.1, popularity=None,
)  # fmt: skip
CONTESTANTS: dict[str, dict[str, Any]] = {
    "fp32": {"method": "full"},
    "adaptive": {"method": "adaqp"},
    "8 bits": {"method": "adaqp", "bits": "8"},
    "4 bits": {"method": "adaqp", "bits": "4"},
    "2 bits": {"method": "adaqp", "bits": "2"},
    "2 bits nearest": {"method": "adaqp", "bits": "2", "message_rounding": "nearest"},
}
SETTING = {"model": "gcn", "layers": 3, "hidden": 64, "lr": 0.01, "dropout": 0.5, "partition": "random", "threads": 1, "eval_every": 5}


class Epochs(Callback):
    """A callback that keeps the lines of all epochs."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def epoch(self, line: dict[str, Any]) -> None:
        self.lines.append(line)


def trained(folder: Path, ranks: int, **options: Any) -> dict[str, Any]:
    """Run once; return test accuracy at the best validation score, loss of the last epoch, and message bytes."""

    def rank(comm: Comm) -> dict[str, Any]:
        watched = Epochs()
        found = make_trainer(TrainConfig.of(**{**SETTING, **options}), folder, comm, [watched]).run()
        if found["stopped"]:
            raise SystemExit("a signal has ended a run early; its figures would count as those of a whole one")
        sent = [line["phase_bytes"]["forward"] + line["phase_bytes"]["backward"] for line in watched.lines]
        return {"accuracy": 100 * found["test_accuracy"], "losses": [line["loss"] for line in watched.lines], "sent": sent, **found}

    began = time.perf_counter()
    run = on_threads(ranks, rank, timeout=600)[0]
    return {
        "accuracy": run["accuracy"], "loss": statistics.mean(run["losses"][-5:]), "sent": sum(run["sent"]), "last_sent": run["sent"][-1],
        "mean_bits": run.get("mean_bits"), "seconds": time.perf_counter() - began,
    }  # fmt: skip


def compared(runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row per contestant, paired with float32 by seed."""
    rows, exact = [], runs["fp32"]
    for name, own in runs.items():
        pairs = list(zip(own, exact, strict=False))
        differences = [a["accuracy"] - b["accuracy"] for a, b in pairs]
        rows.append({
            "contestant": name, "seeds": len(own), "accuracy": statistics.mean(run["accuracy"] for run in own),
            "difference": statistics.mean(differences),
            "standard_error": statistics.stdev(differences) / len(own) ** 0.5 if len(own) > 1 else None,
            "loss_ratio": statistics.mean(a["loss"] for a, _ in pairs) / statistics.mean(b["loss"] for _, b in pairs),
            "traffic": sum(a["sent"] for a, _ in pairs) / sum(b["sent"] for _, b in pairs),
            "steady_traffic": sum(a["last_sent"] for a, _ in pairs) / sum(b["last_sent"] for _, b in pairs),
            "mean_bits": own[-1]["mean_bits"], "runs": own,
        })  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    print(f"{'':16} {'accuracy':>9} {'against fp32':>16} {'loss':>6} {'traffic':>8} {'steady':>7}")
    for row in rows:
        spread = "" if row["standard_error"] is None else f" ± {row['standard_error']:.2f}"
        print(
            f"{row['contestant']:16} {row['accuracy']:9.2f} {row['difference']:+8.2f}{spread:8} {row['loss_ratio']:6.3f} "
            f"{row['traffic']:8.3f} {row['steady_traffic']:7.3f}",
            flush=True,
        )


def adaqp(
    seeds: Numbers = (0, 1, 2, 3, 4), contestants: some_of(*CONTESTANTS) = tuple(CONTESTANTS), vertices: int = 10_000, degree: int = 32,
    ranks: int = 4, epochs: int = 50, reassign_every: int = 10, form: str = "strong",
) -> Iterator[dict[str, Any]]:  # fmt: skip
    asked = {
        "seeds": seeds, "contestants": contestants, "vertices": vertices, "degree": degree, "ranks": ranks, "epochs": epochs,
        "reassign_every": reassign_every, "form": form,
    }  # fmt: skip
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            graph = Path(folder) / str(seed)
            store.save(dcsbm(vertices, degree, MODEL, seed=seed), graph)
            for name in contestants:
                own = {**CONTESTANTS[name], "epochs": epochs, "form": form, "seed": seed}
                own |= {"reassign_every": reassign_every} if name == "adaptive" else {}
                runs[name].append(trained(graph, ranks, **own))
                print(json.dumps({"seed": seed, "contestant": name, **runs[name][-1]}), flush=True)
            table(compared(runs))
            yield {"setting": {**SETTING, **asked}, "rows": compared(runs)}
