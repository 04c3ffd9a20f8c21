"""Products on a device: A B through hash tables, Q_R A Q_C, the sums of rows A X, and rows gathered from a matrix of features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .device import CudaDevice, DeviceCSR
from .draws import FrontierRows, all_pointers, extents
from .tables import LARGEST_TABLE, HashTables, table_of

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # of csrc/features.cu; bfloat16 is kept as uint16
_HELD = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


class SumTables(NamedTuple):
    """The sums of A B in hash tables, one for each row."""

    pointers: Any  # int64, shape (entries of A + 1,): into the rows of B that these name
    starts: Any  # int64, shape (m + 1,): the first slot of each row
    columns: Any  # uint32, a place for each slot, and perhaps more: the column of a sum, or `FREE`
    sums: Any  # uint64, as long
    most: int  # bound of the number of sums


def sum_products(device: CudaDevice, a: DeviceCSR, b: DeviceCSR, products: int, factors: Any = None) -> SumTables:
    """Add up the products of A B, by two launches. Sums of zero have slots too. Waits for nothing.

    `products` is their number, or a bound of it; `factors` of the rows of B take the place of the entries of A. The entries of A may be
    fewer than the columns given.
    """
    (m, n), entries = (a.shape[0], b.shape[1]), len(a.indices)
    if min(products, n) > LARGEST_TABLE:
        raise OverflowError(f"a row of the product could hold over {LARGEST_TABLE} sums, of {products} products; use a smaller bulk")
    most = min(products, m * n)
    slots = 4 * most  # a power of two is below twice what it covers, and it covers twice the entries
    pointers, starts = device.empty(entries + 1, np.int64), device.empty(m + 1, np.int64)
    columns, sums = device.empty(slots, np.uint32), device.empty(slots, np.uint64)
    rows, opened = (a.indptr, a.indices), (pointers, starts, columns, sums)
    device.scan("open_products", entries, 1, lambda states: (*rows, m, b.indptr, n, slots, states, *opened), slots)
    device.walk("add_products", products, *rows, a.values, factors, m, b.indptr, b.indices, b.values, pointers, columns, starts, sums)
    return SumTables(*opened, most)


def spgemm(device: CudaDevice, a: DeviceCSR, b: DeviceCSR) -> tuple[Any, Any, Any]:
    """Compute row pointers, columns and sums of A B. Waits for the number of products, and for the number of sums."""
    m, products = a.shape[0], extents(device, b, FrontierRows(a.indices, a.indices, None, None, len(a.indices), 0)).entries
    _, starts, table, sums, _ = sum_products(device, a, b, products)
    slots = len(table)
    marks = device.empty(slots, np.int32)
    device.start("mark_sums", slots, table, sums, slots, marks)
    ranks = device.pointers(marks)
    kept = int(device.get(ranks[-1:])[0])
    ends, values, keys = device.empty(m + 1, np.int64), device.empty(kept, np.int64), device.empty(kept, np.uint64)
    device.start("gather_sums", slots, table, sums, starts, m, ranks, keys, values, ends)
    columns, ordered = device.empty(kept, np.int32), device.empty(kept, np.int64)
    device.start("order_sums", kept, device.arrays.argsort(keys), kept, keys, values, columns, ordered)
    return ends, columns, ordered


class Restricted(NamedTuple):
    """Q_R A Q_C. Columns and entries may be longer than the last pointer."""

    pointers: Any  # int64, shape (R + 1,)
    columns: Any  # int32: numbers of columns in their mini-batch
    entries: Any  # int64: positions in A
    ends: Any  # int64, shape (k + 1,): the entries before each mini-batch


def restrict(
    device: CudaDevice, a: DeviceCSR, rows: FrontierRows, parts: Any, columns: Any, neighbors: int | None = None
) -> Restricted:  # fmt: skip
    """Compute Q_R A Q_C. Waits for the number of neighbors, unless a bound of it is given."""
    if neighbors is None:
        pointers, _, neighbors, _ = extents(device, a, rows)
    else:
        pointers = all_pointers(device, a, rows)[0]
    table = table_of(device, rows.k, parts, columns, a.shape[1])
    return keep_met(device, a, rows, pointers, neighbors, neighbors, table)


def keep_met(
    device: CudaDevice, a: DeviceCSR, rows: FrontierRows, pointers: Any, entries: int, kept: int, table: HashTables, picked: Any = None
) -> Restricted:
    """Keep the neighbors that are in the table of their mini-batch, by one launch. Waits for nothing.

    `pointers` (int64, shape (R + 1,)) are those of Q A, and `entries` the number of its entries or a bound of it; `kept` bounds those that
    are kept. The table holds the columns of each mini-batch and their numbers; where these run through all mini-batches, `picked` (int64,
    shape (k + 1,)) holds the number of the first column of each.
    """
    ends, of_minibatches = device.empty(rows.size + 1, np.int64), device.empty(rows.k + 1, np.int64)
    local, places = device.empty(kept, np.int32), device.empty(kept, np.int64)
    rows_of_a = (a.indptr, a.indices, rows.vertices, rows.parts, rows.k, pointers, *table, picked)
    device.scan("keep_met", entries, 0, lambda states: (*rows_of_a, states, ends, of_minibatches, local, places))
    return Restricted(ends, local, places, of_minibatches)


class FloatCSR(NamedTuple):
    """A sparse float32 matrix of D rows and S columns on the device."""

    indptr: Any  # int64, shape (D + 1,)
    indices: Any  # int32, shape (E,)
    weights: Any  # float32, shape (E,), or None: ones
    rows: int  # D
    columns: int  # S


class Cache(NamedTuple):
    """A cache of frequently read rows on the device; all rows may lie in host memory."""

    hot: Any  # rows of the same type and width
    slots: Any  # int32, shape (n,): the place of row v among them, or -1


NO_CACHE = Cache(None, None)


def gather(
    device: CudaDevice, features: Any, width: int, rows: Any, stored: str = "float32", wanted: str = "float32", cache: Cache = NO_CACHE
) -> Any:
    """Gather H[rows], laid out flat; types are `stored` before and `wanted` after, rounded to nearest, ties to even."""
    out, count = device.empty(len(rows) * width, _HELD[wanted]), len(rows)
    if stored != wanted:
        lanes = row_lanes(width)
        device.start("gather_converted", count * lanes, features, *cache, TYPES[stored], rows, count, width, lanes, out, TYPES[wanted])
        return out
    bytes_ = width * np.dtype(_HELD[stored]).itemsize
    word = next(size for size in (16, 4, 2) if bytes_ % size == 0)
    lanes = row_lanes(bytes_ // word)
    device.start("gather_bytes", count * lanes, features, *cache, rows, count, bytes_, word, lanes, out)
    return out


def aggregate(
    device: CudaDevice, block: FloatCSR, x: Any, width: int, mean: bool, stored: str = "float32", scale: Any = None, cache: Cache = NO_CACHE
) -> Any:  # fmt: skip
    """Compute A D X, or with `mean` the mean over the entries of each row: float32, D * width numbers.

    X is of the type `stored`, laid out flat, and may have a cache; `scale` has the factors of its rows, which D holds.
    """
    y = device.empty(block.rows * width, np.float32)
    work, rows_of_x = 32 * block.rows * -(-width // 128), (x, *cache, TYPES[stored], scale)
    device.start("sum_rows", work, block.indptr, block.indices, block.weights, *rows_of_x, block.rows, width, int(mean), y)
    return y


def transposed(device: CudaDevice, block: FloatCSR, mean: bool) -> FloatCSR:
    """Compute A^T, entries of a row ascending; aggregating with it gives the gradient of `aggregate`."""
    entries = len(block.indices)
    keys, counts = device.empty(entries, np.uint64), device.full(block.columns, 0, np.int32)
    device.walk("entry_keys", entries, block.indptr, block.indices, block.rows, keys, counts)
    rows, weights = device.empty(entries, np.int32), device.empty(entries, np.float32)
    order = device.arrays.argsort(keys)
    device.start("take_entries", entries, order, keys, entries, block.weights, block.indptr, int(mean), rows, weights)
    return FloatCSR(device.pointers(counts), rows, weights, block.columns, block.rows)


def row_lanes(units: int) -> int:
    """Choose how many lanes share a row: the power of two that covers it, at most a warp."""
    return min(32, 1 << max(units - 1, 0).bit_length())
