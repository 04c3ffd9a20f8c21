"""A sampler for torch_geometric: k mini-batches in one call, or one at a time for its `NodeLoader` and `LinkLoader`.

    from torch_geometric.loader import NodeLoader
    loader = NodeLoader(data, BulkSampler(data, [15, 10, 5]), batch_size=1024)

The sampler draws vertices and edges; the loader slices features.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, FeatureStore, GraphStore
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample

from ... import backends, samplers
from ...adjacency import Adjacency, LocalAdjacency
from ...backends.hops import Expansion
from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...rng import MAX_MINIBATCHES, Stream
from ...samplers import LayerWise
from ...selection import Selection
from ...sparse import row_pointers, runs
from ..edge_graph import expand_edges
from ..made_together import made_together
from .arrange import TreeBatch, arrange
from .bulk_sampler import Sampled, SamplerOfBulks
from .distribute_rows import distribute_rows
from .edge_lists import check_input, check_times, graph_of, num_nodes_of
from .negatives import SeededNegatives

LAWS = ("sage", "labor", "ladies", "fastgcn", "full")


class BulkSampler(SamplerOfBulks):
    """A sampler of mini-batches of a homogeneous graph.

    Parameters
    ----------
    data : torch_geometric.data.Data, or a (FeatureStore, GraphStore) pair
    num_neighbors : list of int
        Number of draws of each hop, from the seeds outwards; -1 takes all. An empty list leaves the seeds alone, without edges.
    sampler : {"sage", "labor", "ladies", "fastgcn", "full"}
    weight_attr : str, optional
        The edge attribute with the weights of draws. An edge of weight 0 is in no batch, also where all neighbors are taken, nor in an
        induced subgraph.
    replace, disjoint, subgraph_type
        See torch_geometric.
    seed : int, optional
        0 unless given.
    backend : {"auto", "native", "reference", "cuda"}
    comm : Comm, optional
        The ranks that share the mini-batches of a loader; all make this call, with equal arguments but for `backend`.
    grid : int, optional
        c: the adjacency lies in block rows on a p/c x c grid of ranks, and every call is collective.
    options
        Options of the sampler: `importance`, `debias`, `renormalise`, `layer_dependent`.

    Raises
    ------
    UsageError
        If the graph is heterogeneous or temporal, or options contradict each other. On all ranks of `comm`, if they were given other ones.

    Notes
    -----
    ``sage`` draws edges, so a fanout counts each of several parallel edges. The other samplers draw vertices, and a drawn vertex brings
    all its parallel edges. The batches of a `NodeLoader` lack the weights of layer-wise samplers; use `LadiesLoader` or `FastGCNLoader`.
    """

    @made_together
    def __init__(
        self,
        data: Data | tuple[FeatureStore, GraphStore],
        num_neighbors: Sequence[int] | NumNeighbors,
        *,
        sampler: str = "sage",
        replace: bool = False,
        weight_attr: str | None = None,
        disjoint: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        seed: int | None = None,
        backend: str = "auto",
        comm: Comm | None = None,
        grid: int | None = None,
        **options: Any,
    ) -> None:
        check_input(data, weight_attr)
        if sampler not in LAWS:
            raise UsageError(f"sampler must be one of {', '.join(LAWS)}; got {sampler!r}")
        if sampler != "sage" and replace:
            raise UsageError(f"replace is an option of sampler 'sage'; got {sampler!r}")
        hops = _fanouts(num_neighbors)
        if sampler == "full" and weight_attr is not None:  # all by weight
            sampler, hops = "sage", [-1] * len(hops)
        if sampler == "sage":
            options |= {"replace": replace, "weighted": weight_attr is not None}
        no_hops = isinstance(hops, Sized) and len(hops) == 0
        self.sampler = samplers.make(sampler, (0,) if no_hops else hops, frontier="new", **options)  # no hop: one that draws nothing
        self._hops = len(hops)
        self.subgraph_type, self.disjoint = SubgraphType(subgraph_type), disjoint
        self.num_nodes, self.stream, self.backend = num_nodes_of(data), Stream(0 if seed is None else seed), backend
        self.seeded = seed is not None
        self.graph = graph_of(data, weight_attr)
        self._by_edge = sampler == "sage" and self.graph.pointers is not None
        if grid is not None and comm is None:
            raise UsageError("got a grid without ranks; use comm=bulksample.distributed.comm.world.world()")
        if self._by_edge and grid is not None:
            raise UsageError("got a grid of ranks and a graph with parallel edges; use a coalesced graph")
        self.comm, self.grid = comm, grid
        self._adjacencies: dict[int | None, Adjacency] = {}  # by number of threads
        engine = backends.make(backend)  # also where ranks make the adjacency together: it fails on one of them alone
        if grid is None:
            self.sampler.check(LocalAdjacency(self.graph.matrix, engine, entries=True))

    @property
    def fingerprint(self) -> str:
        """See `SamplerOfBulks.fingerprint`."""
        return self.graph.matrix.fingerprint

    def connect(self) -> None:
        """Make the adjacency of ranks that share it; collective."""
        if self.grid is not None:
            self.sampler.check(self.adjacency)

    @property
    def num_neighbors(self) -> list[int]:
        """The draws of each hop, which `inference` of torch_geometric's models asks for."""
        return list(self.sampler.fanouts)[: self._hops]

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency that this process samples. Worker processes use one thread: they share the processors."""
        threads = None if torch.utils.data.get_worker_info() is None else 1
        if threads not in self._adjacencies:
            backend = backends.make(self.backend, threads)
            if self.comm is None or self.grid is None:
                self._adjacencies[threads] = LocalAdjacency(self.graph.matrix, backend, entries=True)
            else:
                self._adjacencies[threads] = distribute_rows(self.graph.matrix, self.comm, self.grid, backend)
        return self._adjacencies[threads]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a worker process, without back ends, which cannot be copied."""
        return {**self.__dict__, "_adjacencies": {}}

    @property
    def settings(self) -> dict[str, Any]:
        """See `SamplerOfBulks.settings`."""
        own = self.sampler.settings
        shape = {"subgraph_type": self.subgraph_type.value, "disjoint": self.disjoint}
        del own["fanouts"]
        return {"num_neighbors": self.num_neighbors, **own, **shape}

    def describe(self) -> dict[str, Any]:
        """Return what mini-batches depend on, for the state of a loader."""
        form = "disjoint " * self.disjoint + str(self.subgraph_type.value)
        return {"sampler": f"{self.sampler.identity} {form}", "graph": self.graph.matrix.fingerprint}

    def sample_nodes(self, inputs: list[NodeSamplerInput], ids: Sequence[int], epoch: int) -> list[Sampled]:
        """Sample a bulk of mini-batches; `metadata` ends with the weights of the edges, or None for the mean."""
        outputs = self.sample_trees([index.node.numpy() for index in inputs], ids, epoch)
        for index, out in zip(inputs, outputs, strict=True):
            check_times(input_time=index.time)
            out.metadata = (index.input_id, index.time, out.metadata)
        return outputs

    def sample_edges(
        self, inputs: list[EdgeSamplerInput], negatives: NegativeSampling | None, ids: Sequence[int], epoch: int
    ) -> list[Sampled]:
        """Sample a bulk of mini-batches of edges; negatives depend on (epoch, id, position) alone."""
        if isinstance(self.sampler, LayerWise):
            raise UsageError(f"links with sampler {self.sampler.name!r} would lose its weights; use a node-wise sampler")
        drawn = [None if negatives is None else SeededNegatives(negatives, self.stream, id, epoch) for id in ids]
        seed_lists: list[torch.Tensor] = []
        prepared = [self._edge_seeds(index, own, seed_lists) for index, own in zip(inputs, drawn, strict=True)]
        outputs = self.sample_trees([seed.numpy() for seed in seed_lists], ids, epoch)
        for out, metadata, index in zip(outputs, prepared, inputs, strict=True):
            out.metadata = metadata
            if out.batch is not None:
                out.batch = out.batch % len(index.row)
        return outputs

    def _edge_seeds(self, index: EdgeSamplerInput, negatives: NegativeSampling | None, seed_lists: list[torch.Tensor]) -> Any:
        """Append the seeds of a mini-batch of edges to `seed_lists`, and return its metadata; torch_geometric's code computes both."""
        check_times(edge_label_time=index.time)

        def nothing_yet(seed: torch.Tensor, _: Any) -> SamplerOutput:
            seed_lists.append(seed)
            return SamplerOutput(seed, seed, seed, None, batch=seed)

        return edge_sample(index, nothing_yet, self.num_nodes, self.disjoint, None, negatives).metadata

    def sample_trees(self, lists: list[np.ndarray], ids: Sequence[int], epoch: int) -> list[Sampled]:
        """Sample mini-batches from lists of seed vertices; `metadata` of each holds the weights of its edges."""
        disjoint = self.disjoint and all(len(seeds) for seeds in lists)
        trees = [np.atleast_1d(seed) for seeds in lists for seed in seeds] if disjoint else lists
        names = [_name_of_tree(id, i) for id, seeds in zip(ids, lists, strict=True) for i in range(len(seeds))] if disjoint else list(ids)
        selection = Selection.of(trees, self.num_nodes, np.array(names, np.int64))
        found = iter(self._expand(selection, epoch))
        sizes = [len(seeds) if disjoint else 1 for seeds in lists]
        return [self._output(arrange([next(found) for _ in range(size)]), disjoint) for size in sizes]

    def _expand(self, seeds: Selection, epoch: int) -> list[Expansion]:
        if self._by_edge:
            return expand_edges(self.graph, self.adjacency.backend, self.sampler, seeds, self.stream, epoch)  # type: ignore[arg-type]
        return self.sampler.expand(self.adjacency, seeds, self.stream, epoch)

    def _output(self, found: TreeBatch, disjoint: bool) -> SamplerOutput:
        induced = self.subgraph_type == SubgraphType.induced
        if induced:
            found, edges = self._induced(found)
        elif self._by_edge:
            assert found.carried is not None
            edges = found.carried
        else:
            entries = found.entries
            if entries is None:
                entries = self.adjacency.backend.locate(self.graph.matrix, found.rows, found.pointers, found.vertices[found.columns])
            found, edges = self._all_copies(found, entries)
        weights = None if found.carried is None or self._by_edge or induced else torch.from_numpy(np.ascontiguousarray(found.carried))
        destinations = np.repeat(np.arange(len(found.rows)), np.diff(found.pointers))
        out = SamplerOutput(
            node=torch.from_numpy(found.vertices.astype(np.int64)),
            row=torch.from_numpy(found.columns),
            col=torch.from_numpy(destinations),
            edge=torch.from_numpy(self.graph.user_edges(edges)),
            batch=torch.from_numpy(found.tree) if disjoint else None,
            num_sampled_nodes=None if induced else found.nodes_by_hop()[: self._hops + 1],
            num_sampled_edges=None if induced else found.edges_by_hop()[: self._hops],
            metadata=weights,
        )
        return out.to_bidirectional() if self.subgraph_type == SubgraphType.bidirectional else out

    def _all_copies(self, found: TreeBatch, entries: np.ndarray) -> tuple[TreeBatch, np.ndarray]:
        """Replace drawn entries by all their parallel edges, which share the weight of the entry."""
        if self.graph.pointers is None:
            return found, entries
        edges, counts, shares = self.graph.edges_of(entries)
        carried = None if found.carried is None else np.repeat(found.carried, counts) * shares
        return found.with_edges(counts, carried), edges

    def _induced(self, found: TreeBatch) -> tuple[TreeBatch, np.ndarray]:
        """Return all edges among the vertices of each tree; those of weight 0 are none."""
        order = np.argsort(found.tree, kind="stable")
        trees = row_pointers(np.bincount(found.tree))
        within = Selection(np.arange(len(trees) - 1), trees, found.vertices[order], self.num_nodes)
        kept = self.adjacency.backend.restrict(self.graph.matrix, within, within)
        sizes = np.diff(kept.pointers)
        local = order[np.repeat(trees[within.minibatch_of_row()], sizes) + kept.columns]
        back = np.argsort(order)
        entry = runs(kept.pointers[back], sizes[back])
        weighs = self.graph.matrix.entries()[kept.entries[entry]] > 0
        pointers, entry = row_pointers(weighs)[row_pointers(sizes[back])], entry[weighs]
        return self._all_copies(found._replace(pointers=pointers, columns=local[entry], carried=None), kept.entries[entry])


def _name_of_tree(minibatch: int, tree: int) -> int:
    """Return the mini-batch id of a disjoint tree; distinct for up to 2**20 mini-batches of 2**12 seeds, beyond that ids may repeat."""
    return (minibatch + (tree << 20)) % MAX_MINIBATCHES


def _fanouts(num_neighbors: Sequence[int] | NumNeighbors) -> Sequence[int]:
    values = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
    if isinstance(values, dict):
        raise UsageError("num_neighbors was given by edge type; use a list with a number for each hop")
    return values
