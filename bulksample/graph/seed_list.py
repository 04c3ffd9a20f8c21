"""Seeds of several vertex types, with the times at which they are asked about: one list of examples over all types."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UsageError
from ..pickled import Rebuilt
from ..sparse import frozen, row_pointers
from . import Graph
from .selection import Selection, vertex_ids
from .times import UNITS, given_times


@dataclass(frozen=True, eq=False)
class SeedList(Rebuilt):
    """The examples of a loader: m seeds of any types, and their times."""

    vertices: np.ndarray  # int32, shape (m,): in the numbering of all types
    places: np.ndarray  # int64, shape (m,): the position of each seed in the list of its type
    times: np.ndarray | None  # int64, shape (m,), as the starts
    starts: np.ndarray | None
    n: int  # number of vertices of all types

    def part_order(self, graph: Graph, place: Callable[[str, np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        """Return the place of each seed in block rows of all types: the share of its type that lies before it, in units of 2**-31.

        `place` returns the place of vertices of a type in its order of block rows; by default rows are even, and places are ids.
        """
        kinds = np.searchsorted(graph.offsets, self.vertices, side="right") - 1
        counts, places = np.diff(graph.offsets)[kinds], self.vertices - graph.offsets[kinds]
        if place is not None:
            for t, kind in enumerate(graph.types):
                places[kinds == t] = place(kind.name, places[kinds == t])
        return np.asarray((places << 31) // counts)

    @staticmethod
    def of(graph: Graph, seeds: Any = None, times: Any = None, starts: Any = None, time_unit: str | None = None) -> SeedList:
        """Build the list of examples that a user names.

        Parameters
        ----------
        graph : Graph
        seeds : str, (str, list) or dict
            The name of a type, for its default seeds; a type and a list; or types and their lists. A list holds ids or is a mask, or
            is the name of a split or ``all``; None stands for the default seeds: the training split, or all vertices of a type without
            masks. Optional if the graph has one type.
        times : integers or datetime64, shape (m,), or a dict of such by type, optional
            The time at which each seed is asked about, in the order of its list; see `as_times`.
        starts : likewise, optional
            The beginning of the window of each seed, no later than its time.
        time_unit : str, optional
            The unit of the times of the graph, in which dates are counted: ``"s"`` where `from_tables` made it, ``"ns"`` where
            dates of `relation_from_edges` did. Dates need it, since a graph knows numbers alone.

        Raises
        ------
        UsageError
            If a type, a split or a vertex does not exist, no type is named, there are dates without `time_unit`, or a window ends before
            it begins.
        DataError
            If times are floats or missing, or there is not one for each seed.
        """
        lists = {}
        for name, values in _by_type(graph, seeds).items():
            kind = graph.type(name)
            if values is None or isinstance(values, str):
                lists[name] = (kind.default_seeds() if values is None else kind.seeds(values)).astype(np.int64)
            else:
                lists[name] = vertex_ids(values, kind.count, f"seeds of type {name!r}")
        parts = [[graph.offsets[graph.place(name)] + ids for name, ids in lists.items()]]
        parts.append([np.arange(len(ids)) for ids in lists.values()])
        columns = [np.concatenate([np.empty(0, np.int64), *part]) for part in parts]
        ends, begins = (_stamps(what, values, lists, time_unit) for what, values in (("times", times), ("starts", starts)))
        if begins is not None and ends is None:
            raise UsageError("starts were given without times; give the time of each seed too")
        if begins is not None and ends is not None:
            _check_windows(begins, ends, lists)
        return SeedList(frozen(columns[0], np.int32), frozen(columns[1], np.int64), ends, begins, graph.n)

    def __len__(self) -> int:
        return len(self.vertices)

    def hash_of_times(self) -> str:
        """Return a SHA-256 of the times and the starts."""
        made = hashlib.sha256()
        for column in (self.times, self.starts):
            made.update(b"none" if column is None else column.tobytes())
        return made.hexdigest()

    def select(self, examples: Sequence[np.ndarray], minibatches: np.ndarray | None = None) -> Selection:
        """Return the seeds of k mini-batches, given the examples of each; ids are 0 .. k - 1 unless given."""
        chosen = np.concatenate([np.empty(0, np.int64), *examples])
        ids = np.arange(len(examples)) if minibatches is None else minibatches
        columns = (None if array is None else frozen(array[chosen]) for array in (self.places, self.times, self.starts))
        return Selection(ids, row_pointers([len(part) for part in examples]), self.vertices[chosen], self.n, None, *columns)


def _by_type(graph: Graph, seeds: Any) -> Mapping[str, Any]:
    if isinstance(seeds, Mapping):
        return seeds
    if isinstance(seeds, str) and seeds in {kind.name for kind in graph.types}:
        return {seeds: None}
    if isinstance(seeds, tuple) and len(seeds) == 2 and isinstance(seeds[0], str):
        return {seeds[0]: seeds[1]}
    if len(graph.types) == 1:
        return {graph.types[0].name: seeds}
    names = ", ".join(kind.name for kind in graph.types)
    raise UsageError(f"seeds: got {seeds!r}; name their type, (type, list) or {{type: list}}; types are {names}")


def _stamps(what: str, values: Any, lists: Mapping[str, np.ndarray], unit: str | None) -> np.ndarray | None:
    """Return one time for each seed of all types, or None if none was given."""
    if unit is not None and unit not in UNITS:
        raise UsageError(f"time_unit: got {unit!r}; use {', '.join(UNITS)}")
    if values is None:
        return None
    if not isinstance(values, Mapping):
        if len(lists) != 1:
            raise UsageError(f"{what}: got one list for seeds of {len(lists)} types; give a dict with {', '.join(lists)}")
        values = dict.fromkeys(lists, values)
    if values.keys() != lists.keys():
        raise UsageError(f"{what}: got those of {', '.join(values) or 'no type'}; give those of {', '.join(lists)}")
    parts = [given_times(f"{what} of seeds of type {name!r}", values[name], len(ids), unit or "ns") for name, ids in lists.items()]
    if unit is None and any(np.asarray(values[name]).dtype.kind == "M" for name in lists):
        raise UsageError(f"{what}: got dates; give time_unit, the unit of the times of the graph ({', '.join(UNITS)}), or integers")
    return frozen(np.concatenate([np.empty(0, np.int64), *parts]))


def _check_windows(begins: np.ndarray, ends: np.ndarray, lists: Mapping[str, np.ndarray]) -> None:
    """Raise `UsageError` for the first seed whose window ends before it begins."""
    first = 0
    for name, ids in lists.items():
        span = slice(first, first + len(ids))
        if len(late := np.flatnonzero(begins[span] > ends[span])):
            at = late[0]
            raise UsageError(
                f"starts: the window of seed {at} of type {name!r} (vertex {ids[at]}) begins at {begins[span][at]} and ends at "
                f"{ends[span][at]}, in the unit of the graph; give no start later than its time"
            )
        first = span.stop
