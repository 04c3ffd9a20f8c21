"""The result of a sampler: the vertices of a mini-batch by type, a block for each layer and relation, and a digest.

Each type has one list of vertices: the seeds first, then what each hop found. So the destinations of every block are a prefix of the list
of the destination type, and the self term needs no look-up. Columns of a block are positions in the list of the source type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from ..pickled import Rebuilt
from ..sparse import frozen, row_pointers
from . import EDGE, NODE, Graph, Key


@dataclass(frozen=True, eq=False)
class Block(Rebuilt):
    """The sampled adjacency of one layer and one relation of a mini-batch: destinations x sources.

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

    def only(self, kept: np.ndarray) -> Block:
        """Return the block with the edges where a mask is True, bool of shape (edges,), with the weights that they have; on the host."""
        weights = None if self.weights is None else self.weights[kept]
        return replace(self, indptr=row_pointers(kept)[self.indptr], indices=self.indices[kept], weights=weights)

    def on_host(self) -> Block:
        """Return the block with its arrays on the host."""
        return replace(self, indptr=to_host(self.indptr), indices=to_host(self.indices), weights=to_host(self.weights))


class LayerBlocks(NamedTuple):
    """The edges of one layer of a mini-batch with `seed_types`."""

    relations: Mapping[Key, Block]
    destinations: Mapping[str, int]  # how many vertices of each type get new rows; they are the first of its list


class InputHop(NamedTuple):
    """The edges of the first block of a plain graph, whose columns are vertices of the graph."""

    pointers: np.ndarray  # int64, shape (destinations + 1,)
    vertices: np.ndarray  # int32, shape (edges,): the source of each edge
    weights: np.ndarray | None  # float32, shape (edges,); None stands for the mean over the row


_COLUMNS: list[tuple[str, Any]] = [
    *((name, np.int32) for name in ("vertices", "seeds", "seed_rows", "seed_trees", "trees")),
    *((name, np.int64) for name in ("sizes", "places", "seed_times")),
]


