"""Mini-batches of DGL's heterographs: `RelationLoader` samples bulks over all relations, DGL makes blocks with types."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ... import backends
from ...errors import UsageError
from ...graph import Graph, Key, VertexType
from ...graph.from_edges import relation_from_edges
from ...loader import BulkLoader
from ...relations.adjacency import RelationAdjacency
from ...relations.layers import UnionSampler
from ...relations.loader import RelationLoader
from ...relations.minibatch import HeteroMiniBatch
from ...relations.sampler import RelationSampler, draws_by_row
from ...relations.seeds import SeedList
from ...samplers import LayerWise
from .samplers import BlockSampler, distinct_vertices


def relations_of(graph: Any, prob: str | None) -> Graph:
    """Return the types and relations of a heterograph, with the edge feature `prob` as weights where a relation has it."""
    types = {kind: VertexType(kind, int(graph.num_nodes(kind))) for kind in graph.ntypes}
    keys = [tuple(key) for key in graph.canonical_etypes]
    if prob is not None and not any(prob in graph.edges[key].data for key in keys):
        raise UsageError(f"no relation has an edge feature {prob!r}; use a feature of some edges, or leave prob out")
    relations = []
    for key in keys:
        source, destination = (ends.cpu().numpy().astype(np.int64) for ends in graph.edges(etype=key, order="eid"))
        data = graph.edges[key].data
        weights = data[prob].cpu().double().numpy().reshape(-1) if prob in data else None
        relations.append(relation_from_edges(types[key[0]], key[1], types[key[2]], source, destination, weights=weights))
    return Graph.of(tuple(types.values()), tuple(relations), "heterograph")


def typed_sampler(graph: Any, block_sampler: BlockSampler) -> RelationSampler | UnionSampler:
    """Return the sampler on relations; raises `UsageError` if fanouts by edge type leave one out, or are given for whole layers."""
    base = block_sampler.sampler
    if isinstance(base, LayerWise):
        if block_sampler.by_type is not None:
            raise UsageError(f"{type(block_sampler).__name__} draws vertices of all types together; use a number for every layer")
        return UnionSampler(base)
    if not draws_by_row(base):
        raise UsageError(
            f"{type(block_sampler).__name__} works on one relation; on a heterograph use NeighborSampler, LaborSampler, LadiesSampler or "
            "FastGCNSampler"
        )
    if block_sampler.by_type is None:
        return RelationSampler(base, entries=True)  # type: ignore[arg-type]  # it draws by row
    hops = []
    for hop in block_sampler.by_type:
        given = {tuple(graph.to_canonical_etype(key)): int(count) for key, count in hop.items()}
        missing = [key for key in map(tuple, graph.canonical_etypes) if key not in given]
        if missing:
            raise UsageError(f"fanouts name no edge type {missing[0]}; name every edge type of the graph")
        hops.append(given)
    fanouts: dict[Key, tuple[int, ...]] = {tuple(key): tuple(hop[tuple(key)] for hop in hops) for key in graph.canonical_etypes}
    return RelationSampler(base, fanouts, entries=True)  # type: ignore[arg-type]


class TypedBlocks:
    """Makes the loader of a heterograph, and DGL's blocks of its mini-batches.

    Parameters
    ----------
    graph : DGLGraph
    indices : dict of tensors of distinct vertices, or bool masks, by vertex type
    graph_sampler : BlockSampler
    backend : str
    **options
        Those of `BulkLoader`.
    """

    def __init__(self, graph: Any, indices: Any, graph_sampler: BlockSampler, backend: str, **options: Any) -> None:
        self._graph = graph
        if not isinstance(indices, Mapping):
            raise UsageError(
                f"indices: got a {type(indices).__name__}; the graph has types {', '.join(graph.ntypes)}: use {{type: vertices}}"
            )
        _check_features(graph, graph_sampler.features)
        self._relations = relations_of(graph, graph_sampler.prob)
        counts = {name: self._relations.type(name).count for name in indices}
        lists = {name: distinct_vertices(given, counts[name], f"indices of type {name!r}") for name, given in indices.items()}
        adjacency = RelationAdjacency(self._relations, backends.make(backend))
        seeds = SeedList.of(self._relations, lists)
        self.loader: BulkLoader = RelationLoader(adjacency, typed_sampler(graph, graph_sampler), seeds, **options)

    def blocks(self, found: HeteroMiniBatch) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
        """Return the input vertices and the seeds by type, and the blocks from the input to the output."""
        vertices = {name: self._ids(part.vertices) for name, part in found.rows.items()}
        blocks = [self._block(found, layer, vertices) for layer in range(len(found.blocks))]
        seeds = {name: vertices[name][: part.sizes[0]] for name, part in found.rows.items() if part.sizes[0]}
        return {name: ids[: found.rows[name].sizes[-1]] for name, ids in vertices.items()}, seeds, blocks

    def _block(self, found: HeteroMiniBatch, layer: int, vertices: Mapping[str, Any]) -> Any:
        """Make a block with the ids of its vertices and edges; features of the graph are sliced when they are read."""
        dgl: Any = importlib.import_module("dgl")
        graph, hop, entries = self._graph, len(found.blocks) - 1 - layer, found.entries
        assert entries is not None  # the sampler was asked for them
        held = {name: (int(part.sizes[hop + 1]), int(part.sizes[hop])) for name, part in found.rows.items()}
        none, data, edges, weights = torch.empty(0, dtype=graph.idtype), {}, {}, {}
        for relation in self._relations.relations:
            block = found.blocks[layer][relation.key]
            data[relation.key] = ("csc", (self._ids(block.indptr), self._ids(block.indices), none))
            edges[relation.key] = self._ids(relation.ids_of(entries[layer][relation.key])).to(graph.device)
            if block.weights is not None:
                weights[relation.key] = torch.from_numpy(block.weights).to(graph.device)
        counts = ({name: size[end] for name, size in held.items()} for end in (0, 1))
        made = dgl.create_block(data, *counts, idtype=graph.idtype, device=graph.device)
        sources, destinations = ({name: vertices[name][: size[end]].to(graph.device) for name, size in held.items()} for end in (0, 1))
        nodes = dgl.utils.extract_node_subframes_for_block(
            graph, [sources[name] for name in graph.ntypes], [destinations[name] for name in graph.ntypes]
        )  # fmt: skip
        lines = dgl.utils.extract_edge_subframes(graph, [edges[tuple(key)] for key in graph.canonical_etypes])
        place, types = {name: i for i, name in enumerate(graph.ntypes)}, len(graph.ntypes)
        line = {tuple(key): frame for key, frame in zip(graph.canonical_etypes, lines, strict=True)}
        ordered = [nodes[place[name]] for name in made.srctypes] + [nodes[types + place[name]] for name in made.dsttypes]
        dgl.utils.set_new_frames(made, node_frames=ordered, edge_frames=[line[tuple(key)] for key in made.canonical_etypes])
        for name in graph.ntypes:
            made.srcnodes[name].data[dgl.NID], made.dstnodes[name].data[dgl.NID] = sources[name], destinations[name]
        for key, ids in edges.items():
            made.edges[key].data[dgl.EID] = ids
        for key, values in weights.items():
            made.edges[key].data["weight"] = values
        return made

    def _ids(self, numbers: np.ndarray) -> Any:
        return torch.from_numpy(numbers.astype(np.int64)).to(self._graph.idtype)


def _check_features(graph: Any, wanted: Any) -> None:
    """Raise `UsageError` for a feature to prefetch that a type of vertices, or any, does not have."""
    named = wanted.items() if isinstance(wanted, Mapping) else [(None, wanted)]
    for kind, names in named:
        known = {name for one in ([kind] if kind else graph.ntypes) for name in graph.nodes[one].data}
        for name in [names] if isinstance(names, str) else names:
            if name not in known:
                of = f"vertices of type {kind!r} have" if kind else "the graph has"
                raise UsageError(f"{of} no vertex feature {name!r}; use {', '.join(sorted(known)) or 'a graph with one'}")
