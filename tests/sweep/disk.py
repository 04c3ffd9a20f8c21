"""Failing disks: ENOSPC, EIO and EROFS at every n-th call of every writer; the old content or the new one is whole."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from bulksample.data import store
from bulksample.data.atomic import write_file
from bulksample.data.held_out_links import HeldOutLinks
from bulksample.distributed.matrix.partition import Partition
from bulksample.errors import UsageError
from bulksample.training import checkpoint

from .child import in_child
from .small_graphs import graph, stored_digest
from .verdict import DEADLINE

ERRORS = ("ENOSPC", "EIO", "EROFS")
_PAIRS = {"val": np.zeros((0, 2), np.int32), "test": np.zeros((0, 2), np.int32)}


class Writer(NamedTuple):
    """Writes one of two contents (0 or 1) below a folder, and reads it back; errors are of one class."""

    write: Callable[[Path, int], object]
    read: Callable[[Path], object]
    error: type[Exception]


WRITERS = {
    "store": Writer(
        lambda folder, which: store.save(graph(("dense", "weighted")[which], 40), folder / "g", overwrite=True),
        lambda folder: stored_digest(folder / "g"),
        UsageError,
    ),
    "checkpoint": Writer(
        lambda folder, which: checkpoint.save(folder, 1 + which, {"model.a": torch.arange(64)}, {"number": which}),
        lambda folder: checkpoint.read(folder)[1][1]["number"],
        OSError,
    ),
    "partition": Writer(
        lambda folder, which: Partition(2, np.array([0, 1, which], np.int32)).save(folder / "p.npz"),
        lambda folder: Partition.load(folder / "p.npz").assignment.tolist(),
        UsageError,
    ),
    "edge split": Writer(
        lambda folder, which: HeldOutLinks(("a", f"{which}", "a"), (), _PAIRS, _PAIRS).save(folder),
        lambda folder: HeldOutLinks.read(folder).relation,
        UsageError,
    ),
    "file of results": Writer(
        lambda folder, which: write_file(folder / "r.json", f"{which}" * 20_000),
        lambda folder: (folder / "r.json").read_text(),
        OSError,
    ),
}


def intercept(before: Callable[[str], None]) -> None:
    """Call ``before(name)`` ahead of every call of this process that changes the disk."""

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            before(name)
            return function(*arguments, **options)

        return call

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            before("write")
            return super().write(data)

    def opened(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode != "wb":
            return real(path, mode, *arguments, **options)
        before("open")
        return io.BufferedWriter(Raw(path, "wb"))

    real = builtins.open
    builtins.open = opened
    for name in ("mkdir", "fsync", "rename", "replace"):
        setattr(os, name, wrapped(name, getattr(os, name)))


@cache
def calls(name: str) -> dict[str, int]:
    """Return how often a writer makes each call."""

    def counted() -> dict[str, int]:
        seen: Counter[str] = Counter()
        with TemporaryDirectory(prefix="bulksample-sweep-") as place:
            WRITERS[name].write(Path(place), 0)
            intercept(lambda call: seen.update([call]))
            WRITERS[name].write(Path(place), 1)
        return dict(seen)

    return in_child(counted, DEADLINE)


def cases(seed: int) -> list[dict[str, Any]]:
    """Return every failure of every call of every writer; the seed changes nothing."""
    return [
        {"group": name, "call": call, "nth": nth, "error": error}
        for name in WRITERS
        for call, count in sorted(calls(name).items())
        for nth in range(1, count + 1)
        for error in ERRORS
    ]


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Replace a content by another while one call fails."""
    with TemporaryDirectory(prefix="bulksample-sweep-") as made:
        found = in_child(lambda: _attempt(case, Path(made)), DEADLINE)
    if "hung" in found or "died" in found:
        return {"passed": False, "seen": f"no answer: {found}"}
    return found


def _attempt(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write, fail while writing again, read; then write without a failure. For a child."""
    writer, number, seen = WRITERS[case["group"]], getattr(errno, case["error"]), Counter[str]()
    (folder / "apart").mkdir()
    writer.write(folder / "apart", 1)
    writer.write(folder, 0)
    old, new = writer.read(folder), writer.read(folder / "apart")

    def fail(call: str) -> None:
        seen.update([call])
        if call == case["call"] and seen[call] == case["nth"]:
            raise OSError(number, os.strerror(number))

    intercept(fail)
    said = ""
    try:
        writer.write(folder, 1)
    except writer.error as error:
        said = str(error)
    read = writer.read(folder)
    faults = {
        "the content is neither the old nor the new one": read not in ((old, new) if said else (new,)),
        f"the message names no reason: {said}": bool(said) and os.strerror(number) not in said,
        "a part stays behind": any(".bulksample-" in path.name for path in folder.rglob("*")),
        "the call was never made": seen[case["call"]] < case["nth"],
    }
    writer.write(folder, 1)
    faults["a second attempt does not help"] = writer.read(folder) != new
    wrong = [fault for fault, holds in faults.items() if holds]
    kept = f"refused with the {'old' if read == old else 'new'} content whole" if said else "written all the same"
    return {"passed": not wrong, "seen": "; ".join(wrong) or kept}
