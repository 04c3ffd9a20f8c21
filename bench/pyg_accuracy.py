"""Train torch_geometric's own GraphSAGE model on a store: full batch, or mini-batches of our drop-in loader.

    python bench/pyg_accuracy.py STORE --loader {none,bulksample} --hidden 128 --lr 0.01 --epochs 15 --json FILE

Options have the names and defaults of `bulksample train`, and so has the result. The model, the optimizer and the loop are torch's and
torch_geometric's; scores are taken over all neighbors, and the test score is that of the best validation score.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from bulksample.data import store
from bulksample.interop.pyg import NeighborLoader


def load(folder: Path, label: str | None, norm: str) -> Data:
    """Return the graph with dense features, each row divided by its norm."""
    graph = store.load(folder)
    features = graph.features if isinstance(graph.features, np.ndarray) else graph.features.to_scipy().toarray()
    x = torch.from_numpy(np.array(features, np.float32))
    if norm != "none":
        x = F.normalize(x, p={"l1": 1, "l2": 2}[norm])
    y = torch.from_numpy(np.array(graph.extra[label] if label else graph.labels))
    edges = np.stack([graph.adjacency.indices.astype(np.int64), graph.adjacency.row_of_entry()])
    masks = {f"{split}_mask": torch.from_numpy(np.array(mask)) for split, mask in graph.masks.items()}
    return Data(x=x, y=y, edge_index=torch.from_numpy(edges), num_classes=int(y.max()) + 1, **masks)


def adjacency(data: Data) -> torch.Tensor:
    """Return the matrix whose row v lists the in-neighbors of v; with it torch_geometric makes no message for each edge."""
    ones, n = torch.ones(data.edge_index.shape[1]), data.num_nodes
    return torch.sparse_coo_tensor(data.edge_index.flip(0), ones, (n, n)).to_sparse_csr()


def score(logits: torch.Tensor, y: torch.Tensor, metric: str) -> float:
    """Return accuracy, or the area under the ROC curve of two classes, which is a sum of ranks."""
    if metric == "accuracy":
        return (logits.argmax(1) == y).float().mean().item()
    ranks, positive = rankdata((logits[:, 1] - logits[:, 0]).numpy()), (y == 1).numpy()
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(y) - count)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--loader", choices=["none", "bulksample"], required=True)
    for name, default in {"hidden": 256, "batch-size": 1024, "epochs": 10, "eval-every": 1, "patience": 0, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, rate in {"lr": 0.003, "weight-decay": 0.0, "dropout": 0.5}.items():
        parser.add_argument(f"--{name}", type=float, default=rate)
    parser.add_argument("--fanouts", default="15,10")
    parser.add_argument("--feature-norm", choices=["none", "l1", "l2"], default="none")
    parser.add_argument("--metric", choices=["accuracy", "rocauc"], default="accuracy")
    parser.add_argument("--label")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse")
    torch.manual_seed(options.seed)
    data = load(options.store, options.label, options.feature_norm)
    fanouts, every = [int(part) for part in options.fanouts.split(",")], adjacency(data)
    model = GraphSAGE(data.num_features, options.hidden, len(fanouts), data.num_classes, dropout=options.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr, weight_decay=options.weight_decay)
    loader = None
    if options.loader == "bulksample":
        loader = NeighborLoader(data, fanouts, data.train_mask, batch_size=options.batch_size, shuffle=True, seed=options.seed)

    def batches() -> Any:
        """Yield the input, the edges, the rows with a loss and their labels."""
        if loader is None:
            yield data.x, every, data.train_mask, data.y[data.train_mask]
            return
        for batch in loader:
            yield batch.x, batch.edge_index, slice(batch.batch_size), batch.y[: batch.batch_size]

    best, weights, waited, steps, began = -1.0, model.state_dict(), 0, 0, time.perf_counter()
    for epoch in range(1, options.epochs + 1):
        model.train()
        for x, edges, rows, labels in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x, edges)[rows], labels).backward()
            optimizer.step()
            steps += 1
        if epoch % options.eval_every and epoch < options.epochs:
            continue
        with torch.no_grad():
            found = score(model.eval()(data.x, every)[data.val_mask], data.y[data.val_mask], options.metric)
        waited += 1
        if found > best:
            best, weights, waited = found, copy.deepcopy(model.state_dict()), 0
        if options.patience and waited >= options.patience:
            break
    seconds = (time.perf_counter() - began) / epoch
    model.load_state_dict(weights)
    with torch.no_grad():
        test = score(model.eval()(data.x, every)[data.test_mask], data.y[data.test_mask], options.metric)
    result = {"metric": options.metric, f"test_{options.metric}": test, f"val_{options.metric}": best, "steps": steps, "epochs": epoch}
    print(json.dumps(result))
    if options.json:
        options.json.write_text(json.dumps({**result, "seconds_per_epoch": seconds}) + "\n")


if __name__ == "__main__":
    main()
