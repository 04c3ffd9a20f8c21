"""R-GCN and HGT of torch_geometric's own layers, fed by our heterogeneous mini-batches.

    bulksample data make hetero --scale 0.001 --features 16 --classes 4 --seed 1 -o papers
    python examples/relational_layers.py papers --model hgt [--fanouts 10,5] [--epochs 3] [--json FILE]

Schlichtkrull et al., "Modeling relational data with graph convolutional networks", ESWC 2018; Hu et al., "Heterogeneous graph
transformer", WWW 2020. Types without features get a learned embedding. A graph with times is sampled from the past of each seed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import HGTConv, RGCNConv

import bulksample as bs


class Inputs(nn.Module):
    """Maps the features of each type to one width, or looks up the embeddings of a type without features."""

    def __init__(self, graph: bs.Graph, channels: int) -> None:
        super().__init__()
        made = [nn.Linear(k.num_features, channels) if k.num_features else nn.Embedding(k.count, channels) for k in graph.types]
        self.of_type = nn.ModuleList(made)

    def forward(self, batch: bs.Batch) -> dict[str, torch.Tensor]:
        pairs = zip(batch.vertices.items(), self.of_type, strict=True)
        return {name: own(batch.x.get(name, vertices)).relu() for (name, vertices), own in pairs}


class RGCN(nn.Module):
    """Two `RGCNConv` over one list of edges: vertices of all types one after another, and the number of its relation at each edge."""

    def __init__(self, graph: bs.Graph, channels: int, outputs: int) -> None:
        super().__init__()
        self.inputs, relations = Inputs(graph, channels), len(graph.relations)
        self.first, self.last = RGCNConv(channels, channels, relations, num_bases=4), RGCNConv(channels, outputs, relations, num_bases=4)

    def forward(self, batch: bs.Batch, target: str) -> torch.Tensor:
        x = self.inputs(batch)
        starts = dict(zip(x, np.cumsum([0, *(len(rows) for rows in x.values())]), strict=False))
        lists = [index + torch.tensor([[starts[key[0]]], [starts[key[2]]]]) for key, index in batch.edge_index_dict.items()]
        edges = torch.cat(lists, dim=1)
        kind = torch.arange(len(lists)).repeat_interleave(torch.tensor([part.shape[1] for part in lists]))
        h = self.first(torch.cat(list(x.values())), edges, kind).relu()
        return self.last(h, edges, kind)[starts[target] : starts[target] + len(x[target])]


class HGT(nn.Module):
    """Two `HGTConv` and a linear head."""

    def __init__(self, graph: bs.Graph, channels: int, outputs: int) -> None:
        super().__init__()
        schema = [kind.name for kind in graph.types], [relation.key for relation in graph.relations]
        self.inputs, self.head = Inputs(graph, channels), nn.Linear(channels, outputs)
        self.layers = nn.ModuleList(HGTConv(channels, channels, schema, heads=2) for _ in range(2))

    def forward(self, batch: bs.Batch, target: str) -> torch.Tensor:
        x, edges = self.inputs(batch), batch.edge_index_dict
        for layer in self.layers:
            x = x | {name: rows for name, rows in layer(x, edges).items() if rows is not None}
        return self.head(x[target])


def loader(graph: bs.Graph, target: str, split: str, fanouts: list[int], batch_size: int) -> bs.Loader:
    """Return the mini-batches of a split, each vertex at its time if the graph has times."""
    kind = graph.type(target)
    seeds = np.flatnonzero(kind.masks[split])
    times = None if kind.times is None else kind.times[seeds]
    return bs.Loader(
        graph, "sage", fanouts, seeds=(target, seeds), times=times, batch_size=batch_size, shuffle=split == "train", frontier="new"
    )  # fmt: skip


def seed_logits(model: nn.Module, batch: bs.Batch, target: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits and the labels of the seeds, in their order."""
    return model(batch, target)[batch.seed_rows[target]], batch.y[target]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the store of a heterogeneous graph")
    parser.add_argument("--model", choices=["rgcn", "hgt"], default="hgt")
    parser.add_argument("--fanouts", default="10,5")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the losses and scores")
    options = parser.parse_args()
    torch.manual_seed(0)
    graph = bs.load(options.folder)
    target = next(kind for kind in graph.types if kind.labels is not None)
    fanouts = [int(s) for s in options.fanouts.split(",")]
    model = {"rgcn": RGCN, "hgt": HGT}[options.model](graph, 32, target.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    train, test = (loader(graph, target.name, split, fanouts, 256) for split in ("train", "test"))
    history = []
    for epoch in range(options.epochs):
        losses, right = [], []
        for batch in train:
            logits, labels = seed_logits(model, batch, target.name)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        with torch.no_grad():
            right = [logits.argmax(1) == labels for logits, labels in (seed_logits(model, batch, target.name) for batch in test)]
        history.append({"loss": float(np.mean(losses)), "test_accuracy": float(torch.cat(right).float().mean())})
        print(f"epoch {epoch}: loss {history[-1]['loss']:.4f}, test accuracy {history[-1]['test_accuracy']:.4f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(history, indent=1) + "\n")


if __name__ == "__main__":
    main()
