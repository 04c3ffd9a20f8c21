"""A graph as one rank sees it, with everything that training needs from it.

`WholeView` has the whole graph on every rank, `BlockView` a block of its rows, `LocalView` a part that its rank trains on alone.
The loop, the methods and the evaluation cannot tell which.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from ..adjacency import Adjacency
from ..data.link_examples import LinkExamples
from ..distributed.comm.base import Comm
from ..distributed.matrix.graph_block import GraphBlock
from ..graph import Graph
from ..labels import as_numbers, without_label
from ..loader import BulkLoader
from ..minibatch import Block
from ..samplers import Sampler
from .edges import EdgeSource
from .features import FeatureSource
from .inference_share import InferenceShare
from .stream_sync import StreamSync

Rows = TypeVar("Rows", Graph, GraphBlock)


class View(ABC):
    """A graph as one rank sees it.

    Attributes
    ----------
    name : str
    num_features, num_classes : int
        Widths of the input and of the output of a model; see `Graph.num_classes`.
    fingerprint : str
        Identifies the graph; the same on every rank, for every placement.
    adjacency : Adjacency
        The matrix that samplers draw from.
    seeds : int32, shape (m,)
        The vertices to train on, ascending, the same on every rank.
    labels : int64 of shape (m,), or int8 or float32 of shape (m, t)
        The labels of the seeds; see `bulksample.labels`.
    features : FeatureSource
    share : InferenceShare
        The rows that this rank computes in exact inference.
    memory : dict of str to int
        Bytes that this rank holds: of the ``adjacency``, of the ``features``, and ``replicated`` ones.
    read_bytes : int
        Bytes that this rank read from the store; 0 of a graph that is mapped or given in memory.
    edges : EdgeSource, optional
        Fetches what a graph says of its edges; None if nothing is fetched.
    links : LinkExamples, optional
        The edges to train on; None where nobody has asked for those of a whole adjacency.
    stream_sync : StreamSync
    where : torch.device
        The device of `degrees` and of fetched features.
    block_mover : callable, optional
        Copies a block to that device; None on a CPU.
    relations_of_row : int
        The most relations from which a row draws.
    sampling : Comm, optional
        The communicator of the adjacency. Sampling runs on a thread of its own, so nothing else uses it.
    """

    name: str
    num_features: int
    num_classes: int
    fingerprint: str
    adjacency: Adjacency
    seeds: np.ndarray
    labels: np.ndarray
    features: FeatureSource
    share: InferenceShare
    read_bytes: int = 0
    memory: dict[str, int]
    relations_of_row: int = 1
    sampling: Comm | None = None
    all_degrees: torch.Tensor | None
    edges: EdgeSource | None = None
    links: LinkExamples | None = None
    stream_sync: StreamSync = StreamSync()
    where = torch.device("cpu")
    block_mover: Callable[[Block], Block] | None = None

    def at(self, step: dict[str, Any]) -> None:
        """Name the step, by its position, whose rows are fetched next; ranks that fetch together compare it."""
        return

    def held_bytes(self) -> dict[str, int]:
        """Return `memory`, with what draws have gathered from other ranks counted as ``replicated``."""
        return {**self.memory, "replicated": self.memory["replicated"] + self.adjacency.gathered_bytes}

    def part_order(self, vertices: np.ndarray) -> np.ndarray:
        """Return the place of each vertex in the order of the block rows, or of a folder of parts; ids where there are neither."""
        return vertices

    def all_rows(self) -> View:
        """Return the view of the whole graph; this view itself, unless it is a part of the graph."""
        return self

    def loader(self, sampler: Sampler, vertices: np.ndarray, **options: Any) -> BulkLoader:
        """Return a loader of mini-batches whose seeds are these vertices; options are those of `BulkLoader`."""
        return BulkLoader(self.adjacency, sampler, vertices, **options)

    def on_device(self, block: Block) -> Block:
        """Return the block on the device of this view."""
        return block if self.block_mover is None else self.block_mover(block)

    def degrees(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Return (weighted) degrees in the whole graph: float32; zeros if the model does not use degrees."""
        if self.all_degrees is None:
            return torch.zeros(len(vertices), device=self.where)
        return self.all_degrees[as_index(vertices)]

    def truth(self, seeds: np.ndarray) -> np.ndarray:
        """Return labels in the form that a loss takes (`as_numbers`). A vertex that is not a seed of this view counts as unlabelled."""
        if not len(self.seeds):
            return as_numbers(without_label(np.zeros((len(seeds), *self.labels.shape[1:]), self.labels.dtype), slice(None)))
        at = np.minimum(np.searchsorted(self.seeds, seeds), len(self.seeds) - 1)
        return as_numbers(without_label(self.labels[at], self.seeds[at] != seeds))


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
