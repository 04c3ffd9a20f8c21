"""Hold out edges of one relation of a graph for link prediction; that of a plain graph is named `to`.

Edges that have times, or whose ends have, are held out by time: the latest for the test, those before them for validation. Other edges are
held out at random. The graph for training lacks them, and their reverse edges in the relations that are the reverse of this one: in both
directions if it is undirected. Random numbers depend on the seed and the edge, so a split is the same on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import UsageError, is_whole
from ..free_memory import check_free
from ..graph import Graph, Key, Relation
from ..graph.links import NonNeighbors, link_times
from ..rng import Substream
from . import store
from .held_out_links import HELD_OUT, HeldOutLinks, ends_of
from .random_words import Words, scaled

_NEGATIVE_BYTES = 48  # of memory for each negative while it is drawn: its source, place, random words and vertex
_LEAST = 0.1  # share of the held-out edges whose reverses another relation must hold to be named with them


@dataclass(frozen=True, eq=False, init=False)
class LinkGraph(Graph):
    """A graph without the held-out edges of one of its relations, and these edges; other arguments are those of `Graph`."""

    held_out: HeldOutLinks | None  # `hold_out` and `load_links` give them
    warnings: tuple[str, ...]  # of `hold_out`, of shares that are off by more than half; not kept in a store

    def __init__(self, held_out: HeldOutLinks | None = None, warnings: tuple[str, ...] = (), **columns: Any) -> None:
        super().__init__(**columns)
        object.__setattr__(self, "held_out", held_out)
        object.__setattr__(self, "warnings", warnings)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the graph as a store, with its held-out edges in `links.npz`: all of it, or nothing."""
        store.save(self, path, overwrite, None if self.held_out is None else self.held_out.save)


def load_links(graph: Graph, folder: str | os.PathLike[str], absent: bool = True) -> LinkGraph:
    """Return the graph of a store with the held-out edges beside it; see `HeldOutLinks.load`. `absent` checks that it lacks them."""
    held_out = HeldOutLinks.load(folder)
    if absent:
        held_out.check_absent(graph)
    return LinkGraph(held_out, types=graph.types, relations=graph.relations, name=graph.name)


def hold_out(
    graph: Graph, relation: Key | str, val: float, test: float, negatives: int, seed: int, both: bool = False
) -> LinkGraph:  # fmt: skip
    """Hold out a share of the edges of a relation for validation, and another for the test.

    Edges keep their positions in the user's list of edges (`Relation.ids_of`). `LinkGraph.warnings` name shares that are off by more than
    half of what was asked for.

    Parameters
    ----------
    relation : (source, name, destination), or a name that one relation alone has
    val, test : float
        Shares of the edges. Loops are never held out. Parallel edges without times go together, and so do the two directions of an
        undirected relation within one type. Edges of one time go together too, to the later split.
    negatives : int
        K, the negatives of each held-out edge: drawn uniformly, independent of each other.
    both : bool
        Take the reverses of held-out edges, of any time, out of the relations that `reverses_left` names.

    Raises
    ------
    UsageError
        If the shares hold nothing out, leave no edge for training, or one of them gives none; if K is no whole number from 1, or the
        negatives do not fit into free memory; if the source of a held-out edge has an edge to every destination of its time.
    DataError
        If edges have times before any destination.
    """
    if not (val >= 0 and test >= 0 and val + test < 1):
        raise UsageError(f"got shares {val} for validation and {test} for the test; use shares from 0 that add up to less than 1")
    if val + test == 0:
        raise UsageError("got shares 0 for validation and 0 for the test, which hold nothing out; give one of them")
    if not is_whole(negatives, 1, 2**31 - 1):
        raise UsageError(f"negatives: got {negatives!r} for each held-out edge; use a whole number from 1 to {2**31 - 1}")
    links, words = graph.relation(relation), Words(seed)
    stamps, reverses = link_times(graph, links), reverses_of(graph, links)
    event, columns = _distinct_rows([*ends_of(links), *(() if links.times is None else (links.times,))])
    source, destination = columns[0], columns[1]
    if links.key in reverses:
        candidates = np.flatnonzero(source < destination)
    else:
        candidates = np.flatnonzero((source != destination) | (links.source != links.destination))
    when = None
    if stamps is None:
        candidates = candidates[words.permutation(Substream.HELD_OUT_LINK, len(candidates))]
    else:
        when = np.empty(len(source), np.int64)
        when[event] = stamps  # edges of one event share their time
        candidates = candidates[np.argsort(when[candidates], kind="stable")]
    events, warnings = cut(candidates, val, test, None if when is None else when[candidates], links)
    count = sum(map(len, events.values()))
    check_free(_NEGATIVE_BYTES * count * negatives, f"{negatives} negatives for each of {count} held-out edges", "use fewer negatives")
    times = None if when is None else {split: when[chosen] for split, chosen in events.items()}
    pairs, drawn, first, others = {}, {}, 0, NonNeighbors(graph, links)
    for split, chosen in events.items():
        pairs[split] = np.stack([source[chosen], destination[chosen]], axis=1).astype(np.int32)
        if links.key in reverses:
            turned = words.of(Substream.HELD_OUT_LINK_DIRECTION, first, len(chosen))[:, 0] % np.uint32(2) == 1
            pairs[split][turned] = pairs[split][turned][:, ::-1]
        stamped = None if times is None else times[split]
        drawn[split] = _negatives(others, pairs[split][:, 0], stamped, negatives, words, first * negatives)
        first += len(chosen)
    gone, named = [column[np.concatenate(list(events.values()))] for column in columns], not graph.plain
    relations = [_without(one, gone, named) if one.key == links.key else one for one in graph.relations]
    relations = [_without(one, [gone[1], gone[0], *gone[2:]], named) if one.key in reverses else one for one in relations]
    held_out = HeldOutLinks(links.key, reverses, pairs, drawn, times)
    if both:
        near = reverses_left(LinkGraph(held_out, warnings, types=graph.types, relations=tuple(relations), name=graph.name))
        relations = [_without(one, [gone[1], gone[0]], named) if one.key in near else one for one in relations]
        if not next(one for one in relations if one.key == links.key).edges:
            raise UsageError(f"{len(event)} edges leave none for training without the reverses of {first}; use lower shares")
    return LinkGraph(held_out, warnings, types=graph.types, relations=tuple(relations), name=graph.name)


