"""Train a model of your own on a graph that its ranks share, with DistributedDataParallel and nothing of ours but the loader.

bulksample data make dcsbm --preset reddit --vertices 2000 --degree 20 --seed 1 -o my-graph
torchrun --nproc-per-node 2 examples/plain_torch.py my-graph --epochs 3

Each rank reads its own block row of the store. A checkpoint holds the model, the optimizer and the position of the loader: run the
command again, with as many ranks as you like, and it goes on after the last saved step. Under mpirun or srun, or alone, it is the same.
"""

import argparse
import os
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import bulksample as bs


class GraphSAGE(torch.nn.Module):
    """Mean aggregation: h_v = W (h_v, mean of the sampled neighbors)."""

    def __init__(self, widths):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2 * a, b) for a, b in pairwise(widths))

    def forward(self, x, blocks):
        for layer, block in zip(self.layers, blocks, strict=True):
            x = layer(torch.cat([x[: block.num_destinations], block.aggregate(x)], dim=1))
            x = x if layer is self.layers[-1] else x.relu()
        return x


def accuracy(model, loader, device):
    """The share of right classes over all ranks, each seed counted once."""
    counts = torch.zeros(2, device=device)
    with torch.no_grad():
        for batch in loader.to(device):
            if batch.repeated:  # so that ranks make equally many steps
                continue
            right = model(batch.x, batch.blocks).argmax(1) == batch.y
            counts += torch.tensor([right.sum(), len(right)], device=device)
    torch.distributed.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--checkpoint", default="plain_torch.pt")
    asked = parser.parse_args()

    cuda = torch.cuda.is_available()
    world = bs.init(process_group="nccl" if cuda else "gloo")
    device = torch.device("cuda", world.rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    graph = bs.load(asked.store, world=world)  # this rank's rows; topology="replicated" keeps all edges on every rank
    loader = bs.Loader(graph, fanouts=[10, 5], batch_size=128, seeds="train", seed=1)
    torch.manual_seed(1)
    model = GraphSAGE([graph.num_features, 32, graph.num_classes]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if os.path.exists(asked.checkpoint):
        kept = torch.load(asked.checkpoint, weights_only=True, map_location=device)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        loader.load_state_dict(kept["loader"])
    parallel, steps = DistributedDataParallel(model), 0
    while loader.epoch < asked.epochs:
        for batch in loader.to(device):
            loss = F.cross_entropy(parallel(batch.x, batch.blocks), batch.y)
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
    found = accuracy(model, bs.Loader(graph, fanouts=[10, 5], batch_size=128, seeds="test", seed=2), device)
    if world.rank == 0:
        print(f"{steps} steps, test accuracy {found:.4f}", flush=True)


if __name__ == "__main__":
    main()
