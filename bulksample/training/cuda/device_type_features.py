"""The features of a heterogeneous graph on a device, type by type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ...backends.base import Backend
from ...distributed.matrix.relation_blocks import PartitionedRelations
from ...local_adjacency import LocalAdjacency
from ...views.features import Features
from ...views.type_features import TypeFeatures, access_count
from ...views.view import as_index
from .cuda_context import CudaContext
from .device_features import DeviceFeatures, HostFetchedFeatures, on_host, room_for_features

_TIMED_ENTRY = 16  # bytes of an edge in the order of time


class DeviceTypeFeatures(TypeFeatures):
    """Features by type, gathered by the device where this rank holds them dense and whole; others are fetched by the host and copied.

    Learned rows that ranks divide are asked for by the host. Types share the memory that the graph leaves: those with most edges to a
    vertex come first, since their rows are read most often.
    """

    def __init__(self, cuda: CudaContext, source: TypeFeatures, relations: LocalAdjacency) -> None:
        self._cuda, graph = cuda, relations.graph
        counted = relations.references if isinstance(relations, PartitionedRelations) else partial(access_count, graph)
        dense = {name: own for name, own in source.held.items() if isinstance(own, Features) and not own.is_sparse}
        reads = {name: counted(name) for name in dense}
        free, placed = room_for_features(cuda.kernels.free_bytes, _graph_bytes(relations, cuda.engine)), dict[str, DeviceFeatures]()
        for name in sorted(reads, key=lambda name: -reads[name].mean() if len(reads[name]) else 0.0):
            placed[name] = DeviceFeatures(cuda, dense[name], reads[name], free)
            free -= placed[name].held.nbytes
        self._placed = placed
        held = {name: placed.get(name) or HostFetchedFeatures(cuda, own) for name, own in source.held.items()}
        super().__init__(source.needed, held, source.width, source.blocks, source.learned)

    def _named(self, name: str, lists: Sequence[Any]) -> Sequence[Any]:
        return super()._named(name, lists if not self.learned else [on_host(vertices) for vertices in lists])

    def ids(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        return as_index(self._cuda.put(vertices))

    def describe(self) -> dict[str, Any]:
        """Return where the features of each type are, for the report."""
        found = {name: str(self._placed[name].held) if name in self._placed else "host" for name in self.held}
        alike = len(set(found.values())) < 2
        told = next(iter(found.values()), "none") if alike else "; ".join(f"{name}: {where}" for name, where in found.items())
        return {"features_on": told, "features_device_bytes": sum(own.held.nbytes for own in self._placed.values())}


def _graph_bytes(relations: LocalAdjacency, engine: Backend) -> int:
    """Return the device bytes of the relations, with the times of their edges; 0 if they stay on the host."""
    if relations.collective or relations.backend is not engine:
        return 0
    graph = relations.graph
    timed = [one for one in graph.relations if one.times is not None or graph.type(one.source).times is not None]
    return relations.held_bytes + sum(_TIMED_ENTRY * relation.edges for relation in timed)
