"""Whole files for each importer: what it reads, and the command that imports it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from ogb_layouts import gz
from samples import as_arrays

from .child import command, in_child
from .small_graphs import graph, stored_digest
from .verdict import DEADLINE

N, EDGES = 40, 60
BANNER = b"%%MatrixMarket matrix coordinate real general"
_FOLDER = TemporaryDirectory(prefix="bulksample-sweep-")


def edge_list() -> bytes:
    """Return lines `u v weight`, which name every vertex."""
    rng = np.random.default_rng(1)
    pairs = np.stack([np.arange(EDGES) % N, rng.integers(0, N, EDGES)], axis=1)
    return b"".join(b"%d\t%d\t%.2f\n" % (u, v, w) for (u, v), w in zip(pairs, rng.random(EDGES) + 0.25, strict=True))


def matrix_market() -> bytes:
    lines = [[int(word) + 1 if place < 2 else float(word) for place, word in enumerate(line.split())] for line in edge_list().splitlines()]
    return b"\n".join([BANNER, b"%d %d %d" % (N, N, EDGES), *(b"%d %d %.2f" % tuple(line) for line in lines)]) + b"\n"


def write_columns(folder: Path) -> None:
    """Write an edge list, and its features, labels and splits beside it."""
    made = graph("dense", N)
    (folder / "edges.txt").write_bytes(edge_list())
    np.save(folder / "features.npy", made.features)
    np.save(folder / "labels.npy", made.labels)
    np.savez(folder / "split.npz", **made.masks)


def write_ogb(folder: Path) -> None:
    """Write a data set as OGB lays out ogbn-arxiv."""
    made = graph("dense", N)
    ids = {"train": made.masks["train"], "valid": made.masks["val"], "test": made.masks["test"]}
    tables = {f"split/time/{name}": np.flatnonzero(mask) for name, mask in ids.items()}
    rows = np.repeat(np.arange(N), np.diff(made.adjacency.indptr))
    tables |= {"raw/edge": np.stack([rows, made.adjacency.indices], axis=1), "raw/node-feat": made.features}
    tables |= {"raw/num-node-list": np.array([N]), "raw/num-edge-list": np.array([len(rows)]), "raw/node-label": np.maximum(made.labels, 0)}
    for name, table in tables.items():
        gz(folder / "ogbn_arxiv" / f"{name}.csv.gz", table)


def scipy_arrays() -> dict[str, np.ndarray]:
    """Return the arrays that `scipy.sparse.save_npz` writes for the adjacency of a graph with weights."""
    matrix = graph("weighted", N).adjacency
    data = matrix.values / matrix.values.max()
    return {"format": np.array(b"csr"), "shape": np.array([N, N]), "data": data, "indices": matrix.indices, "indptr": matrix.indptr}


def benchmark_arrays() -> dict[str, np.ndarray]:
    """Return the arrays of a file of the GNN benchmark."""
    made = graph("sparse", N)
    matrix, x = made.adjacency, made.features
    return {
        "adj_data": np.ones(matrix.nnz), "adj_indices": matrix.indices, "adj_indptr": matrix.indptr, "adj_shape": np.array([N, N]),
        "attr_data": x.values, "attr_indices": x.indices, "attr_indptr": x.indptr, "attr_shape": np.array(x.shape), "labels": made.labels,
    }  # fmt: skip


def listed_arrays() -> dict[str, np.ndarray]:
    """Return the arrays of a graph as torch_geometric names them, with edges that are not in order."""
    made = graph("dense", N)
    order = np.random.default_rng(2).permutation(made.adjacency.nnz)
    ends = np.stack([made.adjacency.indices, made.adjacency.row_of_entry()])[:, order]
    return {"edge_index": ends, "edge_weight": 1.0 + order % 3, "x": made.features, "y": made.labels, "train_mask": made.masks["train"]}


def _write_npz(arrays: Callable[[], dict[str, np.ndarray]], folder: Path) -> None:
    np.savez(folder / "graph.npz", **arrays())


FORMS = {"npz scipy": scipy_arrays, "npz benchmark": benchmark_arrays, "npz edges": listed_arrays}
WRITERS = {
    "edgelist": lambda folder: (folder / "edges.txt").write_bytes(edge_list()),
    "edgelist.gz": lambda folder: (folder / "edges.txt.gz").write_bytes(gzip.compress(edge_list(), mtime=0)),
    "columns": write_columns,
    "mtx": lambda folder: (folder / "matrix.mtx").write_bytes(matrix_market()),
    "npz": lambda folder: np.savez(folder / "graph.npz", **as_arrays(graph("dense", N))),
    "npz compressed": lambda folder: np.savez_compressed(folder / "graph.npz", **as_arrays(graph("sparse", N))),
    "ogb": write_ogb,
    "edgelist.bz2": lambda folder: (folder / "edges.txt.bz2").write_bytes(bz2.compress(edge_list())),
    "edgelist.xz": lambda folder: (folder / "edges.txt.xz").write_bytes(lzma.compress(edge_list())),
    **{kind: partial(_write_npz, arrays) for kind, arrays in FORMS.items()},
}
COLUMNS = ("--vertices", N, "--features", "features.npy", "--labels", "labels.npy", "--split", "split.npz")
COMMANDS = {
    "edgelist": ("edgelist", "edges.txt"), "edgelist.gz": ("edgelist", "edges.txt.gz"), "columns": ("edgelist", "edges.txt", *COLUMNS),
    "mtx": ("mtx", "matrix.mtx"), "npz": ("npz", "graph.npz"), "npz compressed": ("npz", "graph.npz"), "ogb": ("ogb", "ogbn_arxiv"),
    "edgelist.bz2": ("edgelist", "edges.txt.bz2"), "edgelist.xz": ("edgelist", "edges.txt.xz"),
    **dict.fromkeys(FORMS, ("npz", "graph.npz")),
}  # fmt: skip


def import_in(folder: Path, kind: str) -> dict[str, object]:
    """Import the input in a folder; return exit code, messages and, after a success, the digest of the store. For a child."""
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    ended = command("data", "import", *COMMANDS[kind], "-o", "store", "--name", "x")
    return {"code": ended.code, "err": ended.err, "digest": stored_digest(folder / "store") if ended.code == 0 else ""}


@cache
def whole(kind: str) -> tuple[Path, str]:
    """Return a folder with the whole input, and the digest of what it is imported to."""
    folder = Path(_FOLDER.name) / kind
    folder.mkdir()
    WRITERS[kind](folder)
    with TemporaryDirectory(prefix="bulksample-sweep-") as place:
        WRITERS[kind](Path(place))
        found = in_child(lambda: import_in(Path(place), kind), DEADLINE)
    if found.get("code") != 0:
        raise RuntimeError(f"the whole input is not imported: {found}")
    return folder, found["digest"]