def reverses_left(graph: LinkGraph, splits: Sequence[str] = HELD_OUT) -> dict[Key, float]:
    """Return the share of the held-out edges of some splits whose reverse is an edge of the graph for training, at any time, by relation.

    Relations between the same types, the other way; other relations than that of the held-out edges from a share of 10 % on.
    """
    assert graph.held_out is not None
    links, shares = graph.relation(graph.held_out.relation), {}
    pairs = np.concatenate([graph.held_out.pairs[split] for split in splits]).astype(np.int64)
    for other in graph.relations:
        if (other.source, other.destination) == (links.destination, links.source):
            count = graph.type(other.source).count
            by, to = ends_of(other)
            share = float(np.isin(pairs[:, 0] * count + pairs[:, 1], to * count + by).mean()) if len(pairs) else 0.0
            if share >= (_LEAST if other.key != links.key else np.nextafter(0, 1)):
                shares[other.key] = share
    return shares


def reverses_of(graph: Graph, relation: Relation) -> tuple[Key, ...]:
    """Return the relations that are the reverse of a relation.

    These run between the same types against it, and hold the same pairs as often, or are named ``rev_NAME`` after it (or it after them).
    """
    (source, destination), count, keys = ends_of(relation), graph.type(relation.destination).count, []
    turned = np.sort(source * count + destination)  # a number for the pair of each reverse edge
    for other in graph.relations:
        if (other.source, other.destination) == (relation.destination, relation.source):
            by, to = ends_of(other)
            named = f"rev_{relation.name}" == other.name or f"rev_{other.name}" == relation.name
            same = other.edges == relation.edges and np.array_equal(np.sort(to * count + by), turned)
            if named or (same and other.edges):
                keys.append(other.key)
    return tuple(keys)


