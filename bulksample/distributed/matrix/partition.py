"""Which part each vertex belongs to, and the ways to decide it.

A `Partition` is data: one number per vertex, and what follows from it. Ranks share it as a file, since METIS need not
give the same answer on two machines.
"""

from __future__ import annotations

import io
import os
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...data.files import sync_folder
from ...data.npy import Archive
from ...data.random_words import Words
from ...errors import BackendUnavailable, DataError, UsageError
from ...sparse import CSR, MAX_VERTICES, frozen

PARTITIONERS = ("block", "random", "metis", "super")
_CLUSTERS_PER_PART = 16
_DEAL_VERTICES, _DEAL_CLUSTERS = 100, 101  # stages of Purpose.GENERATE that no recipe of data/ uses


@dataclass(frozen=True, eq=False)
class Partition:
    """The vertices of a graph in parts.

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
        If a vertex is in no part that there is.
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
        """Part i is the range ``bounds[i]:bounds[i + 1]`` of the new ids: int64, shape (parts + 1,)."""
        return frozen(np.concatenate([[0], np.cumsum(np.bincount(self.assignment, minlength=self.parts))]), np.int64)

    @cached_property
    def order(self) -> np.ndarray:
        """The old id of each new one: int32, shape (n,). Parts follow each other; within a part the old ids ascend."""
        return frozen(np.argsort(self.assignment, kind="stable"), np.int32)

    @cached_property
    def position(self) -> np.ndarray:
        """The new id of each old one, the inverse of `order`: int32, shape (n,)."""
        position = np.empty(self.n, np.int32)
        position[self.order] = np.arange(self.n, dtype=np.int32)
        return frozen(position)

    def members(self, part: int) -> np.ndarray:
        """The old ids of a part, ascending."""
        return self.order[self.bounds[part] : self.bounds[part + 1]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an `.npz` file; it is there whole or not at all. Raises `UsageError` where it cannot be written."""
        target, stream = Path(path), io.BytesIO()
        np.savez(stream, parts=np.array(self.parts, "<i8"), assignment=self.assignment.astype("<i4"))
        made = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with open(made, "wb") as file:
                file.write(stream.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(made, target)
            sync_folder(target.parent)
        except OSError as error:
            raise UsageError(f"cannot write a partition at {target}: {error.strerror or error}") from error
        finally:
            made.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Partition:
        """Read what `save` wrote; nothing is unpickled. Raises `DataError` naming the file and what is wrong in it."""
        path = Path(path)
        with Archive(path) as archive:
            parts, assignment = archive.read("parts"), archive.read("assignment")
        if parts.shape != () or parts.dtype.kind != "i" or not 1 <= parts <= MAX_VERTICES:
            raise DataError(f"{path.name}: parts must be one positive number; found {parts.dtype} of shape {parts.shape}")
        try:
            return Partition(int(parts), assignment)
        except DataError as error:
            raise DataError(f"{path.name}: {error}") from error


def make(kind: str, adjacency: CSR, parts: int, seed: int, clusters: int | None = None) -> Partition:
    """A partition of one of PARTITIONERS; 16 clusters for each part of ``super`` unless given. Raises `UsageError` for another kind."""
    n = adjacency.shape[0]
    if kind == "block":
        return block_rows(n, parts)
    if kind == "random":
        return random(n, parts, seed)
    if kind == "metis":
        return metis(adjacency, parts, seed)
    if kind == "super":
        return super_nodes(adjacency, parts, clusters or _CLUSTERS_PER_PART * parts, seed)
    raise UsageError(f"a partition must be one of {', '.join(PARTITIONERS)}; got {kind!r}")


def block_bounds(n: int, parts: int) -> np.ndarray:
    """The bounds of `parts` ranges of n things as even as can be, floor(i n / parts): int64, shape (parts + 1,)."""
    _check_parts(parts)
    return np.arange(parts + 1, dtype=np.int64) * n // parts


def block_rows(n: int, parts: int) -> Partition:
    """Vertices in their order, as evenly as can be: `position` is the identity."""
    return Partition(parts, np.repeat(np.arange(parts, dtype=np.int32), np.diff(block_bounds(n, parts))))


def random(n: int, parts: int, seed: int) -> Partition:
    """Every vertex in a part at random, sizes as even as can be; the same on any machine."""
    assignment = np.empty(n, np.int32)
    assignment[Words(seed).permutation(_DEAL_VERTICES, n)] = block_rows(n, parts).assignment
    return Partition(parts, assignment)


def metis(adjacency: CSR, parts: int, seed: int) -> Partition:
    """Parts of about the same size with few edges between them.

    Parameters
    ----------
    adjacency : CSR, shape (n, n)
        Its pattern is made symmetric and its loops are dropped; weights do not matter.
    parts : int
        Some come out empty where the graph is small; with ``parts >= n`` every vertex is alone.
    seed : int
        The same build of METIS repeats its answer for it.

    Raises
    ------
    DataError
        If the matrix is not valid; METIS would crash.
    UsageError
        If the graph is too large for METIS's 32-bit integers.
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
    pymetis = _import_pymetis()
    pattern = _undirected(adjacency)
    if pattern.nnz >= 2**31:
        raise UsageError(f"METIS counts edges in 32 bits; {pattern.nnz} do not fit. random or block would fit")
    graph = pymetis.CSRAdjacency(pattern.indptr.astype(np.int32), pattern.indices)
    _, assignment = pymetis.part_graph(parts, graph, options=pymetis.Options(seed=seed % 2**31))
    return Partition(parts, np.asarray(assignment, np.int32))


def super_nodes(adjacency: CSR, parts: int, clusters: int, seed: int) -> Partition:
    """METIS clusters dealt to parts at random: parts that are alike, of vertices that still have their neighbours.

    Parameters
    ----------
    clusters : int
        At least `parts`. As many as parts is METIS itself, as many as vertices is random.

    References
    ----------
    Zhu et al., "Simplifying distributed neural network training on massive graphs: randomized partitions improve model
    aggregation", 2023 (SuperTMA).
    """
    _check_parts(parts)
    if clusters < parts:
        raise UsageError(f"super-nodes need at least as many clusters as parts; got {clusters} for {parts} parts")
    dealt = np.empty(clusters, np.int32)
    dealt[Words(seed).permutation(_DEAL_CLUSTERS, clusters)] = np.arange(clusters, dtype=np.int32) % parts
    return Partition(parts, dealt[metis(adjacency, clusters, seed).assignment])


def _undirected(adjacency: CSR) -> CSR:
    """The pattern of A + A^T without its diagonal."""
    rows, columns = adjacency.row_of_entry(), adjacency.indices
    keep = rows != columns
    rows, columns = rows[keep], columns[keep].astype(np.int64)
    return CSR.from_edges(np.concatenate([rows, columns]), np.concatenate([columns, rows]), adjacency.shape)


def _import_pymetis():  # type: ignore[no-untyped-def]
    try:
        import pymetis
    except ImportError as error:
        raise BackendUnavailable(f"METIS was asked for, but pymetis cannot be used: {error}. pip install pymetis would fit") from error
    return pymetis


def _check_parts(parts: int) -> None:
    if not 1 <= parts <= MAX_VERTICES:
        raise UsageError(f"parts must be a positive number; got {parts}")
