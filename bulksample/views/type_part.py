"""A part of a graph of several types as a graph of its own, cut out of relations that every rank has whole.

    rows of type T      the vertices of T that the rank sees (S) and the halo (H: sources outside S), ascending together
    relation r          A_r[S_D, S_S and H_S]; the rows of H are empty

Only features travel, where other ranks hold them. Exact evaluation still runs on the whole graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from ..distributed.comm.threads import SerialComm
from ..graph import Graph, Relation
from ..graph.induced import by_type, induced
from ..graph.minibatch import Block
from ..graph.seed_batch import LayerBlocks
from ..local_adjacency import LocalAdjacency
from ..nn.model import Model
from ..nn.relational import RelationalGnn
from .features import Fetching
from .local import PartRelation, VisibleParts, stored
from .seed_times import SeedTimes
from .type_features import TypeFeatures, whole_features
from .type_view import TypeTargets, type_targets, type_view
from .view import View, mean_weights


@dataclass(frozen=True, eq=False)
class TypePart:
    """The part of a graph of several types that a rank sees, renumbered within each type, and its view.

    `vertices`, int32, are those of the whole graph in the numbering of all types, ascending; `rows` of them have their edges.
    """

    view: View
    vertices: np.ndarray
    rows: int
    relations: tuple[PartRelation, ...]

    @property
    def target(self) -> str:
        """The type of the seeds."""
        return type_targets(self.view).kind.name

    @property
    def edges(self) -> int:
        """The number of edges of all relations."""
        return sum(relation.matrix.nnz for relation in self.relations)

    def full_pass(self, strong: bool = True, weights: Sequence[np.ndarray] | None = None) -> TypePass:
        """Return a pass of a model over all rows; `weights`, float32 of the edges of each relation, replace those of its mean.

        `strong` is that of `FullGraph`; without a halo it changes nothing.
        """
        weighted, blocks = type_targets(self.view).weighted, {}
        for place, (key, matrix, _) in enumerate(self.relations):
            means = mean_weights(matrix.indptr, matrix.values, 1.0, weighted)[1] if weights is None else weights[place]
            blocks[key] = self.view.on_device(Block(matrix.indptr, matrix.indices, means, matrix.shape[1]))
        return TypePass(self.view, blocks)


class TypePass:
    """A pass of a model of relations over all rows of a part, every layer by all of its edges; nothing is exchanged."""

    def __init__(self, view: View, blocks: dict[tuple[str, str, str], Block]) -> None:
        counts = {kind.name: kind.count for kind in type_targets(view).graph.types}
        self.layer = LayerBlocks(blocks, counts)
        self._x = view.features.fetch({name: np.arange(count, dtype=np.int32) for name, count in counts.items()})

    def __call__(self, model: Model) -> torch.Tensor:
        """Return the outputs of all rows of the target type."""
        outputs: torch.Tensor = model([self.layer] * len(cast(RelationalGnn, model).layers), self._x)
        return outputs


class PendingTypePart:
    """A part of a graph of several types whose features are on their way. Every one must be waited for.

    `vertices`, ascending in the numbering of all types, are renumbered to be the rows of the part, those where `drawing` is True with
    their edges; `own_seeds` is True for the seeds of the whole view that are this rank's. Collective if other ranks hold features.
    """

    def __init__(self, whole: View, graph: Graph, vertices: np.ndarray, drawing: np.ndarray, own_seeds: np.ndarray) -> None:
        self._whole, self._vertices, self._own_seeds, self._rows = whole, vertices, own_seeds, int(np.count_nonzero(drawing))
        self._graph, self._inside = induced(graph, vertices, drawing), by_type(graph, vertices)
        everything = type_targets(whole).graph.relations
        degrees = [relation.adjacency.degrees[self._inside[relation.destination]] for relation in everything]
        parts = zip(self._graph.relations, degrees, strict=True)
        self._relations = tuple(PartRelation(relation.key, relation.adjacency, own.astype(np.int32)) for relation, own in parts)
        self._fetching: Fetching = whole.features.start(self._inside)

    def wait(self) -> TypePart:
        """Wait for the features and return the part."""
        whole, targets, x = self._whole, type_targets(self._whole), self._fetching.wait()
        own = np.zeros(targets.kind.count, bool)
        own[targets.seeds[self._own_seeds]] = True
        here = self._inside[targets.kind.name]
        types = []
        for kind in self._graph.types:
            has_rows = kind.name in x and targets.graph.type(kind.name).num_features
            kind = replace(kind, features=stored(x[kind.name]) if has_rows else None)
            if kind.name == targets.kind.name:
                assert targets.kind.labels is not None
                classes, labels = targets.kind.num_classes, np.asarray(targets.kind.labels[here])
                kind = replace(kind, labels=labels, num_classes=classes, masks={"train": own[here]})
            types.append(kind)
        graph = replace(self._graph, types=tuple(types))
        times = None if targets.times is None else SeedTimes(targets.times.of_vertex[here], targets.times.rule)
        part = TypeTargets(graph, graph.type(targets.kind.name), "train", times, targets.weighted)
        features = whole_features(graph, cast(TypeFeatures, whole.features).needed)
        made = type_view(part, LocalAdjacency(graph, whole.adjacency.backend, by_type=True), features, SerialComm(), whole.fingerprint)
        made.memory = {name: held + made.memory.get(name, 0) for name, held in whole.memory.items()}
        made.memory["replicated"] += self._vertices.nbytes + sum(relation.degrees.nbytes for relation in self._relations)
        made.share, made.whole = whole.share, whole
        return TypePart(made, self._vertices, self._rows, self._relations)


class TypeParts:
    """Cuts parts out of a graph of several types; `blocks` are the chunks that stay. See `BlockParts`."""

    def __init__(self, whole: View, blocks: VisibleParts, rank: int) -> None:
        self.whole, self.blocks, self._rank = whole, blocks, rank
        self.graph = _bare(type_targets(whole).graph)

    @property
    def n(self) -> int:
        """Vertices of all types."""
        return self.graph.n

    @property
    def mark(self) -> np.ndarray:
        """Numbers that tell the chunks of this partition from others."""
        return self.blocks.part

    def parts_of_seeds(self, parts: VisibleParts) -> np.ndarray:
        """Return the part of each seed of the whole graph."""
        return np.asarray(parts.part[self.seeds])

    @property
    def seeds(self) -> np.ndarray:
        """The seeds in the numbering of all types."""
        targets = type_targets(self.whole)
        return targets.seeds + int(self.graph.offsets[self.graph.place(targets.kind.name)])

    def start(self, parts: VisibleParts, halo: int | None = None) -> PendingTypePart:
        """Start to fetch the part that this rank sees, with at most `halo` halo vertices, all by default; 0 keeps none."""
        seen = parts.seen[self._rank][parts.part]
        kept = seen | self._halo(seen, halo) if halo != 0 else seen
        vertices = np.flatnonzero(kept).astype(np.int32)
        return PendingTypePart(self.whole, self.graph, vertices, seen[vertices], self.parts_of_seeds(parts) == self._rank)

    def _halo(self, seen: np.ndarray, count: int | None) -> np.ndarray:
        """Return True for the sources outside S of edges into S, or for the `count` of them whose edges complete most.

        An edge of a relation into v counts 1 / d_v, of the relation; ties go to the lower id.
        """
        gain = np.zeros(self.n)
        for relation in self.graph.relations:
            rows = seen[self._slice(relation.destination)]
            matrix = relation.adjacency.take(np.flatnonzero(rows))
            share = np.repeat(1.0 / np.maximum(matrix.degrees, 1), matrix.degrees)
            gain[self._slice(relation.source)] += np.bincount(matrix.indices, share, minlength=relation.adjacency.shape[1])
        gain[seen] = 0
        outside = np.flatnonzero(gain)
        if count is not None and len(outside) > count:
            outside = outside[np.argsort(-gain[outside], kind="stable")[:count]]
        made = np.zeros(self.n, bool)
        made[outside] = True
        return made

    def _slice(self, name: str) -> slice:
        place = self.graph.place(name)
        return slice(int(self.graph.offsets[place]), int(self.graph.offsets[place + 1]))


def _bare(graph: Graph) -> Graph:
    """Return a graph with the columns that draws read alone."""
    types = (replace(kind, features=None, labels=None, num_classes=0, masks={}, extra={}) for kind in graph.types)
    relations = (replace(relation, features=None, edge_ids=None) for relation in graph.relations)
    return Graph.of(types, relations, graph.name)


def part_of_relations(whole: View, relations: list[Relation], vertices: np.ndarray, own_seeds: np.ndarray) -> TypePart:
    """Return the part that has some vertices of a graph and some edges of each relation, in its numbering; see `PendingTypePart`."""
    bare = _bare(type_targets(whole).graph)
    pending = PendingTypePart(whole, replace(bare, relations=tuple(relations)), vertices, np.ones(len(vertices), bool), own_seeds)
    return pending.wait()
