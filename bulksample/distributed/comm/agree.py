"""Compare settings over ranks before the first step, and tell all ranks what one of them refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from ...errors import BackendUnavailable, DataError, PeerLost, UsageError
from ...graph import Graph
from ...sparse import CSR
from .base import Comm

_ALIKE = "start all ranks with the same command, data and version"
_SLICE = 2**18
_SLICES = 8
_SHARED = (UsageError, DataError, BackendUnavailable)
_NAMED: dict[str, type[Exception]] = {one.__name__: one for one in _SHARED}

T = TypeVar("T")


def agree(comm: Comm, settings: dict[str, Any], hashes: dict[str, Any] | None = None, remedy: str = _ALIKE) -> None:
    """Raise `UsageError` on all ranks together if they do not have equal settings, JSON values by the names that a user knows.

    It names the setting, the first two ranks that differ, and both values, unless these are `hashes` of what is too long to show, such as
    the graph. If ranks name different settings, they run different commands. `remedy` ends the message: what to do.
    """
    made_alike(comm, lambda: (None, settings, hashes or {}), remedy)


def together(comm: Comm, call: Callable[[], T]) -> T:
    """Call `call`, which sends nothing, on every rank; if it fails on one of them, raise on all. Collective.

    Raises `UsageError`, `DataError` or `BackendUnavailable` on all ranks: the error of the lowest rank that raised one. It names that rank
    unless all failed alike. An OSError becomes a `UsageError`. Any other exception is raised as it is on the ranks that raised it, and is a
    `UsageError` on the others.
    """
    return made_alike(comm, lambda: (call(), {}, {}))


def made_alike(comm: Comm, call: Callable[[], tuple[T, dict[str, Any], dict[str, Any]]], remedy: str = _ALIKE) -> T:
    """Call `call` as `together` does, and compare the settings and hashes that it returns besides as `agree` does, in one exchange."""

    def readable() -> tuple[T, list[dict[str, Any]]]:  # within the attempt, so that no rank fails alone
        value, *compared = call()
        return value, json.loads(json.dumps(compared, default=repr))

    made, fault = _called(readable)
    value, compared = made or (None, [{}, {}])
    everyone = comm.gather_control([fault.words, *compared])
    _raise_faults([rank[0] for rank in everyone], fault)
    _compare([rank[1:] for rank in everyone], remedy)
    return cast(T, value)


def _compare(everyone: list[list[dict[str, Any]]], remedy: str) -> None:
    """Raise `UsageError` for the first difference between the settings, or else the hashes, of all ranks."""
    for place, shown in enumerate((True, False)):
        first = everyone[0][place]
        for rank, theirs in enumerate(both[place] for both in everyone):
            for key in first:
                if key in theirs and theirs[key] != first[key]:
                    values = f"{first[key]!r} on rank 0, {theirs[key]!r} on rank {rank}"
                    difference = values if shown else f"another on rank {rank} than on rank 0"
                    raise UsageError(f"the ranks do not agree on {key}: {difference}; {remedy}")
    for rank, parts in enumerate(everyone):
        if any(mine.keys() != others.keys() for mine, others in zip(everyone[0], parts, strict=True)):
            raise UsageError(f"the ranks do not agree on the command: rank {rank} runs another one than rank 0; {remedy}")


def begin_together(comm: Comm, coming: tuple[int, int, int], seed: int) -> None:
    """Raise `UsageError` on every rank if ranks begin at different positions or with different seeds; collective.

    `coming` is (epoch, step, mini-batch), see `Position.coming`. Ranks whose seed is that of a state may have loaded different ones.
    """
    names = ("the epoch that they begin", "the step at which they begin", "the mini-batches of the epoch that are used")
    remedy = "load the same state on every rank, and begin and end every epoch on all of them"
    agree(comm, {**dict(zip(names, coming, strict=True)), "the seed": seed}, remedy=remedy)


def checked_on_rank_0(comm: Comm, call: Callable[[], T]) -> T | None:
    """Call `call` on rank 0, which alone reads and writes the files of a run; return its value there, None elsewhere. Collective.

    Raises `UsageError`, `DataError` or `BackendUnavailable` on all ranks: what `call` raises; see `together` for other exceptions.
    """
    made, fault = _called(call) if comm.rank == 0 else (None, _NO_FAULT)
    _raise_faults(comm.gather_control(fault.words)[:1], fault)
    return made


class _Fault(NamedTuple):
    """The fault of a rank: its kind and its text, empty for none, and the exception itself if ranks do not share its class."""

    words: list[str]
    unforeseen: Exception | None = None


_NO_FAULT = _Fault(["", ""])


def _called(call: Callable[[], T]) -> tuple[T | None, _Fault]:
    """Call `call`; return its value, and what it raised."""
    try:
        return call(), _NO_FAULT
    except PeerLost:  # `call` has communicated, and nobody is left to tell
        raise
    except (*_SHARED, OSError) as error:
        kind = next((name for name, one in _NAMED.items() if isinstance(error, one)), type(error).__name__)
        return None, _Fault([kind, _text(error)])
    except Exception as error:
        return None, _Fault([type(error).__name__, f"{type(error).__name__}: {_text(error)}"], error)


def _text(error: Exception) -> str:
    """Return the text of an exception, also of one whose class fails to make it."""
    try:
        return str(error)
    except Exception as another:
        return f"its text cannot be made, {type(another).__name__}"


def _raise_faults(everyone: list[list[str]], fault: _Fault) -> None:
    """Raise the fault of the lowest of these ranks that has one; a rank with an unforeseen fault raises its own."""
    if fault.unforeseen is not None:
        raise fault.unforeseen
    for rank, (kind, text) in enumerate(everyone):
        if kind:
            alike = all(other == everyone[0] for other in everyone)
            raise _NAMED.get(kind, UsageError)(text if alike else f"rank {rank}: {text}")


def fingerprint(graph: Graph) -> str:
    """Return 16 hex digits that identify a graph, of the size and dtype of each array and up to eight even slices of 256 KiB of it."""
    arrays: dict[str, np.ndarray | None] = {"labels": graph.labels, **{f"{k} mask": v for k, v in graph.masks.items()}}
    for name, matrix in (("adjacency", graph.adjacency), ("features", graph.features)):
        if isinstance(matrix, CSR):
            arrays |= {f"{name} indptr": matrix.indptr, f"{name} indices": matrix.indices, f"{name} values": matrix.values}
        else:
            arrays[name] = matrix
    sha = hashlib.sha256(f"{graph.num_classes} {graph.weight_unit!r}".encode())
    for name, array in arrays.items():
        if array is None:
            continue
        sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
        flat = array.reshape(-1)
        step = max(1, _SLICE // array.itemsize)
        for start in np.unique(np.linspace(0, max(0, len(flat) - step), _SLICES).astype(np.int64)):
            sha.update(np.ascontiguousarray(flat[start : start + step]).data)
    return sha.hexdigest()[:16]
