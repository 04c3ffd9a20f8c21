"""The file of weights by which a run draws its seeds: one number for each vertex, so it serves every split, placement and part.

Every rank reads the file, and keeps the numbers of its seeds. They are found by the ids of the whole graph, whatever rows a part has.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..config.train import TrainOptions
from ..data.npy import open_npy
from ..distributed.comm.agree import made_alike
from ..distributed.comm.base import Comm
from ..errors import DataError, UsageError
from ..loading.weighted_seeds import checked_weights
from ..views.view import View
from .source import Source, trained_vertices


class SamplingWeights(NamedTuple):
    """The weights of the seeds of a rank."""

    vertices: np.ndarray  # int32, shape (m,), ascending: ids of the whole graph
    weights: np.ndarray  # float64, shape (m,)
    identity: str  # a SHA-256 of the weights of all vertices

    def of_seeds(self, view: View) -> np.ndarray:
        """Return the weights of the seeds of a view, whose seeds are among `vertices`: float64."""
        at = np.searchsorted(self.vertices, seeds := view.original_seeds)
        assert np.array_equal(self.vertices[at], seeds)
        return self.weights[at]


class WeightsFile(NamedTuple):
    """A file of weights."""

    name: str  # the option and the path
    weights: np.ndarray  # float64, shape (n,)
    identity: str

    def of_run(self, view: View, comm: Comm) -> SamplingWeights:
        """Return the weights of the seeds of a view; collective. Raises `UsageError` on every rank if the seeds of all ranks weigh 0."""
        seeds = view.original_seeds
        made = SamplingWeights(seeds, self.weights[seeds], self.identity)
        if not any(comm.gather_control(bool(made.weights.any()))):
            raise UsageError(f"{self.name}: all seeds of graph {view.name!r} weigh 0; use weights with a positive sum over the seeds")
        return made


def read_weights(config: TrainOptions, source: Source, comm: Comm) -> WeightsFile | None:
    """Read the file that `sampling_weights` names; return None without the option. Collective.

    The type that is trained has n vertices. Raises, on every rank, `DataError` with the option and the path unless the file holds n finite
    numbers, 0 or larger, with a positive, finite sum, and `UsageError` if two ranks read other numbers. Nothing is unpickled.
    """
    if (path := config.sampling_weights) is None:
        return None
    name = f"sampling_weights {path}"

    def read() -> tuple[WeightsFile, dict[str, str], dict[str, str]]:
        n, stored = trained_vertices(config, source), open_npy(Path(path), name)
        try:
            weights = checked_weights(stored, n, name, vertices=True)
        except UsageError as error:
            raise DataError(str(error)) from error
        identity = hashlib.sha256(weights.astype("<f8", copy=False).data).hexdigest()
        return WeightsFile(name, weights, identity), {}, {name: identity}

    return made_alike(comm, read)
