"""The result of a sampler on a heterogeneous graph: a block per layer and relation over the vertices of each type, and a digest.

Each type has one list of vertices: the seeds first, then what each hop found. Destinations of every block are a prefix of the list of the
destination type, columns are positions in the list of the source type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..graph import Graph, Key
from ..minibatch import Block, MiniBatch, hash_arrays, to_host
from ..pickled import Rebuilt
from ..sparse import frozen


@dataclass(frozen=True, eq=False)
class TypeRows(Rebuilt):
    """The part of a mini-batch that lies in one vertex type.

    Parameters
    ----------
    vertices : int32, shape (N,)
        Ids within the type. The distinct seeds come first, then the vertices that each hop found, in the order of discovery: by
        relation, row and position.
    sizes : int64, shape (L + 1,)
        Vertices before the first hop and after each; torch_geometric's ``num_sampled_nodes`` are their differences.
    seeds : int32, shape (b,)
        The seeds of this type in the order asked for, repetitions included.
    seed_rows : int32, shape (b,)
        The position of each seed in `vertices`.
    seed_trees : int32, shape (b,)
        The place of each seed among all seeds of the mini-batch, 0 .. b - 1; the tree of the seed if trees are disjoint.
    trees : int32, shape (N,), optional
        The tree of each vertex; None if all seeds share one tree.
    places : int64, shape (b,), optional
        The position of each seed in the list of seeds that a loader was given for this type.
    seed_times : int64, shape (b,), optional
        The time at which each seed is asked about.
    """

    vertices: np.ndarray
    sizes: np.ndarray
    seeds: np.ndarray
    seed_rows: np.ndarray
    seed_trees: np.ndarray
    trees: np.ndarray | None = None
    places: np.ndarray | None = None
    seed_times: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                object.__setattr__(self, name, frozen(array, np.int64 if name in ("sizes", "places", "seed_times") else np.int32))

    @property
    def num_sampled(self) -> list[int]:
        """Seeds, then the vertices that each hop found: L + 1 numbers."""
        return [int(n) for n in np.diff(self.sizes, prepend=0)]


@dataclass(frozen=True, eq=False)
class HeteroMiniBatch:
    """One sampled mini-batch of a heterogeneous graph.

    Parameters
    ----------
    id, epoch : int
        Together with the seed of the stream they determine all arrays.
    rows : dict of TypeRows by the name of the type
        Every type of the graph in its order, met or not.
    blocks : tuple of dicts of Block by (source, name, destination)
        From the input layer to the output layer; every relation of the graph in its order.
    known_entries : tuple of dicts of int64 arrays, optional
        `entries`, if they came with the draws.
    nested : bool
        True if each block is contained in the one before it (the frontier rule ``new``); false if every layer is drawn anew.
    times : TimesOf, optional
        The times that counted in the draws.
    find_entries : callable, optional
        Makes `entries` when they are first read.
    subgraph : bool
        True if the blocks of all layers are one: all edges among all vertices, which belong to no hop, as HGSampling keeps them.
    """

    id: int
    epoch: int
    rows: dict[str, TypeRows]
    blocks: tuple[dict[Key, Block], ...]
    known_entries: tuple[dict[Key, np.ndarray], ...] | None = None
    nested: bool = False
    times: TimesOf | None = field(default=None, repr=False)
    find_entries: Callable[[], tuple[dict[Key, np.ndarray], ...] | None] | None = field(default=None, repr=False)
    subgraph: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the mini-batch for a pickle or a copy: without the graph, of which `entries` and `latest` are known."""
        return vars(self) | {"times": None, "find_entries": None, "known_entries": self.entries, "latest": self.latest}

    @cached_property
    def entries(self) -> tuple[dict[Key, np.ndarray], ...] | None:
        """For each block the position of each edge in the relation's adjacency; `Relation.ids_of` makes the user's edge ids of them.

        None if the sampler was asked to make none; see `RelationSampler`.
        """
        return self.find_entries() if self.known_entries is None and self.find_entries is not None else self.known_entries

    @property
    def vertices(self) -> dict[str, np.ndarray]:
        """The vertices of each type: int32."""
        return {name: part.vertices for name, part in self.rows.items()}

    @property
    def seeds(self) -> dict[str, np.ndarray]:
        """The seeds of each type that has some: int32."""
        return {name: part.seeds for name, part in self.rows.items() if len(part.seeds)}

    @property
    def num_seeds(self) -> int:
        """Number of seeds of all types."""
        return sum(len(part.seeds) for part in self.rows.values())

    @property
    def num_edges(self) -> int:
        """Number of sampled edges; nested blocks count once."""
        return sum(block.num_edges for of_layer in self._distinct_blocks() for block in of_layer.values())

    def in_order_of_seeds(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a number of each seed in the order asked for, given those of the seeds of each type that has some: int32, shape (b,)."""
        out = np.zeros(self.num_seeds, np.int32)
        for name, column in columns.items():
            out[self.rows[name].seed_trees] = column
        return frozen(out, np.int32)

    def num_sampled_edges(self, key: Key) -> list[int]:
        """Return how many edges of a relation each hop drew; with frontier ``all``, the edges of each hop's block."""
        edges = [of_layer[key].num_edges for of_layer in reversed(self.blocks)]
        return [int(n) for n in np.diff(edges, prepend=0)] if self.nested else edges

    def edge_index(self, key: Key) -> np.ndarray:
        """Return the edges of a relation in the input layer, which holds all of them if blocks are nested: int64, shape (2, E).

        Row 0 holds positions in the vertices of the source type, row 1 in those of the destination type.
        """
        block = self.blocks[0][key]
        indptr, indices = (to_host(array) for array in (block.indptr, block.indices))
        return np.stack([indices.astype(np.int64), np.repeat(np.arange(block.num_destinations), np.diff(indptr))])

    @cached_property
    def latest(self) -> np.ndarray | None:
        """The latest time of anything drawn in each tree: int64, shape (trees,); the least int64 where a tree drew nothing with a time.

        A witness that nothing later than its seed was drawn: it is computed from the edges, not by the sampler. Times of the seeds
        themselves do not count. None if time did not count, or entries were left out.
        """
        if self.times is None or self.entries is None:
            return None
        count = max((int(part.seed_trees.max(initial=-1)) + 1 for part in self.rows.values()), default=0)
        disjoint = any(part.trees is not None for part in self.rows.values())
        latest = np.full(count if disjoint else min(count, 1), np.iinfo(np.int64).min)
        for blocks, entries in zip(self._distinct_blocks(), self.entries, strict=False):
            for key, block in blocks.items():
                times = self.times.of(key, entries[key])
                if times is None or not len(times):
                    continue
                rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
                trees = self.rows[key[2]].trees
                np.maximum.at(latest, np.zeros(len(rows), np.int64) if trees is None else trees[rows], times)
        return latest

    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        arrays: list[np.ndarray] = [array for part in self.rows.values() for array in vars(part).values() if array is not None]
        blocks = sum(block.nbytes() for of_layer in self._distinct_blocks() for block in of_layer.values())
        entries = (self.known_entries or ())[: 1 if self.nested else None]
        return sum(a.nbytes for a in arrays) + blocks + sum(a.nbytes for of_layer in entries for a in of_layer.values())

    def _distinct_blocks(self) -> tuple[dict[Key, Block], ...]:
        return self.blocks[:1] if self.nested else self.blocks

    def as_homogeneous(self) -> MiniBatch:
        """Return the mini-batch of a graph of one type and one relation as a `MiniBatch`; its digest is that of the homogeneous graph."""
        (part,) = self.rows.values()
        blocks = tuple(block for of_layer in self.blocks for block in of_layer.values())
        return MiniBatch(self.id, self.epoch, part.seeds, part.seed_rows, part.vertices, blocks, self.nested)

    def digest(self) -> str:
        """Compute the SHA-256 of every array that the draws determine, with its type or relation, name, dtype and shape."""
        sha = hashlib.sha256(f"heterogeneous minibatch {self.id} of epoch {self.epoch}".encode())
        parts: list[tuple[str, Any]] = []
        for name, part in self.rows.items():
            arrays = {key: array for key, array in vars(part).items() if array is not None and key != "places"}
            parts += [(f"type {name} {key}", array) for key, array in arrays.items()]
        for layer, of_layer in enumerate(self.blocks):
            for relation, block in of_layer.items():
                name = f"{layer} relation {relation}"
                sha.update(f"{name} sources {block.num_sources}".encode())
                parts += [(f"{name} indptr", block.indptr), (f"{name} indices", block.indices)]
                parts += [] if block.weights is None else [(f"{name} weights", block.weights)]
        hash_arrays(sha, parts)
        return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class TimesOf:
    """The times of edges that counted in a draw: their own ones, or those of their sources.

    Parameters
    ----------
    graph : Graph
        Columns that are mapped from a store are read where they are asked for.
    by : {"vertices", "edges"}
    """

    graph: Graph
    by: Literal["vertices", "edges"]

    def of(self, key: Key, entries: np.ndarray) -> np.ndarray | None:
        """Return the times of some entries of a relation: int64; None if it has none."""
        relation = self.graph.relation(key)
        if self.by == "edges":
            return None if relation.times is None else np.asarray(relation.times[entries])
        times = self.graph.type(relation.source).times
        return None if times is None else np.asarray(times[relation.adjacency.indices[entries]])
