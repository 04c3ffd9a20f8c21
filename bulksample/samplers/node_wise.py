"""Samplers with one row of Q per (mini-batch, vertex): every vertex of the frontier draws among its own neighbors, of each relation.

    Q_D A_r  for each relation r into type D: rows of the frontier;   NORM over the window of time of their trees;   SAMPLE: by the law

See `backends.relation_draws` for what one relation draws, and `backends.relation_hops` for the hops.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from ..adjacency import Adjacency, kind_of_times
from ..backends.base import check_fanout
from ..backends.hops import Expansion
from ..backends.relational import HeteroExpansion, RelationLaw, Trees
from ..errors import UsageError, check_switches
from ..graph import EDGE, NODE, Key, spelled
from ..graph.late import LateMiniBatch
from ..graph.minibatch import Block, InputHop, MiniBatch, TimesOf, TypeRows
from ..graph.selection import Selection
from ..rng import MAX_MINIBATCHES, Draw, Law, Stream
from .base import Sampler, whole_fanouts
from .time_rule import TimeRule, before

_NO_RULE = TimeRule()  # what holds where time does not count


@dataclass(frozen=True)
class NodeWise(Sampler):
    """A sampler whose rows draw each among its own neighbors.

    Parameters
    ----------
    of_relations : dict of tuples of int by (source, name, destination), optional
        The fanouts of some relations, one for each hop, in the place of `fanouts`; -1 takes all, 0 none. Fanouts count per relation, row
        and hop.
    time : TimeRule, optional
        Draw no neighbor that is later than its seed; seeds need times.
    disjoint : bool, optional
        Give each seed a tree of its own. By default so with `time` alone. Without it, all seeds of a mini-batch must have one time.
    stride : int
        The most seeds of a mini-batch with disjoint trees: tree i of mini-batch m has the name ``m * stride + i``. A loader takes its
        batch size unless it is given.
    entries : bool, optional
        Make `MiniBatch.entries`, the position of each edge in its adjacency, which edge ids and edge features need. False makes none. By
        default ranks that share a graph send them along, and a graph in this process makes them as they are needed: a mini-batch whose
        entries are read is drawn once more, and from then on they come with the draws, as with True.
    numbered : bool
        False leaves the vertices of the last hop without numbers until they are asked for, where the adjacency can; see `LateMiniBatch`.
    """

    draws_by_row: ClassVar[bool] = True  # False: something is done to the draws, as ShaDow and GraphSAINT do
    of_relations: Any = field(default=None, kw_only=True)  # held as pairs of a relation and its fanouts
    time: TimeRule | None = field(default=None, kw_only=True)
    disjoint: bool | None = field(default=None, kw_only=True)
    stride: int = field(default=0, kw_only=True)
    entries: bool | None = field(default=None, kw_only=True)
    numbered: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        by_key = _by_relation(self.of_relations)
        if not self.draws_by_row and (self.by_relation or self.entries is not None):
            raise UsageError(f"relations are sampled node by node; got {self.name!r}; use sage, labor or full")
        if self.time is not None and not isinstance(self.time, TimeRule):
            raise UsageError(f"time: got {self.time!r}; use a TimeRule")
        check_switches(**{name: value for name in ("disjoint", "entries", "numbered") if (value := getattr(self, name)) is not None})
        for key, fanouts in by_key.items():
            if len(fanouts) != self.hops:
                raise UsageError(f"fanouts of relation {spelled(key)} name {len(fanouts)} hops; those of the sampler name {self.hops}")
            for fanout in fanouts:
                check_fanout(fanout)
        object.__setattr__(self, "of_relations", tuple(by_key.items()) or None)
        if not isinstance(self.stride, int) or self.stride < 0:
            raise UsageError(f"stride must be the most seeds of a mini-batch; got {self.stride!r}")
        if self._rule.strategy == "last" and not self.draws_evenly:
            raise UsageError("strategy last takes the newest neighbors; use it with sage, without replace and weighted")
        if self._rule.moving and not self.is_disjoint:
            raise UsageError("a moving window belongs to a tree; use disjoint=True with it")

    @property
    def hops(self) -> int:
        """L."""
        return len(self.fanouts)

    @property
    def draws_evenly(self) -> bool:
        """True if a row draws distinct neighbors, each equally likely, as ``last`` may take the place of."""
        return False

    @property
    def is_disjoint(self) -> bool:
        """True if each seed has a tree of its own."""
        return self.time is not None if self.disjoint is None else self.disjoint

    @property
    def _rule(self) -> TimeRule:
        """The rule of time, or its defaults where time does not count."""
        return self.time or _NO_RULE

    @property
    def identity(self) -> str:
        return self.identity_by_type if self.fanouts_of or self.time is not None or self.is_disjoint else super().identity

    @property
    def identity_by_type(self) -> str:
        options = {"time": self.time, "disjoint": self.is_disjoint, "stride": self.stride, "fanouts": sorted(self.fanouts_of.items())}
        return f"RelationSampler{sorted(options.items())} {super().identity}"  # the name that loader states of 0.1 hold

    @property
    def settings(self) -> dict[str, Any]:
        options = super().settings
        if not self.by_relation:
            return options
        rule = {} if self.time is None else {f"time.{name}": value for name, value in vars(self.time).items()}
        by_name = {spelled(key): fanouts for key, fanouts in self.fanouts_of.items()}
        options |= {"fanouts of relations": by_name, "disjoint": self.is_disjoint, "stride": self.stride}
        return {**options, "time": None if self.time is None else "a TimeRule", **rule}

    @property
    def fanouts_of(self) -> Mapping[Key, tuple[int, ...]]:
        """The fanouts of relations that have some of their own."""
        return dict(self.of_relations or ())

    @property
    def by_relation(self) -> bool:
        """True if it has options of relations, times or trees."""
        return bool(self.of_relations or self.time is not None or self.disjoint is not None or self.stride)

    def most_drawn(self, relations: Sequence[Key]) -> tuple[int, ...]:
        each = [self.fanouts_of.get(key, self.fanouts) for key in relations] or [self.fanouts]
        return tuple(-1 if -1 in counts else max(counts) for counts in zip(*each, strict=True))

    @abstractmethod
    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        """Return the distribution and the random stream from which every row of a hop draws."""

    def check(self, adjacency: Adjacency) -> None:
        """Raise `UsageError` if this sampler does not support this graph, such as one without weights."""
        if (self.fanouts_of or self.is_disjoint or self.time is not None) and not hasattr(adjacency, "graph"):
            raise UsageError("fanouts by relation, times and disjoint trees need a graph in this process, or shared relations")
        for key in self.fanouts_of:
            adjacency.graph.ordinal(key)
        if self.time is not None:
            kind_of_times(adjacency.graph, self.time.by)
        if self.draw(Stream(0), 0, 0).law is Law.LABOR and (named := adjacency.first_with_parallel_edges):
            raise UsageError(f"{named} has parallel edges, which would share the random number of a neighbor; use sage")

    def prepared(self, adjacency: Adjacency, seeds: np.ndarray, batch_size: int, stream: Stream) -> Self:
        """Return the sampler that a loader of these seeds uses: trees are named by its batch size unless a stride is given."""
        return replace(self, stride=batch_size) if self.is_disjoint and not self.stride else self

    def expand(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
        """Take k mini-batches through all hops on one relation, before they are cut into blocks."""
        draws = [self.draw(stream, hop, epoch) for hop in range(self.hops)]
        return adjacency.expand(seeds, self.fanouts, draws, self.frontier == "new")

    def table_bytes(self, adjacency: Adjacency, k: int, like: MiniBatch) -> int:
        return adjacency.expand_tables(k, like.num_seeds, self.fanouts, like.num_vertices)

    def laws(self, adjacency: Adjacency, stream: Stream, epoch: int) -> list[list[RelationLaw]]:
        """Return how each relation draws in each hop."""
        last, strict, out = self._rule.strategy == "last", self._rule.strict, []
        for hop in range(self.hops):
            of_hop = []
            for ordinal, key in enumerate(adjacency.relation_keys):
                draw = self.draw(stream.of_relation(ordinal), hop, epoch)
                if draw.law is Law.LABOR:  # rows of all relations share the number of a vertex
                    draw = self.draw(stream.of_type(adjacency.type_names.index(key[0])), hop, epoch)
                fanout = self.fanouts_of.get(key, self.fanouts)[hop]
                of_hop.append(RelationLaw(fanout, draw, last, strict))
            out.append(of_hop)
        return out

    def _sample(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[MiniBatch]:
        if not self.numbered and not self.by_relation:
            draws = [self.draw(stream, hop, epoch) for hop in range(self.hops)]
            parts = adjacency.expand_unnumbered(seeds, self.fanouts, draws, self.frontier == "new")
            if parts is not None:
                return [self._late(adjacency, seeds, j, epoch, part) for j, part in enumerate(parts)]
        by = None if self.time is None else kind_of_times(adjacency.graph, self.time.by)
        kinds, vertices = adjacency.split(seeds.vertices) if len(adjacency.type_names) > 1 else (None, seeds.vertices)
        trees = self._trees(seeds, kinds, vertices, len(adjacency.type_names))
        drawn = adjacency.expand_trees(trees, self.laws(adjacency, stream, epoch), by, self.frontier == "new", self.entries)
        times = None if by is None else TimesOf(adjacency.graph, by)
        made = [self._minibatch(adjacency, seeds, kinds, vertices, j, epoch, part, times) for j, part in enumerate(drawn)]
        if self.entries is not None or not adjacency.by_type:
            return made
        again = [partial(self._entries_of, adjacency, seeds.parts(j, j + 1), stream, epoch) for j in range(len(made))]
        return [one if one.known_entries else replace(one, find_entries=find) for one, find in zip(made, again, strict=True)]

    def _late(self, adjacency: Adjacency, seeds: Selection, j: int, epoch: int, part: Expansion) -> MiniBatch:
        """Return mini-batch j of a bulk whose last hop has no numbers."""
        inner = self._minibatch(adjacency, seeds, None, seeds.vertices, j, epoch, HeteroExpansion.of_one(part), None)
        last, count = part.hops[-1], inner.layers[0][NODE, EDGE, NODE].num_edges if inner.layers and self.frontier == "new" else 0
        columns = last.columns  # of earlier hops, which the frontier `new` shares, they are positions
        if count:
            columns = np.concatenate([part.vertices[columns[:count]], columns[count:]])

        def number(known: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            held = Selection(seeds.minibatches[j : j + 1], np.array([0, len(known)]), known, seeds.n)
            grown, local = adjacency.backend.relabel(held, np.array([0, len(found)]), found)
            return grown.vertices, local

        return LateMiniBatch(inner, InputHop(last.pointers, columns, None), number)

    def _entries_of(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> tuple[dict[Key, np.ndarray], ...] | None:
        """Draw a mini-batch once more, with the entries of its edges; from now on draws on this adjacency tell them."""
        adjacency.entries_read = True
        return replace(self, entries=True).sample_bulk(adjacency, seeds, stream, epoch)[0].entries

    def _trees(self, seeds: Selection, kinds: np.ndarray | None, vertices: np.ndarray, types: int) -> Trees:
        """Return the trees of k mini-batches; `kinds`, None if there is one type, and `vertices` are their seeds, split by type."""
        k, sizes = len(seeds), seeds.sizes
        if self.is_disjoint:
            if not self.stride or sizes.max(initial=0) > self.stride:
                raise UsageError(
                    f"a mini-batch has {sizes.max(initial=0)} seeds with trees of their own; stride is {self.stride}: "
                    "use at most that many, or a larger stride, which is the batch size of a loader"
                )
            owner = np.arange(len(seeds.vertices))
            names = np.repeat(seeds.minibatches, sizes) * self.stride + owner - np.repeat(seeds.pointers[:-1], sizes)
            if names.max(initial=0) >= MAX_MINIBATCHES:
                raise UsageError(f"tree {names.max()} of mini-batch {seeds.minibatches.max()} does not fit 32 bits; use a smaller stride")
            pointers = seeds.pointers
        else:
            owner, names, pointers = seeds.minibatch_of_row(), seeds.minibatches, np.arange(k + 1)
        starts, ends = self._windows(seeds, owner, len(names))
        mine = [slice(None)] if kinds is None else [kinds == t for t in range(types)]
        return Trees(pointers, names, [vertices[rows] for rows in mine], [owner[rows] for rows in mine], starts, ends, self._rule.moving)

    def _windows(self, seeds: Selection, owner: np.ndarray, count: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the first and the last time of each tree."""
        if self.time is None:
            return None, None
        if seeds.times is None:
            raise UsageError("time counts in this sampler, but the seeds have no times; give the time of each seed")
        ends = _one_each(owner, count, seeds.times, seeds, "times")
        if seeds.starts is not None:
            if self.time.window is not None:
                raise UsageError("got a window, and starts of the seeds besides; use one of them")
            return _one_each(owner, count, seeds.starts, seeds, "starts"), ends
        return (None if self.time.window is None else before(ends, self.time.window)), ends

    def _minibatch(
        self, adjacency: Adjacency, seeds: Selection, kinds: np.ndarray | None, vertices: np.ndarray, j: int, epoch: int,
        part: HeteroExpansion, times: TimesOf | None,
    ) -> MiniBatch:  # fmt: skip
        """Return mini-batch j of a bulk, given the types of all seeds (None if there is one) and their ids."""
        span, by_type = slice(seeds.pointers[j], seeds.pointers[j + 1]), adjacency.by_type
        columns = [None if column is None else column[span] for column in (seeds.places, seeds.times)]
        rows = {}
        for t, name in enumerate(adjacency.type_names):
            here: Any = slice(None) if kinds is None else np.flatnonzero(kinds[span] == t)
            trees = part.trees_of(t) if self.is_disjoint else None
            extra = [None if column is None else column[here] for column in columns]
            ids = vertices[span][here]
            places = None if not by_type else np.arange(len(ids), dtype=np.int32) if kinds is None else here.astype(np.int32)
            rows[name] = TypeRows(part.vertices[t], part.held[:, t], ids, part.seed_rows[t], places, trees, *extra)
        nested, held, keys, ends = self.frontier == "new", part.held.tolist(), adjacency.relation_keys, adjacency.ends
        layers: list[dict[Key, Block]] = []
        entries: list[dict[Key, Any]] = []
        hops = part.hops * (self.hops // len(part.hops))  # nested ones may be one that holds all others
        for of_hop, rows_of, sources_of in zip(hops, held, held[1:], strict=False):
            blocks, positions = {}, {}
            for key, (source, destination), drawn in zip(keys, ends, of_hop, strict=True):
                count, edges = rows_of[destination], len(drawn.columns)
                if len(drawn.pointers) != count + 1:
                    edges = int(drawn.pointers[count])
                blocks[key] = Block(drawn.pointers[: count + 1], drawn.columns[:edges], None, sources_of[source])
                if drawn.entries is not None:
                    positions[key] = drawn.entries[:edges]
            layers.append(blocks)
            entries.append(positions)
        complete = self.entries is not False and bool(entries) and all(len(positions) == len(keys) for positions in entries)
        known = tuple(reversed(entries)) if complete else None
        layers.reverse()
        return MiniBatch(int(seeds.minibatches[j]), epoch, rows, tuple(layers), nested, None, by_type, known_entries=known, times=times)


def _by_relation(listed: Any) -> dict[Key, tuple[int, ...]]:
    """Return fanouts by relation, from a dict or pairs of them."""
    try:
        pairs = dict(listed or ())
    except (TypeError, ValueError):
        raise UsageError(f"of_relations: got {listed!r}; give a dict of fanouts by (source, name, destination)") from None
    for key in pairs:
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
            raise UsageError(f"of_relations: got relation {key!r}; use (source, name, destination)")
    return {key: whole_fanouts(fanouts) for key, fanouts in pairs.items()}


def _one_each(owner: np.ndarray, count: int, times: np.ndarray, seeds: Selection, what: str) -> np.ndarray:
    """Return the time of each tree, which all its seeds share; that of a tree without seeds does not matter."""
    out = np.zeros(count, np.int64)
    out[owner] = times
    if len(other := np.flatnonzero(out[owner] != times)):
        minibatch = seeds.minibatches[seeds.minibatch_of_row()[other[0]]]
        both = f"{times[other[0]]} and {out[owner[other[0]]]}"
        raise UsageError(f"mini-batch {minibatch} has seeds of {what} {both} in one tree; use disjoint=True, or seeds of one time")
    return out
