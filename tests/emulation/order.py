"""Finds work on an emulated device that a real one could run in another order.

The emulation runs everything at once. So each stream keeps a vector clock (Lamport 1978, Mattern 1989): an operation is one tick of its
stream; an event carries the ticks that its stream has seen, and a stream that waits for it has seen them too. What the host starts has
seen what the host waited for. Memory belongs to the stream on which it was allocated, and Python gives it back to the pool of that stream,
which hands it out again at once. Faults are therefore

    an operation on memory that another stream wrote, or a write to memory that another stream used, without an event between them;
    memory that is given back before its own stream has waited for the last use on another;
    an operation of a thread that names no stream.

Not seen: reads through addresses that lie in memory (the tables of relations), memory of the host that kernels read or copies write,
streams that NCCL and MPI have of their own, and what a card has in the place of these classes (`CudaStream`, `open_streams`, `share_pool`).
"""

import sys
import threading
import types
import weakref
from bisect import bisect_right, insort
from collections import deque
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

import bulksample
from bulksample.backends.cuda.device import _SIGNATURE, kernels

from .host import HostLauncher
from .host import arrays as plain

FAULTS = []  # of all devices, in words, each once
_OURS = str(Path(bulksample.__file__).parent)
_LOCK = threading.RLock()


class Clock:
    """The ticks that a stream has seen, of itself and of others."""

    def __init__(self, name):
        self.name, self.seen = name, {}

    def record(self):
        """Return an event."""
        with _LOCK:
            return dict(self.seen)

    def wait(self, event):
        with _LOCK:
            _merge(self.seen, event)


class _Thread(threading.local):
    """A thread of the host: the streams on which it queues work, and the ticks that it has waited for."""

    def __init__(self):
        self.tensor_streams, self.kernel_streams, self.waited = [], [], {}


_HERE = _Thread()


class _Block:
    """An allocation."""

    def __init__(self, first, nbytes, home, since):
        self.first, self.nbytes, self.home, self.since, self.site = first, nbytes, home, since, _site()
        self.written, self.used = (home, 0), {}  # (stream, tick); and by stream the tick and the place of the last use


class _Memory:
    """All allocations by their addresses."""

    def __init__(self):
        self._first, self._blocks, self._gone, self._since = [], {}, deque(), object()

    def begin_anew(self):
        """Take what is allocated now as used for the last time: what a run that failed leaves may be given back at any time."""
        self._since = object()

    def find(self, address):
        """The allocation that an address lies in; None for memory of the host."""
        self._forget()
        at = bisect_right(self._first, address) - 1
        block = self._blocks[self._first[at]] if at >= 0 else None
        return block if block is not None and address < block.first + block.nbytes else None

    def add(self, owner, first, nbytes, home):
        """Note an allocation that lives as long as its owner."""
        block = _Block(first, nbytes, home, self._since)
        insort(self._first, first)
        self._blocks[first] = block
        weakref.finalize(owner, self._given_back, block).atexit = False
        return block

    def _given_back(self, block):
        home = block.home
        for stream, (tick, site) in block.used.items() if block.since is self._since else ():
            if stream is not home and max(home.seen.get(stream, 0), _HERE.waited.get(stream, 0)) < tick:
                _fault(
                    f"memory of the stream {home.name!r} from {block.site} is given back before that stream waits for {stream.name!r}, "
                    f"which used it in {site}"
                )
        self._gone.append(block)  # a finalizer may interrupt whoever holds the lists

    def _forget(self):
        while self._gone:
            first = self._gone.popleft().first
            del self._blocks[first]
            self._first.pop(bisect_right(self._first, first) - 1)


_MEMORY = _Memory()


def begin_anew():
    """Forget all faults, and what was allocated before."""
    FAULTS.clear()
    _MEMORY.begin_anew()


@contextmanager
def queued_on(clock, tensors=True):
    """Queue what this thread starts on a stream: kernels, and torch's operations unless `tensors` is false."""
    stacks = [_HERE.kernel_streams, *([_HERE.tensor_streams] if tensors else [])]
    for stack in stacks:
        stack.append(clock)
    try:
        yield
    finally:
        for stack in stacks:
            stack.pop()


def set_default_stream(clock):
    """Make a stream the one on which this thread queues what names none."""
    _HERE.kernel_streams[:1], _HERE.tensor_streams[:1] = [clock], [clock]


