"""Drop-in loaders for torch_geometric: change the import, keep the script.

    from bulksample.interop.pyg import NeighborLoader    # was: from torch_geometric.loader import NeighborLoader

Batches are torch_geometric's: a vertex is expanded once (the frontier rule ``new``), seeds come first, edges run from source to
destination. What is sampled is a function of (graph, seed, epoch, minibatch), whatever the bulk size, the threads and the ranks.
"""

from .. import require

for _module in ("torch", "torch_geometric"):
    require(_module, "pyg")

from .link import LinkNeighborLoader  # noqa: E402
from .node import FastGCNLoader, LaborLoader, LadiesLoader, NeighborLoader  # noqa: E402
from .sampler import BulkSampler  # noqa: E402

__all__ = ["BulkSampler", "FastGCNLoader", "LaborLoader", "LadiesLoader", "LinkNeighborLoader", "NeighborLoader"]
