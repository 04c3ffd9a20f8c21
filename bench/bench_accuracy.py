"""Measure test accuracy on real graphs: full batch, sampled mini-batches, and the same model trained by torch_geometric.

FOLDER has the .npz files. Every run is a process of its own: `bulksample train`, under mpirun for several ranks (`sage@4`), or
`pyg_accuracy.py`. Each rank takes one mini-batch per step, so 4 ranks take a quarter of the steps, with batches four times as large.
`--width 128` replaces wider features by their 128 largest singular directions before anything is trained, for every row alike:
torch_geometric's model takes dense features. FILE is written after every run; a second call adds the seeds that a row lacks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from harness import RUNNER, Data, Names, Numbers, some_of, spread
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds

from bulksample.errors import UsageError

SETTINGS = {
    "amazon-computers": "--hidden 128 --lr 0.01 --feature-norm l2 --fanouts 15,10 --batch-size 128 --epochs 25",
    "dblp": "--hidden 128 --lr 0.01 --weight-decay 1e-4 --feature-norm l2 --fanouts 10,10 --batch-size 512 --epochs 15",
    "facebook-pagepage": "--hidden 128 --lr 0.01 --weight-decay 5e-5 --feature-norm l2 --fanouts 10,10 --batch-size 512 --epochs 15",
    "flickr-lane": "--hidden 128 --lr 0.01 --weight-decay 5e-5 --feature-norm l2 --fanouts 25,10 --batch-size 256 --epochs 15",
    "minesweeper": "--hidden 64 --lr 0.01 --dropout 0.2 --fanouts 10,10 --batch-size 256 --epochs 100 --metric rocauc --eval-every 2",
    "blogcatalog": "--hidden 128 --lr 0.01 --weight-decay 5e-5 --feature-norm l2 --fanouts 25,10 --batch-size 256 --epochs 15",
    "cora": "--hidden 64 --lr 0.01 --weight-decay 5e-4 --feature-norm l2 --fanouts 10,10 --batch-size 64 --epochs 50",
    "confpapers": "--label y_area --hidden 64 --lr 0.01 --dropout 0.3 --feature-norm l2 --fanouts 15,10 --batch-size 1024 --epochs 6",
}
DEFAULT_ROWS = ("full", "sage", "sage@4", "ladies", "fastgcn", "labor")
SIX = [graph for graph in SETTINGS if graph not in ("blogcatalog", "cora")]
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


def reduced(source: Path, width: int, target: Path) -> Path:
    """Write the graph with its sparse features, rows of length 1, replaced by U S of their SVD of rank `width`; return the file.

    Narrower features and dense ones stay, and so does the source.
    """
    with np.load(source, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if "x_shape" not in arrays or arrays["x_shape"][1] <= width:
        return source
    x = csr_matrix((arrays.pop("x_data"), arrays.pop("x_indices"), arrays.pop("x_indptr")), shape=tuple(arrays.pop("x_shape")), dtype=float)
    length = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)))
    u, s, _ = svds(csr_matrix(x.multiply(1 / np.maximum(length, 1e-12))), k=width, random_state=0)
    np.savez(target, **arrays, x=(u * s).astype(np.float32))
    return target


def train(store: Path, arguments: list[str], ranks: int, seed: int, torch_geometric: bool) -> dict[str, Any]:
    """Return the report of one run."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        launcher = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks)] if ranks > 1 else []
        program = [RUNNER, "pyg-accuracy"] if torch_geometric else ["-m", "bulksample", "train", "--quiet"]
        command = [*launcher, sys.executable, *program, str(store), *arguments, "--seed", str(seed), "--json", str(result)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report: dict[str, Any] = json.loads(result.read_text())
        return report


def empty_row(graph: str, name: str, ranks: int, width: int | None) -> dict[str, Any]:
    """Return a row without runs."""
    program = "pyg_accuracy.py" if name.startswith("pyg-") else "bulksample train"
    command = " ".join([program, graph, *SETTINGS[graph].split(), *ROWS[name].split()])
    return {"graph": graph, "sampler": name, "ranks": ranks, "width": width, "seeds": [], "scores": [], "runs": [], "command": command}


def add(row: dict[str, Any], seed: int, report: dict[str, Any]) -> None:
    """Add the run of one seed to a row: its score in percent, its steps and seconds."""
    row["metric"] = report["metric"]
    row["seeds"].append(seed)
    row["scores"].append(100 * report[f"test_{report['metric']}"])
    row["runs"].append({"seed": seed, "steps": report["steps"], "seconds_per_epoch": report["seconds_per_epoch"]})
    row |= spread(row["scores"])
    print(f"{row['graph']:18} {row['sampler']:10} ranks {row['ranks']}: {row['mean']:.1f} ± {row['std']:.1f}", row["seeds"], flush=True)


def found_row(kept: list[dict[str, Any]], fresh: dict[str, Any]) -> dict[str, Any]:
    """Return the kept row of the same graph, sampler, ranks and width, or the fresh one after adding it to the kept."""
    keys = ("graph", "sampler", "ranks", "width")
    found = next((row for row in kept if all(row.get(key) == fresh[key] for key in keys)), None)
    if found is None:
        kept.append(fresh)
        return fresh
    if found["command"] != fresh["command"]:
        raise UsageError(f"FILE has this row by other options; name another FILE: {found['command']}")
    return found


def accuracy(
    data: Data, graphs: some_of(*SETTINGS) = SIX, rows: Annotated[Names, "rows; sage@4: on four ranks"] = DEFAULT_ROWS,
    seeds: Numbers = (0, 1, 2), width: Annotated[int | None, "most features of a vertex; wider ones are reduced"] = None,
    kept: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    found: list[dict[str, Any]] = (kept or {}).get("rows", [])
    with tempfile.TemporaryDirectory() as folder:
        for graph in graphs:
            source, store = data / f"{graph}.npz", Path(folder) / graph
            file = reduced(source, width, Path(folder) / f"{graph}.npz") if width else source
            command = [sys.executable, "-m", "bulksample", "data", "import", "npz", str(file), "-o", str(store)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for text, seed in product(rows, seeds):
                name, _, ranks = text.partition("@")
                row = found_row(found, empty_row(graph, name, int(ranks or 1), None if file == source else width))
                if seed not in row["seeds"]:
                    arguments = [*SETTINGS[graph].split(), *ROWS[name].split()]
                    add(row, seed, train(store, arguments, int(ranks or 1), seed, name.startswith("pyg-")))
                yield {"rows": found}
