"""Train a 3-layer GraphSAGE of DGL on a graph in a bulksample store; `--loader` changes one import and nothing else.

bulksample data make dcsbm --preset reddit --vertices 20000 --degree 40 --seed 1 -o my-graph
python examples/dgl_sage.py my-graph --loader bulksample
python examples/dgl_sage.py my-graph --loader dgl
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv

from bulksample.data import store


def load(folder: str) -> dgl.DGLGraph:
    """The graph as DGL has it."""
    stored = store.load(folder)
    x = stored.features if isinstance(stored.features, np.ndarray) else stored.features.to_scipy().toarray()
    source, destination = stored.adjacency.indices.astype(np.int64), stored.adjacency.row_of_entry()
    graph = dgl.graph((torch.from_numpy(source), torch.from_numpy(destination)), num_nodes=stored.n)
    graph.ndata["feat"], graph.ndata["label"] = torch.from_numpy(np.array(x, np.float32)), torch.from_numpy(np.array(stored.labels))
    for split, mask in stored.masks.items():
        graph.ndata[split] = torch.from_numpy(np.array(mask))
    return graph


class Sage(torch.nn.Module):
    """SAGEConv, ReLU and dropout, `layers` times; on the blocks of a minibatch, or on one graph."""

    def __init__(self, inputs: int, hidden: int, outputs: int, layers: int) -> None:
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1), outputs]
        self.layers = torch.nn.ModuleList(SAGEConv(*pair, "mean") for pair in itertools.pairwise(widths))

    def forward(self, blocks: list[dgl.DGLGraph], x: torch.Tensor) -> torch.Tensor:
        for layer, block in zip(self.layers, blocks, strict=True):
            x = layer(block, x)
            if layer is not self.layers[-1]:
                x = F.dropout(F.relu(x), 0.5, self.training)
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="folder of a bulksample store")
    parser.add_argument("--loader", choices=["bulksample", "dgl"], default="bulksample")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fanouts", default="5,10,15", help="the layer next to the input first, as in DGL")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="file for the results")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    dgl.seed(arguments.seed)

    if arguments.loader == "dgl":
        from dgl.dataloading import DataLoader, NeighborSampler
    else:
        from bulksample.interop.dgl import DataLoader, NeighborSampler

    graph = load(arguments.graph)
    fanouts = [int(s) for s in arguments.fanouts.split(",")]
    sampler = NeighborSampler(fanouts, prefetch_node_feats=["feat"], prefetch_labels=["label"])
    train_seeds = graph.ndata["train"].nonzero().view(-1)
    began = time.perf_counter()
    loader = DataLoader(graph, train_seeds, sampler, batch_size=arguments.batch_size, shuffle=True)
    made = time.perf_counter() - began
    classes = int(graph.ndata["label"].max()) + 1
    model = Sage(graph.ndata["feat"].shape[1], arguments.hidden, classes, len(fanouts))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)

    def train() -> float:
        model.train()
        total = 0.0
        for _, outputs, blocks in loader:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(blocks, blocks[0].srcdata["feat"]), blocks[-1].dstdata["label"])
            loss.backward()
            optimiser.step()
            total += loss.item() * len(outputs)
        return total / len(train_seeds)

    @torch.no_grad()
    def test() -> dict[str, float]:
        model.eval()
        right = model([graph] * len(fanouts), graph.ndata["feat"]).argmax(dim=1) == graph.ndata["label"]
        return {split: right[graph.ndata[split]].float().mean().item() for split in ("train", "val", "test")}

    began = time.perf_counter()
    edges = sum(block.num_edges() for _, _, blocks in loader for block in blocks if len(blocks[0].srcdata["feat"]))
    alone = time.perf_counter() - began
    epochs = []
    for epoch in range(arguments.epochs):
        began = time.perf_counter()
        loss = train()
        epochs.append({"loss": loss, "seconds": time.perf_counter() - began})
        print(f"epoch {epoch}: loss {loss:.4f}, {epochs[-1]['seconds']:.2f} s", flush=True)
    result = {
        "loader": arguments.loader, "dgl": dgl.__version__, "seed": arguments.seed, "made_seconds": made,
        "loading_alone_seconds": alone, "edges_of_an_epoch": edges, "epochs": epochs, "accuracy": test(),
    }  # fmt: skip
    print(json.dumps({**result, "epochs": None}))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
