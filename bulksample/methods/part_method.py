"""The base of methods that train on parts of the graph, where gradients alone travel in an epoch.

Parts of a plain graph in block rows are fetched from the ranks that hold them. Those of a graph of several types are cut out of its
relations, which every rank maps from the store, and only features travel, if they lie in block rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from ..config.train import TrainOptions
from ..distributed.comm.agree import together
from ..distributed.matrix.layout import TypeLayouts
from ..distributed.matrix.placement import Placement
from ..errors import UsageError
from ..graph import Graph
from ..nn.relational import Schema
from ..samplers import Sampler
from ..training.method import Method
from ..training.source import ViewRequest
from ..views.local import BlockParts, VisibleParts
from ..views.type_part import TypeParts
from ..views.type_view import type_targets
from ..views.view import View
from .config import TrainConfig


class PartMethod(Method):
    """Training on parts, of which `make_parts` makes those of a view.

    `in_time` has the reason for which a graph with times is refused, and what to use instead; None if it is not refused.
    """

    graphs: ClassVar[tuple[str, ...]] = ("partitioned",)
    equal_steps: ClassVar[bool] = True
    maps_relations: ClassVar[bool] = True
    elastic: ClassVar[Literal["minibatches", "whole", "no"]] = "no"

    config: TrainConfig
    in_time: tuple[str, str] | None = None
    samples = False  # steps are mini-batches
    _chunks: VisibleParts | None = None  # of a graph of several types

    def open(self, request: ViewRequest) -> View:
        """Open the graph in block rows or, if it has several types, with its relations whole and its features as placed; collective."""
        if not self.config.is_relational:
            return super().open(request)
        assert isinstance(request.source, Graph)
        if (c := request.placement.replication) != 1:
            raise UsageError(f"training on parts keeps one block row on each rank; got replication {c}: use 1")
        if request.placement.exchange != "owner":
            found = f"{request.placement.exchange} with method {self.name}, where every rank has the relations: use owner"
            raise UsageError(f"exchange is for a topology in block rows; got {found}")
        layouts = TypeLayouts.open(request.source, request.placement, request.placement.topology_grid(request.comm), self.config.seed)
        placement = Placement(features=request.placement.features)  # the topology whole on every rank
        if request.placement.shards_features:
            placement = replace(request.placement, topology="replicated", exchange="owner")
        view = super().open(request._replace(placement=placement))
        part = [layout.blocks_of(np.arange(layout.n, dtype=np.int32)).astype(np.int32) for layout in layouts.of.values()]
        self._chunks, self._rank = VisibleParts(np.concatenate(part), np.eye(request.comm.size, dtype=bool)), request.comm.rank
        together(request.comm, lambda: self._check_types(view, request.sampler))
        return view

    def _check_types(self, view: View, sampler: Sampler) -> None:
        """Raise `UsageError` for what the model, the times or the sampler do not support, which some parts would not show."""
        schema = view.targets.schema
        assert schema is not None
        check_learned(self.config, view.name, schema, "a part has the rows of its own vertices alone")
        if self.in_time and type_targets(view).times is not None:
            why, fits = self.in_time
            raise UsageError(f"method {self.name} {why}; got graph {view.name!r}, which has times: use {fits}")
        if self.samples:
            sampler.check(view.adjacency)

    def make_parts(self, view: View) -> BlockParts | TypeParts:
        """Return what fetches the parts of a view that `open` has opened; collective."""
        return BlockParts(view) if self._chunks is None else TypeParts(view, self._chunks, self._rank)


def check_learned(config: TrainOptions, name: str, schema: Schema, why: str) -> None:
    """Raise `UsageError` if the model of a run on parts learns a row for each vertex of a type."""
    learned = [kind for kind in schema.types_of_layers(config.layers)[0] if not schema.widths[kind]]
    if learned and config.featureless != "constant":
        raise UsageError(
            f"{why}; type {learned[0]!r} of graph {name!r} has no features, and got featureless {config.featureless}: use constant, or "
            "method sync"
        )
