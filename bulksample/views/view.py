"""A graph as one rank sees it, made of four parts that are chosen apart.

    adjacency   the matrix that samplers draw from: whole, in block rows, or the relations of several types
    features    the input rows, by type if there are several: of this rank, of its machine, of other ranks
    targets     the vertices or links to predict, with their labels
    share       the rows that this rank computes or scores in inference

The functions that choose the parts are `whole_view`, `feature_block_view`, `block_view`, `local_part` and `type_view`, and for loaders
`loading_view` and `relation_loading_view`. The loop, the methods and the evaluation cannot tell which was called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from ..adjacency import Adjacency
from ..data.link_examples import EdgeExamples
from ..distributed.comm.base import Comm
from ..distributed.matrix.graph_block import GraphBlock
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.layout import Layout
from ..graph import NODE, Graph
from ..graph.labels import as_numbers, without_label
from ..graph.minibatch import Block, MiniBatch
from ..loading.loader import BulkLoader
from ..nn.dropout import HostKernels, Kernels, PassKey, PassNames, RowNames
from ..nn.relational import Schema
from ..samplers import Sampler
from ..samplers.time_rule import TimeRule
from .edges import EdgeSource
from .features import FeatureSource
from .inference_share import ScoredRows
from .sync import Meeting, StreamSync

Rows = TypeVar("Rows", Graph, GraphBlock)


@dataclass(eq=False)
class Targets:
    """The vertices to train on, and their labels."""

    seeds: np.ndarray  # int32, shape (m,), ascending, the same on every rank
    labels: np.ndarray  # int64 of shape (m,), or int8 or float32 of shape (m, t); see `bulksample.graph.labels`
    num_classes: int  # the width of the output of a model; see `Graph.num_classes`
    links: EdgeExamples | None = None  # the edges to train on; None where nobody has asked for those of a whole adjacency
    rule: TimeRule | None = None  # of time, for links
    first_of_ends: tuple[int, int] = (0, 0)  # the numbers of the first source and destination of links in the numbering of all vertices
    relations_of_row = 1  # the most relations from which a row draws

    @property
    def nbytes(self) -> int:
        return self.seeds.nbytes + self.labels.nbytes

    @property
    def schema(self) -> Schema | None:
        """The types and relations, as a model of relations sees them; None of a plain graph."""
        return None

    def loader(self, adjacency: Adjacency, sampler: Sampler, vertices: np.ndarray, **options: Any) -> BulkLoader:
        """Return a loader of mini-batches whose seeds are these vertices; options are those of `BulkLoader`."""
        return BulkLoader(adjacency, sampler, vertices, **options)


class BlockRows(NamedTuple):
    """This rank's block row of the topology."""

    grid: ProcessGrid  # for features and inference; sampling has another grid of the same shape
    layout: Layout
    block: GraphBlock
    weights: np.ndarray | None  # float32, shape (entries of the block,): the weights of a weighted mean


