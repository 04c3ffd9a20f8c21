"""Take k mini-batches through node-wise hops on a device: sized by bounds and enqueued in one call, or hop by hop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...rng import Draw
from ...selection import Selection
from .bulk import BOUND_SHARE, DeviceBulk, DeviceSeeds, OpenBulk, close, hop_after_hop, prepared, put_seeds
from .device import CudaDevice, DeviceCSR
from .draws import FEW, HUB, KEYED, DrawnEdges, FrontierRows, draw_rows, hub_words
from .numbering import Numbering
from .predicted import bulk_bytes, most_found, most_held, state_words
from .tables import HeldVertices


def expand(device: CudaDevice, a: DeviceCSR, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> DeviceBulk:
    """Take k mini-batches through node-wise hops; see `Backend.expand`.

    Waits once, at the end, if the largest bulk that the fanouts allow takes at most an eighth of the free memory; otherwise once for the
    seeds and once a hop. Waits once more for each hop that takes all neighbors, or more than 32 by key.
    """
    k, n, entries, count = len(seeds), a.shape[1], len(a.indices), len(seeds.vertices)
    laws = [draw.law for draw in draws]
    bytes_ = bulk_bytes(n, entries, k, count, fanouts, only_new, device.free_bytes, device.numbering, a.longest, laws)
    bounded = bytes_.peak <= device.free_bytes // BOUND_SHARE
    waits = any(s < 0 or (s > FEW and draw.law in KEYED) for s, draw in zip(fanouts, draws, strict=True))
    if bounded and device.prepares and not waits:
        shape = (a.shape, entries, a.values is None, a.longest > HUB, tuple(fanouts), only_new)

        def enqueue(recorder: CudaDevice, arrays: Sequence[Any], asked: DeviceSeeds, later: Sequence[Draw]) -> OpenBulk:
            there = DeviceCSR(arrays[0], arrays[1], arrays[2], a.shape, a.longest)
            return _node_wise(recorder, there, asked, seeds.pointers, fanouts, later, only_new, True)

        return prepared(device, shape, enqueue, a[:3], seeds, draws)
    return close(device, _node_wise(device, a, put_seeds(device, seeds), seeds.pointers, fanouts, draws, only_new, bounded))


def _node_wise(
    device: CudaDevice, a: DeviceCSR, asked: DeviceSeeds, seeds: np.ndarray, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
    bounded: bool,
) -> OpenBulk:  # fmt: skip
    """Enqueue all hops; `seeds` are the pointers of the seeds, on the host."""
    k, n = len(seeds) - 1, a.shape[1]
    most = most_held(np.diff(seeds), fanouts, n, only_new) if bounded else None

    def draw(frontier: HeldVertices, hop: int) -> DrawnEdges:
        rows = FrontierRows(frontier.vertices, frontier.vertices, frontier.pointers, asked.minibatches, frontier.size, k)
        return draw_rows(device, a, rows, fanouts[hop], draws[hop])

    words = state_words(n, k, int(seeds[-1]), fanouts, only_new) if most is not None else 0
    words += sum(hub_words(a.longest, s, draw.law) for s, draw in zip(fanouts, draws, strict=True))
    with device.zeroed_together(words):
        numbering = Numbering(device, np.full(k, n), most_found(int(seeds[-1]), fanouts, len(a.indices), k), most)
        return hop_after_hop(device, numbering, asked, draw, len(fanouts), only_new, bounded)
