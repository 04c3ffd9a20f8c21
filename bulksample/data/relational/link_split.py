"""Hold out edges of one relation of a heterogeneous graph for link prediction, and keep them in a file of the store.

Edges that have times, or whose ends have, are held out by time: the latest for the test, those before them for validation. Other edges are
held out at random. The graph for training lacks them, and their reverse edges in the relations that are the reverse of this one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, UsageError
from ...relations.graph import HeteroGraph, Key, Relation
from ...relations.links import NonNeighbors, link_times
from ...rng import Substream
from ...sparse import runs
from ..edge_split import FILE, HELD_OUT
from ..random_words import Words, scaled
from ..sealed import read_sealed, save_sealed
from . import hetero_store
from .link_shares import cut

_WRITER = "bulksample data split-edges"
_ARRAYS = ("pairs", "negatives", "times")


@dataclass(frozen=True, eq=False)
class HeldOutLinks:
    """Held-out edges of one relation.

    Parameters
    ----------
    relation : (source, name, destination)
    reverses : tuple of (source, name, destination)
        The relations that lack the reverse edges. An undirected relation is its own reverse.
    pairs : dict of int32 arrays of shape (e, 2)
        Source and destination of each held-out edge, for val and test.
    negatives : dict of int32 arrays of shape (e, K)
        Destinations to which the source has no edge in the whole graph, and which exist at the time of the edge.
    times : dict of int64 arrays of shape (e,), optional
        The time at which each edge is asked about.
    """

    relation: Key
    reverses: tuple[Key, ...]
    pairs: dict[str, np.ndarray]
    negatives: dict[str, np.ndarray]
    times: dict[str, np.ndarray] | None = None

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `links.npz` into the folder of a store. Raises `UsageError` if it cannot be written."""
        schema = json.dumps({"relation": self.relation, "reverses": self.reverses, "timed": self.times is not None})
        arrays = {"schema": np.frombuffer(schema.encode(), np.uint8)}
        for split in HELD_OUT:
            stamps = np.empty(0, np.int64) if self.times is None else self.times[split]
            own = (self.pairs[split].astype("<i4"), self.negatives[split].astype("<i4"), stamps.astype("<i8"))
            arrays |= {f"{split}_{name}": array for name, array in zip(_ARRAYS, own, strict=True)}
        save_sealed(Path(folder) / FILE, arrays)

    @staticmethod
    def load(folder: str | os.PathLike[str], graph: HeteroGraph) -> HeldOutLinks:
        """Read the file that `save` wrote beside a graph; nothing is unpickled.

        Raises
        ------
        UsageError
            If the store has no held-out edges.
        DataError
            If the file is damaged, was changed, or does not fit the graph: its edges are edges of the graph, if it is of another store.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise UsageError(f"{folder} has no held-out edges; use a store that `{_WRITER} --relation` wrote")
        found = read_sealed(path, ["schema", *(f"{split}_{name}" for split in HELD_OUT for name in _ARRAYS)], f"{_WRITER} --relation")
        try:
            schema = json.loads(found["schema"].astype(np.uint8).tobytes())
            relation, reverses = _key(schema["relation"]), tuple(map(_key, schema["reverses"]))
            timed = bool(schema["timed"])
        except (ValueError, TypeError, KeyError):
            raise DataError(f"{FILE}: its schema names no relation; write it again with `{_WRITER} --relation`") from None
        pairs, negatives, times = ({split: found[f"{split}_{name}"] for split in HELD_OUT} for name in _ARRAYS)
        return HeldOutLinks(relation, reverses, pairs, negatives, times if timed else None).checked(graph)

    def checked(self, graph: HeteroGraph) -> HeldOutLinks:
        """Return self; raises `DataError` if an edge does not fit the graph."""
        known = {relation.key for relation in graph.relations}
        unknown = [key for key in (self.relation, *self.reverses) if key not in known]
        if unknown:
            raise DataError(f"{FILE}: graph {graph.name!r} has no relation {unknown[0]}")
        sources, destinations = graph.type(self.relation[0]).count, graph.type(self.relation[2]).count
        for split in HELD_OUT:
            pairs, negatives = self.pairs[split], self.negatives[split]
            if pairs.shape != (len(pairs), 2) or negatives.ndim != 2 or len(negatives) != len(pairs):
                found = f"pairs of shape {pairs.shape} and negatives of shape {negatives.shape}"
                raise DataError(f"{FILE}: {split}: got {found}; use (e, 2) and (e, K)")
            named = ("sources", pairs[:, :1], sources), ("destinations", pairs[:, 1:], destinations), ("negatives", negatives, destinations)
            for what, ends, count in named:
                if ends.dtype.kind not in "iu" or (ends.size and not 0 <= ends.min() <= ends.max() < count):
                    raise DataError(f"{FILE}: {split}: {what} must name vertices from 0 to {count - 1}")
            if self.times is not None and (self.times[split].dtype != np.int64 or self.times[split].shape != (len(pairs),)):
                raise DataError(f"{FILE}: {split}: times must be int64 of shape ({len(pairs)},)")
            self._check_absent(graph, split)
        return self

    def _check_absent(self, graph: HeteroGraph, split: str) -> None:
        """Raise `DataError` if held-out edges, or their reverses, are edges of the graph."""
        source, destination = self.pairs[split].astype(np.int64).T
        timed = self.times is not None and graph.relation(self.relation).times is not None
        times = self.times[split] if timed and self.times is not None else None
        ends = [(self.relation, source, destination), *((key, destination, source) for key in self.reverses)]
        for key, by, to in ends:
            relation = graph.relation(key)
            if count := int(_joined(relation, by, to, times).sum()):
                raise DataError(
                    f"{FILE}: {count} of the {len(source)} held-out edges of {split} are edges of {relation} of graph {graph.name!r}, so "
                    f"the file is that of another store; write both with `{_WRITER} --relation`"
                )


@dataclass(frozen=True, eq=False)
class LinkGraph(HeteroGraph):
    """A heterogeneous graph without the held-out edges of one of its relations, and these edges."""

    held_out: HeldOutLinks | None = None  # None of no graph that `hold_out` or `load_links` made
    warnings: tuple[str, ...] = ()  # of `hold_out`, of shares that are off by more than half; not kept in a store

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the graph as a store, with its held-out edges in `links.npz`: all of it, or nothing."""
        hetero_store.save(self, path, overwrite, None if self.held_out is None else self.held_out.save)


