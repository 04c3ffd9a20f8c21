"""What a rank sees of a graph, and everything that training asks of it.

`WholeView` is a graph that lies whole on every rank, `BlockView` one that lies in block rows. The loop, the methods and
the evaluation cannot tell which.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable

import numpy as np
import torch

from ..adjacency import Adjacency
from ..distributed.comm.base import Comm
from ..evaluation.inference import Share
from ..minibatch import Block
from .features import FeatureSource
from .stream_sync import StreamSync


class View(ABC):
    """A graph as one rank sees it.

    Attributes
    ----------
    name : str
    num_features, num_classes : int
    fingerprint : str
        Tells one graph from another; alike on every rank, however the graph lies.
    adjacency : Adjacency
        What samplers see.
    seeds : int32, shape (m,)
        The vertices to train on, ascending, alike on every rank.
    classes : int64, shape (m,)
        Of the seeds; -1 where there is none.
    features : FeatureSource
    share : Share
        What exact inference sees.
    memory : dict of str to int
        Bytes that this rank holds of the ``adjacency``, of the ``features``, and of what is replicated besides.
    order : Order
        What those who make minibatches and those who use them have to tell each other.
    where : torch.device
        Where `degrees` and features are.
    bring : callable, optional
        What brings a block there, if that is not the host.
    sampling : Comm, optional
        What the adjacency communicates over, apart from everything else, since sampling runs on a thread of its own.
    """

    name: str
    num_features: int
    num_classes: int
    fingerprint: str
    adjacency: Adjacency
    seeds: np.ndarray
    classes: np.ndarray
    features: FeatureSource
    share: Share
    memory: dict[str, int]
    sampling: Comm | None = None
    all_degrees: torch.Tensor | None
    order: StreamSync = StreamSync()
    where = torch.device("cpu")
    bring: Callable[[Block], Block] | None = None

    def placed(self, block: Block) -> Block:
        """A block, where `degrees` and features are."""
        return block if self.bring is None else self.bring(block)

    def degrees(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        """(Weighted) degrees in the whole graph: float32; zeros for a model that does not ask for them."""
        if self.all_degrees is None:
            return torch.zeros(len(vertices), device=self.where)
        return self.all_degrees[as_index(vertices)]

    def truth(self, seeds: np.ndarray) -> np.ndarray:
        """The class of some of the seeds: int64; -1 for a vertex that is none, or has none."""
        if not len(self.seeds):
            return np.full(len(seeds), -1, np.int64)
        at = np.minimum(np.searchsorted(self.seeds, seeds), len(self.seeds) - 1)
        return np.where(self.seeds[at] == seeds, self.classes[at], -1)


def as_index(numbers: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Numbers by which a tensor is indexed: int64, where they are."""
    return numbers.long() if isinstance(numbers, torch.Tensor) else torch.from_numpy(numbers.astype(np.int64))


def mean_weights(indptr: np.ndarray, values: np.ndarray | None, unit: float, weighted: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Degrees of rows, and the weights of their entries in a mean.

    Returns
    -------
    degrees : float32, shape (rows,)
        Weighted where the means are.
    weights : float32, shape (entries,), optional
        They add up to one in each row; None stands for the plain mean.
    """
    counts = np.diff(indptr)
    if not weighted or values is None:
        return counts.astype(np.float32), None
    row, real = np.repeat(np.arange(len(counts)), counts), values.astype(np.float64)
    totals = np.bincount(row, real, minlength=len(counts)).astype(np.float64)
    return (totals * unit).astype(np.float32), (real / np.maximum(totals, 1.0)[row]).astype(np.float32)
