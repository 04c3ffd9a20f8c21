"""Node-wise sampling on relations and in time: any node-wise sampler, made to draw from every relation.

    for hop h and relation r = (S, name, D):   Q'_r = SAMPLE(NORM(Q_D A_r), s_r)

NORM is a mask: the window of time of the tree. Relation 0 draws with the user's seed, relation r > 0 with a key of its own,
``Stream.of_relation``; LABOR, whose random numbers belong to neighbors, with a key of the source type. So a graph of one type and one
relation draws what the homogeneous graph draws, and an appended relation changes no draw of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..backends.base import check_fanout
from ..backends.relational import HeteroExpansion, RelationLaw, Trees
from ..errors import UsageError, check_switches
from ..graph import Key, spelled
from ..minibatch import Block
from ..rng import MAX_MINIBATCHES, Law, Stream
from ..samplers import NodeWise, Sage, Sampler, whole_fanouts
from ..selection import Selection
from .adjacency import By, RelationAdjacency
from .minibatch import HeteroMiniBatch, TimesOf, TypeRows
from .rule import TimeRule
from .seeds import HeteroSeeds
from .timed_rows import before


@dataclass(frozen=True)
class RelationSampler:
    """A node-wise sampler on a heterogeneous graph.

    Parameters
    ----------
    base : NodeWise
        The law and the frontier rule, such as ``Sage((10, 5))``, ``Labor``, ``Full``. Its fanouts count per relation, row and hop.
    fanouts : dict of tuples of int by (source, name, destination), optional
        The fanouts of some relations, one for each hop of `base`, in the place of those of `base`; -1 takes all, 0 none.
    time : TimeRule, optional
        Draw no neighbor that is later than its seed; seeds need times.
    disjoint : bool, optional
        Give each seed a tree of its own. By default so with `time` alone. Without it, all seeds of a mini-batch must have one time.
    stride : int
        The most seeds of a mini-batch with disjoint trees: tree i of mini-batch m has the name ``m * stride + i``. A loader takes its
        batch size unless it is given.
    entries : bool, optional
        Make `HeteroMiniBatch.entries`, the position of each edge in its adjacency, which edge ids and edge features need. False makes
        none. By default ranks that share a graph send them along, and a graph in this process makes them as they are needed: a
        mini-batch whose entries are read is drawn once more, and from then on they come with the draws, as with True.
    """

    base: NodeWise
    fanouts: Mapping[Key, tuple[int, ...]] | None = None
    time: TimeRule | None = None
    disjoint: bool | None = None
    stride: int = 0
    entries: bool | None = None

    def __post_init__(self) -> None:
        if not draws_by_row(self.base):
            raise UsageError(f"relations are sampled node by node; got {self.base!r}; use sage, labor or full")
        if self.time is not None and not isinstance(self.time, TimeRule):
            raise UsageError(f"time: got {self.time!r}; use a TimeRule")
        if self.disjoint is not None:
            check_switches(disjoint=self.disjoint)
        given = {tuple(key): whole_fanouts(fanouts) for key, fanouts in (self.fanouts or {}).items()}
        for key, fanouts in given.items():
            if len(fanouts) != self.hops:
                raise UsageError(f"fanouts of relation {':'.join(key)} name {len(fanouts)} hops; those of the sampler name {self.hops}")
            for fanout in fanouts:
                check_fanout(fanout)
        object.__setattr__(self, "fanouts", given)
        if not isinstance(self.stride, int) or self.stride < 0:
            raise UsageError(f"stride must be the most seeds of a mini-batch; got {self.stride!r}")
        if self._takes_last and not (isinstance(self.base, Sage) and not self.base.replace and not self.base.weighted):
            raise UsageError("strategy last takes the newest neighbors; use it with sage, without replace and weighted")
        if self._moves and not self.is_disjoint:
            raise UsageError("a moving window belongs to a tree; use disjoint=True with it")

    @property
    def hops(self) -> int:
        """L."""
        return len(self.base.fanouts)

    @property
    def is_disjoint(self) -> bool:
        """True if each seed has a tree of its own."""
        return self.time is not None if self.disjoint is None else self.disjoint

    @property
    def identity(self) -> str:
        """The sampler and its options in one line: samplers with equal ones draw the same mini-batches."""
        own = {"time": self.time, "disjoint": self.is_disjoint, "stride": self.stride, "fanouts": sorted((self.fanouts or {}).items())}
        return f"{type(self).__name__}{sorted(own.items())} {self.base.identity}"

    @property
    def settings(self) -> dict[str, Any]:
        """The options of the sampler, ready for JSON, for messages that compare two samplers."""
        rule = {} if self.time is None else {f"time.{name}": value for name, value in vars(self.time).items()}
        of_relations = {spelled(key): given for key, given in (self.fanouts or {}).items()}
        own = {"fanouts of relations": of_relations, "disjoint": self.is_disjoint, "stride": self.stride}
        return {**self.base.settings, **own, "time": None if self.time is None else "a TimeRule", **rule}

    @property
    def _takes_last(self) -> bool:
        return self.time is not None and self.time.strategy == "last"

    @property
    def _moves(self) -> bool:
        return self.time is not None and self.time.moving

    def check(self, adjacency: RelationAdjacency) -> None:
        """Raise `UsageError` if this sampler does not support this graph."""
        graph = adjacency.graph
        for key in self.fanouts or {}:
            graph.ordinal(key)
        if self.time is not None:
            adjacency.kind_of_times(self.time.by)
        if getattr(self.base, "weighted", False) and all(relation.adjacency.values is None for relation in graph.relations):
            raise UsageError("weighted sampling was asked for, but no relation has edge weights")
        if self._law is Law.LABOR:
            for relation, matrix in zip(graph.relations, adjacency.relations(None), strict=True):
                if matrix.repeats:
                    raise UsageError(f"{relation} has parallel edges, which would share the random number of a neighbor; use sage")

    @property
    def _law(self) -> Law:
        return self.base.draw(Stream(0), 0, 0).law

    def prepared(self, adjacency: RelationAdjacency, seeds: np.ndarray, batch_size: int, stream: Stream) -> RelationSampler:
        """Return the sampler that a loader of these seeds uses: trees are named by its batch size unless a stride is given."""
        return replace(self, stride=batch_size) if self.is_disjoint and not self.stride else self

    def table_bytes(self, adjacency: RelationAdjacency, k: int, like: HeteroMiniBatch) -> int:
        """Predict the bytes that sampling k mini-batches takes beside them; 0: unknown."""
        return 0

    def laws(self, adjacency: RelationAdjacency, stream: Stream, epoch: int) -> list[list[RelationLaw]]:
        """Return how each relation draws in each hop."""
        rule, strict = self._takes_last, self.time is not None and self.time.strict
        shared = self._law is Law.LABOR
        out = []
        for hop in range(self.hops):
            of_hop = []
            for ordinal, relation in enumerate(adjacency.graph.relations):
                own = stream.of_type(adjacency.graph.place(relation.source)) if shared else stream.of_relation(ordinal)
                fanout = (self.fanouts or {}).get(relation.key, self.base.fanouts)[hop]
                of_hop.append(RelationLaw(fanout, self.base.draw(own, hop, epoch), rule, strict))
            out.append(of_hop)
        return out

    def sample_bulk(self, adjacency: RelationAdjacency, seeds: Selection, stream: Stream, epoch: int = 0) -> list[HeteroMiniBatch]:
        """Sample k mini-batches in one call.

        Parameters
        ----------
        adjacency : RelationAdjacency
        seeds : HeteroSeeds, or a Selection if time does not count
            The seeds of each mini-batch, in the numbering of all types; `SeedList.select` makes them. Empty lists and repeated seeds
            are legal.
        stream : Stream
        epoch : int

        Returns
        -------
        list of k HeteroMiniBatch
            Each depends on (graph, sampler, seed, epoch, mini-batch id, its seeds and their times) alone, not on its bulk, the back end
            or the threads. With disjoint trees, what a seed draws depends on its tree's name alone, not on the other seeds.

        Raises
        ------
        UsageError
            If seeds lack times, a mini-batch has more seeds than `stride`, or seeds of one tree have different times.
        """
        self.check(adjacency)
        by = None if self.time is None else adjacency.kind_of_times(self.time.by)
        kinds, vertices = adjacency.split(seeds.vertices)
        trees, tree_of_seed = self._trees(seeds)
        lists, owners = zip(*[(vertices[kinds == t], tree_of_seed[kinds == t]) for t in range(len(adjacency.graph.types))], strict=True)
        trees = trees._replace(seeds=list(lists), tree_of_seed=list(owners), moving=self._moves)
        drawn = adjacency.expand_trees(trees, self.laws(adjacency, stream, epoch), by, self.base.frontier == "new", self.entries)
        made = [self._minibatch(adjacency, seeds, kinds, vertices, j, epoch, part, by) for j, part in enumerate(drawn)]
        if self.entries is not None:
            return made
        again = [partial(self._entries_of, adjacency, seeds.parts(j, j + 1), stream, epoch) for j in range(len(made))]
        return [one if one.known_entries else replace(one, find_entries=find) for one, find in zip(made, again, strict=True)]

    def _entries_of(
        self, adjacency: RelationAdjacency, seeds: Selection, stream: Stream, epoch: int
    ) -> tuple[dict[Key, np.ndarray], ...] | None:
        """Draw a mini-batch once more, with the entries of its edges; from now on draws on this adjacency tell them."""
        adjacency.entries_read = True
        return replace(self, entries=True).sample_bulk(adjacency, seeds, stream, epoch)[0].entries

    def _trees(self, seeds: Selection) -> tuple[Trees, np.ndarray]:
        """Return the trees of k mini-batches, still without seeds, and the tree of each seed."""
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
        return Trees(pointers, names, [], [], starts, ends), owner

    def _windows(self, seeds: Selection, owner: np.ndarray, count: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the first and the last time of each tree."""
        if self.time is None:
            return None, None
        times, starts = (seeds.times, seeds.starts) if isinstance(seeds, HeteroSeeds) else (None, None)
        if times is None:
            raise UsageError("time counts in this sampler, but the seeds have no times; give the time of each seed")
        ends = _one_each(owner, count, times, seeds, "times")
        if starts is not None:
            if self.time.window is not None:
                raise UsageError("got a window, and starts of the seeds besides; use one of them")
            return _one_each(owner, count, starts, seeds, "starts"), ends
        return (None if self.time.window is None else before(ends, self.time.window)), ends

    def _minibatch(
        self, adjacency: RelationAdjacency, seeds: Selection, kinds: np.ndarray, vertices: np.ndarray, j: int, epoch: int,
        part: HeteroExpansion, by: By | None,
    ) -> HeteroMiniBatch:  # fmt: skip
        """Return mini-batch j of a bulk, given all seeds as `RelationAdjacency.split` splits them."""
        graph, span = adjacency.graph, slice(seeds.pointers[j], seeds.pointers[j + 1])
        kinds, vertices = kinds[span], vertices[span]
        columns = [getattr(seeds, name, None) for name in ("places", "times")]
        own = [None if column is None else column[span] for column in columns]
        rows = {}
        for t, kind in enumerate(graph.types):
            here = np.flatnonzero(kinds == t)
            trees = part.trees[t] if self.is_disjoint else None
            extra = [None if column is None else column[here] for column in own]
            rows[kind.name] = TypeRows(
                part.vertices[t], part.held[:, t], vertices[here], part.seed_rows[t], here.astype(np.int32), trees, *extra
            )
        nested = self.base.frontier == "new"
        blocks: list[dict[Key, Block]] = []
        entries: list[dict[Key, Any]] = []
        hops = part.hops * (self.hops // len(part.hops))  # nested ones may be one that holds all others
        for hop, of_hop in enumerate(hops):
            pairs = {}
            for relation, drawn in zip(graph.relations, of_hop, strict=True):
                count = int(part.held[hop, graph.place(relation.destination)])
                edges = len(drawn.columns) if len(drawn.pointers) == count + 1 else int(drawn.pointers[count])
                sources = int(part.held[hop + 1, graph.place(relation.source)])
                pairs[relation.key] = (
                    Block(drawn.pointers[: count + 1], drawn.columns[:edges], None, sources),
                    None if drawn.entries is None else drawn.entries[:edges],
                )
            blocks.insert(0, {key: block for key, (block, _) in pairs.items()})
            entries.insert(0, {key: found for key, (_, found) in pairs.items()})
        times = None if by is None else TimesOf(graph, by)
        told = self.entries is not False and all(drawn.entries is not None for of_hop in part.hops for drawn in of_hop)
        known = tuple(entries) if told else None
        return HeteroMiniBatch(int(seeds.minibatches[j]), epoch, rows, tuple(blocks), known, nested, times)


def draws_by_row(sampler: Any) -> bool:
    """True if every row of a sampler draws among its own neighbors and nothing is done to the draws, as ShaDow and GraphSAINT do."""
    own = type(sampler)
    return isinstance(sampler, NodeWise) and own.expand is NodeWise.expand and own.sample_bulk is Sampler.sample_bulk


def _one_each(owner: np.ndarray, count: int, times: np.ndarray, seeds: Selection, what: str) -> np.ndarray:
    """Return the time of each tree, which all its seeds share; that of a tree without seeds does not matter."""
    out = np.zeros(count, np.int64)
    out[owner] = times
    other = np.flatnonzero(out[owner] != times)
    if len(other):
        minibatch = seeds.minibatches[seeds.minibatch_of_row()[other[0]]]
        found = f"{times[other[0]]} and {out[owner[other[0]]]}"
        raise UsageError(f"mini-batch {minibatch} has seeds of {what} {found} in one tree; use disjoint=True, or seeds of one time")
    return out
