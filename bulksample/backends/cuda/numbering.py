"""Number vertices on a device in the order of first discovery, with one of two structures (`tables`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .device import CudaDevice
from .tables import STRUCTURES, FoundVertices, HeldVertices, chosen


class Numbering:
    """Give the vertices of each of k mini-batches local numbers 0, 1, ..., hop by hop; the graph has n vertices.

    Parameters
    ----------
    device : CudaDevice
        Its `numbering` names the structure; None chooses by size.
    k, n : int
    expected : int
        Bound of the vertices found over the life of the numbering, repetitions included.
    """

    def __init__(self, device: CudaDevice, k: int, n: int, expected: int) -> None:
        self._device, self._k = device, k
        self.structure = STRUCTURES[device.numbering or chosen(n, k, expected, device.free_bytes)](device, k, n)
        self._held: HeldVertices | None = None  # whose numbers the structure knows

    def number(self, held: HeldVertices, found: FoundVertices) -> tuple[HeldVertices, Any, np.ndarray, np.ndarray]:
        """Number the found vertices as `Backend.relabel` defines.

        Returns the held vertices with the new ones, and the local number of each found vertex, both on the device; then, on the host,
        the pointers of the first and of the found vertices, for which it waits.
        """
        device, k, room = self._device, self._k, len(found.columns)
        ends = device.empty(2 * k + 2, np.int64)
        table = self.structure.enter(held, found, held.size == 0 or held is self._held)
        vertices, local = device.empty(held.size + room, np.int32), device.empty(room, np.int32)
        asked = (found.pointers, found.columns, k, table.found, table.starts, table.numbers)
        device.scan("number_found", room, k + 1, lambda states: (held.pointers, *asked, states, ends, vertices))
        device.start("read_numbers", held.size + room, held.pointers, held.vertices, *asked, ends, vertices, local)
        counts = device.get(ends)
        self._held = HeldVertices(ends[: k + 1], vertices[: counts[k]], int(counts[k]))
        return self._held, local, counts[: k + 1], counts[k + 1 :]


def nothing_held(device: CudaDevice, k: int) -> HeldVertices:
    """Make k mini-batches that hold no vertex yet."""
    return HeldVertices(device.put(np.zeros(k + 1, np.int64)), device.empty(0, np.int32), 0)


def beyond(device: CudaDevice, grown: HeldVertices, held: HeldVertices, k: int) -> HeldVertices:
    """Return the vertices that each mini-batch of `grown` holds beyond those of `held`."""
    pointers, vertices = device.empty(k + 1, np.int64), device.empty(grown.size - held.size, np.int32)
    device.start("drop_known", grown.size, held.pointers, grown.pointers, k, grown.vertices, pointers, vertices)
    return HeldVertices(pointers, vertices, grown.size - held.size)