@dataclass(frozen=True, eq=False)
class TypeRows(Rebuilt):
    """The part of a mini-batch that lies in one vertex type."""

    # int32, shape (N,): ids within the type. The distinct seeds come first, then the vertices that each hop found, in the order of
    # discovery: by relation, row and position
    vertices: np.ndarray
    sizes: np.ndarray  # int64, shape (L + 1,): vertices before the first hop and after each
    seeds: np.ndarray  # int32, shape (b,): the seeds of this type in the order asked for, repetitions included
    seed_rows: np.ndarray  # int32, shape (b,): the position of each seed in `vertices`; 0 .. b - 1 if no seed repeats
    seed_trees: Any = None  # int32, shape (b,): the place of each seed among all seeds, its tree if trees are disjoint; None if not by type
    trees: np.ndarray | None = None  # int32, shape (N,): the tree of each vertex; None if all seeds share one
    places: np.ndarray | None = None  # int64, shape (b,): the position of each seed in the list that a loader was given for this type
    seed_times: np.ndarray | None = None  # int64, shape (b,): the time at which each seed is asked about

    def __post_init__(self) -> None:
        for name, dtype in _COLUMNS:
            if (array := getattr(self, name)) is not None:
                object.__setattr__(self, name, _held(array, dtype))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that are there, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    @property
    def num_sampled(self) -> list[int]:
        """Seeds, then the vertices that each hop found: L + 1 numbers."""
        return [int(n) for n in np.diff(self.sizes, prepend=0)]


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """One sampled mini-batch.

    What its attributes hold depends on `by_type`. Without it the graph has one type and one relation, and they are arrays and blocks. With
    it they are dicts: of vertices and seeds by type, of the blocks of a layer by relation.

    Parameters
    ----------
    id, epoch : int
        Together with the seed of the stream they determine all arrays.
    rows : dict of TypeRows by the name of the type
        Every type of the graph in its order, met or not.
    layers : tuple of dicts of Block by (source, name, destination)
        From the input layer to the output layer; every relation of the graph in its order.
    nested : bool
        True if each block is contained in the one before it (the frontier rule ``new``, induced subgraphs); false if every layer is drawn
        anew.
    seed_weights : float32, shape (b,), optional
        The weight of each seed in the loss; None stands for ones.
    by_type : bool
        Attributes are dicts by type and relation, and so are the names in the digest; see above.
    known_entries : tuple of dicts of int64 arrays, optional
        `entries`, if they came with the draws.
    times : TimesOf, optional
        The times that counted in the draws.
    find_entries : callable, optional
        Makes `entries` when they are first read.
    subgraph : bool
        True if the blocks of all layers are one: all edges among all vertices, which belong to no hop, as HGSampling keeps them.
    seed : int
        That of the stream from which it was drawn; masks of dropout are functions of it.
    seed_types : tuple of str
        Types, each once, whose seeds a model of one output reads as one list: seeds of one type, or ends of links. With them `seeds` and
        `seed_rows` are arrays over these types, whose distinct seeds get the rows of the last layer, type after type; `blocks` are a
        `LayerBlocks` each.
    examples : int64, shape (e,), optional
        Of a loader of edges: the position of each edge among those that it was made of.
    """

    id: int
    epoch: int
    rows: dict[str, TypeRows]
    layers: tuple[dict[Key, Block], ...]
    nested: bool = False
    seed_weights: np.ndarray | None = None
    by_type: bool = True
    known_entries: tuple[dict[Key, np.ndarray], ...] | None = field(default=None, kw_only=True)
    times: TimesOf | None = field(default=None, repr=False, kw_only=True)
    find_entries: Callable[[], tuple[dict[Key, np.ndarray], ...] | None] | None = field(default=None, repr=False, kw_only=True)
    subgraph: bool = field(default=False, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    seed_types: tuple[str, ...] = field(default=(), kw_only=True)
    examples: np.ndarray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.rows, dict):
            raise TypeError("MiniBatch takes rows by type and layers by relation; MiniBatch.plain takes seeds, vertices and blocks")
        if self.seed_weights is not None:
            object.__setattr__(self, "seed_weights", _held(self.seed_weights, np.float32))

    @staticmethod
    def plain(
        id: int, epoch: int, seeds: np.ndarray, seed_rows: np.ndarray, vertices: np.ndarray, blocks: tuple[Block, ...],
        nested: bool = False, seed_weights: np.ndarray | None = None,
    ) -> MiniBatch:  # fmt: skip
        """Return a mini-batch of a plain graph: seeds, their positions among the vertices, the vertices, and a block a layer."""
        sizes = [block.num_destinations for block in reversed(blocks)] + [block.num_sources for block in blocks[:1]]
        rows = TypeRows(vertices, np.array(sizes), seeds, seed_rows)
        layers = tuple({(NODE, EDGE, NODE): block} for block in blocks)
        return MiniBatch(id, epoch, {NODE: rows}, layers, nested, seed_weights, False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the mini-batch for a pickle or a copy: without the graph, of which `entries` and `latest` are known."""
        known = {} if self.times is None else {"latest": self.latest}
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_in_one_list")}  # computed anew, read-only
        return kept | {"times": None, "find_entries": None, "known_entries": self.entries} | known

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    @cached_property
    def entries(self) -> tuple[dict[Key, np.ndarray], ...] | None:
        """For each block the position of each edge in the relation's adjacency; `Relation.ids_of` makes the user's edge ids of them.

        None if the sampler was asked to make none; see `NodeWise`.
        """
        return self.find_entries() if self.known_entries is None and self.find_entries is not None else self.known_entries

    def _of_types(self, values: dict[str, Any]) -> Any:
        return values if self.by_type else next(iter(values.values()))

    @property
    def vertices(self) -> Any:
        """The vertices, within their types: int32, shape (N,), or a dict of such."""
        return self._of_types({name: part.vertices for name, part in self.rows.items()})

    @property
    def seeds(self) -> Any:
        """The seeds in the order asked for, repetitions included: int32, shape (b,), or a dict of such for the types that have some."""
        if self.seed_types:
            return self._seeds_in_one_list
        return self._of_types({name: part.seeds for name, part in self.rows.items() if len(part.seeds) or not self.by_type})

    @property
    def seed_rows(self) -> Any:
        """The position of each seed in `vertices`: int32, shape (b,), or a dict of such for the types that have seeds."""
        if self.seed_types:
            return self._seed_rows_in_one_list
        return self._of_types({name: part.seed_rows for name, part in self.rows.items() if len(part.seeds) or not self.by_type})

    @cached_property
    def _seeds_in_one_list(self) -> np.ndarray:
        return self._one_list({name: self.rows[name].seeds for name in self.seed_types})

    @cached_property
    def _seed_rows_in_one_list(self) -> np.ndarray:
        parts = [self.rows[name] for name in self.seed_types]
        firsts = np.cumsum([0, *(int(part.sizes[0]) for part in parts)]).tolist()
        rows = [part.seed_rows + first if first else part.seed_rows for part, first in zip(parts, firsts, strict=False)]
        return self._one_list(dict(zip(self.seed_types, rows, strict=True)))

    def _one_list(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        (only, *others) = columns.values()
        return self.in_order_of_seeds(columns) if others else only

    @cached_property
    def blocks(self) -> tuple[Any, ...]:
        """From the input layer to the output layer, a `Block`, or a dict of such by relation.

        ``blocks[0]`` has all vertices as sources, ``blocks[-1]`` the distinct seeds as destinations.
        """
        if not self.by_type:
            return tuple(block for of_layer in self.layers for block in of_layer.values())
        if not self.seed_types:
            return self.layers
        hops = len(self.layers)
        sizes = [{name: int(part.sizes[hops - 1 - layer]) for name, part in self.rows.items()} for layer in range(hops)]
        return tuple(LayerBlocks(*pair) for pair in zip(self.layers, sizes, strict=True))

    @cached_property
    def inner(self) -> MiniBatch:
        """The mini-batch without its last hop: the blocks of all layers but the first, and their vertices."""
        rows = {}
        for name, part in self.rows.items():
            count = int(part.sizes[-2])
            trees = None if part.trees is None else part.trees[:count]
            rows[name] = replace(part, vertices=part.vertices[:count], sizes=part.sizes[:-1], trees=trees)
        return replace(self, rows=rows, layers=self.layers[1:], known_entries=None, find_entries=None)

    @cached_property
    def input_hop(self) -> InputHop:
        """The first block of a plain graph, whose columns are vertices of the graph in place of positions."""
        block = self.blocks[0]
        return InputHop(block.indptr, self.vertices[block.indices], block.weights)

    @property
    def num_seeds(self) -> int:
        """Number of seeds of all types."""
        return sum(len(part.seeds) for part in self.rows.values())

    @property
    def num_vertices(self) -> int:
        """Number of vertices of all types."""
        return sum(len(part.vertices) for part in self.rows.values())

    @property
    def num_edges(self) -> int:
        """Number of sampled edges; nested blocks count once."""
        return sum(block.num_edges for of_layer in self._distinct_layers() for block in of_layer.values())

    def _distinct_layers(self) -> tuple[dict[Key, Block], ...]:
        return self.layers[:1] if self.nested else self.layers

    def in_order_of_seeds(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a number of each seed in the order asked for, given those of the seeds of each type that has some: int32, shape (b,)."""
        out = np.zeros(self.num_seeds, np.int32)
        for name, column in columns.items():
            out[self.rows[name].seed_trees] = column
        return frozen(out, np.int32)

    def num_sampled_edges(self, key: Key) -> list[int]:
        """Return how many edges of a relation each hop drew; with frontier ``all``, the edges of each hop's block."""
        edges = [of_layer[key].num_edges for of_layer in reversed(self.layers)]
        return [int(n) for n in np.diff(edges, prepend=0)] if self.nested else edges

    def edge_index(self, key: Key) -> np.ndarray:
        """Return the edges of a relation in the input layer, which holds all of them if blocks are nested: int64, shape (2, E).

        Row 0 holds positions in the vertices of the source type, row 1 in those of the destination type.
        """
        block = self.layers[0][key].on_host()
        return np.stack([block.indices.astype(np.int64), np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))])

    def edge_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the destinations and the sources of the `num_edges` edges of a plain graph, block by block, as vertices: int32."""
        here = self.on_host()
        blocks: tuple[Block, ...] = here.blocks[: len(here._distinct_layers())]
        rows = [np.repeat(np.arange(block.num_destinations), np.diff(block.indptr)) for block in blocks]
        return here.vertices[np.concatenate(rows)], here.vertices[np.concatenate([block.indices for block in blocks])]

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
        for blocks, entries in zip(self._distinct_layers(), self.entries, strict=False):
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
        arrays = [array for part in self.rows.values() for array in part.arrays().values()]
        blocks = sum(block.nbytes() for of_layer in self._distinct_layers() for block in of_layer.values())
        entries = (self.known_entries or ())[: 1 if self.nested else None]
        return sum(a.nbytes for a in arrays) + blocks + sum(a.nbytes for of_layer in entries for a in of_layer.values())

    def on_host(self) -> MiniBatch:
        """Return the mini-batch with its arrays on the host; itself if they are there."""
        if isinstance(next(iter(self.layers[0].values())).indptr, np.ndarray):
            return self
        rows = {name: TypeRows(**{key: to_host(array) for key, array in part.arrays().items()}) for name, part in self.rows.items()}
        layers = tuple({key: block.on_host() for key, block in of_layer.items()} for of_layer in self.layers)
        columns = {part.name: getattr(self, part.name) for part in fields(MiniBatch)} | {"rows": rows, "layers": layers}
        return MiniBatch(**columns)

    def digest(self) -> str:
        """Compute the SHA-256 of every array that the draws determine, with its name, dtype and shape.

        Equal mini-batches have equal digests on any machine. Names tell types and relations if the mini-batch is `by_type`.
        """
        begin = "heterogeneous minibatch" if self.by_type else "minibatch"
        sha = hashlib.sha256(f"{begin} {self.id} of epoch {self.epoch}".encode())
        parts: list[tuple[str, Any]] = []
        if not self.by_type:
            parts = [("seeds", self.seeds), ("seed_rows", self.seed_rows), ("vertices", self.vertices)]
            parts += [] if self.seed_weights is None else [("seed_weights", self.seed_weights)]
        else:
            for name, part in self.rows.items():
                parts += [(f"type {name} {key}", array) for key, array in part.arrays().items() if key != "places"]
        for layer, of_layer in enumerate(self.layers):
            for relation, block in of_layer.items():
                name = f"{layer} relation {relation}" if self.by_type else f"{layer}"
                sha.update(f"{name} sources {block.num_sources}".encode())
                parts += [(f"{name} indptr", block.indptr), (f"{name} indices", block.indices)]
                parts += [] if block.weights is None else [(f"{name} weights", block.weights)]
        hash_arrays(sha, parts)
        return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class TimesOf:
    """The times of edges that counted in a draw, their own or those of their sources; mapped columns are read where they are asked for."""

    graph: Graph
    by: Literal["vertices", "edges"]

    def of(self, key: Key, entries: np.ndarray) -> np.ndarray | None:
        """Return the times of some entries of a relation: int64; None if it has none."""
        relation = self.graph.relation(key)
        if self.by == "edges":
            return None if relation.times is None else np.asarray(relation.times[entries])
        times = self.graph.type(relation.source).times
        return None if times is None else np.asarray(times[relation.adjacency.indices[entries]])


def hash_arrays(sha: Any, parts: Iterable[tuple[str, Any]]) -> None:
    """Add named arrays or tensors to a hash: name, dtype, shape and little-endian bytes of each."""
    for name, array in parts:
        contiguous = np.ascontiguousarray(to_host(array))
        little = contiguous.astype(contiguous.dtype.newbyteorder("<"), copy=False)
        sha.update(f"{name} {little.dtype.str} {little.shape}".encode())
        sha.update(little.data)


def _held(array: Any, dtype: Any) -> Any:
    """Freeze a numpy array; return a tensor unchanged."""
    return array if hasattr(array, "data_ptr") else frozen(array, dtype)


def to_host(array: Any) -> Any:
    """Return a tensor as an array in the memory of the host; an array, or None, unchanged."""
    return array.cpu().numpy() if hasattr(array, "data_ptr") else array


def digest(minibatches: Iterable[MiniBatch] | Iterable[tuple[int, int, str]]) -> str:
    """Compute one SHA-256 of many mini-batches in any order, or of triples (epoch, id, digest) of ones that are no longer in memory."""
    named = [m if isinstance(m, tuple) else (m.epoch, m.id, m.digest()) for m in minibatches]
    return hashlib.sha256("\n".join(f"{epoch} {id} {text}" for epoch, id, text in sorted(named)).encode()).hexdigest()
