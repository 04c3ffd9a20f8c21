"""The CPU back end in C++: csrc/ through pybind11, the GIL released, one block of rows or one mini-batch per thread.

Results do not depend on the number of threads.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..graph.selection import Selection
from ..rng import Draw, Law
from ..sparse import CSR
from .base import Backend, Picks, Restriction
from .dropout import PARTS, Mask
from .hops import Expansion, Hop
from .layer_draws import LayerPicks, LayerRace, LayerWeights, SharedDraws
from .quantiser import Noise, refuse_row
from .relational import HeteroExpansion, RelationLaw, RelationMatrix, RowPicks, Trees, TreeVertices
from .sources import kernel_directory, native_digest

_NO_MASK = (0, 0, None, None, PARTS)
_STORED = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.uint16): 2}  # enum Stored of csrc/native_aggregation.cpp


@cache
def unavailable_because() -> str | None:
    """Say why the extension cannot be used here; None if it can."""
    try:
        extension = importlib.import_module("bulksample._native")
    except ImportError as error:
        note = Path(__file__).parents[1] / "native_missing.txt"
        return (
            note.read_text(encoding="utf-8").strip() if note.exists() else f"the extension bulksample._native cannot be imported ({error})"
        )
    return _stale(getattr(extension, "sources", ""))


def _stale(built_from: str) -> str | None:
    """Say that the extension was compiled from other sources than those of this checkout; None if not, or if it does not know its sources.

    An installed package brings no sources of the extension, so it cannot be stale.
    """
    directory = kernel_directory()
    if not built_from or not (directory / "native.cpp").is_file() or built_from == native_digest(directory):
        return None
    return f"the extension bulksample._native was compiled from other sources than those in {directory}; rebuild: pip install -e ."


def processor_ids() -> list[int]:
    """Return the ids of the processors that this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def processors() -> int:
    """Count the processors that this process may run on."""
    return len(processor_ids())


def _arrays(a: CSR) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    return a.indptr, a.indices, a.values


def _law(a: CSR, fanout: int, draw: Draw) -> int:
    """Return the law as kernels take it. Those that read weights take all by a look at each, which a matrix without zeros spares them."""
    return int(Law.UNIFORM if fanout < 0 and not (draw.law.weighs and a.stores_zeros) else draw.law)


