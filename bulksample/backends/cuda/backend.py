"""The GPU back end: csrc/*.cu on a device, compiled at first use; results come back to the host.

A graph is uploaded once and stays on the device as long as it lives on the host. During `expand` all arrays stay on the device
until the end; only the counts of each hop come back, to size the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ...graph.selection import Selection
from ...pickled import Unpicklable
from ...rng import Draw
from ...sparse import CSR
from ..base import Backend, Picks, Restriction, drawn_from
from ..dropout import Mask
from ..hops import Expansion
from ..layer_draws import LayerPicks, LayerRace, LayerWeights, SharedDraws
from ..quantiser import Noise, refuse_row
from ..relational import HeteroExpansion, RelationLaw, RelationMatrix, Trees
from . import draws, epilogue, layers, products, tables
from .bulk import cut_on_host, expand
from .device import CudaDevice, Launcher
from .relations import expand_relations

T = TypeVar("T")
_STORED = {np.dtype(np.float32): "float32", np.dtype(np.float16): "float16", np.dtype(np.uint16): "bfloat16"}


def _phase(primitive: Callable[..., T]) -> Callable[..., T]:
    """Run a primitive on its device and stream, inside a range of the profiler's timeline."""

    @wraps(primitive)
    def inside(self: Cuda, *arguments: Any, **named: Any) -> T:
        with self.device.phase(primitive.__name__):
            return primitive(self, *arguments, **named)

    return inside


