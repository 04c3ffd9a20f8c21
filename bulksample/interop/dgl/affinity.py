"""Bind the threads of a process to cores: those that sample to some, all others to the rest, as DGL's loader does with its workers.

New threads inherit the cores of their maker, so the thread that samples ahead binds itself first. Living ones are bound by their ids.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from ...backends.base import Backend
from ...errors import UsageError, check_switches, is_whole
from ...process_lock import process_lock

_SYSTEM, _THREADS = Path("/sys/devices/system"), Path("/proc/self/task")
_LOCK = process_lock()


class _Context:
    """An open context of a thread, which had some cores before."""

    def __init__(self, own: Set[int]) -> None:
        self.own, self.thread, self.undo, self.closed = own, threading.get_ident(), ExitStack(), False


_OPEN: list[_Context] = []  # of this process, the outermost first
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_OPEN.clear)  # a child leaves its own by itself


@contextmanager
def bound(
    backend: Backend, assign: Callable[[frozenset[int] | None], Any], loader_cores: Any, compute_cores: Any, workers: Any, verbose: Any
) -> Iterator[None]:
    """Bind the threads of this process to the cores to compute, and restore all at the end, of several contexts when the last one ends.

    ``assign(cores)`` takes the cores of threads that sample from now on, and returns those of before. A thread that has been bound to fewer
    or other cores than the calling thread stays there. torch gets a thread for each core to compute, and the back end at most one for
    each core to sample. Raises `UsageError` before anything changes.
    """
    if not hasattr(os, "sched_setaffinity") or not _THREADS.is_dir():
        raise UsageError("enable_cpu_affinity binds threads through /proc/self/task of Linux, which is missing here; leave it out")
    check_switches(verbose=verbose)
    context = _Context(own := os.sched_getaffinity(0))
    try:
        with _LOCK:
            if any(other.thread != context.thread for other in _OPEN):
                raise UsageError(
                    "enable_cpu_affinity: another thread of this process is in such a context; enter it on one thread at a time"
                )
            loaders, compute = divided(_OPEN[0].own if _OPEN else own, loader_cores, compute_cores, workers)
            _OPEN.append(context)
            undo = context.undo.callback
            undo(torch.set_num_threads, torch.get_num_threads())
            undo(setattr, backend, "threads", backend.threads)
            undo(_restore, before := _cores_of_threads(), own, (set(loaders), set(compute)))
            undo(assign, assign(frozenset(loaders)))
            _bind({thread: compute for thread, cores in before.items() if cores >= own})
            torch.set_num_threads(len(compute))
            backend.threads = min(backend.threads, len(loaders))
        if verbose:
            print(f"bulksample: sampling on cores {_shown(loaders)}; other threads on cores {_shown(compute)}, torch with {len(compute)}")
        yield
    finally:
        with _LOCK:
            context.closed = True
            if context not in _OPEN:
                context.undo.close()
            while _OPEN and _OPEN[-1].closed:
                _OPEN.pop().undo.close()


def divided(usable: Set[int], loader_cores: Any, compute_cores: Any, workers: Any) -> tuple[list[int], list[int]]:
    """Return the cores to sample and to compute. By default the first `workers` of `near_cores`, at least 1, and the others."""
    if not is_whole(workers, 0):
        raise UsageError(f"num_workers must be a whole number, at least 0; got {workers!r}")
    loaders, compute = _checked("loader_cores", loader_cores, usable), _checked("compute_cores", compute_cores, usable)
    if both := sorted({*loaders} & {*compute}):
        raise UsageError(f"loader_cores and compute_cores both name core {both[0]}; give each core to one of them")
    wanted = len(loaders) or max(1, int(workers))
    for cores in (near_cores(usable), sorted(usable)):
        sample = loaders or [core for core in cores if core not in compute][:wanted]
        rest = compute or [core for core in cores if core not in sample]
        if len(sample) == wanted and rest:
            return sample, rest
    asked = f"{wanted} to sample (loader_cores or num_workers), {len(compute) or 'others'} to compute"
    raise UsageError(f"enable_cpu_affinity needs cores: {asked}; got {_shown(usable)}; give fewer to sample, or leave it out")


def near_cores(usable: Set[int]) -> list[int]:
    """Return one usable logical processor of each physical core of the first NUMA node that has any.

    Returns all usable ones where Linux does not tell.
    """
    try:
        nodes = sorted(_SYSTEM.glob("node/node[0-9]*"), key=lambda node: int(node.name[4:]))
        near = next(near for node in nodes if (near := _ids(node / "cpulist") & usable))
        return [core for core in sorted(near) if core == min(_ids(_SYSTEM / f"cpu/cpu{core}/topology/thread_siblings_list") & near)]
    except (OSError, ValueError, StopIteration):
        return sorted(usable)


def _ids(path: Path) -> set[int]:
    """Return the ids in a list such as ``0-3,8``."""
    ends = [part.split("-") for part in path.read_text(encoding="ascii").strip().split(",") if part]
    return {core for pair in ends for core in range(int(pair[0]), int(pair[-1]) + 1)}


def _checked(name: str, given: Any, usable: Set[int]) -> list[int]:
    """Return cores that the user gave; none for None."""
    if given is None:
        return []
    cores = list(given) if hasattr(given, "__iter__") else []
    if not cores or not all(is_whole(core, 0) for core in cores) or len(set(cores)) < len(cores):
        raise UsageError(f"{name} must be a list of one or more distinct whole numbers; got {given!r}: use some of {_shown(usable)}")
    if far := [core for core in cores if core not in usable]:
        raise UsageError(f"{name} names core {far[0]}, which this process may not use; use some of {_shown(usable)}")
    return [int(core) for core in cores]


def _shown(cores: Any) -> str:
    return ", ".join(map(str, sorted(cores)))


def _cores_of_threads() -> dict[int, set[int]]:
    found = {}
    for task in _THREADS.iterdir():
        with suppress(ProcessLookupError):  # it has ended
            found[int(task.name)] = os.sched_getaffinity(int(task.name))
    return found


def _restore(before: dict[int, set[int]], own: set[int], ours: tuple[set[int], set[int]]) -> None:
    """Restore the cores of threads that lived before.

    Threads that were started since, and have the cores of the context, get those that its thread had.
    """
    _bind({thread: before.get(thread, own) for thread, cores in _cores_of_threads().items() if thread in before or cores in ours})


def _bind(threads: dict[int, Any]) -> None:
    for thread, cores in threads.items():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cores)
