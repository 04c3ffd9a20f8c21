"""Products on a device: A B through hash tables, and Q_R A Q_C."""

from __future__ import annotations

from typing import Any

import numpy as np

from .device import CudaDevice, DeviceCSR
from .draws import FrontierRows, extents
from .tables import LARGEST_TABLE, table_of

_FREE = 0xFFFFFFFF
_LAST = 2**64 - 1  # a key larger than all others


def spgemm(
    device: CudaDevice, a: DeviceCSR, b: DeviceCSR, counted: tuple[Any, int] | None = None, loose: bool = False
) -> tuple[Any, Any, Any]:
    """Compute row pointers, columns and sums of A B.

    Waits for the number of sums, unless `loose` is set: then columns and sums may be longer than the last pointer.

    `counted` are pointers into the rows of B that the entries of A name, and the number of products; this waits for them where they
    are not given.
    """
    m, entries = a.shape[0], len(a.indices)
    row_of = device.empty(entries, np.int32)
    products, all_products = counted or _counted(device, b, FrontierRows(a.indices, a.indices, None, None, entries, 0))
    if min(all_products, b.shape[1]) > LARGEST_TABLE:
        raise OverflowError(f"a row of the product could hold over {LARGEST_TABLE} sums, of {all_products} products; use a smaller bulk")
    device.walk("rows_of_entries", entries, a.indptr, m, row_of)
    sizes = device.empty(m, np.int32)
    device.start("table_sizes", m, a.indptr, products, m, b.shape[1], sizes)
    starts = device.pointers(sizes)
    slots = 4 * min(all_products, m * b.shape[1])  # a power of two is below twice what it covers, and it covers twice the entries
    table, sums = device.full(slots, _FREE, np.uint32), device.full(slots, 0, np.uint64)
    device.walk(
        "add_products", all_products, row_of, a.indices, a.values, entries, b.indptr, b.indices, b.values, products, table, starts, sums
    )
    marks = device.empty(slots, np.int32)
    device.start("mark_sums", slots, table, sums, slots, marks)
    ranks = device.pointers(marks)
    kept = min(all_products, m * b.shape[1]) if loose else int(device.get(ranks[-1:])[0])
    ends, values = device.empty(m + 1, np.int64), device.empty(kept, np.int64)
    keys = device.full(kept, _LAST, np.uint64) if loose else device.empty(kept, np.uint64)
    device.start("gather_sums", slots, table, sums, starts, m, ranks, keys, values, ends)
    columns, ordered = device.empty(kept, np.int32), device.empty(kept, np.int64)
    device.start("order_sums", kept, device.arrays.argsort(keys), kept, keys, values, columns, ordered)
    return ends, columns, ordered


def restrict(
    device: CudaDevice, a: DeviceCSR, rows: FrontierRows, parts: Any, columns: Any, most: int = -1, counted: tuple[Any, int] | None = None
) -> tuple[Any, Any, Any]:
    """Compute pointers, columns and entries of Q_R A Q_C; the last two may be longer than the last pointer.

    Waits for the pointers into A and the number of neighbors where `counted` does not give them, and for the number of edges
    where `most` does not say how many columns a mini-batch selects at the most.
    """
    pointers, entries = counted or _counted(device, a, rows)
    count = len(columns)
    table, starts, numbers = table_of(device, rows.k, parts, columns, count, a.shape[1])
    met, marks = device.empty(entries, np.int32), device.empty(entries, np.int32)
    selected = (rows.vertices, rows.size, rows.parts, rows.k, pointers)
    device.walk("meet_columns", entries, a.indptr, a.indices, *selected, table, starts, numbers, met, marks)
    ranks = device.pointers(marks)
    kept = int(device.get(ranks[-1:])[0]) if most < 0 else min(entries, rows.size * most)
    ends = device.empty(rows.size + 1, np.int64)
    local, places = device.empty(kept, np.int32), device.empty(kept, np.int64)
    device.walk("keep_met", max(entries, rows.size), a.indptr, rows.vertices, rows.size, pointers, met, ranks, ends, local, places)
    return ends, local, places


def _counted(device: CudaDevice, a: DeviceCSR, rows: FrontierRows) -> tuple[Any, int]:
    """Return the pointers of Q A, and the number of its entries, for which this waits."""
    pointers, _, entries = extents(device, a, rows)
    return pointers, entries
