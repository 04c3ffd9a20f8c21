"""Read a DGLGraph as a `Graph`, and make DGL's blocks of mini-batches by type and relation; a graph of one type has one relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...errors import UsageError
from ...graph import Graph, Key, VertexType
from ...graph.minibatch import MiniBatch
from ...graph.types import relation_from_edges
from ...samplers import LayerWise, NodeWise, Sampler
from .. import require
from ..tensors import FeatureGather, can_gather, weights_of_edges
from .samplers import BlockSampler

INSTALL = "use a build of DGL for the installed torch: https://www.dgl.ai/pages/start.html"
_ONLY: Key = ("_N", "_E", "_N")  # DGL's names of the only type and relation of a graph


def is_plain(graph: Any) -> bool:
    """Return True for a DGLGraph of one type and one relation; raises `UsageError` for anything that is no DGLGraph."""
    if not hasattr(graph, "is_homogeneous"):
        raise UsageError(f"graph: got a {type(graph).__name__}; use a DGLGraph")
    return bool(graph.is_homogeneous)


def read_graph(graph: Any, prob: str | None) -> Graph:
    """Return the types and relations of a DGLGraph, with the edge feature `prob` as weights where a relation has it."""
    if is_plain(graph):
        types, columns = {_ONLY[0]: int(graph.num_nodes())}, {_ONLY: graph.edata}
        ends = {_ONLY: graph.edges(order="eid")}
    else:
        types = {kind: int(graph.num_nodes(kind)) for kind in graph.ntypes}
        columns = {tuple(key): graph.edges[key].data for key in graph.canonical_etypes}
        ends = {key: graph.edges(etype=key, order="eid") for key in columns}
    if prob is not None and not any(prob in data for data in columns.values()):
        if len(columns) > 1:
            raise UsageError(f"no relation has an edge feature {prob!r}; use a feature of some edges, or leave prob out")
        raise UsageError(f"the graph has no edge feature {prob!r}; it has {', '.join(*columns.values()) or 'none'}")
    made, relations = {name: VertexType(name, count) for name, count in types.items()}, []
    for key, data in columns.items():
        source, destination = (end.cpu().numpy().astype(np.int64) for end in ends[key])
        weights = weights_of_edges(str(prob), data.get(prob), len(source))
        relations.append(relation_from_edges(made[key[0]], key[1], made[key[2]], source, destination, weights=weights))
    return Graph.of(tuple(made.values()), tuple(relations), "heterograph")


def typed_sampler(graph: Any, block_sampler: BlockSampler) -> Sampler:
    """Return the sampler on relations; raises `UsageError` if fanouts by edge type leave one out, or are given for whole layers."""
    base, name = block_sampler.sampler, type(block_sampler).__name__
    if isinstance(base, LayerWise):
        if block_sampler.by_type is not None:
            raise UsageError(f"{name} draws vertices of all types together; use a number for every layer")
        return base
    if not isinstance(base, NodeWise) or not base.draws_by_row:
        raise UsageError(
            f"{name} works on one relation; on a heterograph use NeighborSampler, LaborSampler, LadiesSampler or FastGCNSampler"
        )
    if block_sampler.by_type is None:
        return replace(base, entries=True)
    hops = []
    for hop in block_sampler.by_type:
        counts = {tuple(graph.to_canonical_etype(key)): int(count) for key, count in hop.items()}
        missing = [key for key in map(tuple, graph.canonical_etypes) if key not in counts]
        if missing:
            raise UsageError(f"fanouts name no edge type {missing[0]}; name every edge type of the graph")
        hops.append(counts)
    fanouts: dict[Key, tuple[int, ...]] = {tuple(key): tuple(hop[tuple(key)] for hop in hops) for key in graph.canonical_etypes}
    return replace(base, of_relations=fanouts, entries=True)


class Blocks:
    """Makes DGL's blocks of the mini-batches of a DGLGraph, whose `relations` are those of `read_graph`.

    `prefetch` names vertex features, or has a dict of such by type. Those that `FeatureGather` can gather are gathered; others are sliced
    when they are read.
    """

    def __init__(self, graph: Any, relations: Graph, prefetch: Any) -> None:
        self._graph, self._relations, self._gather = graph, relations, FeatureGather()
        self._features = list(_features(graph, prefetch))

    def of(self, minibatch: MiniBatch) -> tuple[Any, Any, list[Any]]:
        """Return the input vertices and the seeds, by type if there are several, and the blocks from the input to the output."""
        vertices = {name: self._ids(part.vertices) for name, part in minibatch.rows.items()}
        blocks = [self._block(minibatch, layer, vertices) for layer in range(len(minibatch.blocks))]
        for name, feature, values in self._features:
            blocks[0].srcnodes[name].data[feature] = self._gather(values, minibatch.rows[name].vertices)
        sizes = {name: part.sizes for name, part in minibatch.rows.items()}
        inputs = {name: ids[: sizes[name][-1]] for name, ids in vertices.items()}
        seeds = {name: ids[: sizes[name][0]] for name, ids in vertices.items() if sizes[name][0]}
        return (*(next(iter(ids.values())) for ids in (inputs, seeds)), blocks) if is_plain(self._graph) else (inputs, seeds, blocks)

    def _block(self, minibatch: MiniBatch, layer: int, vertices: Mapping[str, Any]) -> Any:
        """Make a block with the ids of its vertices and edges; features of the graph are sliced when they are read."""
        dgl = require("dgl", None, INSTALL)
        graph, hop, entries = self._graph, len(minibatch.blocks) - 1 - layer, minibatch.entries
        assert entries is not None  # the sampler was asked for them
        sizes = {name: (int(part.sizes[hop + 1]), int(part.sizes[hop])) for name, part in minibatch.rows.items()}
        none, data, edges, weights = torch.empty(0, dtype=graph.idtype), {}, {}, {}
        for relation in self._relations.relations:
            block = minibatch.blocks[layer][relation.key]
            data[relation.key] = ("csc", (self._ids(block.indptr), self._ids(block.indices), none))
            edges[relation.key] = self._ids(relation.ids_of(entries[layer][relation.key])).to(graph.device)
            if block.weights is not None:
                weights[relation.key] = torch.from_numpy(np.array(block.weights)).to(graph.device)
        counts = ({name: size[end] for name, size in sizes.items()} for end in (0, 1))
        made = dgl.create_block(data, *counts, idtype=graph.idtype, device=graph.device)
        sources, destinations = ({name: vertices[name][: size[end]].to(graph.device) for name, size in sizes.items()} for end in (0, 1))
        types, keys = [kind.name for kind in self._relations.types], list(edges)  # in the order of the DGLGraph
        nodes = dgl.utils.extract_node_subframes_for_block(graph, [sources[name] for name in types], [destinations[name] for name in types])
        frames = dict(zip(keys, dgl.utils.extract_edge_subframes(graph, list(edges.values())), strict=True))
        ordered = [nodes[types.index(name)] for name in made.srctypes] + [nodes[len(types) + types.index(name)] for name in made.dsttypes]
        dgl.utils.set_new_frames(made, node_frames=ordered, edge_frames=[frames[tuple(key)] for key in made.canonical_etypes])
        for name in types:
            made.srcnodes[name].data[dgl.NID], made.dstnodes[name].data[dgl.NID] = sources[name], destinations[name]
        for column, values in ((dgl.EID, edges), ("weight", weights)):
            for key, of_edges in values.items():
                made.edges[key].data[column] = of_edges
        return made

    def _ids(self, numbers: np.ndarray) -> Any:
        return torch.from_numpy(numbers.astype(np.int64)).to(self._graph.idtype)


def _features(graph: Any, wanted: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the type, the name and the values of each feature to gather; raises `UsageError` for one that a type, or any, does not have."""
    columns = {_ONLY[0]: graph.ndata} if is_plain(graph) else {kind: graph.nodes[kind].data for kind in graph.ntypes}
    named = wanted.items() if isinstance(wanted, Mapping) else [(None, wanted)]
    for kind, names in named:
        of_types = columns if kind is None else {kind: columns[kind]} if kind in columns else {}
        known = {name for data in of_types.values() for name in data}
        for name in [names] if isinstance(names, str) else names:
            if name not in known:
                of = f"type {kind!r}" if kind else "the graph"
                raise UsageError(f"{of} has no vertex feature {name!r}; it has {', '.join(sorted(known)) or 'none'}")
            yield from ((one, name, data[name]) for one, data in of_types.items() if name in data and can_gather(data[name]))
