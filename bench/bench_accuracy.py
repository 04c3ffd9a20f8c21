"""Measure test accuracy on real graphs: full batch, sampled mini-batches, and the same model trained by torch_geometric.

    python bench/bench_accuracy.py --data FOLDER [--graphs dblp,minesweeper] [--rows full,sage,sage@4] [--seeds 0,1,2] [--json FILE]

FOLDER has the .npz files. Every run is a process of its own: `bulksample train`, under mpirun for several ranks (`sage@4`), or
`pyg_accuracy.py`. Each rank takes one mini-batch per step, so 4 ranks take a quarter of the steps, with batches four times as large.
FILE is written after every row; rows that it has are kept, so a second call goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import machine

SETTINGS = {
    "amazon-computers": "--hidden 128 --lr 0.01 --feature-norm l2 --fanouts 15,10 --batch-size 128 --epochs 25",
    "dblp": "--hidden 128 --lr 0.01 --weight-decay 1e-4 --feature-norm l2 --fanouts 10,10 --batch-size 512 --epochs 15",
    "facebook-pagepage": "--hidden 128 --lr 0.01 --weight-decay 5e-5 --feature-norm l2 --fanouts 10,10 --batch-size 512 --epochs 15",
    "flickr-lane": "--hidden 128 --lr 0.01 --weight-decay 5e-5 --feature-norm l2 --fanouts 25,10 --batch-size 256 --epochs 15",
    "minesweeper": "--hidden 64 --lr 0.01 --dropout 0.2 --fanouts 10,10 --batch-size 256 --epochs 100 --metric rocauc --eval-every 2",
    "confpapers": "--label y_area --hidden 64 --lr 0.01 --dropout 0.3 --feature-norm l2 --fanouts 15,10 --batch-size 1024 --epochs 6",
}
FULL = "--epochs 300 --eval-every 5 --patience 8"  # 40 epochs without a better validation score end a run
ROWS = {  # what each row adds to the settings of its graph
    "full": f"--method full --layers 2 {FULL}",
    "sage": "",
    "ladies": "--sampler ladies --fanouts 512,512",
    "fastgcn": "--sampler fastgcn --fanouts 2048,2048",
    "labor": "--sampler labor --fanouts 10,10",
    "pyg-full": f"--loader none {FULL}",
    "pyg-loader": "--loader bulksample",
}


def train(store: Path, arguments: list[str], ranks: int, seed: int, torch_geometric: bool) -> dict[str, Any]:
    """Return the report of one run."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        launcher = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks)] if ranks > 1 else []
        peer = [str(Path(__file__).with_name("pyg_accuracy.py"))]
        program = peer if torch_geometric else ["-m", "bulksample", "train", "--quiet"]
        command = [*launcher, sys.executable, *program, str(store), *arguments, "--seed", str(seed), "--json", str(result)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report: dict[str, Any] = json.loads(result.read_text())
        return report


def row(store: Path, graph: str, name: str, ranks: int, seeds: list[int]) -> dict[str, Any]:
    """Train once per seed; return the scores in percent."""
    torch_geometric, arguments = name.startswith("pyg-"), [*SETTINGS[graph].split(), *ROWS[name].split()]
    runs = [train(store, arguments, ranks, seed, torch_geometric) for seed in seeds]
    metric = runs[0]["metric"]
    scores = [100 * run[f"test_{metric}"] for run in runs]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    print(f"{graph:18} {name:10} ranks {ranks}: {statistics.mean(scores):.1f} ± {spread:.1f}", flush=True)
    return {
        "graph": graph, "sampler": name, "ranks": ranks, "metric": metric, "mean": statistics.mean(scores), "std": spread, "seeds": seeds,
        "scores": scores, "steps": [run["steps"] for run in runs],
        "seconds_per_epoch": statistics.median(run["seconds_per_epoch"] for run in runs),
        "command": f"{'pyg_accuracy.py' if torch_geometric else 'bulksample train'} {graph} {' '.join(arguments)}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--graphs", default=",".join(SETTINGS))
    parser.add_argument("--rows", default="full,sage,sage@4,ladies,fastgcn,labor")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seeds = [int(part) for part in options.seeds.split(",")]
    kept: list[dict[str, Any]] = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for graph in options.graphs.split(","):
            store = Path(folder) / graph
            command = [sys.executable, "-m", "bulksample", "data", "import", "npz", str(options.data / f"{graph}.npz"), "-o", str(store)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for text in options.rows.split(","):
                name, _, ranks = text.partition("@")
                if any((one["graph"], one["sampler"], one["ranks"]) == (graph, name, int(ranks or 1)) for one in kept):
                    continue
                kept.append(row(store, graph, name, int(ranks or 1), seeds))
                if options.json:
                    options.json.write_text(json.dumps({"machine": machine(), "seeds": seeds, "rows": kept}, indent=2) + "\n")


if __name__ == "__main__":
    main()
