"""Generate the graphs of the benchmarks once and keep them as ``.npy`` files that every contestant maps."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from bulksample import CSR
from bulksample.data.dcsbm import PRESETS, dcsbm
from bulksample.data.rmat import rmat

CACHE = Path(os.environ.get("BULKSAMPLE_BENCH_CACHE", "build/bench"))
GRAPHS: dict[str, Callable[[], CSR]] = {
    "rmat18": lambda: rmat(18, 16, seed=1).adjacency,
    "rmat20": lambda: rmat(20, edges=16_000_000, seed=1).adjacency,
    "like-products": lambda: like_products(),
    "products": lambda: dcsbm(2_449_029, 73, replace(PRESETS["products"], features=0), seed=1).adjacency,
}

SERIES: dict[str, Callable[[], CSR]] = {  # for bench_growth.py: more edges at similar mean degree, and more skew at similar edges
    "rmat15": lambda: rmat(15, edges=590_000, seed=1).adjacency,
    "rmat18-10m": lambda: rmat(18, edges=5_600_000, seed=1).adjacency,
    "rmat22": lambda: rmat(22, edges=53_000_000, seed=1).adjacency,
    "rmat20-uniform": lambda: rmat(20, edges=15_000_000, a=0.25, b=0.25, c=0.25, seed=1).adjacency,
    "rmat20-a45": lambda: rmat(20, edges=15_300_000, a=0.45, b=0.22, c=0.22, seed=1).adjacency,
    "rmat20-a65": lambda: rmat(20, edges=17_000_000, a=0.65, b=0.15, c=0.15, seed=1).adjacency,
}


STEPS: dict[str, Callable[[], CSR]] = {  # for bench_step.py: like ogbn-products with fewer vertices, and like Reddit
    "products-500k": lambda: dcsbm(500_000, 73, replace(PRESETS["products"], features=0), seed=1).adjacency,
    "reddit": lambda: dcsbm(232_965, 680, replace(PRESETS["reddit"], features=0), seed=1).adjacency,
}


def like_products(n: int = 2_449_029, entries: int = 123_718_280, seed: int = 1) -> CSR:
    """Make a directed graph of the size of ogbn-products, with skewed degrees and skewed columns."""
    rng = np.random.default_rng(seed)
    degrees = np.minimum(rng.lognormal(0, 1.1, n), 300)
    degrees = np.maximum(degrees * (entries / degrees.sum()), 1).astype(np.int64)
    keys = np.repeat(np.arange(n), degrees)
    keys *= n
    keys += (n * rng.random(len(keys)) ** 1.5).astype(np.int64)
    keys.sort()
    keys = keys[np.concatenate([[True], np.diff(keys) > 0])]
    rows, columns = np.divmod(keys, n)
    return CSR(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]), columns.astype(np.int32), None, (n, n))


def folder(name: str) -> Path:
    """Return the folder with ``indptr.npy`` and ``indices.npy`` of a graph; generate them if they are missing."""
    path = CACHE / name
    if not (path / "indices.npy").exists():
        path.mkdir(parents=True, exist_ok=True)
        matrix = (GRAPHS | SERIES | STEPS)[name]()
        np.save(path / "indptr.npy", matrix.indptr)
        np.save(path / "indices.npy.part", matrix.indices)
        (path / "indices.npy.part.npy").rename(path / "indices.npy")
    return path


def load(name: str) -> CSR:
    """Map the adjacency: int64 row pointers, int32 columns, ones."""
    path = folder(name)
    indptr, indices = np.load(path / "indptr.npy", mmap_mode="r"), np.load(path / "indices.npy", mmap_mode="r")
    return CSR(indptr, indices, None, (len(indptr) - 1, len(indptr) - 1))


def seeds(matrix: CSR, minibatches: int, batch_size: int) -> list[np.ndarray]:
    """Return distinct vertices with neighbors, in random order, cut into mini-batches."""
    candidates = np.flatnonzero(matrix.degrees > 0)
    order = candidates[np.random.default_rng(0).permutation(len(candidates))]
    return [order[start : start + batch_size] for start in range(0, minibatches * batch_size, batch_size)]
