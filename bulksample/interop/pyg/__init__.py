"""Drop-in loaders for torch_geometric: change the import, keep the script.

    from bulksample.interop.pyg import NeighborLoader    # was: from torch_geometric.loader import NeighborLoader

Batches are those of torch_geometric: a vertex is expanded once (the frontier rule ``new``), seeds come first, edges run from source to
destination. A mini-batch depends on (graph, seed, epoch, mini-batch id) alone, not on the bulk size, the threads or the ranks.
"""

import warnings
from typing import Any

from .. import require

for _module in ("torch", "torch_geometric"):
    require(_module, "pyg")

from .cluster import ClusterData, ClusterLoader  # noqa: E402
from .link import LinkNeighborLoader  # noqa: E402
from .node import FastGCNLoader, HGTLoader, LaborLoader, LadiesLoader, NeighborLoader  # noqa: E402
from .saint import GraphSAINTEdgeSampler, GraphSAINTNodeSampler, GraphSAINTRandomWalkSampler  # noqa: E402
from .sampler import BulkSampler, HGTSampler  # noqa: E402
from .shadow import ShaDowKHopSampler  # noqa: E402

__all__ = [
    "BulkSampler", "ClusterData", "ClusterLoader", "FastGCNLoader", "GraphSAINTEdgeSampler", "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler", "HGTLoader", "HGTSampler", "LaborLoader", "LadiesLoader", "LinkNeighborLoader", "NeighborLoader",
    "ShaDowKHopSampler",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return `BulkSampler` by its name of earlier versions, with a warning."""
    if name != "TypedSampler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("TypedSampler goes with version 0.3; use BulkSampler", DeprecationWarning, stacklevel=2)
    return BulkSampler
