"""Operations to run while memory runs out or sanitizers watch: each takes a back end, and returns a digest of its results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from threading import Thread

import numpy as np
from battery import SETTINGS, make
from bulks import bulk_of_seeds
from zoo import ZOO, random_matrix

from bulksample import CSR, LocalAdjacency, Selection, Stream
from bulksample.backends.base import Backend
from bulksample.backends.quantiser import Noise
from bulksample.loading.loader import BulkLoader
from bulksample.rng import Draw, Law

Operation = Callable[[Backend], str]
GRAPH, LARGE = ZOO["weighted"], random_matrix(3000, 60_000, 5, weighted=True)


def _digest(*arrays: np.ndarray | None) -> str:
    return hashlib.sha256(b"".join(b"-" if array is None else np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


class Primitives:
    """The primitives of a back end on one graph.

    Parameters
    ----------
    graph : CSR, with weights
    rows : int
        Rows that are read, gathered and drawn from; a back end hands them to threads in blocks of up to 4,096.
    """

    def __init__(self, graph: CSR, rows: int) -> None:
        self.graph, self.n = graph, graph.shape[0]
        self.rows = np.random.default_rng(1).integers(0, self.n, rows).astype(np.int32)
        self.x = np.random.default_rng(2).standard_normal((self.n, 33)).astype(np.float32)
        self.some = Selection.of([np.arange(j, self.n, 9) for j in range(4)], self.n)
        self.frontier = Selection.of(np.array_split(self.rows, 4), self.n)

    def spgemm(self, backend: Backend) -> str:
        signs = CSR(self.graph.indptr, self.graph.indices, np.arange(self.graph.nnz) % 3 - 1, self.graph.shape)  # some sums are zero
        products = backend.spgemm(signs, signs), backend.spgemm(backend.extract_rows(signs, self.rows), self.graph.with_values(None))
        return _digest(*(array for c in products for array in (c.indptr, c.indices, c.values)))

    def gather(self, backend: Backend) -> str:
        out = np.full((2, len(self.rows), self.x.shape[1]), np.nan, np.float32)
        backend.gather(self.x, self.rows, None, out[0])
        backend.gather(self.x.astype(np.float16), self.rows, self.x[:, 0].copy(), out[1])
        return _digest(out)

    def aggregate(self, backend: Backend) -> str:
        matrix = self.graph.indptr, self.graph.indices
        turned = backend.transpose(*matrix, np.arange(self.graph.nnz, dtype=np.float32), self.n)
        return _digest(backend.spmm(*matrix, None, self.x), *turned)

    def matrices(self, backend: Backend) -> str:
        rows, kept = backend.extract_rows(self.graph, self.rows), backend.restrict(self.graph, self.some, self.some)
        places = backend.locate(self.graph, self.rows, rows.indptr, rows.indices)
        known, local = backend.relabel(self.some, np.linspace(0, rows.nnz, 5).astype(np.int64), rows.indices)
        return _digest(rows.indptr, rows.indices, rows.values, *kept, places, known.pointers, known.vertices, local)

    def draws(self, backend: Backend) -> str:
        picks = [backend.sample_rows(self.graph, self.frontier, s, Draw(law, 7, 1)) for law in Law for s in (3, 300)]
        columns, weights = np.arange(self.n, dtype=np.int32), np.arange(self.n) % 97.0
        layer = backend.smallest_keys(np.array([0, self.n]), columns, weights, 9, self.some.minibatches, Draw(Law.LABOR, 7, 1))
        words = backend.random_words(1, 2, 3, 10 * len(self.rows))
        arrays = [array for pick in picks for array in (pick.pointers, pick.columns)]
        return _digest(*arrays, layer.pointers, layer.columns, layer.inclusion.astype(np.float32), words)

    def codes(self, backend: Backend) -> str:
        names, noise = np.arange(self.n, dtype=np.int32), Noise(3, 4, 5)
        return _digest(*(backend.dequantise(backend.quantise(self.x, bits, names, noise), self.x.shape[1], bits) for bits in (2, 4, 8)))


def sampled(setting: str, graph: CSR = GRAPH, seeds: Selection | None = None, fanouts: tuple[int, ...] = (4, 3, 2)) -> Operation:
    """Return an operation that samples one bulk."""
    adjacency = cache(lambda backend: LocalAdjacency(graph, backend))  # keeps what a sampler computes of a graph once
    seeds = seeds or bulk_of_seeds(graph.shape[0], 4)

    def sample(backend: Backend) -> str:
        return " ".join(m.digest() for m in make(setting, fanouts).sample_bulk(adjacency(backend), seeds, Stream(1)))

    return sample


def crew(backend: Backend) -> str:
    """Sample one mini-batch of so many rows that every thread of a crew draws some."""
    graph = random_matrix(20_000, 400_000, 5)
    return sampled("sage", graph, Selection.of([np.arange(6000)], 20_000), (15, 10))(backend)


def _first_bulk(backend: Backend) -> str:
    return sampled("fastgcn", ZOO["complete"])(backend)


def loaded(backend: Backend, graph: CSR = GRAPH, batch_size: int = 25) -> str:
    """Take one epoch of a loader, which samples ahead on a thread, and smaller bulks where memory runs out."""
    loader = BulkLoader(LocalAdjacency(graph, backend), make("sage"), np.arange(graph.shape[0]), batch_size=batch_size, bulk_size=4, seed=1)
    return " ".join(m.digest() for m in loader if m is not None)


def on_python_threads(operations: dict[str, Operation]) -> Operation:
    """Return an operation that runs several at once, each on a thread of Python, as ranks on threads do."""

    def run(backend: Backend) -> str:
        found: dict[str, str] = {}
        threads = [Thread(target=lambda name=name: found.update({name: operations[name](backend)})) for name in operations]  # type: ignore[misc]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return " ".join(found.get(name, "failed") for name in operations)

    return run


ONE_LARGE = sampled("sage", LARGE, Selection.of([np.arange(1500)], 3000), (15, 10))  # a crew of threads shares it
TWO_LARGE = sampled("ladies", LARGE, Selection.of([np.arange(j, 3000, 6) for j in range(2)], 3000), (900, 900))
_SMALL, _MANY = Primitives(GRAPH, 40), Primitives(LARGE, 10_000)

OPERATIONS: dict[str, dict[str, Operation]] = {
    "samplers": {
        **{setting: sampled(setting) for setting in SETTINGS},
        "fastgcn, first bulk": _first_bulk, "sage, one large mini-batch": ONE_LARGE, "ladies, large": TWO_LARGE,
    },
    "SpGEMM": {"spgemm": _SMALL.spgemm},
    "gather": {"gather": _SMALL.gather},
    "other primitives": {"aggregate": _SMALL.aggregate, "matrices": _SMALL.matrices, "draws": _SMALL.draws, "codes": _SMALL.codes},
    "loader": {"one epoch": loaded},
}  # fmt: skip

_WORK: dict[str, Operation] = {name: getattr(_MANY, name) for name in ("spgemm", "gather", "aggregate", "matrices", "draws", "codes")}
PARALLEL: dict[str, Operation] = {
    **_WORK,
    "crew": crew,
    "layers": TWO_LARGE,
    "samplers": lambda backend: " ".join(sampled(setting, LARGE, bulk_of_seeds(3000, 12))(backend) for setting in SETTINGS),
    "loader": lambda backend: loaded(backend, LARGE, 60),
    "at once": on_python_threads({**_WORK, "crew": ONE_LARGE, "layers": TWO_LARGE, "loader": loaded}),
}  # all with work for several threads
