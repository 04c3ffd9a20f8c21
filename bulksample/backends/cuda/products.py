"""Products on a device: A B through hash tables, and Q_R A Q_C."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .device import CudaDevice, DeviceCSR
from .draws import FrontierRows, extents
from .tables import LARGEST_TABLE, table_of, table_starts

_FREE = 0xFFFFFFFF


class SumTables(NamedTuple):
    """The sums of A B in hash tables, one for each row."""

    starts: Any  # int64, shape (m + 1,): the first slot of each row
    columns: Any  # uint32, a place for each slot, and perhaps more: the column of a sum, or `_FREE`
    sums: Any  # uint64, as long
    most: int  # bound of the number of sums


def sum_products(device: CudaDevice, a: DeviceCSR, b: DeviceCSR, counted: tuple[Any, int] | None = None, factors: Any = None) -> SumTables:
    """Add up the products of A B. Sums of zero have slots too.

    `factors` of the rows of B take the place of the entries of A. `counted` are pointers into the rows of B that the entries of A name, and
    the number of products; this waits for them where they are not given.
    """
    m, entries = a.shape[0], len(a.indices)
    row_of = device.empty(entries, np.int32)
    products, all_products = counted or _counted(device, b, FrontierRows(a.indices, a.indices, None, None, entries, 0))
    if min(all_products, b.shape[1]) > LARGEST_TABLE:
        raise OverflowError(f"a row of the product could hold over {LARGEST_TABLE} sums, of {all_products} products; use a smaller bulk")
    device.walk("rows_of_entries", entries, a.indptr, m, row_of)
    starts, most = table_starts(device, m, a.indptr, products, b.shape[1]), min(all_products, m * b.shape[1])
    slots = 4 * most  # a power of two is below twice what it covers, and it covers twice the entries
    columns, sums = device.full(slots, _FREE, np.uint32), device.full(slots, 0, np.uint64)
    own = (row_of, a.indices, a.values, factors, entries)
    device.walk("add_products", all_products, *own, b.indptr, b.indices, b.values, products, columns, starts, sums)
    return SumTables(starts, columns, sums, most)


def spgemm(device: CudaDevice, a: DeviceCSR, b: DeviceCSR) -> tuple[Any, Any, Any]:
    """Compute row pointers, columns and sums of A B. Waits for the number of products, and for the number of sums."""
    m, (starts, table, sums, _) = a.shape[0], sum_products(device, a, b)
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
    device: CudaDevice, a: DeviceCSR, rows: FrontierRows, parts: Any, columns: Any, most: int = -1, counted: tuple[Any, int] | None = None
) -> Restricted:
    """Compute Q_R A Q_C.

    Waits for the pointers into A and the number of neighbors where `counted` does not give them. There is room for `most` columns in a
    row, if that many are selected at the most, and for all if it is -1.
    """
    pointers, entries = counted or _counted(device, a, rows)
    count = len(columns)
    table, starts, numbers = table_of(device, rows.k, parts, columns, count, a.shape[1])
    kept = entries if most < 0 else min(entries, rows.size * most)
    ends, of_minibatches = device.empty(rows.size + 1, np.int64), device.empty(rows.k + 1, np.int64)
    local, places = device.empty(kept, np.int32), device.empty(kept, np.int64)
    asked = (a.indptr, a.indices, rows.vertices, rows.size, rows.parts, rows.k, pointers, table, starts, numbers)
    device.scan("keep_met", entries, 0, lambda states: (*asked, states, ends, of_minibatches, local, places))
    return Restricted(ends, local, places, of_minibatches)


def _counted(device: CudaDevice, a: DeviceCSR, rows: FrontierRows) -> tuple[Any, int]:
    """Return the pointers of Q A, and the number of its entries, for which this waits."""
    pointers, _, entries, _ = extents(device, a, rows)
    return pointers, entries
