"""Opening a graph for sampling: the whole of it on every rank, or a block row on each.

Either way a rank ends up with an `Adjacency` and with all seeds of the split; minibatches do not depend on which.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..adjacency import Adjacency, LocalAdjacency
from ..backends.base import Backend
from ..data import store
from ..data.manifest import load_manifest
from ..errors import UsageError
from .base import Comm
from .blocks import GraphBlock, load_block
from .grid import ProcessGrid
from .owner import OwnerAdjacency
from .packets import KIND
from .spgemm15d import RowsAdjacency

EXCHANGES = ("owner", "rows", "rows-oblivious")


def open_for_sampling(
    directory: str | os.PathLike[str],
    split: str | None,
    comm: Comm,
    backend: Backend,
    placement: str = "replicated",
    replication: int = 1,
    exchange: str = "owner",
) -> tuple[Adjacency, np.ndarray]:
    """The adjacency of a store without its features, and the seeds of a split: int32, ascending, alike on every rank.

    Parameters
    ----------
    split : str, optional
        ``train``, ``val``, ``test`` or ``all``; the training vertices where there are some, else all, unless given.
    placement : {"replicated", "partitioned"}
        Partitioned, rank (i, j) of the grid reads block row i of p / c, and no more.
    replication : int
        c; 1 where the graph is replicated.
    exchange : {"owner", "rows", "rows-oblivious"}
        How a partitioned graph is multiplied with.

    Raises
    ------
    UsageError
        On every rank, if a name or c does not fit.

    Notes
    -----
    Partitioned, 4 bytes per seed go to each other member of the process column (kind "topology").
    """
    if placement not in ("replicated", "partitioned"):
        raise UsageError(f"graph must be 'replicated' or 'partitioned'; got {placement!r}")
    if exchange not in EXCHANGES:
        raise UsageError(f"exchange must be one of {', '.join(EXCHANGES)}; got {exchange!r}")
    if placement == "replicated":
        graph = store.load(directory, features=False)
        return LocalAdjacency(graph.adjacency, backend), graph.seeds(split) if split else graph.default_seeds()
    grid = ProcessGrid(comm, replication)
    bounds = grid.bounds(load_manifest(Path(directory)).vertices)
    block = load_block(directory, int(bounds[grid.row]), int(bounds[grid.row + 1]), features=False)
    seeds = _seeds(block, split, grid.column_comm)
    if exchange == "owner":
        return OwnerAdjacency(grid, block.adjacency, backend, bounds), seeds
    return RowsAdjacency(grid, block.adjacency, backend, bounds, oblivious=exchange == "rows-oblivious"), seeds


def _seeds(block: GraphBlock, split: str | None, column: Comm) -> np.ndarray:
    """The seeds of the whole graph, from the masks of the block rows of a process column."""
    if split not in (None, "all", *block.masks):
        raise UsageError(f"graph {block.name!r} has no {split!r} split; it has {', '.join([*block.masks, 'all'])}")
    mask = block.masks.get(split or "train")
    if mask is not None and split != "all":
        own = (block.first + np.flatnonzero(mask)).astype(np.int32)
        counts = column.allgather(np.array([len(own)]), KIND)[:, 0]
        if split or counts.sum():
            return column.allgather_rows(own, counts, KIND)
    return np.arange(block.n, dtype=np.int32)
