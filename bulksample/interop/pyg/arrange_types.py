"""Convert a mini-batch of a heterogeneous graph to torch_geometric's layout: per type, seeds in their order, then hop by hop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.sampler import HeteroSamplerOutput

from ...graph import Graph
from ...relations.minibatch import HeteroMiniBatch, TypeRows
from ...sparse import row_pointers, runs


class _Order(NamedTuple):
    """The vertices of a type as torch_geometric lists them: a repeated seed stands in the list as often as it was asked for."""

    order: np.ndarray  # int64, shape (N + r,): positions in the vertices of the mini-batch
    place: np.ndarray  # int64, shape (N,): the first position of each vertex in `order`
    held: np.ndarray  # int64, shape (L + 1,): vertices before the first hop and after each


def arranged(graph: Graph, minibatch: HeteroMiniBatch, hops: int | None) -> HeteroSamplerOutput:
    """Return a mini-batch of the frontier rule ``new`` with every type and every relation of its graph, met or not.

    Edges stand hop by hop, so `trim_to_layer` can cut off the last hop. `hops` is the number of hops that count in it;
    None stands for a subgraph whose edges belong to no hop, so there are no counts.
    """
    orders = {name: _order_of(part) for name, part in minibatch.rows.items()}
    disjoint = any(part.trees is not None for part in minibatch.rows.values())
    out = HeteroSamplerOutput({}, {}, {}, {}, {} if disjoint else None, *((None, None) if hops is None else ({}, {})))
    assert minibatch.entries is not None
    for name, part in minibatch.rows.items():
        own = orders[name]
        out.node[name] = torch.from_numpy(part.vertices[own.order].astype(np.int64))
        if out.num_sampled_nodes is not None and hops is not None:
            out.num_sampled_nodes[name] = [int(count) for count in np.diff(own.held, prepend=0)][: hops + 1]
        if out.batch is not None:
            assert part.trees is not None
            out.batch[name] = torch.from_numpy(part.trees[own.order].astype(np.int64))
    for relation in graph.relations:
        key, block = relation.key, minibatch.blocks[0][relation.key]
        into, held = orders[key[2]], orders[key[2]].held
        rows = into.order if hops is None else into.order[: held[-2]]  # those that were expanded
        sizes = np.diff(block.indptr)[rows]
        entry = runs(block.indptr[rows], sizes)
        pointers = row_pointers(sizes)
        out.row[key] = torch.from_numpy(orders[key[0]].place[block.indices[entry]])
        out.col[key] = torch.from_numpy(np.repeat(np.arange(len(rows)), sizes))
        out.edge[key] = torch.from_numpy(np.array(relation.ids_of(minibatch.entries[0][key][entry]), np.int64))
        if out.num_sampled_edges is not None and hops is not None:
            out.num_sampled_edges[key] = [int(count) for count in np.diff(pointers[np.concatenate([[0], held[:-1]])])][:hops]
    return out


def induced(graph: Graph, out: HeteroSamplerOutput) -> HeteroSamplerOutput:
    """Return the vertices of an output with every edge among them; of disjoint trees, with every edge within a tree. Weight 0 is no edge.

    Reads the whole rows of the vertices. Hops have no edges of their own then, so there are no counts.
    """
    found = HeteroSamplerOutput(out.node, {}, {}, {}, out.batch)
    for relation in graph.relations:
        source, _, destination = relation.key
        matrix, into, sources = relation.adjacency, out.node[destination].numpy(), out.node[source].numpy()
        trees = [np.zeros(len(ids), np.int64) if out.batch is None else out.batch[end].numpy() for end, ids in
                 ((destination, into), (source, sources))]  # fmt: skip
        sizes = matrix.degrees[into]
        entries = runs(matrix.indptr[into], sizes)
        wanted = np.repeat(trees[0], sizes) * matrix.shape[1] + matrix.indices[entries]
        keys = trees[1] * matrix.shape[1] + sources
        order = np.argsort(keys, kind="stable")
        place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1) if len(keys) else np.zeros(len(wanted), np.int64)
        there = keys[order][place] == wanted if len(keys) else np.zeros(len(wanted), bool)
        kept = np.flatnonzero(there if matrix.values is None else there & (matrix.values[entries] > 0))
        found.row[relation.key] = torch.from_numpy(order[place[kept]])
        found.col[relation.key] = torch.from_numpy(np.repeat(np.arange(len(into)), sizes)[kept])
        found.edge[relation.key] = torch.from_numpy(np.array(relation.ids_of(entries[kept]), np.int64))
    return found


def _order_of(part: TypeRows) -> _Order:
    repeated = len(part.seeds) - int(part.sizes[0])
    order = np.concatenate([part.seed_rows.astype(np.int64), np.arange(part.sizes[0], len(part.vertices))])
    place = np.empty(len(part.vertices), np.int64)
    place[order[::-1]] = np.arange(len(order))[::-1]
    return _Order(order, place, part.sizes + repeated)
