"""What a loader draws, by the names that DGL's samplers have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import samplers
from ...errors import UsageError


class BlockSampler:
    """What a loader draws: a sampler of ours, and the features that DGL's samplers name.

    Parameters
    ----------
    law : str
        A name in `bulksample.samplers`.
    fanouts : list of int
        In DGL's order: the layer next to the input first. Of a vertex, or vertices of a layer.
    prob : str, optional
        The edge feature that draws are weighted by.
    prefetch : dict
        What DGL's samplers prefetch, by its names: features in ``prefetch_node_feats`` are sliced by our own gather where it can_gather.
    options
        Of the sampler.

    Notes
    -----
    All features of vertices and edges are in the blocks; those that are not prefetched are sliced when they are looked at.
    """

    def __init__(
        self, law: str, fanouts: Sequence[int], prob: str | None = None, prefetch: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.sampler = samplers.make(law, tuple(int(s) for s in reversed(fanouts)), **options)
        self.prob = prob
        self.features = tuple((prefetch or {}).get("prefetch_node_feats") or ())


class NeighborSampler(BlockSampler):
    """GraphSAGE, as `dgl.dataloading.NeighborSampler`."""

    def __init__(
        self, fanouts: Sequence[int], edge_dir: str = "in", prob: str | None = None, mask: str | None = None, replace: bool = False,
        **prefetch: Any,
    ) -> None:  # fmt: skip
        refuse_values(edge_dir="" if edge_dir == "in" else edge_dir, mask=mask or "")
        super().__init__("sage", fanouts, prob, prefetch, replace=replace, weighted=prob is not None)


class MultiLayerFullNeighborSampler(BlockSampler):
    """All neighbours, as `dgl.dataloading.MultiLayerFullNeighborSampler`."""

    def __init__(self, num_layers: int, **prefetch: Any) -> None:
        super().__init__("sage", [-1] * num_layers, None, prefetch)


class LaborSampler(BlockSampler):
    """LABOR-0, as `dgl.dataloading.LaborSampler`; `layer_dependency` keeps the random numbers of a vertex in all layers."""

    def __init__(
        self, fanouts: Sequence[int], edge_dir: str = "in", prob: str | None = None, importance_sampling: int = 0,
        layer_dependency: bool = False, **prefetch: Any,
    ) -> None:  # fmt: skip
        refuse_values(edge_dir="" if edge_dir == "in" else edge_dir, importance_sampling=str(importance_sampling or ""))
        super().__init__("labor", fanouts, prob, prefetch, layer_dependent=layer_dependency)


class LadiesSampler(BlockSampler):
    """LADIES: `nodes_per_layer` vertices by importance; ``block.edata["weight"]`` corrects for the draw."""

    def __init__(self, nodes_per_layer: Sequence[int], prob: str | None = None, **options: Any) -> None:
        super().__init__("ladies", nodes_per_layer, prob, **options)


class FastGCNSampler(BlockSampler):
    """FastGCN: the same from one distribution over all vertices."""

    def __init__(self, nodes_per_layer: Sequence[int], prob: str | None = None, **options: Any) -> None:
        super().__init__("fastgcn", nodes_per_layer, prob, **options)


def refuse_values(**asked: Any) -> None:
    """Raise `UsageError` for what has a value and no meaning here."""
    for name, value in asked.items():
        if value:
            raise UsageError(f"{name} = {value} is not supported; its default would fit")
