"""Run a GraphSAGE script of torch_geometric or DGL with its own loader and with ours, in one process, epochs in turn.

Models and graphs are those of `examples/`. An epoch is timed by the wall clock and in CPU seconds; read the latter on a shared machine.
torch_geometric's own loader needs pyg-lib or torch-sparse.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from harness import Numbers

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def of_torch_geometric(folder: str, fanouts: list[int], hidden: int) -> tuple[Callable[..., Any], dict[str, Any], Callable[..., Any]]:
    """Return a function that makes the model, the loaders by name, and a function batch -> (edges, output, labels)."""
    import pyg_sage
    from torch_geometric.loader import NeighborLoader as Theirs

    from bulksample.interop.pyg import NeighborLoader as Ours

    data = pyg_sage.load(folder)
    options = {"num_neighbors": fanouts, "input_nodes": data.train_mask, "batch_size": 1024, "shuffle": True}
    loaders = {"torch_geometric": Theirs(data, **options), "bulksample": Ours(data, **options)}

    def step(model: Any, batch: Any) -> tuple[int, Any, Any]:
        out = None if model is None else model(batch.x, batch.edge_index)[: batch.batch_size]
        return batch.num_edges, out, batch.y[: batch.batch_size]

    def accuracy(model: Any) -> float:
        return (model(data.x, data.edge_index).argmax(1) == data.y)[data.test_mask].float().mean().item()

    return lambda: (pyg_sage.Sage(data.num_features, hidden, int(data.y.max()) + 1, len(fanouts)), accuracy), loaders, step


def of_dgl(folder: str, fanouts: list[int], hidden: int) -> tuple[Callable[..., Any], dict[str, Any], Callable[..., Any]]:
    """Return the same for DGL."""
    import dgl.dataloading
    import dgl_sage

    import bulksample.interop.dgl

    graph = dgl_sage.load(folder)
    x, y = graph.ndata["feat"], graph.ndata["label"]
    seeds, loaders = graph.ndata["train"].nonzero().view(-1), {}
    for name, library in (("dgl", dgl.dataloading), ("bulksample", bulksample.interop.dgl)):
        sampler = library.NeighborSampler(fanouts[::-1], prefetch_node_feats=["feat"], prefetch_labels=["label"])
        loaders[name] = library.DataLoader(graph, seeds, sampler, batch_size=1024, shuffle=True)

    def step(model: Any, batch: Any) -> tuple[int, Any, Any]:
        _, _, blocks = batch
        features, labels = blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]
        return sum(block.num_edges() for block in blocks), None if model is None else model(blocks, features), labels

    def accuracy(model: Any) -> float:
        return (model([graph] * len(fanouts), x).argmax(1) == y)[graph.ndata["test"]].float().mean().item()

    return lambda: (dgl_sage.Sage(x.shape[1], hidden, int(y.max()) + 1, len(fanouts)), accuracy), loaders, step


def interop(
    graph: Annotated[str, "folder of a bulksample store"], library: Literal["torch_geometric", "dgl"] = "torch_geometric",
    fanouts: Annotated[Numbers, "fanouts, starting at the seeds, for either library"] = (10, 10, 5), hidden: int = 64, epochs: int = 5,
    seeds: Annotated[int, "number of trainings with different initial weights"] = 1,
    rounds: Annotated[int, "epochs of loading without training"] = 3,
    threads: Annotated[int, "threads of torch; ours uses OMP_NUM_THREADS"] = 1,
) -> dict[str, Any]:  # fmt: skip
    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    make = of_torch_geometric if library == "torch_geometric" else of_dgl
    made, loaders, step = make(graph, list(fanouts), hidden)
    result: dict[str, dict[str, Any]] = {name: {"loading": [], "training": [], "test_accuracy": []} for name in loaders}

    def epoch(name: str, kind: str, model: Any = None, optimiser: Any = None) -> None:
        clock, processor, edges = time.perf_counter(), time.process_time(), 0
        for batch in loaders[name]:
            count, out, labels = step(model, batch)
            edges += count
            if model is not None:
                optimiser.zero_grad()
                F.cross_entropy(out, labels).backward()
                optimiser.step()
        seconds = {"seconds": time.perf_counter() - clock, "processor_seconds": time.process_time() - processor, "edges": edges}
        result[name][kind].append(seconds)
        print(name, kind, {key: round(value, 3) for key, value in seconds.items()}, flush=True)

    for _ in range(rounds):
        for name in loaders:
            epoch(name, "loading")
    for seed in range(seeds):
        trained = {}
        for name in loaders:
            torch.manual_seed(seed)
            model, accuracy = made()
            trained[name] = (model.train(), torch.optim.Adam(model.parameters(), lr=0.003), accuracy)
        for _ in range(epochs):
            for name, (model, optimiser, _) in trained.items():
                epoch(name, "training", model, optimiser)
        for name, (model, _, accuracy) in trained.items():
            with torch.no_grad():
                result[name]["test_accuracy"].append(accuracy(model.eval()))
            print(name, "test accuracy", result[name]["test_accuracy"][-1], flush=True)
    asked = {"graph": graph, "library": library, "fanouts": ",".join(map(str, fanouts)), "hidden": hidden}
    return {"arguments": {**asked, "epochs": epochs, "seeds": seeds, "rounds": rounds, "threads": threads}, **result}
