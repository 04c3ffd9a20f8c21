"""Divide the edges of a relation by shares into those for training, validation and the test.

Edges in the order of time are cut between two times only, so a share may come out larger or smaller than was asked for.
"""

from __future__ import annotations

import numpy as np

from ..errors import UsageError, is_whole
from ..free_memory import check_free
from ..graph import Relation

_NEGATIVE_BYTES = 48  # of memory for each negative while it is drawn: its source, place, random words and vertex


def cut(
    ordered: np.ndarray, val: float, test: float, times: np.ndarray | None, relation: Relation
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return the events of val and of test: from the beginning of a list, or the latest; and warnings of shares that are far off.

    Parameters
    ----------
    ordered : int64, shape (m,)
        Events; with times, in their order.
    times : int64, shape (m,), optional
        Of each event of the list.

    Raises
    ------
    UsageError
        If none is left for training, or a positive share gives none.
    """
    m = len(ordered)
    counts = {"val": round(val * m), "test": round(test * m)}
    if times is None:
        spans = {"val": slice(0, counts["val"]), "test": slice(counts["val"], sum(counts.values()))}
        left = m - sum(counts.values())
    else:
        left, middle = (_first_of_time(times, m - own) for own in (sum(counts.values()), counts["test"]))
        left = middle if not counts["val"] else left
        spans = {"val": slice(left, middle), "test": slice(middle, m)}
    if left < 1:
        of = "" if times is None else " of one time go together, and those"
        raise UsageError(f"{m} edges{of} leave none for training with shares {val} and {test}; use lower ones")
    held, warnings = {split: np.sort(ordered[span]) for split, span in spans.items()}, []
    for split, asked in (("val", val), ("test", test)):
        got = len(held[split]) / m
        if asked and not counts[split]:
            raise UsageError(f"{split}: a share of {asked:g} gives none of {m} edges; use {share_of(1, m)} or more, or 0")
        if asked and not got:
            assert times is not None
            raise UsageError(_none_between(times, asked, spans["test"].start, relation))
        if times is not None and abs(got - asked) > asked / 2:
            warnings.append(
                f"{split}: got {got:.3g} of the edges, {asked:g} was asked for; those of one time go together, and {relation} has "
                f"{len(np.unique(times))} distinct times"
            )
    return held, tuple(warnings)


def _none_between(times: np.ndarray, val: float, middle: int, relation: Relation) -> str:
    """Return the message for a validation whose edges have all gone to the test, which begins at `middle`."""
    m, first = len(times), _first_of_time(times, middle - 1)
    use = f"val {share_of(middle - first, m)} and test {share_of(m - middle, m)}, the latest two times" if first else "val 0"
    return (
        f"val: a share of {val:g} gives none of {m} edges, which have {len(np.unique(times))} distinct times: {relation}; those of one "
        f"time go together, and the test takes {m - middle}; use {use}"
    )


def _first_of_time(times: np.ndarray, at: int) -> int:
    """Return the first position with the time of a position."""
    return int(np.searchsorted(times, times[at])) if at < len(times) else len(times)


def share_of(count: int, m: int) -> float:
    """Return the share with the fewest digits that gives so many of m edges."""
    return next(share for digits in range(1, 17) if round((share := round(count / m, digits)) * m) == count)


def check_shares(val: float, test: float, negatives: int) -> None:
    """Raise `UsageError` unless some edges are held out and others are left for training, and K is a whole number from 1."""
    if not (val >= 0 and test >= 0 and val + test < 1):
        raise UsageError(f"got shares {val} for validation and {test} for the test; use shares from 0 that add up to less than 1")
    if val + test == 0:
        raise UsageError("got shares 0 for validation and 0 for the test, which hold nothing out; give one of them")
    if not is_whole(negatives, 1, 2**31 - 1):
        raise UsageError(f"negatives: got {negatives!r} for each held-out edge; use a whole number from 1 to {2**31 - 1}")


def check_room(negatives: int, edges: int) -> None:
    """Raise `UsageError` if K negatives for each of so many edges do not fit into free memory."""
    check_free(_NEGATIVE_BYTES * edges * negatives, f"{negatives} negatives for each of {edges} held-out edges", "use fewer negatives")
