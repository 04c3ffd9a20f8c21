"""RelBench's entity example with bulksample's loader: a ResNet of torch_frame on every row, GraphSAGE on the relations, time respected.

    python examples/relbench_entity.py FOLDER --task driver-dnf     # FOLDER: the tables that relational_f1.py reads

What differs from RelBench's own gnn_entity.py: `NeighborLoader` comes from `bulksample.interop.pyg` (`--loader pyg` takes that of
torch_geometric, which needs pyg-lib); the database and its tasks are made of FOLDER in the place of a download; texts are hashed, without
GloVe's files. Ctrl-C ends the training and scores the best epoch so far.

Needs ``pip install 'bulksample[pyg]' relbench pytorch_frame pandas``.
"""

from __future__ import annotations

import argparse
import copy
import time
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import relational_f1 as f1
import torch
from relbench.base import Database, Table
from relbench.modeling.graph import AttachTargetTransform, make_pkey_fkey_graph
from relbench.modeling.nn import HeteroEncoder, HeteroGraphSAGE, HeteroTemporalEncoder
from relbench.modeling.utils import get_stype_proposal
from torch_frame.config.text_embedder import TextEmbedderConfig
from torch_geometric.nn import MLP
from torch_geometric.seed import seed_everything

from bulksample.interop.pyg import NeighborLoader  # was: from torch_geometric.loader import NeighborLoader

ENTITY = "drivers"


class HashedText:
    """Embeds a text by the signs that its words hash to: float32, shape (texts, width)."""

    def __init__(self, width: int = 64) -> None:
        self.width = width

    def __call__(self, sentences: list[str]) -> torch.Tensor:
        out = torch.zeros(len(sentences), self.width)
        for i, sentence in enumerate(sentences):
            for word in str(sentence).lower().split():
                code = zlib.crc32(word.encode())
                out[i, code % self.width] += 1.0 if code >> 31 else -1.0
        return out


def make_database(tables: dict[str, pd.DataFrame]) -> Database:
    """Return the database as RelBench has it: keys are 0, 1, … in the order of the rows, and nothing is later than the test."""
    until, made = pd.Timestamp(f1.T_TEST), {}
    kept = {name: table[table["date"] <= until] if "date" in table else table for name, table in tables.items()}
    place = {name: pd.Series(np.arange(len(rows)), rows[f1.SCHEMA[name]["primary_key"]]) for name, rows in kept.items()}
    for name, table in kept.items():
        schema, rows = f1.SCHEMA[name], table.reset_index(drop=True)
        rows[schema["primary_key"]] = np.arange(len(rows))
        for column, other in schema.get("foreign_keys", {}).items():
            rows[column] = rows[column].map(place[other]).astype("Int64")
        for column in rows.select_dtypes("datetime"):
            rows[column] = rows[column].astype("datetime64[ns]")  # RelBench takes the unit of pandas 2
        made[name] = Table(rows, schema.get("foreign_keys", {}), schema["primary_key"], schema.get("time"))
    return Database(made)


class Model(torch.nn.Module):
    """Encoders of rows and of ages, GraphSAGE, and a head: RelBench's own modules."""

    def __init__(self, data, statistics, channels: int, layers: int) -> None:
        super().__init__()
        names = {kind: data[kind].tf.col_names_dict for kind in data.node_types}
        self.encoder = HeteroEncoder(channels, names, statistics)
        self.ages = HeteroTemporalEncoder([kind for kind in data.node_types if "time" in data[kind]], channels)
        self.gnn = HeteroGraphSAGE(node_types=data.node_types, edge_types=data.edge_types, channels=channels, aggr="sum", num_layers=layers)
        self.head = MLP(channels, out_channels=1, norm="batch_norm", num_layers=1)

    def forward(self, batch) -> torch.Tensor:
        seed_time = batch[ENTITY].seed_time
        x = self.encoder(batch.tf_dict)
        for kind, age in self.ages(seed_time, batch.time_dict, batch.batch_dict).items():
            x[kind] = x[kind] + age
        x = self.gnn(x, batch.edge_index_dict, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict)
        return self.head(x[ENTITY][: len(seed_time)]).view(-1)