class Native(Backend):
    """The primitives of `Backend` in C++17 and OpenMP; by default on ``OMP_NUM_THREADS`` threads, or one for each own processor."""

    name = "native"

    def __init__(self, threads: int | None = None) -> None:
        if threads is None:
            threads = int(os.environ.get("OMP_NUM_THREADS", "0").split(",")[0] or 0) or processors()
        if threads < 1:
            raise UsageError(f"threads must be positive; got {threads}")
        self.threads = threads
        self._kernels: Any = importlib.import_module("bulksample._native")

    def __reduce__(self) -> tuple[Any, ...]:
        return Native, (self.threads,)

    def random_words(self, seed: int, tag: int, first: int, count: int, vertex: int = 0, minibatch: int = 0) -> np.ndarray:
        made: np.ndarray = self._kernels.random_words(seed, tag, first, count, vertex, minibatch, self.threads)
        return made

    def spgemm(self, a: CSR, b: CSR) -> CSR:
        self.check_product(a, b)
        parts = self._kernels.spgemm(*_arrays(a), *_arrays(b), b.shape[1], self.threads)
        return CSR(parts[0], parts[1], parts[2], (a.shape[0], b.shape[1]))

    def extract_rows(self, a: CSR, rows: np.ndarray) -> CSR:
        parts = self._kernels.extract_rows(*_arrays(a), rows, self.threads)
        return CSR(parts[0], parts[1], parts[2], (len(rows), a.shape[1]))

    def sample_rows(self, a: CSR, q: Selection, fanout: int, draw: Draw) -> Picks:
        rows, law = (q.vertices, q.names, q.pointers, q.minibatches), (_law(a, fanout, draw), draw.seed, draw.tag)
        return Picks(*self._kernels.sample_rows(*_arrays(a), *rows, fanout, *law, self.threads))

    def quantise(self, rows: np.ndarray, bits: int, names: np.ndarray, noise: Noise | None = None, wide: bool = False) -> np.ndarray:
        seed, tag, receiver = noise or (0, 0, 0)
        records: np.ndarray
        records, refused = self._kernels.quantise(rows, bits, wide, names, noise is None, seed, tag, receiver, self.threads)
        if refused >= 0:
            raise refuse_row(rows, int(names[refused]), refused)
        return records

    def dequantise(self, records: np.ndarray, width: int, bits: int, wide: bool = False) -> np.ndarray:
        made: np.ndarray = self._kernels.dequantise(records, width, bits, wide, self.threads)
        return made

    def gather(self, x: np.ndarray, rows: np.ndarray, scale: np.ndarray | None, out: np.ndarray) -> None:
        stored = x if x.dtype == np.float32 else x.view(np.uint16)
        self._kernels.gather(stored, _STORED[x.dtype], rows, scale, out, self.threads)

    def spmm(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, x: np.ndarray, scale: np.ndarray | None = None,
        mean: bool = False, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        stored = x if x.dtype == np.float32 else x.view(np.uint16)
        made: np.ndarray = self._kernels.spmm(indptr, indices, weights, stored, _STORED[x.dtype], scale, mean, out, self.threads)
        return made

    def epilogue(self, z: np.ndarray, bias: np.ndarray | None, relu: bool, mask: Mask | None, out: np.ndarray) -> None:
        self._kernels.epilogue(z, bias, relu, *(mask or _NO_MASK), out, self.threads)

    def epilogue_gradient(
        self, grad: np.ndarray, y: np.ndarray | None, mask: Mask | None, bias: bool, out: np.ndarray
    ) -> np.ndarray | None:
        total = np.empty(grad.shape[1], np.float32) if bias else None
        self._kernels.epilogue_gradient(grad, y, *(mask or _NO_MASK), out, total, self.threads)
        return total

    def drop_entries(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, mask: Mask) -> np.ndarray:
        made: np.ndarray = self._kernels.drop_entries(indptr, indices, values, *mask, self.threads)
        return made

    def transpose(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, columns: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        made: tuple[np.ndarray, np.ndarray, np.ndarray | None] = self._kernels.transpose(indptr, indices, weights, columns)
        return made

    def smallest_keys(
        self, pointers: np.ndarray, columns: np.ndarray, weights: np.ndarray, fanout: int, minibatches: np.ndarray, draw: Draw
    ) -> LayerPicks:
        return LayerPicks(*self._kernels.smallest_keys(pointers, columns, weights, fanout, minibatches, draw.seed, draw.tag, self.threads))

    def restrict(self, a: CSR, rows: Selection, columns: Selection) -> Restriction:
        return Restriction(
            *self._kernels.restrict(a.indptr, a.indices, rows.pointers, rows.vertices, columns.pointers, columns.vertices, self.threads)
        )

    def locate(self, a: CSR, rows: np.ndarray, pointers: np.ndarray, columns: np.ndarray) -> np.ndarray:
        made: np.ndarray = self._kernels.locate(a.indptr, a.indices, rows, pointers, columns, self.threads)
        return made

    def relabel(self, known: Selection, pointers: np.ndarray, columns: np.ndarray) -> tuple[Selection, np.ndarray]:
        ends, vertices, local = self._kernels.relabel(known.pointers, known.vertices, pointers, columns, self.threads)
        return Selection(known.minibatches, ends, vertices, known.n), local

    def expand(
        self, a: CSR, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool, entries: bool = False,
        numbered: bool = True,
    ) -> list[Expansion]:  # fmt: skip
        relation, law = (0, 0, *_arrays(a), None, False), [[_drawing(a, *hop)] for hop in zip(fanouts, draws, strict=False)]
        parts = self._kernels.expand_relations(
            [a.shape[1]], [relation], law, np.arange(len(seeds) + 1), seeds.minibatches, None, None, [seeds.pointers], [seeds.vertices], [],
            only_new, False, False, False, entries, numbered, self.threads,
        )  # fmt: skip
        return [
            Expansion(rows, vertices, held, [Hop(pointers, columns, None, positions) for ((pointers, columns, positions),) in hops])
            for ((rows, vertices, _),), held, hops in parts
        ]

    def expand_relations(
        self, counts: Sequence[int], relations: Sequence[RelationMatrix], trees: Trees, laws: Sequence[Sequence[RelationLaw]],
        only_new: bool, entries: bool = True,
    ) -> list[HeteroExpansion] | None:  # fmt: skip
        if trees.moving or len({(law.last, law.strict) for of_hop in laws for law in of_hop}) != 1:  # one rule of time for all
            return None
        of_minibatch = [np.searchsorted(owner, trees.pointers) for owner in trees.tree_of_seed]
        first, pointers, names = laws[0][0], *map(np.ascontiguousarray, (trees.pointers, trees.names))
        adjacencies = [(r.source, r.destination, *_arrays(r.matrix), r.timed_entries, r.repeats) for r in relations]
        drawn = [[_drawing(r.matrix, law.fanout, law.draw) for r, law in zip(relations, of_hop, strict=True)] for of_hop in laws]
        parts = self._kernels.expand_relations(
            list(counts), adjacencies, drawn, pointers, names, trees.starts, trees.ends, of_minibatch, trees.seeds, trees.tree_of_seed,
            only_new, trees.disjoint, first.last, first.strict, entries, True, self.threads,
        )  # fmt: skip
        return [_hetero_expansion(types, held, hops) for types, held, hops in parts]

    def sample_relation(
        self, relation: RelationMatrix, vertices: np.ndarray, names: np.ndarray, minibatches: np.ndarray, starts: np.ndarray | None,
        ends: np.ndarray | None, law: RelationLaw,
    ) -> RowPicks | None:  # fmt: skip
        rows = (*_arrays(relation.matrix), relation.timed_entries, relation.repeats, vertices, names, minibatches, starts, ends)
        drawn = *_drawing(relation.matrix, law.fanout, law.draw), law.last, law.strict
        return RowPicks(*self._kernels.sample_relation(*rows, *drawn, self.threads))

    def relabel_trees(
        self, pointers: np.ndarray, held: TreeVertices, found: TreeVertices, tree_pointers: np.ndarray
    ) -> tuple[np.ndarray, TreeVertices, np.ndarray]:
        extended, vertices, trees, ends, local = self._kernels.relabel_trees(pointers, *held, *found, tree_pointers, self.threads)
        return extended, TreeVertices(vertices, trees, ends), local

    def expand_tables(self, n: int, k: int, b: int, fanouts: Sequence[int], vertices: int) -> int:
        made: int = self._kernels.expand_tables(n, k, b, list(fanouts), vertices, self.threads)
        return made

    def layer_tables(self, a: CSR, k: int, b: int, candidates: int) -> int:
        made: int = self._kernels.layer_tables(a.shape[0], a.nnz, k, b, candidates, self.threads)
        return made

    def expand_layers(
        self, a: CSR, seeds: Selection, drawn: LayerRace | SharedDraws, weights: LayerWeights, only_new: bool
    ) -> list[Expansion] | None:
        race, shared = (drawn, []) if isinstance(drawn, LayerRace) else (None, [tuple(hop) for hop in drawn])
        law: tuple[Any, ...] = (None, None, False, [], [], 0)
        if race:
            tags = [draw.tag for draw in race.draws]
            law = race.entries.values, race.factors, race.power == 2, list(race.fanouts), tags, race.draws[0].seed
        lists, kept = (seeds.minibatches, seeds.pointers, seeds.vertices), (weights.debias, weights.renormalise, only_new)
        parts = self._kernels.expand_layers(*_arrays(a), weights.row_sums, *law, shared, *lists, *kept, self.threads)
        return [Expansion(rows, vertices, held, [Hop(*hop) for hop in hops]) for rows, vertices, held, hops in parts]


def _drawing(a: CSR, fanout: int, draw: Draw) -> tuple[int, int, int, int]:
    return fanout, _law(a, fanout, draw), draw.seed, draw.tag


def _hetero_expansion(types: list[Any], held: list[int], hops: list[Any]) -> HeteroExpansion:
    """Arrange what the kernel returns of one mini-batch."""
    rows, vertices, trees = (list(column) for column in zip(*types, strict=True))
    owners = [owner for owner in trees if owner is not None]  # all or none of them
    edges = [[Hop(pointers, columns, None, entries) for pointers, columns, entries in of_hop] for of_hop in hops]
    return HeteroExpansion(rows, vertices, owners, np.array(held, np.int64).reshape(-1, len(types)), edges)
