"""A mini-batch in the format of torch_geometric or DGL: `Batch.to_pyg` and `Batch.to_dgl`.

Features, labels and edge features are the tensors of the batch. On a CPU the columns of a block are shared as well, so they must not
be written to; only an `edge_index` of int64 is made anew.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..errors import UsageError, instead_of
from ..minibatch import Block
from . import require
from .dgl.loader import INSTALL

EdgeLayout = Literal["edge_index", "EdgeIndex", "adj_t", "SparseTensor"]


def to_pyg(batch: Any, layout: EdgeLayout = "edge_index") -> Any:
    """Return a mini-batch, a `TensorBatch`, as a `torch_geometric.data.Data`; see `Batch.to_pyg`."""
    if layout not in get_args(EdgeLayout):
        raise UsageError(f"layout: got {layout!r}; {instead_of(str(layout), get_args(EdgeLayout))}")
    data = require("torch_geometric.data", "pyg").Data()
    minibatch, rows, edges = batch.batch.minibatch, batch.batch.rows, batch.batch.edge_rows
    first = np.unique(minibatch.seed_rows, return_index=True)[1]  # a seed that repeats is one vertex
    own = slice(None) if len(first) == len(minibatch.seeds) else torch.from_numpy(first)
    data.n_id, data.input_id, data.batch_size, data.num_nodes = batch.vertices, batch.seeds[own], len(first), len(minibatch.vertices)
    if rows.has_features:
        data.x = batch.x
    if rows.has_labels:
        data.y = batch.y[own]
    if batch.seed_weights is not None:
        data.seed_weight = batch.seed_weights[own]
    blocks, outwards = minibatch.blocks, minibatch.blocks[::-1]
    data.num_sampled_nodes = np.diff([0, len(first), *(block.num_sources for block in outwards)]).tolist()
    ids = [None] * len(blocks) if edges.numbers is None else list(batch.e_id)
    attr = [None] * len(blocks) if edges.features is None else list(batch.edge_attr)
    if minibatch.nested:
        data.num_sampled_edges = np.diff([0, *(block.num_edges for block in outwards)]).tolist()
        name = "edge_index" if layout in ("edge_index", "EdgeIndex") else "adj_t"
        data[name] = edges_as(blocks[0], blocks[0].num_sources, layout, batch.device)
        found: dict[str, Any] = {"e_id": ids[0], "edge_attr": attr[0], "edge_weight": edge_weights(blocks[0], batch.device)}
    else:
        data.num_sampled_edges = [block.num_edges for block in outwards]
        adj = require("torch_geometric.loader.neighbor_sampler", "pyg").EdgeIndex
        sparse = [edges_as(block, block.num_destinations, layout, batch.device) for block in blocks]
        sizes = [(block.num_sources, block.num_destinations) for block in blocks]
        data.adjs = [adj(*one) for one in zip(sparse, ids, sizes, strict=True)]
        found = {"layer_edge_attr": attr, "layer_edge_weight": [edge_weights(block, batch.device) for block in blocks]}
        found = {name: parts for name, parts in found.items() if parts[0] is not None}
    for name, value in found.items():
        if value is not None:
            data[name] = value
    return data


def to_dgl(batch: Any) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
    """Return a mini-batch, a `TensorBatch`, as DGL's ``(input_nodes, output_nodes, blocks)``; see `Batch.to_dgl`."""
    dgl = require("dgl", None, INSTALL)
    minibatch, rows, edges = batch.batch.minibatch, batch.batch.rows, batch.batch.edge_rows
    vertices, made = shared(minibatch.vertices, batch.device), []
    for i, own in enumerate(minibatch.blocks):
        columns = shared(own.indices, batch.device)
        pointers = shared(own.indptr.astype(np.int32), batch.device)
        csc = ("csc", (pointers, columns, torch.empty(0, dtype=torch.int32, device=columns.device)))
        block = dgl.create_block(csc, own.num_sources, own.num_destinations)
        block.srcdata[dgl.NID], block.dstdata[dgl.NID] = vertices[: own.num_sources], vertices[: own.num_destinations]
        if edges.numbers is not None:
            block.edata[dgl.EID] = batch.e_id[i]
        if edges.features is not None:
            block.edata["feat"] = batch.edge_attr[i]
        if (weights := edge_weights(own, batch.device)) is not None:
            block.edata["weight"] = weights
        made.append(block)
    if rows.has_features:
        made[0].srcdata["feat"] = batch.x
    outputs = made[-1].num_dst_nodes()
    if rows.has_labels and outputs == len(minibatch.seeds):
        made[-1].dstdata["label"] = batch.y
    if batch.seed_weights is not None and outputs == len(minibatch.seeds):
        made[-1].dstdata["seed_weight"] = batch.seed_weights
    return vertices, vertices[:outputs], made


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


class _Unlocked:
    """Expose the memory of a read-only array to numpy as writable, and keep the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        interface = dict(array.__array_interface__)
        self.array, self.__array_interface__ = array, {**interface, "data": (interface["data"][0], False)}


def shared(array: np.ndarray, device: Any = "cpu") -> torch.Tensor:
    """Return an array as a tensor; on a CPU it shares its memory, also if the array is read-only (then do not write to it)."""
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Unlocked(array))).to(device)
