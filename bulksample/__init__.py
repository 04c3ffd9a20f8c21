"""bulksample: matrix-based bulk minibatch sampling for graph neural networks.

Importing the package loads numpy alone; scipy, torch, mpi4py and cupy are imported where they are used.
"""

from .adjacency import Adjacency, LocalAdjacency
from .errors import BackendUnavailable, DataError, PeerLost, UsageError
from .graph import Graph
from .minibatch import Block, MiniBatch, digest
from .rng import Stream
from .selection import Selection
from .sparse import CSR
from .version import __version__

__all__ = [
    "CSR",
    "Adjacency",
    "BackendUnavailable",
    "Block",
    "DataError",
    "Graph",
    "LocalAdjacency",
    "MiniBatch",
    "PeerLost",
    "Selection",
    "Stream",
    "UsageError",
    "__version__",
    "digest",
]