def loaders_of(kind, data, seeds: dict[str, f1.Seeds], fanouts: list[int], strategy: str) -> dict:
    """Return a loader of each split; its batches hold nothing later than each seed."""
    made = {}
    for split, own in seeds.items():
        made[split] = kind(
            data, num_neighbors=fanouts, time_attr="time", input_nodes=(ENTITY, torch.from_numpy(own.driver)),
            input_time=torch.from_numpy(own.time), transform=AttachTargetTransform(ENTITY, torch.from_numpy(own.label)), batch_size=512,
            temporal_strategy=strategy, shuffle=split == "train",
        )  # fmt: skip
    return made


def train_epoch(model: Model, loader, optimizer: torch.optim.Optimizer, loss_of, most: int) -> tuple[float, float, float]:
    """Make at most so many steps; return their mean loss, the seconds of the epoch, and those of loading in them."""
    model.train()
    began, loading, losses = time.perf_counter(), 0.0, []
    batches = iter(loader)
    for _ in range(min(len(loader), most)):
        asked = time.perf_counter()
        batch = next(batches)
        loading += time.perf_counter() - asked
        loss = loss_of(model(batch), batch[ENTITY].y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses)), time.perf_counter() - began, loading


@torch.no_grad()
def predict(model: Model, loader, bounds: np.ndarray | None) -> np.ndarray:
    model.eval()
    predicted = torch.cat([model(batch) for batch in loader]).numpy()
    return predicted if bounds is None else predicted.clip(*bounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=f1.TASKS, default="driver-dnf")
    parser.add_argument("--loader", choices=("bulksample", "pyg"), default="bulksample")
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--neighbors", type=int, default=128, help="of the first hop; each further hop takes half as many")
    parser.add_argument("--strategy", choices=("uniform", "last"), default="uniform")
    parser.add_argument("--max-steps", type=int, default=2000, help="of an epoch")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    seed_everything(options.seed)
    loader_class = NeighborLoader
    if options.loader == "pyg":
        from torch_geometric.loader import NeighborLoader as loader_class

    tables = f1.read_tables(options.folder)
    database, seeds, metric = make_database(tables), f1.task_table(tables, options.task), f1.TASKS[options.task].metric
    text = TextEmbedderConfig(text_embedder=HashedText(), batch_size=256)
    data, statistics = make_pkey_fkey_graph(database, get_stype_proposal(database), text)
    fanouts = [options.neighbors // 2**i for i in range(options.layers)]
    loaders = loaders_of(loader_class, data, seeds, fanouts, options.strategy)
    model = Model(data, statistics, options.channels, options.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    regression = metric == "mae"
    loss_of = torch.nn.L1Loss() if regression else torch.nn.BCEWithLogitsLoss()
    bounds, best, kept = np.percentile(seeds["train"].label, [2, 98]) if regression else None, None, None
    try:
        for epoch in range(options.epochs):
            loss, spent, loading = train_epoch(model, loaders["train"], optimizer, loss_of, options.max_steps)
            val = f1.score(metric, seeds["val"].label, predict(model, loaders["val"], bounds))
            shares = f"{spent:.1f} s, of which loading {loading / spent:.1%}"
            print(f"epoch {epoch}: loss {loss:.4f}, val {metric} {val:.4f}, {shares}", flush=True)
            if best is None or (val < best if regression else val > best):
                best, kept = val, copy.deepcopy(model.state_dict())
    except KeyboardInterrupt:
        print(f"stopped in epoch {epoch}; the best epoch so far is scored", flush=True)
    model.load_state_dict(kept or model.state_dict())
    found = f1.score(metric, seeds["test"].label, predict(model, loaders["test"], bounds))
    print(f"test {metric} {found:.4f}")


if __name__ == "__main__":
    main()