def hold_out(graph: HeteroGraph, relation: Key | str, val: float, test: float, negatives: int, seed: int) -> LinkGraph:
    """Hold out a share of the edges of a relation for validation, and another for the test.

    Parameters
    ----------
    relation : (source, name, destination), or a name that one relation alone has
    val, test : float
        Shares of the edges. Loops are never held out. Parallel edges without times go together, and so do the two directions of an
        undirected relation within one type. Edges of one time go together too, to the later split.
    negatives : int
        K, the negatives of each held-out edge: drawn uniformly, independent of each other.

    Returns
    -------
    LinkGraph
        Edges keep their positions in the user's list of edges (`Relation.ids_of`). Its `warnings` name shares that are off by more than
        half of what was asked for.

    Raises
    ------
    UsageError
        If the shares leave no edge for training, or one of them gives none; if the source of a held-out edge has an edge to every
        destination of its time.
    DataError
        If edges have times before any destination.
    """
    if not (val >= 0 and test >= 0 and val + test < 1):
        raise UsageError(f"got shares {val} for validation and {test} for the test; use shares from 0 that add up to less than 1")
    if negatives < 1:
        raise UsageError(f"got {negatives} negatives for each held-out edge; use 1 or more")
    own, words = graph.relation(relation), Words(seed)
    stamps, reverses = link_times(graph, own), reverses_of(graph, own)
    event, columns = _distinct_rows([*_ends(own), *(() if own.times is None else (own.times,))])
    source, destination = columns[0], columns[1]
    if own.key in reverses:
        candidates = np.flatnonzero(source < destination)
    else:
        candidates = np.flatnonzero((source != destination) | (own.source != own.destination))
    when = None
    if stamps is None:
        candidates = candidates[words.permutation(Substream.HELD_OUT_LINK, len(candidates))]
    else:
        when = np.empty(len(source), np.int64)
        when[event] = stamps  # edges of one event share their time
        candidates = candidates[np.argsort(when[candidates], kind="stable")]
    held, warnings = cut(candidates, val, test, None if when is None else when[candidates], own)
    times = None if when is None else {split: when[chosen] for split, chosen in held.items()}
    pairs, drawn, first, others = {}, {}, 0, NonNeighbors(graph, own)
    for split, chosen in held.items():
        pairs[split] = np.stack([source[chosen], destination[chosen]], axis=1).astype(np.int32)
        if own.key in reverses:
            turned = words.of(Substream.HELD_OUT_LINK_DIRECTION, first, len(chosen))[:, 0] % np.uint32(2) == 1
            pairs[split][turned] = pairs[split][turned][:, ::-1]
        stamped = None if times is None else times[split]
        drawn[split] = _negatives(others, pairs[split][:, 0], stamped, negatives, words, first * negatives)
        first += len(chosen)
    gone = [column[np.concatenate(list(held.values()))] for column in columns]
    relations = [_without(one, gone) if one.key == own.key else one for one in graph.relations]
    relations = [_without(one, [gone[1], gone[0], *gone[2:]]) if one.key in reverses else one for one in relations]
    held_out = HeldOutLinks(own.key, reverses, pairs, drawn, times)
    return LinkGraph(graph.types, tuple(relations), graph.name, held_out, warnings)


