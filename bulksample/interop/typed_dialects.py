"""A mini-batch of a heterogeneous graph in the format of torch_geometric or DGL: `HeteroBatch.to_pyg` and `HeteroBatch.to_dgl`."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import torch

from ..errors import UsageError, instead_of
from ..relations.minibatch import TypeRows
from . import require
from .dgl.loader import INSTALL
from .dialects import EdgeLayout, edge_weights, edges_as, shared


def to_pyg(batch: Any, layout: EdgeLayout) -> Any:
    """Return a mini-batch, a `TensorHeteroBatch`, as a `torch_geometric.data.HeteroData`; see `HeteroBatch.to_pyg`."""
    if layout not in get_args(EdgeLayout):
        raise UsageError(f"layout: got {layout!r}; {instead_of(str(layout), get_args(EdgeLayout))}")
    data, minibatch = require("torch_geometric.data", "pyg").HeteroData(), batch.batch.minibatch
    counts = not minibatch.subgraph
    for name, part in minibatch.rows.items():
        store = data[name]
        store.n_id, store.num_nodes = batch.vertices[name], len(part.vertices)
        if counts:
            store.num_sampled_nodes = part.num_sampled
        if name in batch.x_dict:
            store.x = batch.x_dict[name]
        if part.trees is not None:
            store.batch = shared(part.trees, batch.device).long()
        if len(part.seeds):
            own = torch.from_numpy(_first_of_each(part)).to(batch.device)
            store.input_id, store.batch_size = batch.seeds[name][own], len(own)
            if name in batch.y_dict:
                store.y = batch.y_dict[name][own]
            if part.seed_times is not None:
                store.seed_time = shared(part.seed_times, batch.device)[own]
    for key in minibatch.blocks[0] if counts else ():
        data[key].num_sampled_edges = minibatch.num_sampled_edges(key)
    if not minibatch.nested:
        adj, data.adjs = require("torch_geometric.loader.neighbor_sampler", "pyg").EdgeIndex, []
        for blocks, ids in zip(minibatch.blocks, batch.e_id, strict=True):
            edges = {key: edges_as(own, own.num_destinations, layout, batch.device) for key, own in blocks.items()}
            data.adjs.append({key: adj(edges[key], ids[key], (own.num_sources, own.num_destinations)) for key, own in blocks.items()})
        weights = [{key: edge_weights(own, batch.device) for key, own in blocks.items()} for blocks in minibatch.blocks]
        if any(one is not None for one in weights[0].values()):
            data.layer_edge_weight = weights
        if batch.edge_attr[0]:
            data.layer_edge_attr = list(batch.edge_attr)
        return data
    for key, block in minibatch.blocks[0].items():
        store = data[key]
        name = "edge_index" if layout in ("edge_index", "EdgeIndex") else "adj_t"
        store[name] = edges_as(block, len(minibatch.rows[key[2]].vertices), layout, batch.device)
        store.e_id = batch.e_id_dict[key]
        if key in batch.edge_attr_dict:
            store.edge_attr = batch.edge_attr_dict[key]
        if (weight := edge_weights(block, batch.device)) is not None:
            store.edge_weight = weight
    return data


def to_dgl(batch: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[Any]]:
    """Return a mini-batch, a `TensorHeteroBatch`, as DGL's ``(input_nodes, output_nodes, blocks)``; see `HeteroBatch.to_dgl`."""
    dgl, minibatch, made = require("dgl", None, INSTALL), batch.batch.minibatch, []
    vertices = {name: shared(part.vertices, batch.device) for name, part in minibatch.rows.items()}
    none, hops = torch.empty(0, dtype=torch.int32, device=batch.device), len(minibatch.blocks)
    for layer, blocks in enumerate(minibatch.blocks):
        data = {
            key: ("csc", (shared(own.indptr.astype(np.int32), batch.device), shared(own.indices, batch.device), none))
            for key, own in blocks.items()
        }
        ends = (0, 0) if minibatch.subgraph else (layer, layer + 1)
        sources, destinations = ({name: int(part.sizes[hops - end]) for name, part in minibatch.rows.items()} for end in ends)
        block = dgl.create_block(data, sources, destinations)
        for name, ids in vertices.items():
            block.srcnodes[name].data[dgl.NID], block.dstnodes[name].data[dgl.NID] = ids[: sources[name]], ids[: destinations[name]]
        for key, own in blocks.items():
            block.edges[key].data[dgl.EID] = batch.e_id[layer][key]
            if key in batch.edge_attr[layer]:
                block.edges[key].data["feat"] = batch.edge_attr[layer][key]
            if (weights := edge_weights(own, batch.device)) is not None:
                block.edges[key].data["weight"] = weights
        made.append(block)
    for name, x in batch.x_dict.items():
        made[0].srcnodes[name].data["feat"] = x
    outputs = {name: ids[: minibatch.rows[name].sizes[0]] for name, ids in vertices.items() if minibatch.rows[name].sizes[0]}
    for name, y in batch.y_dict.items():
        if made[-1].num_dst_nodes(name) == len(y) == len(outputs[name]):
            made[-1].dstnodes[name].data["label"] = y
    return vertices, outputs, made


def _first_of_each(part: TypeRows) -> np.ndarray:
    """Return the position of each distinct seed in the list of seeds, in the order of the vertices: int64."""
    return np.unique(part.seed_rows, return_index=True)[1]