def _distinct_rows(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Number the distinct rows of some columns; return the number of each row, int64, and the columns of the distinct rows."""
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    new = np.ones(len(order), bool)
    new[1:] = np.any([column[1:] != column[:-1] for column in ordered], axis=0)
    event = np.empty(len(order), np.int64)
    event[order] = np.cumsum(new) - 1
    return event, [column[new] for column in ordered]


def _negatives(
    others: NonNeighbors, sources: np.ndarray, times: np.ndarray | None, count: int, words: Words, first: int
) -> np.ndarray:  # fmt: skip
    """Draw negatives of held-out edges: int32, shape (len(sources), count)."""
    source, until = np.repeat(sources.astype(np.int64), count), None if times is None else np.repeat(times, count)
    existing = others.existing(source, until)
    eligible = others.eligible(source, existing)
    if len(eligible) and not eligible.all():
        at = int(np.argmin(eligible))
        when = "" if until is None else f" that exists at time {until[at]}"
        raise UsageError(f"vertex {source[at]} has an edge to every destination{when}, so it has no negative; use a sparser relation")
    bits = words.of(Substream.HELD_OUT_LINK_NEGATIVE, first, len(source))[:, 0]
    return others.at(source, existing, scaled(bits, 32, eligible)).reshape(len(sources), count).astype(np.int32)


def _without(relation: Relation, gone: Sequence[np.ndarray], named: bool) -> Relation:
    """Return a relation without the entries of some events, whose columns are source, destination and, if there is one, time.

    `named` entries keep their positions in the user's list of edges.
    """
    columns = [*ends_of(relation), *(() if relation.times is None or len(gone) < 3 else (relation.times,))]
    event, _ = _distinct_rows([np.concatenate(pair) for pair in zip(columns, gone, strict=False)])
    marked = np.zeros(len(event), bool)
    marked[event[relation.edges :]] = True
    kept = ~marked[event[: relation.edges]]
    ids = relation.ids_of(np.arange(relation.edges))[kept] if named else None
    times, features = (None if column is None else column[kept] for column in (relation.times, relation.features))
    return replace(relation, adjacency=relation.adjacency.keep(kept), edge_ids=ids, times=times, features=features)


def cut(
    ordered: np.ndarray, val: float, test: float, times: np.ndarray | None, relation: Relation
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return the events of val and of test: from the beginning of a list, or the latest; and warnings of shares that are far off.

    Edges in the order of time are cut between two times only, so a share may come out larger or smaller than was asked for. `ordered`,
    int64 of shape (m,), are events; with `times`, int64 of shape (m,), in their order. Raises `UsageError` if none is left for training, or
    a positive share gives none.
    """
    m = len(ordered)
    counts = {"val": round(val * m), "test": round(test * m)}
    if times is None:
        spans = {"val": slice(0, counts["val"]), "test": slice(counts["val"], sum(counts.values()))}
        left = m - sum(counts.values())
    else:
        left, middle = (_first_of_time(times, m - count) for count in (sum(counts.values()), counts["test"]))
        left = middle if not counts["val"] else left
        spans = {"val": slice(left, middle), "test": slice(middle, m)}
    if left < 1:
        of = "" if times is None else " of one time go together, and those"
        raise UsageError(f"{m} edges{of} leave none for training with shares {val} and {test}; use lower ones")
    events, warnings = {split: np.sort(ordered[span]) for split, span in spans.items()}, []
    for split, share in (("val", val), ("test", test)):
        got = len(events[split]) / m
        if share and not counts[split]:
            raise UsageError(f"{split}: a share of {share:g} gives none of {m} edges; use {share_of(1, m)} or more, or 0")
        if share and not got:
            assert times is not None
            middle = spans["test"].start  # all edges of validation have gone to the test
            first = _first_of_time(times, middle - 1)
            use = f"val {share_of(middle - first, m)} and test {share_of(m - middle, m)}, the latest two times" if first else "val 0"
            raise UsageError(
                f"val: a share of {share:g} gives none of {m} edges, which have {len(np.unique(times))} distinct times: {relation}; those "
                f"of one time go together, and the test takes {m - middle}; use {use}"
            )
        if times is not None and abs(got - share) > share / 2:
            warnings.append(
                f"{split}: got {got:.3g} of the edges, {share:g} was asked for; those of one time go together, and {relation} has "
                f"{len(np.unique(times))} distinct times"
            )
    return events, tuple(warnings)


def _first_of_time(times: np.ndarray, at: int) -> int:
    """Return the first position with the time of a position."""
    return int(np.searchsorted(times, times[at])) if at < len(times) else len(times)


def share_of(count: int, m: int) -> float:
    """Return the share with the fewest digits that gives so many of m edges."""
    return next(share for digits in range(1, 17) if round((share := round(count / m, digits)) * m) == count)