class Cuda(Unpicklable, Backend):
    """The primitives of `Backend` on a GPU; see `device.CudaDevice`."""

    name = "cuda"
    stays = "it holds a stream and memory of a GPU; make the loader in the process that uses it, or take backend='native'"

    def __init__(self, arrays: Any, launcher: Launcher, free_bytes: int) -> None:
        self.device = CudaDevice(arrays, launcher, free_bytes)

    @_phase
    def random_words(self, seed: int, tag: int, first: int, count: int, vertex: int = 0, minibatch: int = 0) -> np.ndarray:
        words = self.device.empty(4 * count, np.uint32)
        self.device.start("random_words", count, seed, tag, first, count, vertex, minibatch, words)
        return self.device.get(words).reshape(count, 4)

    @_phase
    def spgemm(self, a: CSR, b: CSR) -> CSR:
        self.check_product(a, b)
        parts = products.spgemm(self.device, self.device.matrix(a), self.device.matrix(b))
        indptr, indices, values = (self.device.get(part) for part in parts)
        return CSR(indptr, indices, values, (a.shape[0], b.shape[1]))

    @_phase
    def extract_rows(self, a: CSR, rows: np.ndarray) -> CSR:
        there = self.device.put(rows)
        taken, values = draws.copied(self.device, self.device.matrix(a), draws.FrontierRows(there, there, None, None, len(rows), 0))
        entries = None if values is None else self.device.get(values)
        return CSR(self.device.get(taken.pointers), self.device.get(taken.columns), entries, (len(rows), a.shape[1]))

    @_phase
    def sample_rows(self, a: CSR, q: Selection, fanout: int, draw: Draw) -> Picks:
        drawn = draws.draw_rows(self.device, self.device.matrix(drawn_from(a, [draw])), draws.rows_of(self.device, q), fanout, draw)
        pointers = self.device.get(drawn.pointers)
        return Picks(pointers, self.device.get(drawn.columns[: pointers[-1]]))

    @_phase
    def smallest_keys(
        self, pointers: np.ndarray, columns: np.ndarray, weights: np.ndarray, fanout: int, minibatches: np.ndarray, draw: Draw
    ) -> LayerPicks:
        once = len(pointers) == 2 and len(minibatches) != 1
        p, c, w, ids = (self.device.put(part) for part in (pointers, columns, weights, np.asarray(minibatches, np.int64)))
        layer = draws.LayerEntries(p, c, w, once=once)
        ends, picks, inclusion = draws.smallest(self.device, layer, fanout, ids, draw, len(columns) * (len(ids) if once else 1))
        drawn = self.device.get(ends)
        return LayerPicks(drawn, self.device.get(picks[: drawn[-1]]), self.device.get(inclusion[: drawn[-1]]))

    @_phase
    def first_arrivals(self, ends: np.ndarray, fanout: int, minibatches: np.ndarray, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        ids = self.device.put(np.asarray(minibatches, np.int64))
        picks, times = draws.first_arrivals(self.device, self.device.constant(ends), fanout, ids, draw)
        return self.device.get(picks).astype(np.int64).reshape(len(minibatches), fanout), self.device.get(times)

    @_phase
    def restrict(self, a: CSR, rows: Selection, columns: Selection) -> Restriction:
        there = draws.rows_of(self.device, rows)
        selected = self.device.put(columns.pointers), self.device.put(columns.vertices)
        met = products.restrict(self.device, self.device.matrix(a), there, *selected)
        ends = self.device.get(met.pointers)
        return Restriction(ends, *(self.device.get(part[: ends[-1]]) for part in (met.columns, met.entries)))

    @_phase
    def relabel(self, known: Selection, pointers: np.ndarray, columns: np.ndarray) -> tuple[Selection, np.ndarray]:
        most = np.diff(known.pointers) + np.diff(pointers)
        fresh = tables.Numbering(self.device, np.full(len(known), known.n), len(known.vertices) + len(columns), most)
        known_vertices = tables.HeldVertices(self.device.put(known.pointers), self.device.put(known.vertices), len(known.vertices))
        found = tables.FoundVertices(self.device.put(pointers), self.device.put(columns))
        grown, local = fresh.number(known_vertices, found, self.device.empty(2 * len(known) + 2, np.int64))
        ends = self.device.get(grown.pointers)
        return Selection(known.minibatches, ends, self.device.get(grown.vertices[: ends[-1]]), known.n), self.device.get(local)

    @_phase
    def expand(
        self, a: CSR, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool, entries: bool = False,
        numbered: bool = True,
    ) -> list[Expansion]:  # fmt: skip
        if not numbered:  # hop by hop
            return super().expand(a, seeds, fanouts, draws, only_new, entries, numbered)
        bulk = expand(self.device, self.device.matrix(drawn_from(a, draws)), seeds, fanouts, draws, only_new)
        return [one.plain() for one in cut_on_host(bulk.to_host(self.device))]

    @_phase
    def expand_relations(
        self, counts: Sequence[int], relations: Sequence[RelationMatrix], trees: Trees, laws: Sequence[Sequence[RelationLaw]],
        only_new: bool, entries: bool = True,
    ) -> list[HeteroExpansion] | None:  # fmt: skip
        bulk = expand_relations(self.device, counts, relations, trees, laws, only_new)
        return None if bulk is None else cut_on_host(bulk.to_host(self.device), trees.pointers)

    @_phase
    def expand_layers(
        self, a: CSR, seeds: Selection, drawn: LayerRace | SharedDraws, weights: LayerWeights, only_new: bool
    ) -> list[Expansion] | None:
        bulk = layers.expand_layers(self.device, a, seeds, drawn, weights, only_new)
        return [one.plain() for one in cut_on_host(bulk.to_host(self.device))]

    @_phase
    def gather(self, x: np.ndarray, rows: np.ndarray, scale: np.ndarray | None, out: np.ndarray) -> None:
        stored_as, (there, at) = _STORED[x.dtype], (self.device.put(part) for part in (x.reshape(-1), rows))
        out[:] = self.device.get(products.gather(self.device, there, x.shape[1], at, stored_as)).reshape(out.shape)
        if scale is not None:
            out *= scale[rows][:, None]

    @_phase
    def spmm(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, x: np.ndarray, scale: np.ndarray | None = None,
        mean: bool = False, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        entries, (columns, f) = slice(indptr[0], indptr[-1]), x.shape
        block = self._block(indptr - indptr[0], indices[entries], None if weights is None else weights[entries], columns)
        factors = None if scale is None else self.device.put(scale)
        summed = products.aggregate(self.device, block, self.device.put(x.reshape(-1)), f, mean, _STORED[x.dtype], factors)
        made: np.ndarray = self.device.get(summed).reshape(len(indptr) - 1, f)
        if out is None:
            return made
        out[:] = made
        return out

    @_phase
    def transpose(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, columns: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        made = products.transposed(self.device, self._block(indptr, indices, weights, columns), mean=False)
        ends, rows, entries = (self.device.get(part) for part in made[:3])
        return ends, rows, None if weights is None else entries

    def _block(self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, columns: int) -> products.FloatCSR:
        entries = None if weights is None else self.device.put(weights)
        return products.FloatCSR(self.device.put(indptr), self.device.put(indices), entries, len(indptr) - 1, columns)

    @_phase
    def epilogue(self, z: np.ndarray, bias: np.ndarray | None, relu: bool, mask: Mask | None, out: np.ndarray) -> None:
        there, b = self.device.put(z.reshape(-1)), None if bias is None else self.device.put(bias)
        to = there if out is z else self.device.empty(z.size, np.float32)
        epilogue.epilogue(self.device, there, z.shape[1], b, relu, self._placed_mask(mask), to)
        out[:] = self.device.get(to).reshape(out.shape)

    @_phase
    def epilogue_gradient(
        self, grad: np.ndarray, y: np.ndarray | None, mask: Mask | None, bias: bool, out: np.ndarray
    ) -> np.ndarray | None:
        there, of = self.device.put(grad.reshape(-1)), None if y is None else self.device.put(y.reshape(-1))
        to = there if out is grad else self.device.empty(grad.size, np.float32)
        total = epilogue.epilogue_gradient(self.device, there, of, grad.shape[1], self._placed_mask(mask), bias, to)
        out[:] = self.device.get(to).reshape(out.shape)
        return None if total is None else self.device.get(total)

    @_phase
    def drop_entries(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, mask: Mask) -> np.ndarray:
        p, columns, numbers = (self.device.put(part) for part in (indptr, indices, values))
        return self.device.get(epilogue.drop_entries(self.device, p, columns, numbers, self._placed_mask(mask)))

    def _placed_mask(self, mask: Mask | None) -> Any:
        """Copy the names of the rows of a mask to the device."""
        if mask is None:
            return None
        trees = None if mask.trees is None else self.device.put(mask.trees)
        return mask._replace(vertices=self.device.put(mask.vertices), trees=trees)

    @_phase
    def quantise(self, rows: np.ndarray, bits: int, names: np.ndarray, noise: Noise | None = None, wide: bool = False) -> np.ndarray:
        (m, f), (seed, tag, receiver) = rows.shape, noise or (0, 0, 0)
        width = -(-f * bits // 8) + (8 if wide else 4)
        records, refused = self.device.empty(m * width, np.uint8), self.device.full(1, m, np.uint64)
        there = self.device.put(rows), self.device.put(names)
        self.device.start(
            "quantise_rows", 32 * m, there[0], m, f, bits, int(wide), there[1], int(noise is None), seed, tag, receiver, records, refused
        )
        worst = int(self.device.get(refused)[0])
        if worst < m:
            raise refuse_row(rows, int(names[worst]), worst)
        return self.device.get(records).reshape(m, width)

    @_phase
    def dequantise(self, records: np.ndarray, width: int, bits: int, wide: bool = False) -> np.ndarray:
        m = len(records)
        rows = self.device.empty(m * width, np.float32)
        self.device.start("dequantise_rows", 32 * m, self.device.put(records), m, width, bits, int(wide), rows)
        return self.device.get(rows).reshape(m, width)
