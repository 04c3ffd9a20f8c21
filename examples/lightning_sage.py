"""Train with Lightning on a graph that its ranks share: a LightningDataModule over our loaders, and a model of your own.

bulksample data make dcsbm --preset reddit --vertices 2000 --degree 20 --seed 1 -o my-graph
torchrun --nproc-per-node 2 examples/lightning_sage.py my-graph --epochs 3 --profiler simple

It needs `pip install lightning`. Each rank reads its own block row of the store. Lightning keeps the state of the loader in its
checkpoints: run the command again, and it goes on after the last saved step. Alone, or under mpirun or srun, it is the same.
"""

import argparse
import os
from itertools import pairwise

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint

import bulksample as bs


class GraphData(lightning.LightningDataModule):
    """Mini-batches of a graph in a store. The ranks of a world share it; each holds its block row."""

    def __init__(self, store, world, fanouts=(10, 5), batch_size=128):
        super().__init__()
        self.graph, self.fanouts, self.batch_size = bs.load(store, world=world), fanouts, batch_size

    def loader(self, seeds, **options):
        """Lightning's profiler counts the seconds in which a step waits for samples and rows."""
        return bs.Loader(self.graph, batch_size=self.batch_size, seeds=seeds, profile=self.trainer.profiler.profile, **options)

    def train_dataloader(self):
        return self.loader("train", fanouts=self.fanouts, seed=1)

    def val_dataloader(self):
        return self.loader("val", sampler="full", fanouts=[-1] * len(self.fanouts), shuffle=False)

    def test_dataloader(self):
        return self.loader("test", sampler="full", fanouts=[-1] * len(self.fanouts), shuffle=False)

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        return batch.to(device)


class GraphSAGE(lightning.LightningModule):
    """Mean aggregation: h_v = W (h_v, mean of the sampled neighbors)."""

    def __init__(self, widths):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2 * a, b) for a, b in pairwise(widths))

    def forward(self, x, blocks):
        for layer, block in zip(self.layers, blocks, strict=True):
            x = layer(torch.cat([x[: block.num_destinations], block.aggregate(x)], dim=1))
            x = x if layer is self.layers[-1] else x.relu()
        return x

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def training_step(self, batch, index):
        loss = F.cross_entropy(self(batch.x, batch.blocks), batch.y)
        self.log("loss", loss, batch_size=len(batch.y), prog_bar=True)
        return loss

    def on_train_epoch_end(self):
        self.print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['loss']:.4f}", flush=True)

    def validation_step(self, batch, index):
        self.count(batch, "val")

    def test_step(self, batch, index):
        self.count(batch, "test")

    def count(self, batch, split):
        """Log the share of right classes over all ranks. A batch that ranks repeat, to make equal steps, has no weight."""
        right = (self(batch.x, batch.blocks).argmax(1) == batch.y).float().mean()
        self.log(f"{split} accuracy", right, batch_size=0 if batch.repeated else len(batch.y), on_epoch=True, sync_dist=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--nodes", type=int, default=1, help="machines of the job; each has as many ranks")
    parser.add_argument("--profiler", choices=["simple", "advanced", "pytorch"])
    parser.add_argument("--checkpoints", default="lightning-checkpoints", help="folder")
    asked = parser.parse_args()

    cuda = torch.cuda.is_available()
    world = bs.init(process_group="nccl" if cuda else "gloo")  # Lightning takes the ranks as they are
    data = GraphData(asked.store, world, batch_size=asked.batch_size)
    lightning.seed_everything(1)
    model = GraphSAGE([data.graph.num_features, 32, data.graph.num_classes])
    trainer = lightning.Trainer(
        max_epochs=asked.epochs, accelerator="gpu" if cuda else "cpu", devices=world.size // asked.nodes, num_nodes=asked.nodes,
        strategy="ddp" if world.size > 1 else "auto", profiler=asked.profiler, logger=False, use_distributed_sampler=False,
        num_sanity_val_steps=0, callbacks=[ModelCheckpoint(asked.checkpoints, save_last=True, every_n_train_steps=5)],
    )  # fmt: skip
    last = os.path.join(asked.checkpoints, "last.ckpt")
    trainer.fit(model, data, ckpt_path=last if os.path.exists(last) else None)
    (found,) = trainer.test(model, data, verbose=False)
    model.print(f"{trainer.global_step} steps, test accuracy {found['test accuracy']:.4f}", flush=True)


if __name__ == "__main__":
    main()
