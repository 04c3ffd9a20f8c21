"""Partitions of the vertices, and the methods that make them.

A `Partition` holds one part number for each vertex. Ranks share it as a file, because METIS may give different results on two
machines.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...data.npy import read_sealed, save_sealed
from ...data.random_words import Words
from ...errors import BackendUnavailable, DataError, UsageError
from ...rng import Substream
from ...sparse import CSR, MAX_VERTICES, frozen, row_pointers
from ..comm.agree import checked_on_rank_0
from ..comm.base import Comm
from .stream import stream

PARTITIONERS = ("block", "random", "metis", "super", "stream")
SEEDED = ("random", "metis", "super")  # those that depend on a seed
_CLUSTERS_PER_PART = 16


@dataclass(frozen=True, eq=False)
class Partition:
    """An assignment of the vertices of a graph to parts.

    Parameters
    ----------
    parts : int
        At least 1; some may be empty, and there may be more parts than vertices.
    assignment : int32, shape (n,)
        The part of each vertex.

    Raises
    ------
    UsageError
        If `parts` is not positive.
    DataError
        If a part number is not in 0 .. parts - 1.
    """

    parts: int
    assignment: np.ndarray

    def __post_init__(self) -> None:
        _check_parts(self.parts)
        assignment = np.asarray(self.assignment)
        if assignment.ndim != 1 or assignment.dtype.kind not in "iu":
            raise DataError(f"an assignment holds one integer for each vertex; got {assignment.dtype} of shape {assignment.shape}")
        bad = np.flatnonzero((assignment < 0) | (assignment >= self.parts))
        if len(bad):
            raise DataError(f"vertex {bad[0]} is in part {assignment[bad[0]]}; parts run from 0 to {self.parts - 1}")
        object.__setattr__(self, "assignment", frozen(assignment, np.int32))

    @property
    def n(self) -> int:
        return len(self.assignment)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Bounds of the parts in an order that numbers part after part: int64, shape (parts + 1,)."""
        return frozen(row_pointers(np.bincount(self.assignment, minlength=self.parts)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an `.npz` file. Raises `UsageError` if it cannot be written."""
        save_sealed(Path(path), {"parts": np.array(self.parts, "<i8"), "assignment": self.assignment.astype("<i4")})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Partition:
        """Read a file written by `save`; nothing is unpickled. Raises `DataError` with the name of the file and its fault."""
        path = Path(path)
        parts, assignment = read_sealed(path, ("parts", "assignment"), "bulksample partition").values()
        if parts.shape != () or parts.dtype.kind != "i" or not 1 <= parts <= MAX_VERTICES:
            raise DataError(f"{path.name}: parts must be one positive number; found {parts.dtype} of shape {parts.shape}")
        try:
            return Partition(int(parts), assignment)
        except DataError as error:
            raise DataError(f"{path.name}: {error}") from error


def make(
    kind: str, adjacency: CSR, parts: int, seed: int, clusters: int | None = None, draw: int = 0, train: np.ndarray | None = None
) -> Partition:  # fmt: skip
    """Make a partition by one of PARTITIONERS; ``super`` uses 16 clusters a part by default. Raises `UsageError` for others.

    Random partitions of one seed that differ in `draw` are independent. `train` is the mask of training vertices that ``block``
    and ``stream`` balance; they use no seed.
    """
    n = adjacency.shape[0]
    if kind == "block":
        bounds = balanced_bounds(adjacency.indptr, parts, train)
        return Partition(parts, np.repeat(np.arange(parts, dtype=np.int32), np.diff(bounds)))
    if kind == "random":
        return random(n, parts, seed, draw)
    if kind == "metis":
        return metis(adjacency, parts, seed)
    if kind == "super":
        return super_nodes(adjacency, parts, clusters or _CLUSTERS_PER_PART * parts, seed, draw)
    if kind == "stream":
        _check_parts(parts)
        return Partition(parts, stream(adjacency, parts, train))
    raise UsageError(f"a partition must be one of {', '.join(PARTITIONERS)}; got {kind!r}")


def shared_assignment(
    comm: Comm, how: str, n: int, parts: int, seed: int, whole: Callable[[], tuple[CSR, np.ndarray | None]]
) -> np.ndarray:  # fmt: skip
    """Return the part of each vertex, int32 of shape (n,), by a partition that needs all edges, or by a file; collective.

    Rank 0 makes or reads the partition, and broadcasts it: 4 n bytes. `whole` returns the adjacency and the mask of training vertices.

    Raises
    ------
    UsageError, DataError, BackendUnavailable
        On every rank, with the message of rank 0.
    """

    def make_or_read() -> Partition:
        if how in PARTITIONERS:
            adjacency, train = whole()
            return make(how, adjacency, parts, seed, train=train)
        read = Partition.load(how)
        if (read.n, read.parts) != (n, parts):
            raise DataError(f"{how} has {read.parts} parts of {read.n} vertices; use one with p / c = {parts} parts of {n} vertices")
        return read

    made = checked_on_rank_0(comm, make_or_read)
    return comm.broadcast(np.empty(n, np.int32) if made is None else made.assignment.copy(), "topology")


def block_bounds(n: int, parts: int) -> np.ndarray:
    """Return the bounds of `parts` even ranges of n items, floor(i n / parts): int64, shape (parts + 1,)."""
    _check_parts(parts)
    return np.arange(parts + 1, dtype=np.int64) * n // parts


def balanced_bounds(indptr: np.ndarray, parts: int, train: np.ndarray | None = None) -> np.ndarray:
    """Return the bounds of consecutive ranges of vertices whose loads are as even as ranges can be: int64, shape (parts + 1,).

    The load of a vertex is the sum of its shares of all vertices, of all entries and of all training vertices, in units of 2^-40. Bisection
    finds the least cap under which `parts` ranges hold all vertices. Takes 16 n bytes.

    Parameters
    ----------
    indptr : int64, shape (n + 1,)
        Row pointers of A.
    train : bool, shape (n,), optional
        The training vertices.
    """
    _check_parts(parts)
    n = len(indptr) - 1
    load = np.arange(n + 1, dtype=np.int64) * (2**40 // max(1, n)) + np.asarray(indptr) * (2**40 // max(1, int(indptr[-1])))
    if train is not None and train.any():
        load[1:] += np.cumsum(train, dtype=np.int64) * (2**40 // int(np.count_nonzero(train)))

    def starts(cap: int) -> np.ndarray:
        """Return the first vertex of each range if ranges take all they may from the end on: above 0 if the cap is too low."""
        firsts = np.full(parts + 1, n, np.int64)
        for i in range(parts, 0, -1):
            firsts[i - 1] = np.searchsorted(load, load[firsts[i]] - cap)
        return firsts

    mean, total = -(-int(load[-1]) // parts), int(load[-1])
    cap = mean + bisect_left(range(mean, total), True, key=lambda cap: bool(starts(cap)[0] == 0))
    bounds, least = np.zeros(parts + 1, np.int64), starts(cap)
    for i in range(1, parts + 1):  # as near to even as the cap lets them be, so that no range stays empty without need
        farthest = int(np.searchsorted(load, load[bounds[i - 1]] + cap, side="right")) - 1
        even = int(np.searchsorted(load, total * i // parts))
        bounds[i] = min(max(even, least[i]), farthest)
    return bounds


def block_rows(n: int, parts: int) -> Partition:
    """Assign consecutive vertices to parts with as even numbers of vertices as possible."""
    return Partition(parts, np.repeat(np.arange(parts, dtype=np.int32), np.diff(block_bounds(n, parts))))


def random(n: int, parts: int, seed: int, draw: int = 0) -> Partition:
    """Assign vertices to parts of even sizes at random; the same on every machine."""
    assignment = np.empty(n, np.int32)
    assignment[Words(seed).permutation(Substream.PARTITION_VERTEX, n, draw)] = block_rows(n, parts).assignment
    return Partition(parts, assignment)


def metis(adjacency: CSR, parts: int, seed: int) -> Partition:
    """Compute parts of about the same size with few edges between them.

    Parameters
    ----------
    adjacency : CSR, shape (n, n)
        The pattern is made symmetric without loops; weights are ignored.
    parts : int
        Some parts of a small graph may be empty; with ``parts >= n`` every vertex has a part of its own.
    seed : int
        The same build of METIS gives the same result for the same seed.

    Raises
    ------
    DataError
        If the matrix is not valid; METIS would crash on it.
    UsageError
        If the graph has more edges than the integers of this build of METIS count.
    BackendUnavailable
        If pymetis is not installed.

    References
    ----------
    Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", 1998.
    """
    _check_parts(parts)
    n = adjacency.shape[0]
    if adjacency.shape[1] != n:
        raise DataError(f"the adjacency must be square; its shape is {adjacency.shape}")
    adjacency.validate("adjacency")
    if parts == 1 or parts >= n:
        return block_rows(n, 1) if parts == 1 else Partition(parts, np.arange(n, dtype=np.int32))
    try:
        import pymetis
    except ImportError as error:
        raise BackendUnavailable(f"METIS was asked for, but pymetis cannot be used: {error}; pip install pymetis") from error
    pattern = _undirected(adjacency)
    width = np.dtype(pymetis.zero_copy_dtype()) if hasattr(pymetis, "zero_copy_dtype") else np.dtype(np.int32)
    if pattern.nnz > np.iinfo(width).max:
        raise UsageError(
            f"this build of METIS counts edges in {8 * width.itemsize} bits; {pattern.nnz} are too many: use stream, or a 64-bit pymetis"
        )
    graph = pymetis.CSRAdjacency(pattern.indptr.astype(width), pattern.indices.astype(width, copy=False))
    _, assignment = pymetis.part_graph(parts, graph, options=pymetis.Options(seed=seed % 2**31))
    return Partition(parts, np.asarray(assignment, np.int32))


def super_nodes(adjacency: CSR, parts: int, clusters: int, seed: int, draw: int = 0) -> Partition:
    """Assign METIS clusters to parts at random: parts have similar label distributions and keep most edges of their vertices.

    Parameters
    ----------
    clusters : int
        At least `parts`. With as many clusters as parts this is METIS, with as many as vertices it is random.

    References
    ----------
    Zhu et al., "Simplifying distributed neural network training on massive graphs: randomized partitions improve model
    aggregation", 2023 (SuperTMA).
    """
    _check_parts(parts)
    if clusters < parts:
        raise UsageError(f"super-nodes need at least as many clusters as parts; got {clusters} clusters for {parts} parts")
    part_of_cluster = np.empty(clusters, np.int32)
    part_of_cluster[Words(seed).permutation(Substream.PARTITION_CLUSTER, clusters, draw)] = np.arange(clusters, dtype=np.int32) % parts
    return Partition(parts, part_of_cluster[metis(adjacency, clusters, seed).assignment])


def _undirected(adjacency: CSR) -> CSR:
    """Return the pattern of A + A^T without its diagonal."""
    rows, columns = adjacency.row_of_entry(), adjacency.indices
    keep = rows != columns
    rows, columns = rows[keep], columns[keep].astype(np.int64)
    return CSR.from_edges(np.concatenate([rows, columns]), np.concatenate([columns, rows]), adjacency.shape)


def _check_parts(parts: int) -> None:
    if not 1 <= parts <= MAX_VERTICES:
        raise UsageError(f"parts must be a positive number; got {parts}")
