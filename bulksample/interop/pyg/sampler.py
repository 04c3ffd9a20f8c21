"""A sampler for torch_geometric: k mini-batches in one call, or one at a time for its `NodeLoader` and `LinkLoader`.

    from torch_geometric.loader import NodeLoader
    loader = NodeLoader(data, BulkSampler(data, [15, 10, 5]), batch_size=1024)

The sampler draws vertices and edges; the loader slices features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Literal

from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from ... import samplers
from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...graph import Key
from ...graph.links import NonNeighbors
from ...samplers import LayerWise, NodeWise, whole_fanouts
from ...samplers.hgt import HGSampler
from ...samplers.time_rule import TimeRule
from ..edge_graph import EdgeSampler
from ..made_together import made_together
from .read_graph import check_plain, has_types
from .seed_sampler import STRIDE, Sampled, SeedSampler

LAWS = ("sage", "labor", "ladies", "fastgcn", "full")


class BulkSampler(SeedSampler):
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
    time_window : int, optional
        The length of the window of a seed, in units of time: nothing older than so much before its time is drawn, in any hop.
    replace, disjoint, subgraph_type
        See torch_geometric. Subgraphs in time are not induced.
    stride : int
        The most seeds of a mini-batch with disjoint subgraphs: tree i of mini-batch m has the name ``m * stride + i``.
    seed : int, optional
        By default that of torch, 0 if nobody has set it; see `default_seed`.
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

    @made_together
    def __init__(
        self, data: Any, num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]] | NumNeighbors, *, sampler: str = "sage",
        replace: bool = False, weight_attr: str | None = None, time_attr: str | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform", time_window: int | None = None, disjoint: bool = False,
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
        if time_window is not None and time_attr is None:
            raise UsageError("time_window was given without times of the graph; give time_attr too")
        rule = None if time_attr is None else TimeRule(strategy=temporal_strategy, window=time_window)
        self.subgraph_type, self.disjoint, self.grid, self._stride = _form(subgraph_type), disjoint or rule is not None, grid, stride
        if self.subgraph_type == SubgraphType.induced and rule is not None:
            raise UsageError("an induced subgraph would hold edges later than its seeds; use directional or bidirectional with time_attr")
        fanouts: Any = None
        draws: Any
        if relational:
            fanouts, hops = _of_relations(num_neighbors, [relation.key for relation in self.graph.relations])
            self.num_neighbors, draws = fanouts, [0] * hops
        else:
            draws = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
            if isinstance(draws, dict):
                raise UsageError("num_neighbors was given by edge type; use a list with a number for each hop")
            self.num_neighbors = draws
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
        self._check()


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
        self._check()

    def sample_edges(
        self, inputs: list[EdgeSamplerInput], negatives: NegativeSampling | None, ids: Sequence[int], epoch: int,
        others: NonNeighbors | None = None,
    ) -> list[Sampled]:  # fmt: skip
        """Raise `UsageError`: HGSampling begins at vertices, here as in torch_geometric."""
        raise UsageError("HGSampling begins at vertices; use HGTLoader, or another sampler for links")


def _form(subgraph_type: Any) -> SubgraphType:
    try:
        return SubgraphType(subgraph_type)
    except ValueError:
        forms = ", ".join(form.value for form in SubgraphType)
        raise UsageError(f"subgraph_type: got {subgraph_type!r}; use {forms}") from None


def _of_relations(num_neighbors: Any, relations: list[Key]) -> tuple[dict[Key, tuple[int, ...]], int]:
    """Return the fanouts of each relation, and the number of hops; without hops, one that draws nothing."""
    try:
        draws = num_neighbors if isinstance(num_neighbors, NumNeighbors) else NumNeighbors(num_neighbors)
        values = draws._get_values(relations)
    except (ValueError, AssertionError, TypeError) as error:
        named = ", ".join(map(str, relations))
        raise UsageError(f"num_neighbors: {str(error) or f'got a {type(num_neighbors).__name__}'}; the edge types are {named}") from None
    hops = len(next(iter(values.values()), getattr(draws, "values", [])))
    return {key: whole_fanouts(fanouts) or (0,) for key, fanouts in values.items()}, hops
