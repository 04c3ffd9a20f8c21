"""Measure test accuracy of sampled training on real graphs, beside full-batch accuracy.

    python bench/bench_accuracy.py --data FOLDER [--graphs dblp,minesweeper] [--ranks 1,4] [--seeds 0,1,2] [--json FILE]

FOLDER has the .npz files. Every run is a process of its own: `bulksample train`, under mpirun for several ranks. Each rank takes one
mini-batch per step, so 4 ranks take a quarter of the steps, with batches four times as large.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import machine, report

# Full-batch GraphSAGE on the same split, two layers, three seeds, in percent (ROC AUC for minesweeper).
FULL_BATCH = {
    "amazon-computers": 91.9,
    "dblp": 84.6,
    "facebook-pagepage": 94.5,
    "flickr-lane": 92.7,
    "minesweeper": 90.5,
    "confpapers": 84.4,
}
SETTINGS = {
    "amazon-computers": "--hidden 128 --lr 0.01 --feature-norm l2 --fanouts 15,10 --batch-size 128 --epochs 25",
    "dblp": "--hidden 128 --lr 0.01 --weight-decay 1e-4 --feature-norm l2 --fanouts 10,10 --batch-size 512 --epochs 15",
    "facebook-pagepage": "--hidden 128 --lr 0.01 --weight-decay 5e-5 --feature-norm l2 --fanouts 10,10 --batch-size 512 --epochs 15",
    "flickr-lane": "--hidden 128 --lr 0.01 --weight-decay 5e-5 --feature-norm l2 --fanouts 25,10 --batch-size 256 --epochs 15",
    "minesweeper": "--hidden 64 --lr 0.01 --dropout 0.2 --fanouts 10,10 --batch-size 256 --epochs 100 --metric rocauc --eval-every 2",
    "confpapers": "--label y_area --hidden 64 --lr 0.01 --dropout 0.3 --feature-norm l2 --fanouts 15,10 --batch-size 1024 --epochs 6",
}
SAMPLERS = {  # the first two graphs of the table, trained with other samplers
    "ladies": "--sampler ladies --fanouts 512,512",
    "fastgcn": "--sampler fastgcn --fanouts 2048,2048",
    "labor": "--sampler labor --fanouts 10,10",
}
OTHER_SAMPLERS_ON = ("dblp", "facebook-pagepage")


def train(store: Path, arguments: list[str], ranks: int, seed: int) -> dict:
    """The report of one run."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        launcher = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks)] if ranks > 1 else []
        command = [*launcher, sys.executable, "-m", "bulksample", "train", str(store), *arguments]
        subprocess.run([*command, "--seed", str(seed), "--quiet", "--json", str(result)], check=True, stdout=subprocess.DEVNULL)
        return json.loads(result.read_text())


def row(store: Path, graph: str, sampler: str, ranks: int, seeds: list[int]) -> dict:
    arguments = SETTINGS[graph].split() + SAMPLERS.get(sampler, "").split()
    runs = [train(store, arguments, ranks, seed) for seed in seeds]
    metric = runs[0]["metric"]
    scores = [100 * run[f"test_{metric}"] for run in runs]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    found = {
        "graph": graph,
        "sampler": sampler,
        "ranks": ranks,
        "metric": metric,
        "mean": statistics.mean(scores),
        "std": spread,
        "scores": scores,
        "full_batch": FULL_BATCH[graph],
        "seconds_per_epoch": statistics.median(run["seconds_per_epoch"] for run in runs),
        "command": f"bulksample train {graph} {' '.join(arguments)}",
    }
    print(f"{graph:18} {sampler:8} ranks {ranks}: {found['mean']:.1f} ± {spread:.1f}  (full batch {FULL_BATCH[graph]})", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--graphs", default=",".join(SETTINGS))
    parser.add_argument("--samplers", default="sage," + ",".join(SAMPLERS))
    parser.add_argument("--ranks", default="1,4")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ranks, seeds = ([int(part) for part in text.split(",")] for text in (options.ranks, options.seeds))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for graph in options.graphs.split(","):
            store = Path(folder) / graph
            command = [sys.executable, "-m", "bulksample", "data", "import", "npz", str(options.data / f"{graph}.npz"), "-o", str(store)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for sampler in options.samplers.split(","):
                for count in ranks if sampler == "sage" else ranks[:1]:
                    if sampler == "sage" or graph in OTHER_SAMPLERS_ON:
                        rows.append(row(store, graph, sampler, count, seeds))
    report({"machine": machine(), "seeds": seeds, "rows": rows}, options.json)


if __name__ == "__main__":
    main()
