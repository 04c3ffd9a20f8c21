"""A mutant: one small edit of one source file, named so that edits elsewhere do not change its name."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from .line_tests import ROOT


class Edit(NamedTuple):
    """Replace the characters from `start` to `end` of a file, which are `old`, by `new`.

    `where` is the qualified name of the function, "" at the top of a module, and `line` that of the statement. Tests that run a line from
    `first` to `last` may notice the edit.
    """

    start: int
    end: int
    old: str
    new: str
    where: str
    line: int
    first: int
    last: int

    def applied(self, source: str) -> str:
        """Return the source with the edit made."""
        return source[: self.start] + self.new + source[self.end :]


def short(old: str, new: str) -> str:
    """Return "old -> new", each on one line; of long ones only what differs and 25 characters on both sides."""
    old, new = " ".join(old.split()), " ".join(new.split())
    if max(len(old), len(new)) > 80:
        head = _alike(old, new)
        tail = _alike(old[head:][::-1], new[head:][::-1])
        before, after = max(0, head - 25), max(0, tail - 25)
        old, new = (f"{'...' * (before > 0)}{text[before : len(text) - after]}{'...' * (after > 0)}" for text in (old, new))
    return f"{old} -> {new}"


def _alike(a: str, b: str) -> int:
    """Count the characters with which both texts begin."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def named(file: str, edits: Iterable[Edit]) -> dict[str, Edit]:
    """Return the edits of a file by name: ``file function: old -> new``, numbered from the second of the same name on."""
    found, seen = {}, Counter[str]()
    for edit in edits:
        name = f"{file} {edit.where or 'top'}: {short(edit.old, edit.new)}"
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} ({seen[name]})"] = edit
    return found


def drawn(seed: int, stratum: str, edits: dict[str, dict[str, Edit]], count: int) -> list[dict[str, Any]]:
    """Return `count` cases from the edits of some files; a change of one edit moves no other case.

    Edits come in the order of a hash of their names and the seed. Of several edits of one line, only the first is taken.
    """
    flat = {name: (file, edit) for file, of_file in edits.items() for name, edit in of_file.items()}
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for name in sorted(flat, key=lambda name: order(seed, name)):
        file, edit = flat[name]
        found.setdefault((file, edit.line), {"group": stratum, "file": file, "mutant": name})
    return list(found.values())[:count]


def order(seed: int, name: str) -> str:
    """Return a key that shuffles names, the same for the same seed."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


def source_of(file: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / file).read_text()