@dataclass(eq=False)
class View:
    """A graph as one rank sees it."""

    name: str
    fingerprint: str  # identifies the graph; the same on every rank, for every placement
    adjacency: Adjacency
    features: FeatureSource
    targets: Targets = field(default_factory=lambda: Targets(np.empty(0, np.int32), np.empty(0, np.int64), 0))
    share: ScoredRows = field(default_factory=ScoredRows)
    memory: dict[str, int] = field(default_factory=dict)  # bytes of this rank: "adjacency", "features", and "replicated" ones
    all_degrees: torch.Tensor | None = None  # float32, shape (n,): (weighted) degrees in the whole graph, if the model uses them
    # places of vertices in the order of block rows or of a folder of parts
    part_order: Callable[[np.ndarray], np.ndarray] = lambda vertices: vertices
    block_rows: BlockRows | None = None  # if ranks hold block rows of the topology
    whole: View | None = None  # the view of the whole graph, if this one is of a part
    read_bytes: int = 0  # read from the store; 0 of a graph that is mapped or given in memory
    sampling: Comm | None = None  # of the adjacency: sampling runs on a thread of its own, so nothing else uses it
    edges: EdgeSource | None = None  # fetches what a graph says of its edges
    meeting: Meeting = field(default_factory=Meeting)
    stream_sync: StreamSync = field(default_factory=StreamSync)
    where: torch.device = field(default_factory=lambda: torch.device("cpu"))  # of `degrees` and of fetched features
    block_mover: Callable[[Block], Block] | None = None  # copies a block to that device; None on a CPU
    origin: Mapping[str, np.ndarray] | None = None  # of a part: the vertex of the whole graph in each row, by type
    kernels: Kernels | None = None  # of the device, for dropout; None on a CPU

    @property
    def seeds(self) -> np.ndarray:
        """The vertices to train on."""
        return self.targets.seeds

    @property
    def original_seeds(self) -> np.ndarray:
        """The vertices to train on, as vertices of the whole graph, of their type: ascending."""
        if self.origin is None:
            return self.seeds
        schema = self.targets.schema
        ids: np.ndarray = self.origin[NODE if schema is None else schema.target][self.seeds]
        return ids

    @property
    def labels(self) -> np.ndarray:
        """The labels of the seeds."""
        return self.targets.labels

    @property
    def num_classes(self) -> int:
        """The width of the output of a model."""
        return self.targets.num_classes

    @property
    def num_features(self) -> int:
        """The width of the input of a model."""
        return self.features.width

    def held_bytes(self) -> dict[str, int]:
        """Return `memory`, with what draws have gathered from other ranks, for scores from the whole graph, counted as ``replicated``."""
        return {**self.memory, "replicated": self.memory["replicated"] + self.all_rows().adjacency.gathered_bytes}

    def all_rows(self) -> View:
        """Return the view of the whole graph; this view itself, unless it is a part of the graph."""
        return self.whole or self

    def own_rows(self) -> BlockRows:
        """Return this rank's block row of the topology."""
        assert self.block_rows is not None
        return self.block_rows

    def loader(self, sampler: Sampler, vertices: np.ndarray, **options: Any) -> BulkLoader:
        """Return a loader of mini-batches whose seeds are these vertices; options are those of `BulkLoader`."""
        return self.targets.loader(self.adjacency, sampler, vertices, **options)

    def on_device(self, block: Block) -> Block:
        """Return the block on the device of this view."""
        return block if self.block_mover is None else self.block_mover(block)

    def names(self, minibatch: MiniBatch, stage: int = 0) -> PassNames:
        """Return the names of the rows of a mini-batch in the masks of dropout: vertices of the whole graph."""
        rows = {kind: RowNames(part.vertices, part.trees) for kind, part in minibatch.rows.items()}
        if self.origin is not None:
            take = (self.kernels or HostKernels()).take
            rows = {kind: RowNames(take(self.origin[kind], of_part.vertices), of_part.trees) for kind, of_part in rows.items()}
        return PassNames(PassKey(minibatch.seed, minibatch.epoch, minibatch.id, stage), rows, self.kernels)

    def names_of_part(self, key: PassKey) -> PassNames:
        """Return the names of all rows of a part in the masks of a pass."""
        assert self.origin is not None
        return PassNames(key, {kind: RowNames(vertices) for kind, vertices in self.origin.items()}, self.kernels)

    def degrees(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Return (weighted) degrees in the whole graph: float32; zeros if the model does not use degrees."""
        if self.all_degrees is None:
            return torch.zeros(len(vertices), device=self.where)
        return self.all_degrees[as_index(vertices)]

    def truth(self, seeds: np.ndarray) -> np.ndarray:
        """Return labels in the form that a loss takes (`as_numbers`). A vertex that is not a seed of this view counts as unlabelled."""
        known, labels = self.seeds, self.labels
        if not len(known):
            return as_numbers(without_label(np.zeros((len(seeds), *labels.shape[1:]), labels.dtype), slice(None)))
        at = np.minimum(np.searchsorted(known, seeds), len(known) - 1)
        return as_numbers(without_label(labels[at], known[at] != seeds))


def memory(adjacency: int, features: FeatureSource, replicated: int) -> dict[str, int]:
    """Return the bytes that a rank holds for a view: of the topology, of the features, and of what all ranks have."""
    return {"adjacency": adjacency, "features": features.nbytes(), "replicated": replicated}


def as_index(numbers: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Convert numbers to an int64 tensor for indexing; a tensor stays on its device."""
    return numbers.long() if isinstance(numbers, torch.Tensor) else torch.from_numpy(numbers.astype(np.int64))


def as_weighed(rows: Rows, weighted: bool) -> Rows:
    """Return a graph, or some rows of one, as weighted means see it: an edge of weight 0 is none, to a model that reads no weights either.

    Features of edges, which no view reads, are left out with the edges.
    """
    if not weighted or not rows.adjacency.stores_zeros:
        return rows
    columns: dict[str, Any] = {"adjacency": rows.adjacency.positive}
    if getattr(rows, "edge_features", None) is not None:
        columns["edge_features"] = None
    return replace(rows, **columns)


def mean_weights(indptr: np.ndarray, values: np.ndarray | None, unit: float, weighted: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Compute the degrees of rows, and the weights of their entries in a mean.

    Returns
    -------
    degrees : float32, shape (rows,)
        Sums of edge weights if `weighted` and the graph has weights, else numbers of edges.
    weights : float32, shape (entries,), optional
        They add up to one in each row; None stands for the plain mean.
    """
    counts = np.diff(indptr)
    if not weighted or values is None:
        return counts.astype(np.float32), None
    row, real = np.repeat(np.arange(len(counts)), counts), values.astype(np.float64)
    totals = np.bincount(row, real, minlength=len(counts)).astype(np.float64)
    return (totals * unit).astype(np.float32), (real / np.maximum(totals, 1.0)[row]).astype(np.float32)
