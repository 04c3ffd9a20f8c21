"""What runs while memory runs out: each operation takes a back end, and returns a digest of its results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

import numpy as np
from battery import SETTINGS, make
from bulks import bulk_of_seeds
from zoo import ZOO, random_matrix

from bulksample import CSR, LocalAdjacency, Selection, Stream
from bulksample.backends.base import Backend, Noise
from bulksample.loader import BulkLoader
from bulksample.rng import Draw, Law

Operation = Callable[[Backend], str]
GRAPH, N = ZOO["weighted"], ZOO["weighted"].shape[0]
LARGE = random_matrix(3000, 60_000, 5)
SEEDS = bulk_of_seeds(N, 4)
ROWS = np.random.default_rng(1).integers(0, N, 40).astype(np.int32)
X = np.random.default_rng(2).standard_normal((N, 33)).astype(np.float32)
SOME = Selection.of([np.arange(j, N, 9) for j in range(4)], N)


def _digest(*arrays: np.ndarray | None) -> str:
    return hashlib.sha256(b"".join(b"-" if array is None else np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def _sampled(setting: str, graph: CSR = GRAPH, seeds: Selection = SEEDS, fanouts: tuple[int, ...] = (4, 3, 2)) -> Operation:
    adjacency = cache(lambda backend: LocalAdjacency(graph, backend))  # keeps what a sampler computes of a graph once

    def sample(backend: Backend) -> str:
        return " ".join(m.digest() for m in make(setting, fanouts).sample_bulk(adjacency(backend), seeds, Stream(1)))

    return sample


def _first_bulk(backend: Backend) -> str:
    return _sampled("fastgcn", ZOO["complete"], bulk_of_seeds(24, 4))(backend)


def _spgemm(backend: Backend) -> str:
    signs = CSR(GRAPH.indptr, GRAPH.indices, np.arange(GRAPH.nnz) % 3 - 1, GRAPH.shape)  # some sums are zero, and leave gaps to close
    products = backend.spgemm(signs, signs), backend.spgemm(backend.extract_rows(signs, ROWS), GRAPH.with_values(None))
    return _digest(*(array for c in products for array in (c.indptr, c.indices, c.values)))


def _gather(backend: Backend) -> str:
    out = np.full((len(ROWS), X.shape[1]), np.nan, np.float32), np.full((len(ROWS), X.shape[1]), np.nan, np.float32)
    backend.gather(X, ROWS, None, out[0])
    backend.gather(X.astype(np.float16), ROWS, X[:, 0].copy(), out[1])
    return _digest(*out)


def _aggregate(backend: Backend) -> str:
    turned = backend.transpose(GRAPH.indptr, GRAPH.indices, np.arange(GRAPH.nnz, dtype=np.float32), N)
    return _digest(backend.spmm(GRAPH.indptr, GRAPH.indices, None, X), *turned)


def _matrices(backend: Backend) -> str:
    rows, kept = backend.extract_rows(GRAPH, ROWS), backend.restrict(GRAPH, SOME, SOME)
    places = backend.locate(GRAPH, ROWS, rows.indptr, rows.indices)
    known, local = backend.relabel(SOME, np.linspace(0, rows.nnz, 5).astype(np.int64), rows.indices)
    return _digest(rows.indptr, rows.indices, rows.values, *kept, places, known.pointers, known.vertices, local)


def _draws(backend: Backend) -> str:
    picks = [backend.sample_rows(GRAPH, SOME, s, Draw(law, 7, 1)) for law in Law for s in (3, 300)]
    columns, weights = np.arange(N, dtype=np.int32), np.arange(N) % 97.0
    layer = backend.smallest_keys(np.array([0, N]), columns, weights, 9, SOME.minibatches, Draw(Law.LABOR, 7, 1))
    arrays = [array for pick in picks for array in (pick.pointers, pick.columns)]
    return _digest(*arrays, layer.pointers, layer.columns, layer.inclusion.astype(np.float32), backend.random_words(1, 2, 3, 100))


def _codes(backend: Backend) -> str:
    names, noise = np.arange(N, dtype=np.int32), Noise(3, 4, 5)
    return _digest(*(backend.dequantise(backend.quantise(X, bits, names, noise), X.shape[1], bits) for bits in (2, 4, 8)))


def _loaded(backend: Backend) -> str:
    """Take one epoch of a loader, which samples smaller bulks where memory runs out."""
    loader = BulkLoader(LocalAdjacency(GRAPH, backend), make("sage"), np.arange(N), batch_size=25, bulk_size=4, seed=1)
    return " ".join(m.digest() for m in loader if m is not None)


OPERATIONS: dict[str, dict[str, Operation]] = {
    "samplers": {
        **{setting: _sampled(setting) for setting in SETTINGS},
        "fastgcn, first bulk": _first_bulk,
        "sage, one large mini-batch": _sampled("sage", LARGE, Selection.of([np.arange(1500)], 3000), (15, 10)),
        "ladies, large": _sampled("ladies", LARGE, Selection.of([np.arange(j, 3000, 6) for j in range(2)], 3000), (900, 900)),
    },
    "SpGEMM": {"spgemm": _spgemm},
    "gather": {"gather": _gather},
    "other primitives": {"aggregate": _aggregate, "matrices": _matrices, "draws": _draws, "codes": _codes},
    "loader": {"one epoch": _loaded},
}  # fmt: skip
