"""A sampler for torch_geometric: k mini-batches in one call, or one at a time for its `NodeLoader` and `LinkLoader`.

    from torch_geometric.loader import NodeLoader
    loader = NodeLoader(data, BulkSampler(data, [15, 10, 5]), batch_size=1024)

The sampler draws vertices and edges; the loader slices features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Sized
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample

from ... import backends, samplers
from ...adjacency import Adjacency, kind_of_times
from ...backends.base import Backend
from ...distributed.comm.base import Comm
from ...distributed.matrix.grid import ProcessGrid
from ...distributed.matrix.layout import Layout
from ...distributed.matrix.owner import OwnerAdjacency
from ...errors import UsageError
from ...graph import Key
from ...graph.selection import Selection
from ...graph.times import given_times
from ...local_adjacency import LocalAdjacency
from ...process_lock import process_lock
from ...rng import MAX_EPOCHS, MAX_MINIBATCHES, Stream
from ...samplers import LayerWise, NodeWise, whole_fanouts
from ...samplers.hgt import HGSampler
from ...samplers.time_rule import TimeRule
from ...sparse import CSR, row_pointers
from ..edge_graph import EdgeGraph, EdgeSampler
from ..made_together import made_together
from .arrange import arranged, induced, side_by_side
from .negatives import SeededNegatives
from .read_graph import NODE, check_plain, has_types, read_graph

LAWS = ("sage", "labor", "ladies", "fastgcn", "full")
STRIDE = 4096  # the most seeds of a mini-batch with disjoint trees, where a loader does not say it
_COUNTING = process_lock()
Sampled: TypeAlias = SamplerOutput | HeteroSamplerOutput
Seeds: TypeAlias = Mapping[str, np.ndarray]  # by type
Times: TypeAlias = Mapping[str, np.ndarray | None]


class BulkSampler(BaseSampler):
    """A sampler whose mini-batches are a function of (graph, seed, epoch, mini-batch id).

    Parameters
    ----------
    data : Data or HeteroData of torch_geometric, or a (FeatureStore, GraphStore) pair
    num_neighbors : list of int, dict of such by edge type, or NumNeighbors
        Number of draws of each hop, row and relation, from the seeds outwards; -1 takes all. An empty list leaves the seeds alone, without
        edges. A dict is for a graph with types, and names every edge type.
    sampler : {"sage", "labor", "ladies", "fastgcn", "full"}
        With types or times it is "sage".
    weight_attr : str, optional
        The edge attribute with the weights of draws. An edge of weight 0 is in no batch, also where all neighbors are taken, nor in an
        induced subgraph.
    time_attr : str, optional
        The attribute with the times of vertices, or of edges. A neighbor or an edge later than its seed is never drawn; the seed's time
        is the bound in all hops. Subgraphs are then disjoint.
    temporal_strategy : {"uniform", "last"}
        ``last`` takes the newest neighbors.
    replace, disjoint, subgraph_type
        See torch_geometric. Subgraphs in time are not induced.
    stride : int
        The most seeds of a mini-batch with disjoint subgraphs: tree i of mini-batch m has the name ``m * stride + i``.
    seed : int, optional
        0 unless given.
    backend : {"auto", "native", "reference", "cuda"}
    comm : Comm, optional
        The ranks that share the mini-batches of a loader; all make this call, with equal arguments but for `backend`.
    grid : int, optional
        c: the adjacency lies in block rows on a p/c x c grid of ranks, and every call is collective. Not with types or times.
    options
        Options of the sampler: `importance`, `debias`, `renormalise`, `layer_dependent`.

    Raises
    ------
    UsageError
        If an option or an attribute does not fit the graph, or options contradict each other. On all ranks of `comm`, if they were given
        other ones.
    DataError
        If edges, weights or times are malformed.

    Notes
    -----
    ``sage`` draws edges, so a fanout counts each of several parallel edges. The other samplers draw vertices, and a drawn vertex brings
    all its parallel edges. The batches of a `NodeLoader` lack the weights of layer-wise samplers; use `LadiesLoader` or `FastGCNLoader`.
    """

    sampler: EdgeSampler | NodeWise | HGSampler
    comm: Comm | None
    num_neighbors: Any  # the draws of each hop, which `inference` of torch_geometric's models asks for
    grid: int | None = None
    _hops: int | None  # None: edges belong to no hop
    _calls = 0

    @made_together
    def __init__(
        self, data: Any, num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]] | NumNeighbors, *, sampler: str = "sage",
        replace: bool = False, weight_attr: str | None = None, time_attr: str | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform", disjoint: bool = False,
        subgraph_type: SubgraphType | str = "directional", stride: int = STRIDE, seed: int | None = None, backend: str = "auto",
        comm: Comm | None = None, grid: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        relational = has_types(data) or time_attr is not None
        if not relational or sampler != "sage":
            check_plain(data, time_attr=time_attr)
        if sampler not in LAWS:
            raise UsageError(f"sampler must be one of {', '.join(LAWS)}; got {sampler!r}")
        if sampler != "sage" and replace:
            raise UsageError(f"replace is an option of sampler 'sage'; got {sampler!r}")
        if relational and grid is not None:
            raise UsageError("got a grid of ranks and a graph with types or times; leave out grid: each rank then holds the graph")
        if grid is not None and comm is None:
            raise UsageError("got a grid without ranks; use comm=bulksample.distributed.comm.world.world()")
        self._hold(data, seed, backend, comm, weight_attr, time_attr)
        rule = None if time_attr is None else TimeRule(strategy=temporal_strategy)
        self.subgraph_type, self.disjoint, self.grid, self._stride = SubgraphType(subgraph_type), disjoint or rule is not None, grid, stride
        if self.subgraph_type == SubgraphType.induced and rule is not None:
            raise UsageError("an induced subgraph would hold edges later than its seeds; use directional or bidirectional with time_attr")
        fanouts: Any = None
        if relational:
            fanouts, hops = _of_relations(num_neighbors, [relation.key for relation in self.graph.relations])
            self.num_neighbors, draws = fanouts, [0] * hops
        else:
            self.num_neighbors = draws = _of_hops(num_neighbors)
        if sampler == "full" and weight_attr is not None:  # all by weight
            sampler, draws = "sage", [-1] * len(draws)
        if sampler == "sage":
            options |= {"replace": replace, "weighted": weight_attr is not None}
        no_hops = isinstance(draws, Sized) and len(draws) == 0
        base = samplers.make(sampler, (0,) if no_hops else draws, frontier="new", **options)  # no hop: one that draws nothing
        self._hops = 0 if no_hops else len(base.fanouts)
        if not relational:
            self.num_neighbors, self.sampler = list(base.fanouts)[: self._hops], EdgeSampler(self.graph.relations[0], base)
            if self.sampler.by_edge and grid is not None:
                raise UsageError("got a grid of ranks and a graph with parallel edges; use a coalesced graph")
            self._edges = [self.sampler.edges]
            shares_numbers = sampler == "labor" and self._edges[0].pointers is not None  # parallel edges would share one
            relational = disjoint and not isinstance(base, LayerWise) and grid is None and not shares_numbers
        if relational:
            assert isinstance(base, NodeWise)
            self.sampler = dataclasses.replace(base, of_relations=fanouts, time=rule, disjoint=self.disjoint, stride=stride, entries=True)
        self._check(backend)

    def _hold(
        self, data: Any, seed: int | None, backend: str, comm: Comm | None, weight_attr: str | None = None, time_attr: str | None = None
    ) -> None:
        """Read the graph, and keep the options that all samplers have."""
        self.graph, self._typed = read_graph(data, weight_attr, time_attr), has_types(data)
        self.stream, self.seeded, self.backend, self.comm = Stream(0 if seed is None else seed), seed is not None, backend, comm
        self._edges = [EdgeGraph(relation) for relation in self.graph.relations]
        self._adjacencies: dict[int | None, Adjacency] = {}  # by number of threads

    def _check(self, backend: str) -> None:
        backends.make(backend)  # also where ranks make the adjacency together: it fails on one of them alone
        if self.grid is None:
            self.sampler.check(self.adjacency)

    def connect(self) -> None:
        """Make the adjacency of ranks that share it; collective. See `made_together.Shared`."""
        if self.grid is not None:
            self.sampler.check(self.adjacency)

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `made_together.Shared`."""
        return {**self.settings, "seed": int(self.stream.seed), "grid": self.grid}, {"graph": self.fingerprint}

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency that this process samples from. Worker processes use one thread: they share the processors."""
        threads = None if torch.utils.data.get_worker_info() is None else 1
        if threads not in self._adjacencies:
            self._adjacencies[threads] = self._adjacency(backends.make(self.backend, threads))
        return self._adjacencies[threads]

    def _adjacency(self, backend: Backend) -> Adjacency:
        if not isinstance(self.sampler, EdgeSampler):
            return LocalAdjacency(self.graph, backend, by_type=True)
        matrix = self._edges[0].matrix
        if self.comm is None or self.grid is None:
            return LocalAdjacency(matrix, backend, entries=True)
        return _block_rows(matrix, self.comm, self.grid, backend)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker process, without back ends, which cannot be copied."""
        return {**self.__dict__, "_adjacencies": {}}

    @property
    def num_nodes(self) -> int:
        """Number of vertices of all types."""
        return self.graph.n

    @property
    def timed(self) -> bool:
        """True if time counts in the draws."""
        return getattr(self.sampler, "time", None) is not None

    @property
    def by(self) -> Literal["vertices", "edges"] | None:
        """Which times count: those of vertices, those of edges, or none."""
        return kind_of_times(self.graph, "auto") if self.timed else None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the graph."""
        return self._edges[0].matrix.fingerprint if isinstance(self.sampler, EdgeSampler) else str(self.adjacency.fingerprint)

    @property
    def settings(self) -> dict[str, Any]:
        """The options on which mini-batches depend, by the names that a user gives them, for messages that compare two samplers."""
        own, shape = dict(self.sampler.settings), {"subgraph_type": self.subgraph_type.value, "disjoint": self.disjoint}
        if of_relations := own.pop("fanouts of relations", None):
            own = {"num_neighbors": of_relations, **own}
        elif "fanouts" in own:
            own = {**own, "num_neighbors": self.num_neighbors}
            del own["fanouts"]
        return own | shape

    def describe(self) -> dict[str, Any]:
        """Return what mini-batches depend on, for the state of a loader."""
        form = "disjoint " * (self.disjoint and isinstance(self.sampler, EdgeSampler)) + str(self.subgraph_type.value)
        return {"sampler": f"{self.sampler.identity_by_type} {form}", "graph": self.fingerprint}

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> Sampled:
        """Sample one mini-batch. Its id is the number of the call; in a worker process it also depends on the worker's seed."""
        return self.sample_nodes([index], *self._next_name())[0]

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> Sampled:
        """Sample one mini-batch of edges; see `sample_from_nodes`."""
        return self.sample_edges([index], neg_sampling, *self._next_name())[0]

    @property
    def edge_permutation(self) -> None:
        """None, because the positions of edges in an output are those of the user's `edge_index`."""
        return None

    def _next_name(self) -> tuple[list[int], int]:
        worker = torch.utils.data.get_worker_info()
        with _COUNTING:  # no two threads have one mini-batch
            number, self._calls = self._calls, self._calls + 1
        return [number], MAX_EPOCHS - 1 - (0 if worker is None else worker.seed % (MAX_EPOCHS // 2))

    def sample_nodes(self, inputs: list[NodeSamplerInput], ids: Sequence[int], epoch: int) -> list[Sampled]:
        """Sample a bulk of mini-batches; without `input_time` a seed is asked about at its own time.

        `metadata` ends with the weights of the edges, or None for the mean.
        """
        lists, times = [], []
        for index in inputs:
            name = NODE if index.input_type is None else str(index.input_type)
            lists.append({name: index.node.numpy()})
            times.append({name: self._time_of(name, index)})
        outputs = self.sample_seeds(lists, ids, epoch, times)
        for index, out in zip(inputs, outputs, strict=True):
            out.metadata = (index.input_id, index.time, out.metadata)
        return outputs

    def _time_of(self, name: str, index: NodeSamplerInput) -> np.ndarray | None:
        if not self.timed:
            if index.time is not None:
                raise UsageError("input_time was given without times of the graph; give time_attr too")
            return None
        if index.time is not None:
            return given_times("input_time", index.time, len(index.node))
        own = self.graph.type(name).times
        if own is None:
            what = "the edges have times" if self.by == "edges" else f"type {name!r} has no times"
            raise UsageError(f"the seeds need times, since {what}; give input_time")
        times: np.ndarray = own[index.node.numpy()]
        return times

    def sample_edges(
        self, inputs: list[EdgeSamplerInput], negatives: NegativeSampling | None, ids: Sequence[int], epoch: int
    ) -> list[Sampled]:
        """Sample a bulk of mini-batches of edges; negatives depend on (epoch, id, position) alone.

        With times of vertices a negative exists at the time of its edge.
        """
        if isinstance(self.sampler, EdgeSampler) and isinstance(base := self.sampler.base, LayerWise):
            raise UsageError(f"links with sampler {base.name!r} would lose its weights; use a node-wise sampler")
        lists: list[Seeds] = []
        times: list[Times] = []
        metadata = []
        for index, id in zip(inputs, ids, strict=True):
            metadata.append(self._edge_seeds(index, self._negatives(negatives, index, id, epoch), lists, times))
        outputs = self.sample_seeds(lists, ids, epoch, times)
        for out, found, index, seeds in zip(outputs, metadata, inputs, lists, strict=True):
            out.metadata = found
            if out.batch is not None:  # both ends and the negatives of a link have its number
                halves = 2 if len(seeds) == 1 and negatives is not None and negatives.is_binary() else 1  # sources, then destinations
                spans = [torch.arange(len(own) // halves) % max(1, len(index.row)) for own in seeds.values() for _ in range(halves)]
                number = torch.cat(spans)
                typed = isinstance(out.batch, dict)
                out.batch = {name: number[trees] for name, trees in out.batch.items()} if typed else number[out.batch]
        return outputs

    def _negatives(self, law: NegativeSampling | None, index: EdgeSamplerInput, id: int, epoch: int) -> SeededNegatives | None:
        if law is None:
            return None
        ends = (NODE, NODE) if index.input_type is None else (index.input_type[0], index.input_type[-1])
        own = [self.graph.type(end).times for end in ends] if self.by == "vertices" and index.time is not None else [None, None]
        until = None if index.time is None else given_times("edge_label_time", index.time, len(index.row))
        return SeededNegatives(law, self.stream, id, epoch, (own[0], own[1]), until)

    def _edge_seeds(self, index: EdgeSamplerInput, negatives: Any, lists: list[Seeds], times: list[Times]) -> Any:
        """Append the seeds of a mini-batch of edges and their times, and return its metadata; torch_geometric's code computes them."""

        def nothing_yet(seed: Any, time: Any) -> Sampled:
            seeds, stamps = (seed, time) if isinstance(seed, dict) else ({NODE: seed}, {NODE: time})
            lists.append({name: ids.numpy() for name, ids in seeds.items()})
            known = stamps or {}
            times.append({name: None if known.get(name) is None else given_times("edge_label_time", known[name]) for name in seeds})
            if isinstance(seed, dict):
                return HeteroSamplerOutput(dict(seed), {}, {}, {}, batch=dict(seed))
            return SamplerOutput(seed, seed, seed, None, batch=seed)

        if self.timed and index.time is None:
            raise UsageError("the edges need times; give edge_label_time")
        counts: Any = {kind.name: kind.count for kind in self.graph.types} if self._typed else self.graph.n
        return edge_sample(index, nothing_yet, counts, self.disjoint, None, negatives).metadata

    def sample_seeds(self, lists: Sequence[Seeds], ids: Sequence[int], epoch: int, times: Sequence[Times] = ()) -> list[Any]:
        """Sample mini-batches from seeds by type, and their times; `metadata` of each holds the weights of its edges, if it has some."""
        sizes = [sum(len(nodes) for nodes in seeds.values()) for seeds in lists]
        parts = [self.graph.offsets[self.graph.place(name)] + nodes for seeds in lists for name, nodes in seeds.items()]
        vertices = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int32)
        stamps: list[Any] = [stamp for of_batch in times for stamp in of_batch.values()]
        when = np.concatenate([np.empty(0, np.int64), *stamps]) if self.timed else None
        names, pointers = np.array(ids, np.int64), row_pointers(sizes)
        trees = self.disjoint and isinstance(self.sampler, EdgeSampler) and all(sizes)  # each as a mini-batch of its own
        spans = np.arange(len(vertices) + 1) if trees else pointers
        if trees:
            names = (np.repeat(names * self._stride - pointers[:-1], sizes) + spans[:-1]) % MAX_MINIBATCHES
        seeds = Selection(names, spans, vertices, self.graph.n, None, None, when)
        sampled = self.sampler.sample_bulk(self.adjacency, seeds, self.stream, epoch)
        outs = [arranged(self.graph, one, self._hops) for one in sampled]
        if trees:
            outs = [side_by_side(outs[first:last]) for first, last in pairwise(pointers)]
        return [self._output(out) for out in outs]

    def _output(self, out: HeteroSamplerOutput) -> Sampled:
        """Return a mini-batch in the form of the subgraph that was asked for, without types if the graph has none."""
        if self.subgraph_type == SubgraphType.induced and self._hops is not None:
            out = induced(self._edges, out, self.adjacency.backend)
        made: Any = out
        out.metadata = out.metadata or None
        if not self._typed:
            made = SamplerOutput(
                **{name: next(iter(part.values()), None) if isinstance(part, dict) else part for name, part in vars(out).items()}
            )
        return made.to_bidirectional() if self.subgraph_type == SubgraphType.bidirectional else made


class HGTSampler(BulkSampler):
    """HGSampling of torch_geometric's graphs: every hop draws vertices of each type by their budgets, and all edges among them are kept.

    Parameters
    ----------
    data : HeteroData, or a (FeatureStore, GraphStore) pair with types
    num_samples : list of int, or dict of such by vertex type
        See `HGSampler`.
    seed, backend, comm
        See `BulkSampler`.

    Raises
    ------
    UsageError
        If the graph has no types, or `num_samples` does not name each of them.
    DataError
        If edges are malformed.
    """

    @made_together
    def __init__(
        self, data: Any, num_samples: Sequence[int] | Mapping[str, Sequence[int]], *, seed: int | None = None, backend: str = "auto",
        comm: Comm | None = None,
    ) -> None:  # fmt: skip
        if not has_types(data):
            raise UsageError(f"HGSampling draws from each vertex type; got a {type(data).__name__} without types; use a HeteroData")
        self._hold(data, seed, backend, comm)
        self.subgraph_type, self.disjoint, self._hops = SubgraphType.induced, False, None
        self.sampler = HGSampler(num_samples)
        self._check(backend)

    def sample_edges(
        self, inputs: list[EdgeSamplerInput], negatives: NegativeSampling | None, ids: Sequence[int], epoch: int
    ) -> list[Sampled]:
        """Raise `UsageError`: HGSampling begins at vertices, here as in torch_geometric."""
        raise UsageError("HGSampling begins at vertices; use HGTLoader, or another sampler for links")


def _of_hops(num_neighbors: Any) -> Any:
    """Return the fanouts of the hops of a graph without types."""
    values = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
    if isinstance(values, dict):
        raise UsageError("num_neighbors was given by edge type; use a list with a number for each hop")
    return values


def _of_relations(num_neighbors: Any, relations: list[Key]) -> tuple[dict[Key, tuple[int, ...]], int]:
    """Return the fanouts of each relation, and the number of hops; without hops, one that draws nothing."""
    try:
        given = num_neighbors if isinstance(num_neighbors, NumNeighbors) else NumNeighbors(num_neighbors)
        values = given._get_values(relations)
    except (ValueError, AssertionError) as error:
        named = ", ".join(map(str, relations))
        raise UsageError(f"num_neighbors: {str(error) or f'got a {type(num_neighbors).__name__}'}; the edge types are {named}") from None
    hops = len(next(iter(values.values()), getattr(given, "values", [])))
    return {key: whole_fanouts(fanouts) or (0,) for key, fanouts in values.items()}, hops


def _block_rows(matrix: CSR, comm: Comm, replication: int, backend: Backend) -> OwnerAdjacency:
    """Distribute A in even block rows on a p/c x c grid, with the `owner` policy. Collective; each rank samples its own rows."""
    grid = ProcessGrid(comm, replication)
    layout = Layout.even(matrix.shape[0], grid.rows)
    first, last = (int(bound) for bound in layout.bounds[grid.row : grid.row + 2])
    rows = slice(matrix.indptr[first], matrix.indptr[last])
    values = None if matrix.values is None else matrix.values[rows]
    block = CSR(matrix.indptr[first : last + 1] - matrix.indptr[first], matrix.indices[rows], values, (last - first, matrix.shape[1]))
    return OwnerAdjacency(grid, block, backend, layout)