def load_links(graph: HeteroGraph, folder: str | os.PathLike[str]) -> LinkGraph:
    """Return the graph of a store with the held-out edges beside it; see `HeldOutLinks.load`."""
    return LinkGraph(graph.types, graph.relations, graph.name, HeldOutLinks.load(folder, graph))


def reverses_of(graph: HeteroGraph, relation: Relation) -> tuple[Key, ...]:
    """Return the relations that are the reverse of a relation.

    These run between the same types against it, and hold the same pairs as often, or are named ``rev_NAME`` after it (or it after them).
    """
    turned, found = np.sort(_pair_keys(graph, relation, turned=True)), []
    for other in graph.relations:
        if (other.source, other.destination) != (relation.destination, relation.source):
            continue
        named = f"rev_{relation.name}" == other.name or f"rev_{other.name}" == relation.name
        same = other.edges == relation.edges and np.array_equal(np.sort(_pair_keys(graph, other)), turned)
        if named or (same and other.edges):
            found.append(other.key)
    return tuple(found)


def _joined(relation: Relation, source: np.ndarray, destination: np.ndarray, times: np.ndarray | None) -> np.ndarray:
    """Return True for each pair that is an edge of a relation; if both have times, at its time."""
    own_source, own_destination = _ends(relation)
    keys, wanted = (to * relation.adjacency.shape[1] + by for by, to in ((own_source, own_destination), (source, destination)))
    first, last = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))  # keys ascend; parallel edges repeat them
    if times is None or relation.times is None:
        found: np.ndarray = last > first
        return found
    pair = np.repeat(np.arange(len(wanted)), last - first)
    same = relation.times[runs(first, last - first)] == times[pair]
    return np.bincount(pair[same], minlength=len(wanted)) > 0


def _pair_keys(graph: HeteroGraph, relation: Relation, turned: bool = False) -> np.ndarray:
    """Return a number for the pair of each edge, of the reverse edge if it is turned."""
    source, destination = _ends(relation)
    if turned:
        source, destination = destination, source
    keys: np.ndarray = destination * graph.type(relation.destination if turned else relation.source).count + source
    return keys


def _ends(relation: Relation) -> tuple[np.ndarray, np.ndarray]:
    return relation.adjacency.indices.astype(np.int64), relation.adjacency.row_of_entry().astype(np.int64)


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


def _without(relation: Relation, gone: Sequence[np.ndarray]) -> Relation:
    """Return a relation without the entries of some events, whose columns are source, destination and, if there is one, time."""
    columns = [*_ends(relation), *(() if relation.times is None or len(gone) < 3 else (relation.times,))]
    event, _ = _distinct_rows([np.concatenate(pair) for pair in zip(columns, gone, strict=False)])
    marked = np.zeros(len(event), bool)
    marked[event[relation.edges :]] = True
    kept = ~marked[event[: relation.edges]]
    ids = relation.ids_of(np.arange(relation.edges))[kept]
    times, features = (None if column is None else column[kept] for column in (relation.times, relation.features))
    return replace(relation, adjacency=relation.adjacency.keep(kept), edge_ids=ids, times=times, features=features)


def _key(given: Any) -> Key:
    source, name, destination = given
    if not all(isinstance(part, str) for part in (source, name, destination)):
        raise TypeError
    return source, name, destination
