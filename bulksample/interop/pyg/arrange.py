"""Convert mini-batches to the layout of torch_geometric: per type, seeds in their order, then hop by hop; one list of edges a relation.

All vertices and all edges of a hop stand together, so `trim_to_layer` can cut off the last hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.sampler import HeteroSamplerOutput

from ...backends.base import Backend
from ...graph import Graph
from ...graph.minibatch import MiniBatch, TypeRows
from ...graph.selection import Selection
from ...sparse import row_pointers, runs
from ..edge_graph import EdgeGraph


class _Order(NamedTuple):
    """The vertices of a type as torch_geometric lists them: a repeated seed stands in the list as often as it was asked for."""

    order: np.ndarray | None  # int64, shape (N + r,): positions in the vertices of the mini-batch; None: as they are
    place: np.ndarray | None  # int64, shape (N,): the first position of each vertex in `order`
    held: np.ndarray  # int64, shape (L + 1,): vertices before the first hop and after each


def arranged(graph: Graph, minibatch: MiniBatch, hops: int | None) -> HeteroSamplerOutput:
    """Return a mini-batch of the frontier rule ``new`` with every type and every relation of its graph, met or not.

    `hops` is the number of hops that count in it; None stands for a subgraph whose edges belong to no hop, so there are no counts.
    `metadata` holds the weights of the edges of each relation that has some.
    """
    orders = {name: _order_of(part) for name, part in minibatch.rows.items()}
    disjoint = any(part.trees is not None for part in minibatch.rows.values())
    out = HeteroSamplerOutput({}, {}, {}, {}, {} if disjoint else None, *((None, None) if hops is None else ({}, {})), metadata={})
    assert minibatch.entries is not None
    for name, part in minibatch.rows.items():
        listed = orders[name]
        out.node[name] = _tensor(part.vertices, listed.order)
        if out.num_sampled_nodes is not None and hops is not None:
            out.num_sampled_nodes[name] = np.diff(listed.held, prepend=0)[: hops + 1].tolist()
        if out.batch is not None:
            assert part.trees is not None
            out.batch[name] = _tensor(part.trees, listed.order)
    for relation in graph.relations:
        key, block = relation.key, minibatch.blocks[0][relation.key]
        into, place, entry, pointers = orders[key[2]], orders[key[0]].place, None, block.indptr
        if into.order is not None:
            rows = into.order if hops is None else into.order[: into.held[-2]]  # those that were expanded
            sizes = np.diff(block.indptr)[rows]
            entry, pointers = runs(block.indptr[rows], sizes), row_pointers(sizes)
        columns = block.indices if entry is None else block.indices[entry]
        out.row[key] = _tensor(columns) if place is None else torch.from_numpy(place[columns])
        out.col[key] = torch.from_numpy(np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)))
        out.edge[key] = _tensor(relation.ids_of(_taken(minibatch.entries[0][key], entry)))
        if block.weights is not None:
            out.metadata[key] = torch.from_numpy(np.array(_taken(block.weights, entry)))
        if out.num_sampled_edges is not None and hops is not None:
            out.num_sampled_edges[key] = np.diff(pointers[np.concatenate([[0], into.held[:-1]])])[:hops].tolist()
    return out


def _order_of(part: TypeRows) -> _Order:
    repeated = len(part.seeds) - int(part.sizes[0])
    if not repeated:
        return _Order(None, None, part.sizes)
    order = np.concatenate([part.seed_rows.astype(np.int64), np.arange(part.sizes[0], len(part.vertices))])
    place = np.empty(len(part.vertices), np.int64)
    place[order[::-1]] = np.arange(len(order))[::-1]
    return _Order(order, place, part.sizes + repeated)


def _taken(array: np.ndarray, entry: np.ndarray | None) -> np.ndarray:
    return array if entry is None else array[entry]


def _tensor(array: np.ndarray, entry: np.ndarray | None = None) -> torch.Tensor:
    """Return a copy of an array, or of some entries of it, as int64."""
    return torch.from_numpy(np.array(_taken(array, entry), np.int64))


def induced(edges: Sequence[EdgeGraph], out: HeteroSamplerOutput, backend: Backend) -> HeteroSamplerOutput:
    """Return the vertices of an output with every edge among them; of disjoint trees, with every edge within a tree. Weight 0 is no edge.

    Reads the whole rows of the vertices. Hops have no edges of their own then, so there are no counts.
    """
    whole = HeteroSamplerOutput(out.node, {}, {}, {}, out.batch)
    trees = 1 + max((int(owners.max()) for owners in (out.batch or {}).values() if len(owners)), default=0)
    for graph in edges:
        relation, matrix = graph.relation, graph.matrix
        into, rows = _by_tree(out, relation.destination, trees, matrix.shape[0])
        outof, columns = _by_tree(out, relation.source, trees, matrix.shape[1], distinct=True)
        kept = backend.restrict(matrix, into, outof)
        sizes = np.diff(kept.pointers)
        local = columns[np.repeat(outof.pointers[into.minibatch_of_row()], sizes) + kept.columns]
        back = np.argsort(rows)
        entry = runs(kept.pointers[back], sizes[back])
        row, col, entries = local[entry], np.repeat(np.arange(len(rows)), sizes[back]), kept.entries[entry]
        if graph.pointers is not None:
            entries, copies, _ = graph.edges_of(entries)
            row, col = np.repeat(row, copies), np.repeat(col, copies)
        elif matrix.values is not None:
            weighs = matrix.values[entries] > 0
            row, col, entries = row[weighs], col[weighs], entries[weighs]
        whole.row[relation.key], whole.col[relation.key] = torch.from_numpy(row), torch.from_numpy(col)
        whole.edge[relation.key] = _tensor(relation.ids_of(entries))
    return whole


def _by_tree(out: HeteroSamplerOutput, name: str, trees: int, n: int, distinct: bool = False) -> tuple[Selection, np.ndarray]:
    """Return the vertices of a type tree by tree, and their positions in the output; a repeated seed once if they must be `distinct`."""
    nodes = out.node[name].numpy()
    if out.batch is not None:
        owner = out.batch[name].numpy()
        order, pointers = np.argsort(owner, kind="stable"), row_pointers(np.bincount(owner, minlength=trees))
    else:
        order = np.sort(np.unique(nodes, return_index=True)[1]) if distinct else np.arange(len(nodes))
        pointers = np.array([0, len(order)])
    return Selection(np.arange(trees), pointers, nodes[order].astype(np.int32), n), order


def side_by_side(outs: Sequence[HeteroSamplerOutput]) -> HeteroSamplerOutput:
    """Merge trees that were sampled as mini-batches of their own, hop by hop."""
    made = HeteroSamplerOutput({}, {}, {}, {}, {}, {}, {}, metadata={})
    places, firsts = {}, {}
    for name in outs[0].node:
        made.num_sampled_nodes[name], order = _hop_by_hop([out.num_sampled_nodes[name] for out in outs])
        firsts[name] = row_pointers([len(out.node[name]) for out in outs])
        made.node[name] = torch.cat([out.node[name] for out in outs])[order]
        made.batch[name] = torch.from_numpy(np.repeat(np.arange(len(outs)), np.diff(firsts[name]))[order])
        places[name] = torch.from_numpy(np.argsort(order))
    for key in outs[0].edge:
        made.num_sampled_edges[key], order = _hop_by_hop([out.num_sampled_edges[key] for out in outs])
        for end, name in (("row", key[0]), ("col", key[2])):
            local = torch.cat([getattr(out, end)[key] + int(first) for out, first in zip(outs, firsts[name], strict=False)])
            getattr(made, end)[key] = places[name][local[order]]
        made.edge[key] = torch.cat([out.edge[key] for out in outs])[order]
        if key in outs[0].metadata:
            made.metadata[key] = torch.cat([out.metadata[key] for out in outs])[order]
    return made


def _hop_by_hop(counts: list[list[int]]) -> tuple[list[int], np.ndarray]:
    """Return the totals of each hop, and the order that puts what stands tree by tree hop by hop."""
    hops = np.concatenate([np.repeat(np.arange(len(of_tree)), np.array(of_tree, np.int64)) for of_tree in counts])
    return [sum(of_tree) for of_tree in zip(*counts, strict=True)], np.argsort(hops, kind="stable")
