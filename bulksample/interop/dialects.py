"""A mini-batch in the format of torch_geometric or DGL: `Batch.to_pyg` and `Batch.to_dgl`.

Features, labels and edge features are the tensors of the batch. On a CPU the columns of a block are shared as well, so they must not
be written to; only an `edge_index` of int64 is made anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..errors import UsageError, instead_of
from ..graph import EDGE, NODE
from ..graph.minibatch import Block
from . import require
from .dgl.blocks import INSTALL
from .tensors import shared

EdgeLayout = Literal["edge_index", "EdgeIndex", "adj_t", "SparseTensor"]
RELATION = (NODE, EDGE, NODE)  # the only relation of a plain mini-batch


def to_pyg(batch: Any, layout: EdgeLayout = "edge_index") -> Any:
    """Return a `Batch` of tensors as a `torch_geometric.data.Data` or `HeteroData`; see `Batch.to_pyg`."""
    if layout not in get_args(EdgeLayout):
        raise UsageError(f"layout: got {layout!r}; {instead_of(str(layout), get_args(EdgeLayout))}")
    library, minibatch, device = require("torch_geometric.data", "pyg"), batch.minibatch, batch.device
    data = library.HeteroData() if batch.by_type else library.Data()

    def store(key: Any) -> Any:
        return data[key] if batch.by_type else data

    counts = not minibatch.subgraph
    _put_vertices(batch, store, counts)
    blocks, ids, attr = minibatch.layers, _column(batch, "e_id"), _column(batch, "edge_attr")
    weights = [{key: edge_weights(block, device) for key, block in layer.items()} for layer in blocks]
    for key in blocks[0] if counts else ():
        edge_counts = [layer[key].num_edges for layer in reversed(blocks)]
        store(key).num_sampled_edges = np.diff(edge_counts, prepend=0).tolist() if minibatch.nested else edge_counts
    if minibatch.nested:
        name = "edge_index" if layout in ("edge_index", "EdgeIndex") else "adj_t"
        for key, block in blocks[0].items():
            relation_store = store(key)
            relation_store[name] = edges_as(block, store(key[2]).num_nodes, layout, device)
            for column, values in (("e_id", ids), ("edge_attr", attr), ("edge_weight", weights)):
                if values[0].get(key) is not None:
                    relation_store[column] = values[0][key]
        return data
    adj = require("torch_geometric.loader.neighbor_sampler", "pyg").EdgeIndex
    adjs = [
        {
            key: adj(edges_as(block, block.num_destinations, layout, device), numbers.get(key), (block.num_sources, block.num_destinations))
            for key, block in layer.items()
        }
        for layer, numbers in zip(blocks, ids, strict=True)
    ]
    for name, layers in (("adjs", adjs), ("layer_edge_attr", attr), ("layer_edge_weight", weights)):
        if any(value is not None for value in layers[0].values()):
            data[name] = layers if batch.by_type else [layer[RELATION] for layer in layers]
    return data


def _put_vertices(batch: Any, store: Callable[[str], Any], counts: bool) -> None:
    """Put the vertices and the seeds of each type, and their columns, into its store; `counts` tells how many each hop found."""
    minibatch, device = batch.minibatch, batch.device
    seeds, x, y = (_by_type(batch, name) for name in ("seeds", "x", "y"))
    for name, ids in _by_type(batch, "vertices").items():
        type_store, part, distinct = store(name), minibatch.rows[name], 0
        type_store.n_id, type_store.num_nodes = ids, len(ids)
        if name in x:
            type_store.x = x[name]
        if name in seeds:
            first = np.unique(part.seed_rows, return_index=True)[1]  # a seed that repeats is one vertex
            distinct, each = len(first), slice(None) if len(first) == len(part.seeds) else torch.from_numpy(first).to(device)
            type_store.input_id, type_store.batch_size = seeds[name][each], distinct
            times = None if part.seed_times is None else shared(part.seed_times, device)
            columns = {"y": y.get(name), "seed_time": times, "seed_weight": batch.seed_weights}
            for column, value in columns.items():
                if value is not None:
                    type_store[column] = value[each]
        if part.trees is not None:
            type_store.batch = shared(part.trees, device).long()
        if counts:
            type_store.num_sampled_nodes = np.diff([distinct, *part.sizes[1:]], prepend=0).tolist()


def to_dgl(batch: Any) -> tuple[Any, Any, list[Any]]:
    """Return a `Batch` of tensors as DGL's ``(input_nodes, output_nodes, blocks)``; see `Batch.to_dgl`."""
    dgl, minibatch, device = require("dgl", None, INSTALL), batch.minibatch, batch.device
    made: list[Any] = []
    vertices, hops = {name: shared(part.vertices, device) for name, part in minibatch.rows.items()}, len(minibatch.layers)
    x, y, none = _by_type(batch, "x"), _by_type(batch, "y"), torch.empty(0, dtype=torch.int32, device=device)
    layers = zip(minibatch.layers, _column(batch, "e_id"), _column(batch, "edge_attr"), strict=True)
    for layer, (blocks, numbers, attr) in enumerate(layers):
        data = {
            key: ("csc", (shared(sampled.indptr.astype(np.int32), device), shared(sampled.indices, device), none))
            for key, sampled in blocks.items()
        }
        ends = (0, 0) if minibatch.subgraph else (layer, layer + 1)
        sources, destinations = ({name: int(part.sizes[hops - end]) for name, part in minibatch.rows.items()} for end in ends)
        if batch.by_type:
            block = dgl.create_block(data, sources, destinations)
        else:
            block = dgl.create_block(data[RELATION], sources[NODE], destinations[NODE])
        for name, ids in vertices.items():
            of_sources = block.srcnodes[name].data if batch.by_type else block.srcdata
            of_sources[dgl.NID], _destinations(batch, block, name)[dgl.NID] = ids[: sources[name]], ids[: destinations[name]]
            if not made and name in x:
                of_sources["feat"] = x[name]
        for key, sampled in blocks.items():
            of_edges = block.edges[key].data if batch.by_type else block.edata
            for column, value in ((dgl.EID, numbers.get(key)), ("feat", attr.get(key)), ("weight", edge_weights(sampled, device))):
                if value is not None:
                    of_edges[column] = value
        made.append(block)
    distinct = {name: int(part.sizes[0]) for name, part in minibatch.rows.items()}
    outputs = {name: ids[: distinct[name]] for name, ids in vertices.items() if distinct[name]}
    for name, seeds in _by_type(batch, "seeds").items():
        if destinations[name] == len(seeds) == distinct[name]:
            for column, value in (("label", y.get(name)), ("seed_weight", batch.seed_weights)):
                if value is not None:
                    _destinations(batch, made[-1], name)[column] = value
    return (vertices, outputs, made) if batch.by_type else (vertices[NODE], outputs[NODE], made)


