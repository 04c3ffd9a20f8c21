"""Predict edges with a model of torch_geometric, on one rank or many; the state of the loader is in the checkpoint.

bulksample data make dcsbm --preset reddit --vertices 2000 --degree 20 --seed 1 -o my-graph
torchrun --nproc-per-node 2 examples/link_prediction.py my-graph --epochs 3

A tenth of the edges is held out and scored against random pairs. `LinkNeighborLoader` was torch_geometric's, and needs neither pyg-lib
nor torch-sparse. Run the command again, with as many ranks as you like, and it goes on after the last saved step.
"""

import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import bulksample as bs
from bulksample.interop.pyg import LinkNeighborLoader


def read(store):
    """The store as torch_geometric has a graph: edges that are kept for training, and edges that are held out."""
    graph = bs.load(store)
    edges = np.stack([graph.adjacency.indices.astype(np.int64), graph.adjacency.row_of_entry()])  # source, destination
    low, high = edges.min(axis=0), edges.max(axis=0)
    held = (low * 2654435761 + high * 40503) % 10 == 0  # both directions of an edge alike
    x = torch.tensor(np.asarray(graph.features, np.float32))
    return Data(x=x, edge_index=torch.from_numpy(edges[:, ~held])), torch.from_numpy(edges[:, held])


class Scores(torch.nn.Module):
    """The dot product of the rows of both ends."""

    def __init__(self, width):
        super().__init__()
        self.encoder = GraphSAGE(width, 64, num_layers=2, out_channels=32)

    def forward(self, batch):
        rows = self.encoder(batch.x, batch.edge_index)[batch.edge_label_index]
        return (rows[0] * rows[1]).sum(dim=1)


def auc(model, loader):
    """The share of pairs (edge, random pair) in which the edge has the higher score, over the edges of all ranks."""
    with torch.no_grad():
        own = {int(batch.input_id[0]): (model(batch), batch.edge_label) for batch in loader}
    ranks = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(ranks, own)
    found = {first: part for rank in ranks for first, part in rank.items()}  # a batch that ranks repeat, to make equal steps, counts once
    scores, labels = (torch.cat([part[i] for _, part in sorted(found.items())]) for i in (0, 1))
    order = scores[labels == 0].sort().values
    return (torch.searchsorted(order, scores[labels == 1]).double().mean() / len(order)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--checkpoint", default="link_prediction.pt")
    asked = parser.parse_args()

    world = bs.init(process_group="gloo")
    data, held = read(asked.store)
    options = {"num_neighbors": [10, 5], "batch_size": 512, "neg_sampling": "binary", "comm": world}
    loader = LinkNeighborLoader(data, shuffle=True, seed=1, **options)
    torch.manual_seed(1)
    model = Scores(data.num_features)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if os.path.exists(asked.checkpoint):
        kept = torch.load(asked.checkpoint, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        loader.load_state_dict(kept["loader"])
    parallel, steps = DistributedDataParallel(model), 0
    while loader.epoch < asked.epochs:
        for batch in loader:
            loss = F.binary_cross_entropy_with_logits(parallel(batch), batch.edge_label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if world.rank == 0 and steps % 5 == 0:
                kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
                torch.save(kept, f"{asked.checkpoint}.new")
                os.replace(f"{asked.checkpoint}.new", asked.checkpoint)
        if world.rank == 0:
            print(f"epoch {loader.epoch - 1}: loss {loss.item():.4f}", flush=True)
    found = auc(model, LinkNeighborLoader(data, edge_label_index=held, seed=2, **options))
    if world.rank == 0:
        print(f"{steps} steps, AUC {found:.4f}", flush=True)


if __name__ == "__main__":
    main()
