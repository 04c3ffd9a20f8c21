"""Begin a program of several ranks, and open a graph on them: `bulksample.init` and `bulksample.load`."""

from __future__ import annotations

import inspect
import os
from typing import Any, overload

from ..distributed.comm.agree import made_alike, together
from ..distributed.comm.base import Comm
from ..distributed.comm.world import check_timeout, meet_first
from ..distributed.matrix.rank_graph import RankGraph, open_rank_graph
from ..errors import UsageError, instead_of
from ..graph import Graph

_AGREED: list[Comm] = []  # communicators whose ranks gave the same arguments
_BACKENDS = ("gloo", "nccl")
_OPTIONS = [*list(inspect.signature(open_rank_graph).parameters)[2:], "world"]


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
        If a launcher started several ranks that cannot reach each other, or this torch has no such back end. On all ranks, if they connect
        with other arguments.
    PeerLost
        If the ranks do not meet in time.
    """

    def checked() -> tuple[None, dict[str, Any], dict[str, Any]]:
        check_timeout(timeout)
        if process_group is not None and process_group not in _BACKENDS:
            raise UsageError(f"process_group: got {process_group!r}; {instead_of(str(process_group), _BACKENDS)}")
        return None, {"process_group": process_group, "timeout": timeout}, {}

    comm = meet_first(timeout)
    if comm in _AGREED:
        checked()
    else:  # once, also if a part of the package connected this rank before
        made_alike(comm, checked)
        _AGREED.append(comm)
    if process_group is not None:
        from ..training.process_group import begin

        begin(comm, process_group)
    return comm


@overload
def load(
    path: str | os.PathLike[str], *, features: bool = True, label: str | None = None, target: str | None = None, check: str = "auto"
) -> Graph: ...


@overload
def load(
    path: str | os.PathLike[str], *, world: Comm, topology: str = "partitioned", features: str = "partitioned", replication: int = 1,
    feature_replication: int | None = None, grid_order: str = "auto", exchange: str = "owner", partition: str = "block",
    seed_locality: int | None = None, seed: int = 0, label: str | None = None, target: str | None = None, check: str = "auto",
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
        replicated one is mapped from the store on every rank, so the ranks of a machine share its page cache. Features may also be
        ``"host"`` or ``"machine"``, as in training; a loader's features lie on the host, so these are mapped too. Without a `world`,
        ``features=False`` leaves the features out.
    replication : int
        c, the number of ranks that hold each block row; it divides the number of ranks.
    feature_replication : int, optional
        c of the features, if it is another.
    grid_order : {"auto", "rows", "columns"}
        The ranks of a process row or column are neighbors on a machine; "auto" chooses where more bytes travel.
    exchange : {"owner", "rows", "rows-oblivious"}
        How ranks sample from block rows: the owner of a row draws from it, or rows travel (the published 1.5D algorithm).
    partition : str
        How vertices are assigned to block rows: block, random, metis, super, stream, or a file or, of a plain graph, folder of
        `bulksample partition`. Those that need edges divide the union of all relations.
    seed_locality : int, optional
        G of loaders with `seed_locality`: a partitioner that is named makes G parts, which the block rows share, so that the groups do not
        depend on the number of ranks.
    seed : int
        Of a random partition.
    label : str, optional
        Another column of the store to use as the label. Splits keep only labelled vertices.
    target : {"class", "multilabel", "regression"}, optional
        What the label is, by default what its dtype says; see `bulksample.graph.labels`.
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
        _check_names(options)
        return _load_whole(path, check, **options)
    if not isinstance(world, Comm):
        raise UsageError(f"world: got a {type(world).__name__}; use what bulksample.init() returns")

    together(world, lambda: _check_names(options))
    return open_rank_graph(path, world, check=check, **options)


def _check_names(options: dict[str, Any]) -> None:
    """Raise `UsageError` for an argument that `load` does not have."""
    for option in options:
        if option not in _OPTIONS:
            raise UsageError(f"load has no argument {option!r}; {instead_of(option, _OPTIONS)}")


def _load_whole(
    path: str | os.PathLike[str], check: str, features: Any = True, label: str | None = None, target: str | None = None, **shared: Any
) -> Graph:
    """Open a whole store; raise `UsageError` for an argument that describes how ranks share a graph."""
    from ..data.store import load as load_any

    if others := sorted(shared) or ([] if isinstance(features, bool) else ["features"]):
        raise UsageError(f"{', '.join(others)}: got no world whose ranks share the graph; use world=bulksample.init()")
    graph = load_any(path, features, check)
    if label is None and target is None:
        return graph
    if not graph.plain:
        raise UsageError(f"label and target are for a graph of one vertex type; {path} holds another: use graph.type(name).with_label")
    return graph.with_label(label, target)
