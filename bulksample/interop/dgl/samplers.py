"""Samplers with the names and arguments of DGL's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import samplers
from ...errors import UsageError
from ...graph.selection import vertex_ids


class BlockSampler:
    """A sampler of this package with the options of DGL's samplers.

    Parameters
    ----------
    law : str
        A name in `bulksample.samplers`.
    fanouts : list of int, or list of dicts of int by edge type
        Draws of a vertex (node-wise; of a heterograph from each relation) or of a layer (layer-wise), in DGL's order: the layer next to the
        input first. A dict names every edge type of a heterograph.
    prob : str, optional
        The edge feature with the weights of draws, or True for the edges that may be drawn. An edge of weight 0 is in no block, also where
        all neighbors are taken.
    prefetch : dict
        The prefetch options of DGL's samplers; features in ``prefetch_node_feats`` are gathered by this package if it can.
    options
        Options of the sampler.

    Notes
    -----
    Blocks have all features of vertices and edges; features that are not prefetched are sliced when they are read.
    """

    def __init__(
        self, law: str, fanouts: Sequence[Any], prob: str | None = None, prefetch: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        hops: Any = list(fanouts)[::-1] if isinstance(fanouts, Sequence | np.ndarray) and not isinstance(fanouts, str) else fanouts
        typed = isinstance(hops, list) and any(isinstance(hop, Mapping) for hop in hops)
        if typed and not all(isinstance(hop, Mapping) for hop in hops):
            raise UsageError(f"fanouts: got {fanouts!r}; use a number for every layer, or a dict by edge type for every layer")
        self.by_type: list[Mapping[Any, int]] | None = hops if typed else None
        self.sampler = samplers.make(law, [1] * len(hops) if typed else hops, **options)
        self.prob = prob
        wanted = (prefetch or {}).get("prefetch_node_feats") or ()
        self.features: Any = wanted if isinstance(wanted, Mapping) else tuple(wanted)


class NeighborSampler(BlockSampler):
    """GraphSAGE, like `dgl.dataloading.NeighborSampler`; `mask` is the edge feature that is True where an edge may be drawn."""

    def __init__(
        self, fanouts: Sequence[Any], edge_dir: str = "in", prob: str | None = None, mask: str | None = None, replace: bool = False,
        **prefetch: Any,
    ) -> None:  # fmt: skip
        refuse_values(edge_dir="" if edge_dir == "in" else edge_dir)
        if prob is not None and mask is not None:
            raise UsageError(f"got prob {prob!r} and mask {mask!r}; use one of them")
        chosen = mask if prob is None else prob
        super().__init__("sage", fanouts, chosen, prefetch, replace=replace, weighted=chosen is not None)


class MultiLayerFullNeighborSampler(NeighborSampler):
    """All neighbors, by `prob` or `mask` all that may be drawn, like `dgl.dataloading.MultiLayerFullNeighborSampler`."""

    def __init__(self, num_layers: int, **options: Any) -> None:
        super().__init__([-1] * num_layers, **options)


class LaborSampler(BlockSampler):
    """LABOR-0, like `dgl.dataloading.LaborSampler`; with `layer_dependency` a vertex has the same random number in all layers."""

    def __init__(
        self, fanouts: Sequence[Any], edge_dir: str = "in", prob: str | None = None, importance_sampling: int = 0,
        layer_dependency: bool = False, **prefetch: Any,
    ) -> None:  # fmt: skip
        refuse_values(edge_dir="" if edge_dir == "in" else edge_dir, importance_sampling=str(importance_sampling or ""))
        super().__init__("labor", fanouts, prob, prefetch, layer_dependent=layer_dependency)


class LadiesSampler(BlockSampler):
    """LADIES: `nodes_per_layer` vertices by importance; ``block.edata["weight"]`` holds aggregation weights, see `samplers.LayerWise`.

    Of a heterograph it draws vertices of all types together, by their importance in the union of the relations. Every relation has its
    weights: the sum over relations of weighted aggregations is that over the union.
    """

    def __init__(self, nodes_per_layer: Sequence[int], prob: str | None = None, **options: Any) -> None:
        super().__init__("ladies", nodes_per_layer, prob, **options)


class FastGCNSampler(BlockSampler):
    """FastGCN: `nodes_per_layer` vertices from one distribution for all mini-batches; heterographs and weights as in `LadiesSampler`."""

    def __init__(self, nodes_per_layer: Sequence[int], prob: str | None = None, **options: Any) -> None:
        super().__init__("fastgcn", nodes_per_layer, prob, **options)


def distinct_vertices(indices: Any, n: int, what: str = "indices") -> np.ndarray:
    """Return the seeds as ids; raises `UsageError` if one repeats or is no vertex."""
    seeds = vertex_ids(indices, n, what)
    distinct, counts = np.unique(seeds, return_counts=True)
    if len(distinct) < len(seeds):
        raise UsageError(f"{what} name vertex {distinct[counts.argmax()]} {counts.max()} times; use distinct ones")
    return seeds


def refuse_values(**options: Any) -> None:
    """Raise `UsageError` for every option that is set; these options are not supported."""
    for name, value in options.items():
        if value:
            raise UsageError(f"{name} = {value} is not supported; use its default")
