"""Bulks that come again in the same shape: recorded, captured as one CUDA graph, and replayed with one launch and one wait.

A replay runs the launches that were recorded, on the same arrays with the same numbers. So nothing in them may depend on what was
drawn: hops are sized by the most that they can draw, b s_1 s_2 .., what a kernel must know it reads on the device, the seeds and the ids
are copied to where they were, and the epoch rides with the ids (csrc/stream.h). Results are trimmed into arrays of their own.

It pays where launches do: about 25 a hop, whatever k is, against room for what is not drawn. Recorded arrays are kept, all of them, so one
shape is: the last that came twice in a row. The small bulks at the start of an epoch and the last one are launched as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...rng import MAX_EPOCHS, Draw, Law
from ...selection import Selection
from .bulk import Asked, Bulk, expand_rows, trimmed
from .device import Device, Matrix
from .draws import FEW
from .kernels import Launcher
from .tables import Found


class Recorder:
    """A launcher that starts what it is asked to, and takes notes; see `kernels.Launcher`."""

    def __init__(self, launch: Launcher) -> None:
        self._launch, self.most_blocks, self.graph = launch, launch.most_blocks, launch.graph
        self.launches: list[tuple[Any, ...]] = []

    def __call__(self, name: str, blocks: int, *values: Any) -> None:
        self.launches.append((name, blocks, *values))
        self._launch(name, blocks, *values)

    def phase(self, name: str, stream: Any = None) -> AbstractContextManager[Any]:
        return self._launch.phase(name, stream)


class Recording(Device):
    """A device on which everything that happens is a launch, so that it can be replayed.

    Raises
    ------
    RuntimeError
        Where something is copied to the host: a replay would not wait for it.
    """

    def __init__(self, device: Device, launch: Recorder) -> None:
        super().__init__(device.arrays, launch, device.free_bytes)
        self.numbering = device.numbering

    def get(self, array: Any) -> np.ndarray:
        raise RuntimeError(f"a recording was asked for a copy of {len(array)} numbers on the host, which a replay would not make")

    def full(self, count: int, value: int, dtype: Any) -> Any:
        words = np.full(1, np.dtype(dtype).type(value)).view(np.uint32)
        if (words != words[0]).any():
            raise ValueError(f"a recording fills memory with one word of 32 bits; got {value} as {np.dtype(dtype)}")
        made = self.empty(count, dtype)
        self.start("fill_words", len(words) * int(count), int(words[0]), len(words) * int(count), made)
        return made


class Recorded(NamedTuple):
    """A bulk of one shape."""

    asked: Asked  # written before each replay
    bulk: Bulk  # written by each; its arrays have room to spare
    told: list[Any]  # what `numbers.Numbering.place` tells of the seeds and of each hop
    start: Callable[[], None]


class Graphs:
    """The bulk that a device has recorded.

    Parameters
    ----------
    device : Device

    Attributes
    ----------
    recorded, replayed : int
        How often a bulk was recorded, and how often one was replayed.
    """

    def __init__(self, device: Device) -> None:
        self._device, self.recorded, self.replayed = device, 0, 0
        self._last: Any = None  # shape that came
        self._shape: Any = None  # of what is kept
        self._kept: Recorded | None = None

    def takes(self, fanouts: Sequence[int], draws: Sequence[Draw]) -> bool:
        """Whether the most that each hop draws is known before it."""
        return all(0 <= s <= FEW or (s > 0 and d.law in (Law.UNIFORM, Law.REPLACEMENT)) for s, d in zip(fanouts, draws, strict=True))

    def expand(self, a: Matrix, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> Bulk:
        """See `bulk.expand`. Waits once where it replays; raises `ValueError` where it does not take the bulk."""
        if not self.takes(fanouts, draws):
            raise ValueError(f"hops that take all neighbours, or over {FEW} by key, are sized by what they find and not recorded")
        ids, epochs = seeds.minibatches, {draw.tag % MAX_EPOCHS for draw in draws}
        if len(epochs) == 1:  # else each epoch is a shape of its own
            epoch = epochs.pop()
            ids, draws = ids | epoch << 32, [replace(draw, tag=draw.tag - epoch) for draw in draws]
        shape = (id(a.indices), id(a.values), len(seeds), len(seeds.vertices), *fanouts, *draws, only_new, self._device.numbering)
        pointers, vertices, minibatches = (self._device.put(part) for part in (seeds.pointers, seeds.vertices, ids))
        asked, again, self._last = Asked(Found(pointers, vertices), minibatches), shape == self._last, shape
        if again and shape != self._shape:
            self._shape, self._kept = None, None  # its memory is free before more is taken
            self._shape, self._kept = shape, self._record(a, asked, fanouts, draws, only_new)
        if self._kept is None or shape != self._shape:
            return expand_rows(self._device, a, asked, fanouts, draws, only_new)
        return self._replay(self._kept, asked, only_new)

    def _replay(self, kept: Recorded, asked: Asked, only_new: bool) -> Bulk:
        for to, given in zip((*kept.asked.seeds, kept.asked.minibatches), (*asked.seeds, asked.minibatches), strict=True):
            to[...] = given
        kept.start()
        self.replayed += 1
        return trimmed(kept.bulk, [self._device.get(counts) for counts in kept.told], only_new)

    def _record(self, a: Matrix, asked: Asked, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> Recorded:
        launch = Recorder(self._device.launch)
        device = Recording(self._device, launch)
        told = [device.empty(2 * len(asked.minibatches) + 2, np.int64) for _ in range(len(fanouts) + 1)]
        bulk = expand_rows(device, a, asked, fanouts, draws, only_new, told)
        self.recorded += 1
        return Recorded(asked, bulk, told, launch.graph(launch.launches))
