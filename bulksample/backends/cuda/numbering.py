"""Number vertices on a device in the order of first discovery, with one of two structures (`tables`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .device import CudaDevice
from .tables import STRUCTURES, FoundVertices, HeldVertices, chosen


class Numbering:
    """Give the vertices of each of k mini-batches local numbers 0, 1, ..., hop by hop.

    On relations a mini-batch and a type take the place of a mini-batch.

    Parameters
    ----------
    device : CudaDevice
        Its `numbering` names the structure; None chooses by size.
    sizes : int64, shape (k,)
        The vertices that each may hold: all of the graph.
    expected : int
        Bound of the vertices found over the life of the numbering, repetitions included.
    most : int64, shape (k,), optional
        Bound of the distinct vertices of each mini-batch: then one hash table serves all hops.
    pairs : bool
        Number vertices of disjoint trees: a vertex that two trees meet has two numbers. By hash tables, whatever is named.
    """

    def __init__(self, device: CudaDevice, sizes: np.ndarray, expected: int, most: np.ndarray | None = None, pairs: bool = False) -> None:
        self._device, self._k, self._most = device, len(sizes), int((sizes if most is None else np.minimum(sizes, most)).sum())
        name = "hash" if pairs else device.numbering or chosen(int(sizes.sum()), 1, expected, device.free_bytes)
        self.structure = STRUCTURES[name](device, sizes, most, pairs)
        self._known: Any = None  # the pointers of the vertices whose numbers the structure knows

    def number(self, held: HeldVertices, found: FoundVertices, ends: Any) -> tuple[HeldVertices, Any]:
        """Number the found vertices as `Backend.relabel` defines, and wait for nothing.

        Returns the held vertices with the new ones, with room for all that are found, and the local number of each found vertex, both
        on the device. `ends`, int64 of shape (2 k + 2,), takes the pointers of the first, then those of the found vertices.
        """
        device, k, room = self._device, self._k, len(found.columns)
        table = found.slots or self.structure.enter(held, found, held.size == 0 or held.pointers is self._known)
        size = min(held.size + room, self._most)
        vertices, local = device.empty(size, np.int32), device.empty(room, np.int32)
        trees = None if found.trees is None else device.empty(size, np.int32)
        asked = held.pointers, held.vertices, held.trees, found.pointers, found.columns, found.trees, k, table.found, table.starts
        device.scan("number_found", room, k + 1, lambda states: (*asked, table.numbers, states, ends, vertices, trees, local), held.size)
        self._known = ends[: k + 1]
        return HeldVertices(self._known, vertices, size, trees), local


def beyond(device: CudaDevice, grown: HeldVertices, held: HeldVertices, k: int, room: int) -> HeldVertices:
    """Return the vertices that each mini-batch of `grown` holds beyond those of `held`: at most `room`."""
    pointers, vertices = device.empty(k + 1, np.int64), device.empty(room, np.int32)
    device.start("drop_known", grown.size, held.pointers, grown.pointers, k, grown.vertices, pointers, vertices)
    return HeldVertices(pointers, vertices, room)
