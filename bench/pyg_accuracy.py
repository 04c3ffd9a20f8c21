"""Train torch_geometric's own GraphSAGE model on a store: full batch, or mini-batches of our drop-in loader.

Options have the names and defaults of `bulksample train`, and so has the result. The model, the optimizer and the loop are torch's and
torch_geometric's; scores are taken over all neighbors, and the test score is that of the best validation score.
"""

from __future__ import annotations

import copy
import time
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
import typer
from harness import Numbers
from scipy.stats import rankdata
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from bulksample.data.store import load as read
from bulksample.interop.pyg import NeighborLoader


def loaded(folder: Path, label: str | None, norm: str) -> Data:
    """Return the graph with dense features, each row divided by its norm."""
    graph = read(folder)
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


def pyg_accuracy(
    store: Path, loader: Annotated[Literal["none", "bulksample"], typer.Option()], hidden: int = 256, batch_size: int = 1024,
    epochs: int = 10, eval_every: int = 1, patience: int = 0, seed: int = 0, lr: float = 0.003, weight_decay: float = 0.0,
    dropout: float = 0.5, fanouts: Numbers = (15, 10), feature_norm: Literal["none", "l1", "l2"] = "none",
    metric: Literal["accuracy", "rocauc"] = "accuracy", label: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    warnings.filterwarnings("ignore", message="Sparse")
    torch.manual_seed(seed)
    data = loaded(store, label, feature_norm)
    every = adjacency(data)
    model = GraphSAGE(data.num_features, hidden, len(fanouts), data.num_classes, dropout=dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    bulks = None
    if loader == "bulksample":
        bulks = NeighborLoader(data, list(fanouts), data.train_mask, batch_size=batch_size, shuffle=True, seed=seed)

    def batches() -> Any:
        """Yield the input, the edges, the rows with a loss and their labels."""
        if bulks is None:
            yield data.x, every, data.train_mask, data.y[data.train_mask]
            return
        for batch in bulks:
            yield batch.x, batch.edge_index, slice(batch.batch_size), batch.y[: batch.batch_size]

    best, weights, waited, steps, began = -1.0, model.state_dict(), 0, 0, time.perf_counter()
    for epoch in range(1, epochs + 1):
        model.train()
        for x, edges, rows, labels in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x, edges)[rows], labels).backward()
            optimizer.step()
            steps += 1
        if epoch % eval_every and epoch < epochs:
            continue
        with torch.no_grad():
            found = score(model.eval()(data.x, every)[data.val_mask], data.y[data.val_mask], metric)
        waited += 1
        if found > best:
            best, weights, waited = found, copy.deepcopy(model.state_dict()), 0
        if patience and waited >= patience:
            break
    seconds = (time.perf_counter() - began) / epoch
    model.load_state_dict(weights)
    with torch.no_grad():
        test = score(model.eval()(data.x, every)[data.test_mask], data.y[data.test_mask], metric)
    result = {"metric": metric, f"test_{metric}": test, f"val_{metric}": best, "steps": steps, "epochs": epoch}
    return {**result, "seconds_per_epoch": seconds}
