"""The graphs of the checks and of the benchmark: one like ogbn-products, and an R-MAT graph with large hubs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bulksample import CSR, Selection, backends
from bulksample.data.generate import rmat

from .place import here

FANOUTS = (15, 10, 5)
LADIES = ((512, 512, 512), (12, 12, 12))  # vertices of a layer; in a rehearsal


class Sizes(NamedTuple):
    """Sizes of the graphs and of the models; `TINY` is for a rehearsal."""

    vertices: int = 2_449_029
    entries: int = 123_718_280
    batch: int = 1024
    features: int = 100
    hidden: int = 256
    minibatches: int = 192  # of an epoch of training
    skewed: tuple[int, int] = (20, 15_000_000)  # scale and edges of an R-MAT graph
    shared_scale: int = 14  # of the graph that ranks share
    papers: float = 0.25  # millions, of the graph of relations: 7 M edges


TINY = Sizes(500, 8000, 16, 12, 16, 5, (8, 1500), 9, 0.0004)


def sizes() -> Sizes:
    return TINY if here().small else Sizes()


@cache
def graphs() -> tuple[CSR, CSR]:
    """Load or make the graph like ogbn-products and the R-MAT graph; the folder that the variable GRAPHS names keeps them."""
    return products(), skewed()


def products() -> CSR:
    own = sizes()
    return _kept("like_products", lambda: like_products(own.vertices, own.entries))


def skewed() -> CSR:
    scale, edges = sizes().skewed
    return _kept("rmat", lambda: rmat(scale, edges=edges, seed=1, backend=backends.make()).adjacency)


def seeds_of(matrix: CSR, minibatches: int, batch: int) -> Selection:
    """Select seeds for at most so many mini-batches among the vertices that have neighbors."""
    candidates = np.flatnonzero(matrix.degrees > 0)
    order = candidates[np.random.default_rng(0).permutation(len(candidates))]
    parts = [order[j * batch : (j + 1) * batch] for j in range(minibatches)]
    return Selection.of([part for part in parts if len(part)], matrix.shape[0])


def like_products(n: int, entries: int, seed: int = 1) -> CSR:
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


def main() -> None:
    """Make the graphs that are named, and keep them."""
    for name in sys.argv[1:]:
        {"products": products, "skewed": skewed}[name]()


def _kept(name: str, make: Callable[[], CSR]) -> CSR:
    folder = os.environ.get("GRAPHS")
    if not folder or here().small:
        return make()
    file = Path(folder) / f"{name}.npz"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        matrix = make()
        np.savez(file.with_suffix(".part.npz"), indptr=matrix.indptr, indices=matrix.indices)
        file.with_suffix(".part.npz").replace(file)
    with np.load(file) as parts:
        n = len(parts["indptr"]) - 1
        return CSR(parts["indptr"], parts["indices"], None, (n, n))


if __name__ == "__main__":
    main()
