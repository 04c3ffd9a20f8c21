"""HGSampling: each hop draws vertices of every type by a budget, and the mini-batch keeps all edges among its vertices.

    per type T:   B = sum over relations r = (T, name, D) of  Q_D D_r^-1 A_r,   Q_D the rows of type D drawn so far
                  SAMPLE: s_T of each row of B without replacement, by B^2;   at the end   EXTRACT: Q_D A_r Q_T  for each relation

D_r holds the degrees of the rows of A_r, so a vertex that was drawn gives each relation one unit, divided evenly among its edges.

Hu, Dong, Wang, Sun, "Heterogeneous graph transformer", WWW 2020, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..adjacency import Adjacency, race_weights
from ..backends.base import Restriction, check_fanout
from ..errors import UsageError
from ..graph import Key
from ..graph.minibatch import Block, MiniBatch, TypeRows
from ..graph.selection import Selection
from ..local_adjacency import LocalAdjacency
from ..rng import MAX_LAYERS, Stream
from ..sparse import CSR, row_pointers, runs
from .base import AnySampler, whole_fanouts


@dataclass(frozen=True)
class HGSampler(AnySampler):
    """HGSampling on a heterogeneous graph: about as many vertices of every type, densely connected.

    Parameters
    ----------
    num_samples : sequence of int, or a dict of such by type
        How many vertices of each type a hop draws; -1 takes every neighbor, 0 none. A dict names every type.

    Notes
    -----
    Weights of edges do not count; parallel edges count each. Budgets are integers, 1 / degree in fixed point, so their sums are exact.
    The race for a vertex names its place among all vertices, so types draw independently.
    """

    name: ClassVar[str] = "hgt"
    num_samples: Sequence[int] | Mapping[str, Sequence[int]]

    def __post_init__(self) -> None:
        requested = self.num_samples
        if isinstance(requested, Mapping):
            whole: Any = {name: whole_fanouts(counts, f"num_samples of type {name!r}") for name, counts in requested.items()}
        else:
            whole = whole_fanouts(requested, "num_samples")
        object.__setattr__(self, "num_samples", whole)
        lists = self._lists()
        lengths = {len(counts) for counts in lists}
        if len(lengths) != 1 or not 1 <= min(lengths) < MAX_LAYERS:
            raise UsageError(f"num_samples must name 1 to {MAX_LAYERS - 1} hops, as many for each type; got {requested!r}")
        for counts in lists:
            for count in counts:
                check_fanout(count)

    def _lists(self) -> list[Sequence[int]]:
        counts = self.num_samples
        return list(counts.values()) if isinstance(counts, Mapping) else [counts]

    @property
    def hops(self) -> int:
        """L."""
        return len(self._lists()[0])

    @property
    def identity(self) -> str:
        counts = self.num_samples
        return f"{type(self).__name__} {sorted(counts.items()) if isinstance(counts, Mapping) else counts}"

    def most_drawn(self, relations: Sequence[Key]) -> tuple[int, ...]:
        """Return how many vertices each hop draws: the most of a type, -1 for all."""
        return tuple(-1 if -1 in counts else max(counts) for counts in zip(*self._lists(), strict=True))

    @property
    def settings(self) -> dict[str, Any]:
        counts = self.num_samples
        return {"sampler": self.name, "num_samples": dict(counts) if isinstance(counts, Mapping) else list(counts)}

    def check(self, adjacency: Adjacency) -> None:
        """Raise `UsageError` if `num_samples` does not name the types of this graph, or its relations are in block rows."""
        adjacency.check_whole()
        names = [kind.name for kind in adjacency.graph.types]
        if isinstance(self.num_samples, Mapping) and set(self.num_samples) != set(names):
            raise UsageError(f"num_samples names {', '.join(map(str, self.num_samples))}; name every type: {', '.join(names)}")

    def _sample(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[MiniBatch]:
        """Sample k mini-batches, each of one square block per relation, on which a model runs all its layers. Vertices of a hop ascend."""
        assert isinstance(adjacency, LocalAdjacency)  # see `check`
        graph, relabel = adjacency.graph, adjacency.backend.relabel
        kinds, vertices = adjacency.split(seeds.vertices)
        owner = seeds.minibatch_of_row()
        held, seed_rows = [], []
        for t, kind in enumerate(graph.types):
            mine = kinds == t
            chosen = Selection(seeds.minibatches, row_pointers(np.bincount(owner[mine], minlength=len(seeds))), vertices[mine], kind.count)
            first, rows = relabel(chosen.none_of(), chosen.pointers, chosen.vertices)
            held.append(first)
            seed_rows.append(rows)
        frontier, sizes = held, [[part.sizes for part in held]]
        budgets = [part.none_of().per_minibatch(np.empty(0, np.int64)) for part in held]
        for hop in range(self.hops):
            budgets = _grown(adjacency, budgets, frontier, held)
            frontier = self._drawn(adjacency, budgets, seeds, stream, hop, epoch)
            held = [relabel(part, new.pointers, new.vertices)[0] for part, new in zip(held, frontier, strict=True)]
            sizes.append([part.sizes for part in held])
        kept, counts = _kept(adjacency, held), np.array(sizes, np.int64)  # of each relation; of each hop, type and mini-batch

        def minibatch(j: int) -> MiniBatch:
            span, rows, blocks, entries = slice(seeds.pointers[j], seeds.pointers[j + 1]), {}, {}, {}
            for t, kind in enumerate(graph.types):
                here = np.flatnonzero(kinds[span] == t)
                before = int((kinds[: span.start] == t).sum())
                places = None if seeds.places is None else seeds.places[span][here]
                local = seed_rows[t][before : before + len(here)]
                rows[kind.name] = TypeRows(
                    held[t].part(j), counts[:, t, j], vertices[span][here], local, here.astype(np.int32), None, places
                )
            for relation, edges_of in zip(graph.relations, kept, strict=True):
                into, outof = (held[graph.place(end)] for end in (relation.destination, relation.source))
                pointers = edges_of.pointers[into.pointers[j] : into.pointers[j + 1] + 1]
                edges = slice(pointers[0], pointers[-1])
                blocks[relation.key] = Block(pointers - pointers[0], edges_of.columns[edges], None, len(outof.part(j)))
                entries[relation.key] = edges_of.entries[edges]
            layers, known = (blocks,) * self.hops, (entries,) * self.hops
            return MiniBatch(int(seeds.minibatches[j]), epoch, rows, layers, nested=True, known_entries=known, subgraph=True)

        return [minibatch(j) for j in range(len(seeds))]

    def _drawn(
        self, adjacency: LocalAdjacency, budgets: list[CSR], seeds: Selection, stream: Stream, hop: int, epoch: int
    ) -> list[Selection]:
        """Draw the vertices of each type by their budgets."""
        draw, out = stream.layer_draw(layer=hop, epoch=epoch), []
        for kind, offset, budget in zip(adjacency.graph.types, adjacency.graph.offsets, budgets, strict=False):
            counts = self.num_samples[kind.name] if isinstance(self.num_samples, Mapping) else self.num_samples
            names = (budget.indices + offset).astype(np.int32)
            weights = race_weights(budget.entries(), 2)
            picks = adjacency.backend.smallest_keys(budget.indptr, names, weights, counts[hop], seeds.minibatches, draw)
            out.append(Selection(seeds.minibatches, picks.pointers, picks.columns - offset, kind.count))
        return out


def _grown(adjacency: LocalAdjacency, budgets: list[CSR], frontier: list[Selection], held: list[Selection]) -> list[CSR]:
    """Add to the budgets of each type what a frontier gives by every relation; vertices that are held have none."""
    graph = adjacency.graph
    terms = [[budget] for budget in budgets]
    for relation, (matrix, share) in zip(graph.relations, adjacency.shares_of_rows, strict=True):
        rows = frontier[graph.place(relation.destination)]
        product = adjacency.backend.spgemm(rows.per_minibatch(share[rows.vertices]), matrix)
        terms[graph.place(relation.source)].append(product)
    out = []
    for parts, present in zip(terms, held, strict=True):
        triples = [(part.row_of_entry(), part.indices, part.entries()) for part in parts]
        owners, columns, sums = (np.concatenate(arrays) for arrays in zip(*triples, strict=True))
        total = CSR.from_edges(owners, columns, parts[0].shape, sums)
        out.append(total.keep(present.per_minibatch().find(total.row_of_entry(), total.indices) < 0))
    return out


def _kept(adjacency: LocalAdjacency, held: list[Selection]) -> list[Restriction]:
    """Return the edges of each relation among the vertices that mini-batches hold; parallel edges are entries of their own."""
    out = []
    for relation, (matrix, _) in zip(adjacency.graph.relations, adjacency.shares_of_rows, strict=True):
        into, outof = (held[adjacency.graph.place(end)] for end in (relation.destination, relation.source))
        kept = adjacency.backend.restrict(matrix.with_values(None), into, outof)
        if matrix.values is not None:
            counts = matrix.values[kept.entries]
            first = relation.adjacency.find(np.repeat(into.vertices, np.diff(kept.pointers)), matrix.indices[kept.entries])
            kept = Restriction(row_pointers(counts)[kept.pointers], np.repeat(kept.columns, counts), runs(first, counts))
        out.append(kept)
    return out
