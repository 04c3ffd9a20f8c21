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
    most : int64, shape (k,), optional
        Bound of the distinct vertices of each mini-batch: then one hash table serves all hops.
    """

    def __init__(self, device: CudaDevice, k: int, n: int, expected: int, most: np.ndarray | None = None) -> None:
        self._device, self._k, self._n = device, k, n
        self.structure = STRUCTURES[device.numbering or chosen(n, k, expected, device.free_bytes)](device, k, n, most)
        self._known: Any = None  # the pointers of the vertices whose numbers the structure knows

    def number(self, held: HeldVertices, found: FoundVertices, ends: Any) -> tuple[HeldVertices, Any]:
        """Number the found vertices as `Backend.relabel` defines, and wait for nothing.

        Returns the held vertices with the new ones, with room for all that are found, and the local number of each found vertex, both
        on the device. `ends`, int64 of shape (2 k + 2,), takes the pointers of the first, then those of the found vertices.
        """
        device, k, room = self._device, self._k, len(found.columns)
        table = self.structure.enter(held, found, held.size == 0 or held.pointers is self._known)
        size = min(held.size + room, k * self._n)
        vertices, local = device.empty(size, np.int32), device.empty(room, np.int32)
        asked = (found.pointers, found.columns, k, table.found, table.starts, table.numbers)
        device.scan("number_found", room, k + 1, lambda states: (held.pointers, *asked, states, ends, vertices))
        device.start("read_numbers", held.size + room, held.pointers, held.vertices, *asked, ends, vertices, local)
        self._known = ends[: k + 1]
        return HeldVertices(self._known, vertices, size), local


def beyond(device: CudaDevice, grown: HeldVertices, held: HeldVertices, k: int, room: int) -> HeldVertices:
    """Return the vertices that each mini-batch of `grown` holds beyond those of `held`: at most `room`."""
    pointers, vertices = device.empty(k + 1, np.int64), device.empty(room, np.int32)
    device.start("drop_known", grown.size, held.pointers, grown.pointers, k, grown.vertices, pointers, vertices)
    return HeldVertices(pointers, vertices, room)