def operation(reads=(), writes=(), made=(), kernels=False):
    """Note an operation: addresses that it reads and writes, and (owner, address, bytes) of memory that it allocates and writes."""
    stack = _HERE.kernel_streams if kernels else _HERE.tensor_streams
    site = _site()
    if not stack:
        if any(_known(address) for address in (*reads, *writes)):
            _fault(f"{site} uses memory of a device in a thread that queues work on none of its streams")
        return
    stream = stack[-1]
    with _LOCK:
        _merge(stream.seen, _HERE.waited)
        tick = stream.seen[stream] = stream.seen.get(stream, 0) + 1
        for address in reads:
            if (block := _MEMORY.find(address)) is not None:
                _check(stream, site, "reads", block, [block.written])
                block.used[stream] = tick, site
        for address in writes:
            if (block := _MEMORY.find(address)) is not None:
                _check(stream, site, "writes", block, [block.written, *((other, last) for other, (last, _) in block.used.items())])
                block.written, block.used[stream] = (stream, tick), (tick, site)
        for owner, address, nbytes in made:
            if nbytes and _MEMORY.find(address) is None:
                block = _MEMORY.add(owner, address, nbytes, stream)
                block.written, block.used[stream] = (stream, tick), (tick, site)


def host_waits(kernels=False):
    """Note that the host waits for the stream on which this thread queues work."""
    for stream in (_HERE.kernel_streams if kernels else _HERE.tensor_streams)[-1:]:
        host_waits_for(stream.record())


def host_waits_for(event):
    """Note that the host waits for an event."""
    _merge(_HERE.waited, event)


def all_wait(clocks):
    """Let the streams of a device wait for each other, as after a wait of the host for all of them."""
    for clock in clocks:
        for other in clocks:
            clock.wait(other.record())


def _known(address):
    with _LOCK:
        return _MEMORY.find(address) is not None


def _check(stream, site, does, block, others):
    for other, tick in others:
        if other is not stream and stream.seen.get(other, 0) < tick:
            _fault(
                f"{site} {does} memory on the stream {stream.name!r} that {block.site} allocated on {block.home.name!r}, "
                f"and no event comes between this and the last use on {other.name!r}"
            )


def _fault(text):
    if text not in FAULTS:
        FAULTS.append(text)


def _merge(seen, others):
    for stream, tick in others.items():
        if seen.get(stream, 0) < tick:
            seen[stream] = tick


def _site():
    """The innermost line of the package that is being run."""
    frame = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return "torch" if frame is None else f"{frame.f_code.co_filename[len(_OURS) + 1 :]}:{frame.f_lineno}"


# ---- kernels and arrays


def _address(array):
    return array.__array_interface__["data"][0]


def _making(function):
    """A function of the array module whose result is a new array of the device."""

    def make(first, *arguments, **named):
        made = function(first, *arguments, **named)
        operation(made=[(made, _address(made), made.nbytes)], kernels=True)
        return made

    return make


def _argsort(keys):
    order = plain.argsort(keys)
    operation([_address(keys)], made=[(order, _address(order), order.nbytes)], kernels=True)
    return order


def _asnumpy(array):
    operation([_address(array)], kernels=True)
    host_waits(kernels=True)
    return plain.asnumpy(array)


_NOTED = {name: _making(getattr(plain, name)) for name in ("empty", "full", "asarray")}
arrays = types.SimpleNamespace(**{**vars(plain), **_NOTED, "argsort": _argsort, "asnumpy": _asnumpy})


@cache
def _pointers_written():
    """For each kernel and each of its parameters: None if it is a number, else whether it points to what the kernel may write."""
    declared = {name: parameters for kernel in kernels().values() for _, name, parameters in _SIGNATURE.findall(kernel.file.read_text())}
    return {name: ["const" not in one if "*" in one else None for one in text.split(",")] for name, text in declared.items()}


class OrderedLauncher(HostLauncher):
    """A launcher that notes what kernels read and write."""

    def __init__(self, clock, **options):
        super().__init__(**options)
        self._clock = clock
        self._names = dict(zip(self.functions(kernels()).tolist(), kernels(), strict=True))

    def _launched(self, name, addresses):
        pointers = [
            (int(address), written) for address, written in zip(addresses, _pointers_written()[name], strict=True) if written is not None
        ]
        operation([at for at, written in pointers if not written], [at for at, written in pointers if written], kernels=True)

    def __call__(self, name, blocks, *values):
        self._launched(name, [_address(value) if isinstance(value, np.ndarray) else value or 0 for value in values])
        super().__call__(name, blocks, *values)

    def enqueue(self, functions, blocks, threads, starts, words):
        for i, function in enumerate(functions.tolist()):
            own = words[starts[i] : starts[i + 1]].tolist()
            if function:
                self._launched(self._names[function], own)
            else:
                operation(writes=own[:1], kernels=True)  # a fill
        super().enqueue(functions, blocks, threads, starts, words)

    def phase(self, name, stream=None):
        assert stream is None, "streams that have a clock queue by themselves"
        return queued_on(self._clock, tensors=False)
