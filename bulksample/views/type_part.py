"""A part of a graph of several types as a graph of its own, cut out of relations that every rank has whole.

    rows of type T      the vertices of T that the rank sees (S) and the halo (H: sources outside S), ascending together
    relation r          A_r[S_D, S_S and H_S]; the rows of H are empty

Only features travel, where other ranks hold them. Exact evaluation still runs on the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch

from ..distributed.comm.threads import SerialComm
from ..graph import Graph
from ..graph.induced import by_type, induced
from ..graph.minibatch import Block, LayerBlocks
from ..local_adjacency import LocalAdjacency
from ..nn.dropout import PassKey
from ..nn.layers import Input
from ..nn.model import Model
from ..nn.relational import RelationalGnn
from .local import FullPass, LocalPart, PartRelation, VisibleParts, stored
from .seed_times import SeedTimes
from .type_features import TypeFeatures, whole_features
from .type_view import TypeTargets, type_targets, type_view
from .view import View, mean_weights


class TypePart(LocalPart):
    """The part of a graph of several types that a rank sees, renumbered within each type.

    Its `vertices` are those of the whole graph in the numbering of all types, ascending; `rows` of them have their edges.
    """

    def full_pass(self, strong: bool = True, weights: Sequence[np.ndarray] | None = None) -> FullPass:
        """Return a pass of a model over all rows, every layer by all edges; it returns the outputs of the target type.

        `weights`, float32 of the edges of each relation, replace those of its mean; `strong`, that of `FullGraph`, changes nothing.
        """
        targets, blocks = type_targets(self.view), {}
        for place, (key, matrix, _) in enumerate(self.relations):
            means = mean_weights(matrix.indptr, matrix.values, 1.0, targets.weighted)[1] if weights is None else weights[place]
            blocks[key] = self.view.on_device(Block(matrix.indptr, matrix.indices, means, matrix.shape[1]))
        counts = {kind.name: kind.count for kind in targets.graph.types}
        x = self.view.features.fetch({name: np.arange(count, dtype=np.int32) for name, count in counts.items()})
        return partial(_outputs, LayerBlocks(blocks, counts), x, self.view)


def _outputs(layer: LayerBlocks, x: Mapping[str, Input], view: View, model: Model, key: PassKey | None = None) -> torch.Tensor:
    """Return the outputs of a model whose layers all take the same edges."""
    outputs: torch.Tensor = model(
        [layer] * len(cast(RelationalGnn, model).layers), x, names=None if key is None else view.names_of_part(key)
    )
    return outputs


def start_part(whole: View, graph: Graph, vertices: np.ndarray, drawing: np.ndarray, is_seed: np.ndarray) -> Callable[[], TypePart]:
    """Start to fetch the features of a part of a graph of several types; return what waits for them, and must be called.

    `vertices`, ascending in the numbering of all types, are renumbered to be the rows of the part, those where `drawing` is True with
    their edges; `is_seed` is True for the seeds of the whole view that are this rank's. Collective if other ranks hold features.
    """
    targets, part, inside = type_targets(whole), induced(graph, vertices, drawing), by_type(graph, vertices)
    degrees = [relation.adjacency.degrees[inside[relation.destination]].astype(np.int32) for relation in targets.graph.relations]
    relations = tuple(PartRelation(one.key, one.adjacency, of_whole) for one, of_whole in zip(part.relations, degrees, strict=True))
    fetching, here = whole.features.start(inside), inside[targets.kind.name]

    def wait() -> TypePart:
        x, is_target = fetching(), np.zeros(targets.kind.count, bool)
        is_target[targets.seeds[is_seed]] = True
        types = []
        for kind in part.types:
            has_rows = kind.name in x and targets.graph.type(kind.name).num_features
            kind = replace(kind, features=stored(x[kind.name]) if has_rows else None)
            if kind.name == targets.kind.name:
                assert targets.kind.labels is not None
                classes, labels = targets.kind.num_classes, np.asarray(targets.kind.labels[here])
                kind = replace(kind, labels=labels, num_classes=classes, masks={"train": is_target[here]})
            types.append(kind)
        graph = replace(part, types=tuple(types))
        times = None if targets.times is None else SeedTimes(targets.times.of_vertex[here], targets.times.rule)
        of_part = TypeTargets(graph, graph.type(targets.kind.name), "train", times, targets.weighted)
        features = whole_features(graph, cast(TypeFeatures, whole.features).needed)
        made = type_view(of_part, LocalAdjacency(graph, whole.adjacency.backend, by_type=True), features, SerialComm(), whole.fingerprint)
        made.memory = {name: size + made.memory.get(name, 0) for name, size in whole.memory.items()}
        made.memory["replicated"] += vertices.nbytes + sum(one.nbytes for one in degrees)
        made.share, made.whole, made.origin = whole.share, whole, inside
        return TypePart(made, vertices, int(np.count_nonzero(drawing)), relations)

    return wait


class TypeParts:
    """Cuts parts out of a graph of several types; `blocks` are the chunks that stay, and `seeds` in the numbering of all types.

    `n` counts vertices of all types; see `BlockParts`.
    """

    def __init__(self, whole: View, blocks: VisibleParts, rank: int) -> None:
        self.whole, self.blocks, self.mark, self._rank = whole, blocks, blocks.part, rank
        targets = type_targets(whole)
        self.graph = bare(targets.graph)
        self.n, self.seeds = self.graph.n, targets.seeds + int(self.graph.offsets[self.graph.place(targets.kind.name)])

    def start(self, parts: VisibleParts, halo: int | None = None) -> Callable[[], TypePart]:
        """Start to fetch the part that this rank sees, with at most `halo` halo vertices, all by default; 0 keeps none."""
        seen = parts.seen[self._rank][parts.part]
        kept = seen | self._halo(seen, halo) if halo != 0 else seen
        vertices = np.flatnonzero(kept).astype(np.int32)
        return start_part(self.whole, self.graph, vertices, seen[vertices], parts.part[self.seeds] == self._rank)

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


def bare(graph: Graph) -> Graph:
    """Return a graph with the columns that draws read alone."""
    types = (replace(kind, features=None, labels=None, num_classes=0, masks={}, extra={}) for kind in graph.types)
    relations = (replace(relation, features=None, edge_ids=None) for relation in graph.relations)
    return Graph.of(types, relations, graph.name)
