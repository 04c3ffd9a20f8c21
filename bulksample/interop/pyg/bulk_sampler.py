"""The base of the samplers for torch_geometric: bulks for our loaders, and single mini-batches for its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, NodeSamplerInput, SamplerOutput

from ...distributed.comm.base import Comm
from ...process_lock import process_lock
from ...rng import MAX_EPOCHS, Stream

_COUNTING = process_lock()
Sampled: TypeAlias = "SamplerOutput | HeteroSamplerOutput"


class SamplerOfBulks(BaseSampler):
    """A sampler whose mini-batches are a function of (graph, seed, epoch, mini-batch id).

    Attributes
    ----------
    comm : Comm, optional
        The ranks that share the mini-batches of a loader.
    grid : int, optional
        c: the adjacency lies in block rows on a p/c x c grid of ranks, and every call is collective.
    seeded : bool
        The seed was given, and is not the default.
    """

    stream: Stream
    comm: Comm | None = None
    grid: int | None = None
    seeded: bool = True
    _calls = 0

    @abstractmethod
    def sample_nodes(self, inputs: list[NodeSamplerInput], ids: Sequence[int], epoch: int) -> list[Sampled]:
        """Sample a bulk of mini-batches; `metadata` ends with the weights of the edges, or None for the mean."""

    @abstractmethod
    def sample_edges(
        self, inputs: list[EdgeSamplerInput], negatives: NegativeSampling | None, ids: Sequence[int], epoch: int
    ) -> list[Sampled]:
        """Sample a bulk of mini-batches of edges; negatives depend on (epoch, id, position) alone."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what mini-batches depend on, for the state of a loader."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The options on which mini-batches depend, by the names that a user gives them, for messages that compare two samplers."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The fingerprint of the graph."""

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `made_together.Shared`."""
        return {**self.settings, "seed": int(self.stream.seed), "grid": self.grid}, {"graph": self.fingerprint}

    def connect(self) -> None:  # most samplers hold the whole graph
        """See `made_together.Shared`."""

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> Sampled:
        """Sample one mini-batch. Its id is the number of the call; in a worker process it also depends on the worker's seed."""
        return self.sample_nodes([index], *self._next_name())[0]

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> Sampled:
        """Sample one mini-batch of edges; see `sample_from_nodes`."""
        return self.sample_edges([index], neg_sampling, *self._next_name())[0]

    @property
    def edge_permutation(self) -> None:
        """None, because the positions of edges in an output are those of the user's `edge_index`."""
        return None

    def _next_name(self) -> tuple[list[int], int]:
        worker = torch.utils.data.get_worker_info()
        with _COUNTING:  # no two threads have one mini-batch
            number, self._calls = self._calls, self._calls + 1
        return [number], MAX_EPOCHS - 1 - (0 if worker is None else worker.seed % (MAX_EPOCHS // 2))
