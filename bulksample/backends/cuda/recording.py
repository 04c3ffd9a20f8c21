"""Record the launches of a bulk once, and enqueue them again in one native call with the arguments of another bulk of the same shape.

Where sizes are bounded beforehand, bulks of one shape differ in their seeds, their counter words and the addresses of their arrays. So
the arguments are kept as one array of 64-bit words: a bulk patches it and hands it to the driver. Its arrays are two allocations: what is
kept, and scratch, in which arrays that live at different times share bytes.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ...rng import Draw
from .device import CudaDevice, end_to_end, kernels

RECORDINGS = 16  # shapes of bulks that a device remembers
_ALIGNED = 256  # bytes: as memory of a device is
_KEPT, _SCRATCH, _INPUT, _OUTSIDE = range(4)  # outside arrays follow


class Memory:
    """An allocation: used by launches ``born`` to ``died - 1``, at an offset of a place."""

    def __init__(self, nbytes: int, born: int, place: int = _SCRATCH, offset: int = 0) -> None:
        self.nbytes, self.born, self.died, self.place, self.offset = nbytes, born, -1, place, offset


class _Owner:
    """Lives as long as an array of an allocation does."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory


class RecordedArray:
    """Stands for a one-dimensional array of a device while launches are recorded."""

    def __init__(self, owner: _Owner, offset: int, count: int, dtype: Any) -> None:
        self.owner, self.offset, self.count, self.dtype = owner, offset, count, np.dtype(dtype)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> RecordedArray:
        first, last, _ = part.indices(self.count)
        return RecordedArray(self.owner, self.offset + first * self.dtype.itemsize, max(0, last - first), self.dtype)

    def view(self, dtype: Any) -> RecordedArray:
        return RecordedArray(self.owner, self.offset, self.count * self.dtype.itemsize // np.dtype(dtype).itemsize, dtype)


class Later(int):
    """A number that each bulk has its own of: the one at `index`."""

    index: int

    @classmethod
    def at(cls, index: int) -> Later:
        number = cls(0)
        number.index = index
        return number

    @classmethod
    def of(cls, draws: Sequence[Draw]) -> list[Draw]:
        """Return the draws of all hops with seeds and tags that come later."""
        return [Draw(draw.law, *map(cls.at, (2 * hop, 2 * hop + 1))) for hop, draw in enumerate(draws)]


class _Address(NamedTuple):
    word: int
    memory: Memory
    offset: int


class _Recorder:
    """An array module and a launcher that only take notes."""

    def __init__(self, most_blocks: Callable[[str], int]) -> None:
        self.names: list[str | None] = []  # None is a fill
        self.blocks: list[int] = []
        self.starts, self.words = [0], list[int]()
        self.addresses, self.numbers = list[_Address](), list[tuple[int, int]]()  # (word, index of a number)
        self.memories, self.inputs = list[Memory](), list[np.ndarray]()
        self._input = Memory(0, 0, _INPUT)
        self.most_blocks, self.can_enqueue, self.l2_fetch_bytes = most_blocks, False, 0
        self.arrays = SimpleNamespace(empty=self._empty, full=self._full, asarray=self._put, asnumpy=_no_wait)

    def __call__(self, name: str, blocks: int, *values: Any) -> None:
        for value in values:
            if isinstance(value, Later):
                self.numbers.append((len(self.words), value.index))
            if isinstance(value, RecordedArray):
                self.addresses.append(_Address(len(self.words), value.owner.memory, value.offset))
            self.words.append(0 if value is None or isinstance(value, RecordedArray) else operator.index(value) & (2**64 - 1))
        assert len(values) == len(kernels()[name].parameters)
        self._launched(name, blocks)

    def outside(self, array: Any, index: int) -> RecordedArray | None:
        """Stand for an array that each bulk is given."""
        return None if array is None else RecordedArray(_Owner(Memory(0, 0, _OUTSIDE + index)), 0, len(array), array.dtype)

    def _empty(self, count: int, dtype: Any) -> RecordedArray:
        memory = Memory(count * np.dtype(dtype).itemsize, len(self.names))
        owner = _Owner(memory)
        self.memories.append(memory)
        weakref.finalize(owner, self._freed, memory).atexit = False
        return RecordedArray(owner, 0, count, dtype)

    def _freed(self, memory: Memory) -> None:
        memory.died = len(self.names)

    def _full(self, count: int, value: Any, dtype: Any) -> RecordedArray:
        array, pattern = self._empty(count, dtype), np.array([value], dtype).view(np.uint32)
        assert (pattern == pattern[0]).all(), "fills repeat 32 bits"
        if count:
            self.addresses.append(_Address(len(self.words), array.owner.memory, 0))
            self.words += [0, int(pattern[0]), count * len(pattern)]
            self._launched(None, 1)
        return array

    def _put(self, array: np.ndarray) -> RecordedArray:
        """Note an array that is copied to the device in front of all launches."""
        offset = sum(_aligned(one.nbytes) for one in self.inputs)
        self.inputs.append(array)
        return RecordedArray(_Owner(self._input), offset, len(array), array.dtype)

    def _launched(self, name: str | None, blocks: int) -> None:
        self.names.append(name)
        self.blocks.append(blocks)
        self.starts.append(len(self.words))

    def phase(self, name: str, stream: Any = None) -> AbstractContextManager[Any]:
        return nullcontext()  # launches are enqueued later

    def _refused(self, *arguments: Any) -> Any:
        raise AssertionError("a recording launches nothing")

    functions = address = enqueue = _refused


def _no_wait(array: Any) -> Any:
    raise AssertionError("what is recorded cannot wait")


class Recording:
    """The launches of a bulk of one shape, which the launcher of `device` enqueues.

    ``run(recorded, outside)`` launches on a device that records, and returns a result and the arrays in it. `outside` are arrays of the
    device that each bulk is given, as the graph, or None.
    """

    def __init__(
        self, device: CudaDevice, run: Callable[[CudaDevice, list[Any]], tuple[Any, Sequence[RecordedArray]]], outside: Sequence[Any]
    ) -> None:
        notes = _Recorder(device.launch.most_blocks)
        recorded = CudaDevice(notes.arrays, notes, device.free_bytes)
        recorded.numbering = device.numbering
        self.result, kept = run(recorded, [notes.outside(array, i) for i, array in enumerate(outside)])
        for array in kept:
            if array.owner.memory.place == _SCRATCH:
                array.owner.memory.place = _KEPT
        self.kept_bytes = _placed([memory for memory in notes.memories if memory.place == _KEPT], shared=False)
        self.scratch_bytes = _placed([memory for memory in notes.memories if memory.place == _SCRATCH], shared=True)
        self.names, self._launcher = notes.names, device.launch
        self._functions = self._launcher.functions(notes.names)
        self._blocks, self._starts = np.array(notes.blocks, np.uint32), np.array(notes.starts, np.int64)
        self._threads = np.array([1 if name is None else kernels()[name].threads for name in notes.names], np.uint32)
        self._words = np.array(notes.words, np.uint64)
        self._address_words = np.array([a.word for a in notes.addresses], np.int64)
        self._places = np.array([a.memory.place for a in notes.addresses], np.int64)
        self._words[self._address_words] = [a.memory.offset + a.offset for a in notes.addresses]
        self._number_words = np.array([word for word, _ in notes.numbers], np.int64)
        self._numbers = np.array([index for _, index in notes.numbers], np.int64)
        self._inputs = end_to_end(notes.inputs, _ALIGNED // 8)[0]

    def enqueue(
        self, device: CudaDevice, outside: Sequence[Any], inputs: Sequence[tuple[RecordedArray, np.ndarray]], numbers: Sequence[int]
    ) -> Callable[[RecordedArray], Any]:
        """Enqueue the launches for another bulk: two allocations, one copy, no wait. Returns what turns recorded arrays into its own."""
        kept, scratch = device.empty(self.kept_bytes // 8, np.int64), device.empty(self.scratch_bytes // 8, np.int64)
        words_of_inputs = self._inputs.copy()
        for array, values in inputs:
            words_of_inputs.view(array.dtype)[array.offset // values.itemsize :][: len(values)] = values
        there, words, address = device.put(words_of_inputs), self._words.copy(), self._launcher.address
        bases = np.array([address(one) for one in (kept, scratch, there, *outside)], np.uint64)
        words[self._address_words] += bases[self._places]
        words[self._number_words] = np.array(numbers, np.uint64)[self._numbers]
        self._launcher.enqueue(self._functions, self._blocks, self._threads, self._starts, words)
        views = {np.dtype(np.int64): kept}

        def array_of(array: RecordedArray) -> Any:
            memory, whole = array.owner.memory, views.get(array.dtype)
            base = there.view(array.dtype) if memory.place == _INPUT else whole if whole is not None else kept.view(array.dtype)
            views.setdefault(array.dtype, kept if base is kept else kept.view(array.dtype))
            first = (memory.offset + array.offset) // array.dtype.itemsize
            return base[first : first + array.count]

        return array_of


def recorded(
    device: CudaDevice, key: Hashable, run: Callable[[CudaDevice, list[Any]], tuple[Any, Sequence[RecordedArray]]], outside: Sequence[Any]
) -> Recording:
    """Return the recording of bulks of the shape `key`, made now if there is none; the newest `RECORDINGS` are kept."""
    recording: Recording | None = device.recordings.get(key)
    if recording is None:
        recording = Recording(device, run, outside)
        with device.recordings_lock:
            while len(device.recordings) >= RECORDINGS:
                del device.recordings[next(iter(device.recordings))]
            device.recordings[key] = recording
    return recording


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def _placed(memories: list[Memory], shared: bool) -> int:
    """Give each allocation an offset and return the bytes of all; with `shared`, allocations used at other times may overlap."""
    done: list[Memory] = []
    for memory in sorted(memories, key=lambda one: -one.nbytes):
        size = _aligned(memory.nbytes)
        at = 0
        for other in sorted((one for one in done if not shared or _meet(one, memory)), key=lambda one: one.offset):
            if other.offset - at >= size:
                break
            at = max(at, other.offset + _aligned(other.nbytes))
        memory.offset = at
        done.append(memory)
    return max((one.offset + _aligned(one.nbytes) for one in done), default=0)


def _meet(a: Memory, b: Memory) -> bool:
    """True if both allocations are used at the same time; one that was never freed is used to the end."""
    return (b.died < 0 or a.born < b.died) and (a.died < 0 or b.born < a.died)
