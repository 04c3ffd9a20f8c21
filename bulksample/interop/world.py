"""Begin a program of several ranks, and open a graph on them: `bulksample.init` and `bulksample.load`."""

from __future__ import annotations

import os
from typing import Any, overload

from ..distributed.comm.base import Comm
from ..distributed.comm.world import world as connect
from ..distributed.matrix.rank_graph import RankGraph, open_rank_graph
from ..errors import UsageError
from ..graph import Graph


def init(timeout: float = 300.0, process_group: str | None = None) -> Comm:
    """Connect the ranks that mpirun, srun or torchrun started; a program started without a launcher is alone.

    From then on an uncaught exception, an early exit or a stopped rank ends all ranks, with a message that names the rank.

    Parameters
    ----------
    timeout : float
        Seconds that any wait for another rank may take.
    process_group : {"gloo", "nccl"}, optional
        Also begin torch.distributed with these ranks in this order, for `DistributedDataParallel`, FSDP and the like. Under mpirun and
        srun no variable needs to be set.

    Returns
    -------
    Comm
        With ``rank`` and ``size``; the `world` of `bulksample.load`. Repeated calls return the same one.

    Raises
    ------
    UsageError
        If a launcher started several ranks that cannot reach each other, or this torch has no such back end.
    PeerLost
        If the ranks do not meet in time.
    """
    comm = connect(timeout)
    if process_group is not None:
        from ..training.process_group import begin

        begin(comm, process_group)
    return comm


@overload
def load(path: str | os.PathLike[str], *, features: bool = True, check: str = "auto") -> Graph: ...


@overload
def load(
    path: str | os.PathLike[str], *, world: Comm, topology: str = "partitioned", features: str = "partitioned", replication: int = 1,
    exchange: str = "owner", partition: str = "block", seed: int = 0, label: str | None = None, check: str = "auto",
) -> RankGraph: ...  # fmt: skip


def load(path: str | os.PathLike[str], *, world: Comm | None = None, check: str = "auto", **options: Any) -> Graph | RankGraph:
    """Open a store: the whole graph, or with a `world` the share of it that this rank holds.

    Parameters
    ----------
    path : path
        The folder that `bulksample data make`, `data import` or `Graph.save` wrote.
    world : Comm, optional
        The ranks that share the graph, from `bulksample.init`; all of them make this call, with equal arguments.
    topology, features : {"partitioned", "replicated"}
        Where the adjacency and the features lie. Of a partitioned one, each rank reads its block row into memory and no more; a
        replicated one is mapped from the store on every rank. Without a `world`, ``features=False`` leaves the features out.
    replication : int
        c, the number of ranks that hold each block row; it divides the number of ranks.
    exchange : {"owner", "rows", "rows-oblivious"}
        How ranks sample from block rows: the owner of a row draws from it, or rows travel (the published 1.5D algorithm).
    partition : str
        How vertices are assigned to block rows: block, random, metis, super, or a file from `bulksample partition`.
    seed : int
        Of a random partition.
    label : str, optional
        Another column of the store to use as the label.
    check : {"auto", "full", "none"}
        Hashes to check: of files that changed since the last time, of all files, or none.

    Returns
    -------
    Graph, or RankGraph if there is a `world`
        `bulksample.Loader` takes either. Its mini-batches do not depend on the number of ranks or on where arrays lie.

    Raises
    ------
    UsageError
        If an argument is unknown or out of range, or, on every rank, if the ranks were given different ones.
    DataError
        If the store is missing or damaged; on every rank, if it is for one of them.
    """
    if world is None:
        if others := sorted(options.keys() - {"features"}) or [name for name in options if isinstance(options[name], str)]:
            raise UsageError(f"{', '.join(others)}: got no world whose ranks share the graph; use world=bulksample.init()")
        from ..data.store import load as load_whole

        return load_whole(path, check=check, **options)
    if not isinstance(world, Comm):
        raise UsageError(f"world: got a {type(world).__name__}; use what bulksample.init() returns")
    return open_rank_graph(path, world, check=check, **options)