def _destinations(batch: Any, block: Any, name: str) -> Any:
    """Return the data of the destinations of a type in a block of DGL."""
    return block.dstnodes[name].data if batch.by_type else block.dstdata


def _by_type(batch: Any, name: str) -> dict[str, Any]:
    """Return the vertices, the seeds or a column by type, empty if the graph lacks it; a plain mini-batch has one type."""
    if name in ("x", "y") and not batch.has(name):
        return {}
    value: dict[str, Any] = getattr(batch, name) if batch.by_type else {NODE: getattr(batch, name)}
    return value


def _column(batch: Any, name: str) -> list[dict[Any, Any]]:
    """Return a column of the edges of each layer by relation, without relations that lack it."""
    if not batch.has(name):
        return [{} for _ in batch.minibatch.layers]
    layers = getattr(batch, name)
    return list(layers) if batch.by_type else [{RELATION: values} for values in layers]


def edges_as(block: Block, rows: int, layout: EdgeLayout, device: torch.device) -> Any:
    """Return the edges of a block as torch_geometric has them, into `rows` destinations; those beyond the block's have no edge."""
    columns = shared(block.indices, device)
    if layout in ("edge_index", "EdgeIndex"):
        row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
        index = torch.stack([columns.long(), torch.from_numpy(row).to(device)])
        if layout == "edge_index":
            return index
        made = require("torch_geometric", "pyg").EdgeIndex
        return made(index, sparse_size=(block.num_sources, rows), sort_order="col")
    pointers = np.concatenate([block.indptr, np.full(rows - block.num_destinations, block.indptr[-1])])
    weights = edge_weights(block, device)
    if layout == "SparseTensor":
        kind = require("torch_sparse", None, "use layout adj_t, which needs no torch-sparse").SparseTensor
        whole = {"rowptr": torch.from_numpy(pointers).to(device), "col": columns.long(), "value": weights}
        return kind(**whole, sparse_sizes=(rows, block.num_sources), is_sorted=True)
    values = torch.ones(block.num_edges, device=device) if weights is None else weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its CSR layout beta
        start = torch.from_numpy(pointers.astype(np.int32)).to(device)
        return torch.sparse_csr_tensor(start, columns, values, size=(rows, block.num_sources), check_invariants=False)


def edge_weights(block: Block, device: torch.device) -> torch.Tensor | None:
    """Return the weights of the edges of a block; None if they are all alike."""
    return None if block.weights is None else shared(block.weights, device)
