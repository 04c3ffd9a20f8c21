"""Train a 3-layer GraphSAGE of torch_geometric on a graph in a bulksample store; `--loader` changes one import and nothing else.

bulksample data make dcsbm --preset reddit --vertices 20000 --degree 40 --seed 1 -o my-graph
python examples/pyg_sage.py my-graph --loader bulksample
python examples/pyg_sage.py my-graph --loader pyg          # needs pyg-lib or torch-sparse
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from bulksample.data import store


def load(folder: str) -> Data:
    """The graph as torch_geometric has it."""
    graph = store.load(folder)
    x = graph.features if isinstance(graph.features, np.ndarray) else graph.features.to_scipy().toarray()
    source, destination = graph.adjacency.indices.astype(np.int64), graph.adjacency.row_of_entry()
    masks = {f"{split}_mask": torch.from_numpy(np.array(mask)) for split, mask in graph.masks.items()}
    edge_index = torch.from_numpy(np.stack([source, destination]))
    return Data(x=torch.from_numpy(np.array(x, np.float32)), y=torch.from_numpy(np.array(graph.labels)), edge_index=edge_index, **masks)


class Sage(torch.nn.Module):
    """SAGEConv, ReLU and dropout, `layers` times."""

    def __init__(self, inputs: int, hidden: int, outputs: int, layers: int) -> None:
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1), outputs]
        self.layers = torch.nn.ModuleList(SAGEConv(*pair) for pair in itertools.pairwise(widths))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = F.dropout(F.relu(layer(x, edge_index)), 0.5, self.training)
        return self.layers[-1](x, edge_index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="folder of a bulksample store")
    parser.add_argument("--loader", choices=["bulksample", "pyg"], default="bulksample")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fanouts", default="15,10,5")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="file for the results")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    warnings.filterwarnings("ignore", message=".*pyg-lib.*")

    if arguments.loader == "pyg":
        from torch_geometric.loader import NeighborLoader
    else:
        from bulksample.interop.pyg import NeighborLoader

    data = load(arguments.graph)
    fanouts = [int(s) for s in arguments.fanouts.split(",")]
    began = time.perf_counter()
    train_loader = NeighborLoader(
        data, num_neighbors=fanouts, input_nodes=data.train_mask, batch_size=arguments.batch_size, shuffle=True,
        num_workers=arguments.workers, persistent_workers=arguments.workers > 0,
    )  # fmt: skip
    made = time.perf_counter() - began
    model = Sage(data.num_features, arguments.hidden, int(data.y.max()) + 1, len(fanouts))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)

    def train() -> float:
        model.train()
        total = 0.0
        for batch in train_loader:
            optimiser.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimiser.step()
            total += loss.item() * batch.batch_size
        return total / int(data.train_mask.sum())

    @torch.no_grad()
    def test() -> dict[str, float]:
        model.eval()
        right = model(data.x, data.edge_index).argmax(dim=1) == data.y
        return {split: right[data[f"{split}_mask"]].float().mean().item() for split in ("train", "val", "test")}

    began = time.perf_counter()
    edges = sum(batch.num_edges for batch in train_loader)
    alone = time.perf_counter() - began
    epochs = []
    for epoch in range(arguments.epochs):
        began = time.perf_counter()
        loss = train()
        epochs.append({"loss": loss, "seconds": time.perf_counter() - began})
        print(f"epoch {epoch}: loss {loss:.4f}, {epochs[-1]['seconds']:.2f} s", flush=True)
    result = {
        "loader": arguments.loader, "workers": arguments.workers, "seed": arguments.seed, "made_seconds": made,
        "loading_alone_seconds": alone, "edges_of_an_epoch": edges, "epochs": epochs, "accuracy": test(),
    }  # fmt: skip
    print(json.dumps({**result, "epochs": None}))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
