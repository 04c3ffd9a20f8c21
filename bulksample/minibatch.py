"""The result of a sampler: a mini-batch of nested blocks, and its digest.

The vertices of a mini-batch are one list. The seeds come first, and each layer appends the vertices it found. So
the destinations of every block are a prefix of its sources, and the self term needs no look-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .pickled import Rebuilt
from .sparse import frozen


@dataclass(frozen=True, eq=False)
class Block(Rebuilt):
    """The sampled adjacency of one layer of one mini-batch: destinations x sources.

    Its arrays are read-only numpy arrays, or tensors of the same types on a device.

    Parameters
    ----------
    indptr : int64, shape (destinations + 1,)
    indices : int32, shape (edges,)
        Local sources: positions in the mini-batch's list of vertices. Within a row they stand in ascending order of
        the global vertex; a row drawn with replacement may repeat one.
    weights : float32, shape (edges,), optional
        Weight of each edge in the aggregation; ``None`` stands for the mean over the row.
    num_sources : int
        Sources are the first `num_sources` vertices of the mini-batch, destinations the first ``len(indptr) - 1``.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    num_sources: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "indptr", _held(self.indptr, np.int64))
        object.__setattr__(self, "indices", _held(self.indices, np.int32))
        if self.weights is not None:
            object.__setattr__(self, "weights", _held(self.weights, np.float32))

    @property
    def num_destinations(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def nbytes(self) -> int:
        return self.indptr.nbytes + self.indices.nbytes + (0 if self.weights is None else self.weights.nbytes)


@dataclass(frozen=True, eq=False)
class MiniBatch(Rebuilt):
    """One sampled mini-batch.

    Parameters
    ----------
    id, epoch : int
        Together with the seed of the stream they determine all arrays.
    seeds : int32, shape (b,)
        The seeds in the order asked for, repetitions included.
    seed_rows : int32, shape (b,)
        The position of each seed in `vertices`; 0 .. b - 1 if no seed repeats.
    vertices : int32, shape (N,)
        Global ids. The distinct seeds come first, then the vertices that each layer found, in the order of discovery.
    blocks : tuple of Block
        From the input layer to the output layer: ``blocks[0]`` has N sources, ``blocks[-1]`` the seeds as destinations.
    nested : bool
        True if each block is contained in the one before it (the frontier rule ``new``, induced subgraphs); false if every
        layer is drawn anew.
    seed_weights : float32, shape (b,), optional
        The weight of each seed in the loss; None stands for ones.
    """

    id: int
    epoch: int
    seeds: np.ndarray
    seed_rows: np.ndarray
    vertices: np.ndarray
    blocks: tuple[Block, ...]
    nested: bool = False
    seed_weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("seeds", "seed_rows", "vertices"):
            object.__setattr__(self, name, _held(getattr(self, name), np.int32))
        if self.seed_weights is not None:
            object.__setattr__(self, "seed_weights", _held(self.seed_weights, np.float32))

    @property
    def num_edges(self) -> int:
        """Number of sampled edges; nested blocks count once."""
        return sum(block.num_edges for block in self._distinct_blocks())

    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return self.seeds.nbytes + self.seed_rows.nbytes + self.vertices.nbytes + sum(block.nbytes() for block in self._distinct_blocks())

    def _distinct_blocks(self) -> tuple[Block, ...]:
        return self.blocks[:1] if self.nested else self.blocks

    def edge_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the destinations and the sources of the `num_edges` sampled edges, block by block, as global vertices: int32."""
        here = self.on_host()
        blocks = here._distinct_blocks()
        rows = [np.repeat(np.arange(block.num_destinations), np.diff(block.indptr)) for block in blocks]
        return here.vertices[np.concatenate(rows)], here.vertices[np.concatenate([block.indices for block in blocks])]

    def on_host(self) -> MiniBatch:
        """Return the mini-batch with its arrays on the host; itself if they are there."""
        if isinstance(self.blocks[0].indptr, np.ndarray):
            return self
        blocks = [(to_host(b.indptr), to_host(b.indices), None if b.weights is None else to_host(b.weights)) for b in self.blocks]
        there = [Block(*arrays, block.num_sources) for arrays, block in zip(blocks, self.blocks, strict=True)]
        return MiniBatch(
            self.id,
            self.epoch,
            self.seeds,
            *map(to_host, (self.seed_rows, self.vertices)),
            tuple(there),
            self.nested,
            self.seed_weights,
        )

    def digest(self) -> str:
        """Compute the SHA-256 of every array with its name, dtype and shape: equal mini-batches have equal digests on any machine."""
        sha = hashlib.sha256(f"minibatch {self.id} of epoch {self.epoch}".encode())
        parts = [("seeds", self.seeds), ("seed_rows", self.seed_rows), ("vertices", self.vertices)]
        parts += [] if self.seed_weights is None else [("seed_weights", self.seed_weights)]
        for layer, block in enumerate(self.blocks):
            parts += [(f"{layer} indptr", block.indptr), (f"{layer} indices", block.indices)]
            parts += [] if block.weights is None else [(f"{layer} weights", block.weights)]
            sha.update(f"{layer} sources {block.num_sources}".encode())
        hash_arrays(sha, parts)
        return sha.hexdigest()


def hash_arrays(sha: Any, parts: Iterable[tuple[str, Any]]) -> None:
    """Add named arrays or tensors to a hash: name, dtype, shape and little-endian bytes of each."""
    for name, array in parts:
        own = np.ascontiguousarray(to_host(array))
        little = own.astype(own.dtype.newbyteorder("<"), copy=False)
        sha.update(f"{name} {little.dtype.str} {little.shape}".encode())
        sha.update(little.data)


def _held(array: Any, dtype: Any) -> Any:
    """Freeze a numpy array; return a tensor unchanged."""
    return array if hasattr(array, "data_ptr") else frozen(array, dtype)


def to_host(array: Any) -> Any:
    """Return a tensor as an array in the memory of the host; an array unchanged."""
    return array.cpu().numpy() if hasattr(array, "data_ptr") else array


class Sampled(Protocol):
    """A sampled mini-batch of any kind of graph."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    def nbytes(self) -> int: ...
    def digest(self) -> str: ...


def digest(minibatches: Iterable[Sampled] | Iterable[tuple[int, int, str]]) -> str:
    """Compute one SHA-256 of many mini-batches, independent of their order.

    Takes mini-batches, or triples (epoch, id, digest) of mini-batches that are no longer in memory.
    """
    named = [m if isinstance(m, tuple) else (m.epoch, m.id, m.digest()) for m in minibatches]
    return hashlib.sha256("\n".join(f"{epoch} {id} {text}" for epoch, id, text in sorted(named)).encode()).hexdigest()
