"""A sampler for torch_geometric on graphs with types or times: k mini-batches in one call.

from torch_geometric.loader import NodeLoader
loader = NodeLoader(data, TypedSampler(data, {("author", "writes", "paper"): [15, 10], ...}), ("paper", mask), batch_size=1024)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.sampler import EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample

from ... import backends
from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...graph.times import given_times
from ...relations.adjacency import RelationAdjacency, fingerprint_of
from ...relations.hgt import HGSampler
from ...relations.minibatch import HeteroMiniBatch
from ...relations.rule import TimeRule
from ...relations.sampler import RelationSampler
from ...relations.seeds import HeteroSeeds
from ...rng import Stream
from ...samplers import Sage, whole_fanouts
from ...sparse import row_pointers
from ..made_together import made_together
from .arrange_types import arranged, induced
from .bulk_sampler import Sampled, SamplerOfBulks
from .negatives import SeededNegatives
from .typed_graph import NODE, has_types, typed_graph

STRIDE = 4096  # the most seeds of a mini-batch with disjoint trees, where a loader does not say it
Lists = Mapping[str, np.ndarray]  # seeds, or their times, by type


class TypedSampler(SamplerOfBulks):
    """GraphSAGE on a heterogeneous graph, or in time.

    Parameters
    ----------
    data : HeteroData, Data, or a (FeatureStore, GraphStore) pair
    num_neighbors : list of int, dict of such by edge type, or NumNeighbors
        Number of draws of each hop, row and relation, from the seeds outwards; -1 takes all. A dict names every edge type.
    time_attr : str, optional
        The attribute with the times of vertices, or of edges. A neighbor or an edge later than its seed is never drawn; the seed's time
        is the bound in all hops. Subgraphs are then disjoint.
    temporal_strategy : {"uniform", "last"}
        ``last`` takes the newest neighbors.
    replace, disjoint, weight_attr, subgraph_type
        See torch_geometric. Subgraphs in time are not induced.
    stride : int
        The most seeds of a mini-batch with disjoint subgraphs.
    seed, backend
        See `BulkSampler`.

    Raises
    ------
    UsageError
        If an option or an attribute does not fit the graph.
    DataError
        If edges, weights or times are malformed.
    """

    @made_together
    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]] | NumNeighbors,
        *,
        replace: bool = False,
        weight_attr: str | None = None,
        time_attr: str | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        disjoint: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        stride: int = STRIDE,
        seed: int | None = None,
        backend: str = "auto",
        comm: Comm | None = None,
    ) -> None:
        self.graph = typed_graph(data, weight_attr, time_attr)
        self.stream, self.backend, self.comm, self.seeded = Stream(0 if seed is None else seed), backend, comm, seed is not None
        self._typed = has_types(data)
        self.subgraph_type = SubgraphType(subgraph_type)
        fanouts, hops = _fanouts(num_neighbors, [relation.key for relation in self.graph.relations])
        self._hops: int | None = hops
        time = None if time_attr is None else TimeRule(strategy=temporal_strategy)
        base = Sage((0,) * max(1, hops), frontier="new", replace=replace, weighted=weight_attr is not None)
        self.disjoint = disjoint or time is not None
        if self.subgraph_type == SubgraphType.induced and time is not None:
            raise UsageError("an induced subgraph would hold edges later than its seeds; use directional or bidirectional with time_attr")
        self.sampler: RelationSampler | HGSampler = RelationSampler(base, fanouts, time, self.disjoint, stride, entries=True)
        self._adjacencies: dict[int | None, RelationAdjacency] = {}
        self.sampler.check(self.adjacency)

    @property
    def adjacency(self) -> RelationAdjacency:
        """The relations that this process samples. Worker processes use one thread: they share the processors."""
        threads = None if torch.utils.data.get_worker_info() is None else 1
        if threads not in self._adjacencies:
            self._adjacencies[threads] = RelationAdjacency(self.graph, backends.make(self.backend, threads))
        return self._adjacencies[threads]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker process, without back ends, which cannot be copied."""
        return {**self.__dict__, "_adjacencies": {}}

    @property
    def by(self) -> Literal["vertices", "edges"] | None:
        """Which times count: those of vertices, those of edges, or none."""
        return None if self.sampler.time is None else self.adjacency.kind_of_times("auto")

    @property
    def fingerprint(self) -> str:
        """See `SamplerOfBulks.fingerprint`."""
        return fingerprint_of(self.graph)

    @property
    def num_nodes(self) -> int:
        """Number of vertices of a graph without types."""
        return self.graph.n

    @property
    def settings(self) -> dict[str, Any]:
        """See `SamplerOfBulks.settings`."""
        own, shape = self.sampler.settings, {"subgraph_type": self.subgraph_type.value, "disjoint": self.disjoint}
        if "fanouts of relations" not in own:
            return own | shape
        return {"num_neighbors": own.pop("fanouts of relations"), **own, **shape}

    def describe(self) -> dict[str, Any]:
        return {"sampler": f"{self.sampler.identity} {self.subgraph_type.value}", "graph": self.adjacency.fingerprint}

    def sample_nodes(self, inputs: list[NodeSamplerInput], ids: Sequence[int], epoch: int) -> list[Sampled]:
        """Sample a bulk of mini-batches; without `input_time` a seed is asked about at its own time."""
        lists, times = [], []
        for index in inputs:
            name = NODE if index.input_type is None else str(index.input_type)
            lists.append({name: index.node.numpy()})
            times.append({name: self._time_of(name, index)})
        outputs = self._outputs(lists, times, ids, epoch)
        for index, out in zip(inputs, outputs, strict=True):
            out.metadata = (index.input_id, index.time, None)
        return outputs

    def _time_of(self, name: str, index: NodeSamplerInput) -> np.ndarray | None:
        if self.sampler.time is None:
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
        """Sample a bulk of mini-batches of edges. With times of vertices a negative exists at the time of its edge."""
        lists: list[Lists] = []
        times: list[Mapping[str, np.ndarray | None]] = []
        metadata = []
        for index, id in zip(inputs, ids, strict=True):
            metadata.append(self._edge_seeds(index, self._negatives(negatives, index, id, epoch), lists, times))
        outputs = self._outputs(lists, times, ids, epoch)
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

    def _edge_seeds(self, index: EdgeSamplerInput, negatives: Any, lists: list[Any], times: list[Any]) -> Any:
        """Append the seeds of a mini-batch of edges and their times, and return its metadata; torch_geometric's code computes them."""

        def nothing_yet(seed: Any, time: Any) -> SamplerOutput | HeteroSamplerOutput:
            seeds, stamps = (seed, time) if isinstance(seed, dict) else ({NODE: seed}, {NODE: time})
            lists.append({name: ids.numpy() for name, ids in seeds.items()})
            known = stamps or {}
            times.append({name: None if known.get(name) is None else given_times("edge_label_time", known[name]) for name in seeds})
            if isinstance(seed, dict):
                return HeteroSamplerOutput(dict(seed), {}, {}, {}, batch=dict(seed))
            return SamplerOutput(seed, seed, seed, None, batch=seed)

        counts: Any = {kind.name: kind.count for kind in self.graph.types} if self._typed else self.graph.n
        if self.sampler.time is not None and index.time is None:
            raise UsageError("the edges need times; give edge_label_time")
        return edge_sample(index, nothing_yet, counts, self.disjoint, None, negatives).metadata

    def _outputs(
        self, lists: Sequence[Lists], times: Sequence[Mapping[str, np.ndarray | None]], ids: Sequence[int], epoch: int
    ) -> list[Sampled]:
        offsets = {kind.name: int(self.graph.offsets[place]) for place, kind in enumerate(self.graph.types)}
        parts = [offsets[name] + nodes.astype(np.int64) for seeds in lists for name, nodes in seeds.items()]
        stamps = [] if self.sampler.time is None else [stamp for of_batch in times for stamp in of_batch.values()]
        sizes = [sum(len(nodes) for nodes in seeds.values()) for seeds in lists]
        all_of = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int32)
        when = np.concatenate([np.empty(0, np.int64), *stamps]) if self.sampler.time is not None else None
        seeds = HeteroSeeds(np.array(ids, np.int64), row_pointers(sizes), all_of, self.graph.n, None, None, when)
        return [self._output(minibatch) for minibatch in self.sampler.sample_bulk(self.adjacency, seeds, self.stream, epoch)]

    def _output(self, minibatch: HeteroMiniBatch) -> Sampled:
        out = arranged(self.graph, minibatch, self._hops)
        if self.subgraph_type == SubgraphType.induced and self._hops is not None:
            out = induced(self.graph, out)
        if not self._typed:
            parts = [None if part is None else next(iter(part.values()), None) for part in vars(out).values()]
            plain = dict(zip(vars(out), parts, strict=True))
            out = SamplerOutput(**plain)
        return out.to_bidirectional() if self.subgraph_type == SubgraphType.bidirectional else out


def _fanouts(num_neighbors: Any, relations: list[Any]) -> tuple[dict[Any, tuple[int, ...]], int]:
    """Return the fanouts of each relation, and the number of hops; without hops, one that draws nothing."""
    try:
        given = num_neighbors if isinstance(num_neighbors, NumNeighbors) else NumNeighbors(num_neighbors)
        values = given._get_values(relations)
    except (ValueError, AssertionError) as error:
        named = ", ".join(map(str, relations))
        raise UsageError(f"num_neighbors: {str(error) or f'got a {type(num_neighbors).__name__}'}; the edge types are {named}") from None
    hops = len(next(iter(values.values()), getattr(given, "values", [])))
    return {key: whole_fanouts(fanouts) or (0,) for key, fanouts in values.items()}, hops
