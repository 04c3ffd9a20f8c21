"""Measure what rounded messages cost in accuracy and save in bytes, on a graph where it shows: random parts, neighbors of other classes.

    python bench/bench_adaqp.py [--seeds 0,1,2,3,4] [--vertices 10000] [--epochs 50] [--json FILE]

The graph is a degree-corrected block model with 16 classes, a third of the edges inside a class, and weak features. So a model must
aggregate, and most neighbors are on other ranks. Contestants share graphs, parts, weights and dropout for each seed; differences are
paired. Ranks are threads, with the losses and bytes of processes. Traffic counts messages (forward and backward), relative to float32 of
the same form. The naive form, the base of published ratios, sends the input in every epoch and hidden rows before their transformation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import machine, report

from bulksample.data import store
from bulksample.data.blockmodel import BlockModel
from bulksample.data.dcsbm import dcsbm
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

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
    "2 bits, nearest": {"method": "adaqp", "bits": "2", "message_rounding": "nearest"},
}
SETTING = {"model": "gcn", "layers": 3, "hidden": 64, "lr": 0.01, "dropout": 0.5, "partition": "random", "threads": 1, "eval_every": 5}


class Epochs:
    """A callback that keeps the lines of all epochs."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def begin(self, *_: int) -> None:
        pass

    def step(self, *_: float) -> None:
        pass

    def epoch(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def end(self) -> None:
        pass


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--contestants", default=",".join(CONTESTANTS).replace(", nearest", " nearest"))
    parser.add_argument("--vertices", type=int, default=10_000)
    parser.add_argument("--degree", type=int, default=32)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--reassign-every", type=int, default=10)
    parser.add_argument("--form", default="strong")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [name.replace("2 bits nearest", "2 bits, nearest") for name in options.contestants.split(",")]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    found: dict[str, Any] = {"machine": machine(), "setting": {**SETTING, **{k: v for k, v in vars(options).items() if k != "json"}}}
    with tempfile.TemporaryDirectory() as folder:
        for seed in map(int, options.seeds.split(",")):
            graph = Path(folder) / str(seed)
            store.save(dcsbm(options.vertices, options.degree, MODEL, seed=seed), graph)
            for name in names:
                asked = {**CONTESTANTS[name], "epochs": options.epochs, "form": options.form, "seed": seed}
                if name == "adaptive":
                    asked["reassign_every"] = options.reassign_every
                runs[name].append(trained(graph, options.ranks, **asked))
                print(json.dumps({"seed": seed, "contestant": name, **runs[name][-1]}), flush=True)
            table(compared(runs))
            found["rows"] = compared(runs)
            if options.json:
                options.json.write_text(json.dumps(found, indent=2) + "\n")
    report(found, options.json)


if __name__ == "__main__":
    main()
