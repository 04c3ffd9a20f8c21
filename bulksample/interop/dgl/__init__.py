"""A drop-in for DGL's data loader: change the import, keep the script.

    from bulksample.interop.dgl import DataLoader, NeighborSampler    # was: from dgl.dataloading import ...

Blocks are those of DGL: destinations are a prefix of the sources, and every vertex is expanded again in each layer (the frontier
rule ``all``). With `as_edge_prediction_sampler` the seeds are edges. DGL is imported when the first loader is made, so this package can be
imported without it.
"""

from .edges import EdgePredictionSampler, Uniform, as_edge_prediction_sampler
from .loader import DataLoader
from .samplers import (
    BlockSampler,
    FastGCNSampler,
    LaborSampler,
    LadiesSampler,
    MultiLayerFullNeighborSampler,
    NeighborSampler,
)

__all__ = [
    "BlockSampler", "DataLoader", "EdgePredictionSampler", "FastGCNSampler", "LaborSampler", "LadiesSampler",
    "MultiLayerFullNeighborSampler", "NeighborSampler", "Uniform", "as_edge_prediction_sampler",
]  # fmt: skip
