"""GraphSAGE over relations with the age of every row, as RelBench's baseline has it, on torch_geometric's layers.

    x_v = linear(columns) + embedding of each category + linear(sinusoids of t - time_v)
    h_D = LayerNorm(relu(sum over r into D of SAGE_r(mean)))            twice;  then a head on the seeds

Robinson et al., "RelBench: a benchmark for deep learning on relational databases", NeurIPS 2024, without the ResNet of torch_frame.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.utils import trim_to_layer

import bulksample as bs

DAY = 86400


class Inputs(nn.Module):
    """The input of one vertex type: its numbers, its categories, and its age for the seed that asks."""

    def __init__(self, kind: bs.VertexType, channels: int) -> None:
        super().__init__()
        self.numbers = nn.Linear(kind.num_features, channels) if kind.num_features else None
        self.codes = {name: np.asarray(column) for name, column in kind.extra.items() if column.ndim == 1 and column.dtype.kind == "i"}
        self.categories = nn.ModuleDict({name: nn.Embedding(int(c.max()) + 2, channels) for name, c in self.codes.items()})
        self.age = nn.Linear(channels, channels) if kind.times is not None else None
        self.times = kind.times
        self.constant = nn.Parameter(torch.zeros(channels))
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, channels, 2) / channels))

    def forward(self, vertices: np.ndarray, x: torch.Tensor | None, asked: np.ndarray) -> torch.Tensor:
        out = self.constant.expand(len(vertices), -1)
        if self.numbers is not None and x is not None:
            out = out + self.numbers(x)
        for name, embedding in self.categories.items():
            out = out + embedding(torch.from_numpy(self.codes[name][vertices] + 1))
        if self.age is not None and self.times is not None:
            days = torch.from_numpy((asked - self.times[vertices]) / DAY).float()[:, None] * self.rates
            out = out + self.age(torch.cat([days.sin(), days.cos()], 1))
        return out


class RelationalSAGE(nn.Module):
    """L layers of GraphSAGE summed over relations, and a linear head on the seeds."""

    def __init__(self, graph: bs.Graph, entity: str, channels: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.entity = entity
        self.inputs = nn.ModuleDict({kind.name: Inputs(kind, channels) for kind in graph.types})
        into = {relation.destination for relation in graph.relations}
        self.layers = nn.ModuleList(
            HeteroConv({relation.key: SAGEConv((channels, channels), channels) for relation in graph.relations}) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.ModuleDict({name: nn.LayerNorm(channels) for name in into}) for _ in range(layers))
        self.head = nn.Linear(channels, 1)

    def forward(self, batch: bs.Batch) -> torch.Tensor:
        """Return one number for each seed, in their order: shape (b,)."""
        rows = batch.minibatch.rows
        asked = rows[self.entity].seed_times
        assert asked is not None  # the seeds were given with times, all of one type
        x = {}
        for name, part in rows.items():
            assert part.trees is not None
            x[name] = self.inputs[name](part.vertices, batch.x.get(name), asked[part.trees])
        edges = batch.edge_index_dict
        nodes = {name: part.num_sampled for name, part in rows.items()}
        hops = {key: batch.minibatch.num_sampled_edges(key) for key in edges}
        for place, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            x, edges, _ = trim_to_layer(place, nodes, hops, x, edges)
            x = x | {name: norm[name](h).relu() for name, h in layer(x, edges).items()}
        return self.head(x[self.entity][batch.seed_rows[self.entity]])[:, 0]
