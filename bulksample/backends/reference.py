"""The definition of every primitive in numpy and scipy: always available, and the oracle of the other back ends."""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np

from ..graph.selection import Selection
from ..rng import Draw, Law, as_u64, counters, philox
from ..sparse import CSR, row_pointers
from . import dropout
from . import quantiser as grids
from .base import Backend, Picks, Restriction, drawn_from
from .dropout import Mask
from .layer_draws import LayerPicks
from .quantiser import LARGEST, Noise, refuse_row

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


class Reference(Backend):
    """The primitives of `Backend` in numpy, written for clarity: the definition that the other back ends match bit for bit."""

    name = "reference"

    def random_words(self, seed: int, tag: int, first: int, count: int, vertex: int = 0, minibatch: int = 0) -> np.ndarray:
        return philox(counters(np.arange(first, first + count), vertex, minibatch, tag), seed)

    def spgemm(self, a: CSR, b: CSR) -> CSR:
        self.check_product(a, b)
        product = CSR.from_scipy(a.to_scipy() @ b.to_scipy())
        return product if product.values is not None else product.with_values(np.ones(product.nnz, np.int64))

    def extract_rows(self, a: CSR, rows: np.ndarray) -> CSR:
        indptr, entries = _row_entries(a, rows)
        return CSR(indptr, a.indices[entries], None if a.values is None else a.values[entries], (len(rows), a.shape[1]))

    def sample_rows(self, a: CSR, q: Selection, fanout: int, draw: Draw) -> Picks:
        if fanout == -1:
            everything = self.extract_rows(drawn_from(a, [draw]), q.vertices)
            return Picks(everything.indptr, everything.indices)
        minibatch = q.minibatches[q.minibatch_of_row()]
        if draw.law in (Law.RACE, Law.LABOR):
            return _race_rows(self.extract_rows(a, q.vertices), q.names, minibatch, fanout, draw)
        if draw.law is Law.WEIGHTED:
            return _weighted_rows(self.extract_rows(a, q.vertices), q.names, minibatch, fanout, draw)
        degree = a.degrees[q.vertices]
        drawn = np.minimum(degree, fanout) if draw.law is Law.UNIFORM else np.where(degree > 0, fanout, 0)
        pointers = row_pointers(drawn)
        position = np.arange(pointers[-1]) - np.repeat(pointers[:-1], drawn)  # for rows that take all
        choose = np.flatnonzero((degree > fanout) if draw.law is Law.UNIFORM else drawn > 0)
        law = _floyd if draw.law is Law.UNIFORM else _independent
        chosen = law(degree[choose], fanout, minibatch[choose], q.names[choose], draw)
        position[pointers[choose][:, None] + np.arange(fanout)] = np.sort(chosen, axis=1)
        return Picks(pointers, a.indices[np.repeat(a.indptr[q.vertices], drawn) + position])

    def smallest_keys(
        self, pointers: np.ndarray, columns: np.ndarray, weights: np.ndarray, fanout: int, minibatches: np.ndarray, draw: Draw
    ) -> LayerPicks:
        picks, inclusion = [], []
        for j, minibatch in enumerate(minibatches):
            row = slice(pointers[0], pointers[1]) if len(pointers) == 2 else slice(pointers[j], pointers[j + 1])
            column, weight = columns[row][weights[row] > 0], weights[row][weights[row] > 0]
            key = keys(column, 0, minibatch, weight, draw)
            order = np.lexsort((column, key))
            s = len(order) if fanout == -1 else fanout
            tau = key[order[s]] if s < len(order) else np.inf
            kept = np.sort(order[:s])  # columns ascend, so positions do
            picks.append(column[kept])
            inclusion.append(inclusion_probability(weight[kept], tau))
        ends = row_pointers(np.array([len(part) for part in picks], np.int64))
        return LayerPicks(ends, _stack(picks, np.int32), _stack(inclusion, np.float64))

    def restrict(self, a: CSR, rows: Selection, columns: Selection) -> Restriction:
        place = np.full(a.shape[1], -1, np.int32)
        counts, columns_met, entries = [], [], []
        for j in range(len(rows)):
            selected = columns.part(j)
            place[selected] = np.arange(len(selected), dtype=np.int32)
            indptr, candidates = _row_entries(a, rows.part(j))
            local = place[a.indices[candidates]]
            counts.append(np.add.reduceat(np.append(local >= 0, 0), indptr[:-1]) * (np.diff(indptr) > 0))
            columns_met.append(local[local >= 0])
            entries.append(candidates[local >= 0])
            place[selected] = -1
        return Restriction(row_pointers(_stack(counts, np.int64)), _stack(columns_met, np.int32), _stack(entries, np.int64))

    def relabel(self, known: Selection, pointers: np.ndarray, columns: np.ndarray) -> tuple[Selection, np.ndarray]:
        vertices, local = [], []
        for j in range(len(known)):
            both = np.concatenate([known.part(j), columns[pointers[j] : pointers[j + 1]]])
            distinct, first, inverse = np.unique(both, return_index=True, return_inverse=True)
            order = np.argsort(first)
            number = np.empty_like(order)
            number[order] = np.arange(len(order))
            vertices.append(distinct[order])
            local.append(number[inverse][len(known.part(j)) :])
        ends = row_pointers(np.array([len(part) for part in vertices], np.int64))
        return Selection(known.minibatches, ends, _stack(vertices, np.int32), known.n), _stack(local, np.int32)

    def quantise(self, rows: np.ndarray, bits: int, names: np.ndarray, noise: Noise | None = None, wide: bool = False) -> np.ndarray:
        fits = (np.abs(rows) < LARGEST).all(1)
        if not fits.all():
            raise refuse_row(rows, int(names[np.argmin(fits)]), int(np.argmin(fits)))
        return grids.quantise(rows, bits, wide, names, noise)

    def dequantise(self, records: np.ndarray, width: int, bits: int, wide: bool = False) -> np.ndarray:
        return grids.dequantise(records, width, bits, wide)

    def gather(self, x: np.ndarray, rows: np.ndarray, scale: np.ndarray | None, out: np.ndarray) -> None:
        taken = x[rows]
        out[:] = (taken.astype(np.uint32) << np.uint32(16)).view(np.float32) if x.dtype == np.uint16 else taken
        if scale is not None:
            out *= scale[rows][:, None]

    def spmm(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, x: np.ndarray, scale: np.ndarray | None = None,
        mean: bool = False, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Multiply as `Backend.spmm` defines; float64 input without factors is summed in float64."""
        from scipy.sparse import csr_array

        span = slice(indptr[0], indptr[-1])
        columns, rows = indices[span], x
        if scale is not None or x.dtype.itemsize < 4:
            read, columns = np.unique(columns, return_inverse=True)
            rows = np.empty((len(read), x.shape[1]), np.float32)
            self.gather(x, read, scale, rows)
        entries = np.ones(len(columns), rows.dtype) if weights is None else weights[span].astype(rows.dtype)
        matrix = csr_array((entries, columns, indptr - indptr[0]), shape=(len(indptr) - 1, len(rows)))
        summed = np.asarray(matrix @ rows)  # scipy adds the terms of a row in their order
        if mean:
            summed *= (1.0 / np.maximum(np.diff(indptr), 1)).astype(summed.dtype)[:, None]
        if out is None:
            return summed
        out[:] = summed
        return out

    def epilogue(self, z: np.ndarray, bias: np.ndarray | None, relu: bool, mask: Mask | None, out: np.ndarray) -> None:
        dropout.epilogue(z, bias, relu, mask, out)

    def epilogue_gradient(
        self, grad: np.ndarray, y: np.ndarray | None, mask: Mask | None, bias: bool, out: np.ndarray
    ) -> np.ndarray | None:
        return dropout.epilogue_gradient(grad, y, mask, bias, out)

    def drop_entries(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, mask: Mask) -> np.ndarray:
        return dropout.drop_entries(indptr, indices, values, mask)

    def transpose(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, columns: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        order = np.argsort(indices, kind="stable")
        row = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        return row_pointers(np.bincount(indices, minlength=columns)), row[order], None if weights is None else weights[order]


def keys(column: np.ndarray, vertex: np.ndarray | int, minibatch: np.ndarray | int, weight: np.ndarray | float, draw: Draw) -> np.ndarray:
    """Compute the random key E / w of each candidate of weight w, E as in `Backend.smallest_keys`: float64."""
    u = as_u64(philox(counters(column, vertex, minibatch, draw.tag), draw.seed))
    return neg_log2(u).astype(np.float64) / weight


def neg_log2(u: np.ndarray) -> np.ndarray:
    """Compute -log2(u / 2**64) with 57 fractional bits: uint64. u = 0 counts as 1; csrc/race_row.h derives the series."""
    u = np.maximum(np.asarray(u, np.uint64), np.uint64(1))
    reciprocal, table, series = _log_tables()
    e = np.uint64(63) - _log2_floor(u)
    m = u << e
    i = ((m >> np.uint64(56)) & np.uint64(127)).astype(np.int64)
    z = (np.uint64(1 << 62) - mulhi(m, reciprocal[i] << np.uint64(47))) << np.uint64(2)
    total = np.full_like(z, series[7])
    for k in range(6, -1, -1):
        total = series[k] + mulhi(z, total)
    fixed: np.ndarray = (e << np.uint64(57)) + ((table[i] + mulhi(z, total)) >> np.uint64(5))
    return fixed


def inclusion_probability(weight: np.ndarray, tau: float | np.ndarray) -> np.ndarray:
    """Compute the probability that a column of weight w has a key below tau, 1 - 2**-(w tau): float64.

    tau counts units of 2**-57, as keys do. csrc/race_row.h derives the series.
    """
    product = np.asarray(weight, np.float64) * tau
    sure = ~(product < 2.0**63)
    x = np.maximum(np.where(sure, 1.0, product), 1.0).astype(np.uint64)
    one, e = np.uint64(1 << 63), x >> np.uint64(57)
    with localcontext() as context:
        context.prec = 40
        ln2 = np.uint64(int((Decimal(2).ln() * 2**64).to_integral_value()))
    a = mulhi(x << np.uint64(7), np.full_like(x, ln2))
    series = np.full_like(x, one)
    for k in range(20, 1, -1):
        series = one - mulhi(a, series) // np.uint64(k)
    return np.where(sure, 1.0, (one - (one >> e) + (mulhi(a, series) >> e)).astype(np.float64) * 2.0**-63)


@cache
def _log_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute r_i, log2(r_i / 2**15) and 1 / (k ln 2), the tables of csrc/race_row.h."""
    reciprocal = [2**15 * 256 // (129 + i) for i in range(128)]
    with localcontext() as context:
        context.prec = 40
        ln2 = Decimal(2).ln()
        table = [int(((Decimal(r) / 2**15).ln() / ln2 * 2**62).to_integral_value()) for r in reciprocal]
        series = [int((2**62 / (k * ln2)).to_integral_value()) for k in range(1, 9)]
    return np.array(reciprocal, np.uint64), np.array(table, np.uint64), np.array(series, np.uint64)


def mulhi(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the upper half of the 128-bit products of two uint64 arrays."""
    a0, a1, b0, b1 = a & _LOW, a >> _32, b & _LOW, b >> _32
    middle = a1 * b0 + (a0 * b0 >> _32)
    upper: np.ndarray = a1 * b1 + (middle >> _32) + ((a0 * b1 + (middle & _LOW)) >> _32)
    return upper


def _log2_floor(u: np.ndarray) -> np.ndarray:
    """Return the position of the highest bit set: uint64."""
    position, rest = np.zeros_like(u), u.copy()
    for step in (32, 16, 8, 4, 2, 1):
        high = (rest >> np.uint64(step)) > 0
        position += np.where(high, np.uint64(step), np.uint64(0))
        rest = np.where(high, rest >> np.uint64(step), rest)
    return position


def _draw_below(ranges: np.ndarray, t: int, minibatch: np.ndarray, name: np.ndarray, draw: Draw) -> np.ndarray:
    """Draw number t of each row, uniform in 0 .. range - 1, by multiply-shift; words that would make it uneven are rejected."""

    def word(index: np.ndarray | int, position: int, rows: np.ndarray) -> np.ndarray:
        return philox(counters(index, name[rows], minibatch[rows], draw.tag), draw.seed)[:, position].astype(np.uint64)

    ranges = ranges.astype(np.uint64)
    uneven = (np.uint64(1 << 32) - ranges) % ranges
    product: np.ndarray = word(t >> 2, t & 3, np.arange(len(ranges))) * ranges
    retry = 0
    while len(rejected := np.flatnonzero((product & _LOW) < uneven)):
        product[rejected] = word(2**31 + (retry << 20) + t, 0, rejected) * ranges[rejected]
        retry += 1
    return (product >> _32).astype(np.int64)


def _floyd(degree: np.ndarray, s: int, minibatch: np.ndarray, name: np.ndarray, draw: Draw) -> np.ndarray:
    """Draw s distinct positions of each row by Floyd's algorithm: int64, shape (rows, s)."""
    picks = np.empty((len(degree), s), np.int64)
    for t in range(s):
        j = degree - s + t
        pick = _draw_below(j + 1, t, minibatch, name, draw)
        taken = (picks[:, :t] == pick[:, None]).any(axis=1)
        picks[:, t] = np.where(taken, j, pick)
    return picks


def _independent(degree: np.ndarray, s: int, minibatch: np.ndarray, name: np.ndarray, draw: Draw) -> np.ndarray:
    """Draw s independent positions of each row: int64, shape (rows, s)."""
    picks = [_draw_below(degree, t, minibatch, name, draw) for t in range(s)]
    return np.stack(picks, axis=1) if s else np.empty((len(degree), 0), np.int64)


def _race_rows(neighbours: CSR, names: np.ndarray, minibatch: np.ndarray, s: int, draw: Draw) -> Picks:
    """Draw from each row the s neighbors with the smallest random keys: the laws RACE and LABOR of `Backend.sample_rows`."""
    row = neighbours.row_of_entry()
    weight = np.ones(neighbours.nnz) if neighbours.values is None else neighbours.values.astype(np.float64)
    row, column, weight = row[weight > 0], neighbours.indices[weight > 0], weight[weight > 0]
    key = keys(column, names[row] if draw.law is Law.RACE else 0, minibatch[row], weight, draw)
    order = np.lexsort((column, key, row))
    candidates = np.bincount(row, minlength=len(names))
    rank = np.arange(len(order)) - np.repeat(row_pointers(candidates)[:-1], candidates)
    kept = np.sort(order[rank < s])  # entries ascend by row, then column
    return Picks(row_pointers(np.minimum(candidates, s)), column[kept])


def _weighted_rows(neighbours: CSR, names: np.ndarray, minibatch: np.ndarray, s: int, draw: Draw) -> Picks:
    """Draw s independent neighbors of each row by weight: the law WEIGHTED of `Backend.sample_rows`."""
    picks = [np.empty(0, np.int32)]
    for row in range(len(names)):
        entries = slice(neighbours.indptr[row], neighbours.indptr[row + 1])
        sums = np.cumsum(neighbours.entries()[entries])
        if not len(sums) or sums[-1] == 0:
            picks.append(np.empty(0, np.int32))
            continue
        words = philox(counters(np.arange(-(-s // 2)), names[row], minibatch[row], draw.tag), draw.seed).reshape(-1, 2)[:s]
        target = mulhi(as_u64(words), np.full(s, sums[-1], np.uint64)).astype(np.int64)
        picks.append(neighbours.indices[entries][np.sort(np.searchsorted(sums, target, side="right"))])
    return Picks(row_pointers(np.array([len(part) for part in picks[1:]], np.int64)), _stack(picks, np.int32))


def _row_entries(a: CSR, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row pointers of Q A, and the position in A of each of its entries; row r of Q selects ``rows[r]``."""
    degree = a.degrees[rows]
    indptr = row_pointers(degree)
    return indptr, np.arange(indptr[-1]) + np.repeat(a.indptr[rows] - indptr[:-1], degree)


def _stack(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)
