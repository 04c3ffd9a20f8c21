"""Train on the Formula 1 graph in block rows, and compare each process grid with one rank: features and embeddings, then relations too.

FOLDER holds the tables of `examples/relational_f1.py`. The model predicts whether a car finished a race, from rows of earlier races.
Results, drivers, constructors and circuits have no features here, so each of their vertices has an embedding. Ranks are threads of one
process. For every grid: the digest of all mini-batches of an epoch; gradients of embeddings in the first step beside those of one rank
that has the whole tables and the same mini-batches; bytes beside their prediction; rows of the tables on the rank that holds most, and
bytes of relations. From relations in block rows, owners draw, or ranks fetch rows. Then one rank samples an epoch with its relations whole,
in one fused pass, and in block rows, hop by hop; in turn.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from oracles.collectives import SENT_KINDS
from oracles.fetches import predict_fetch, predict_learned_steps
from oracles.relations import HopRecorder, predict_counts, predict_hops, predict_row_hops
from typer import Option

import bulksample as bs
from bulksample import backends
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.layout import Layout
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.loop import Trainer

EMBEDDED = ("results", "drivers", "constructors", "circuits")
RANKS, GRIDS = 4, (1, 2)  # c of 4 x 1 and 2 x 2
TOPOLOGIES = ("replicated", "partitioned")
PLACEMENTS = (("replicated", "owner"), ("partitioned", "owner"), ("partitioned", "rows"))  # of relations, and who draws from block rows
COUNTED = ("topology", "features", "gradients")
OPTIONS = {
    "model": "hetero-sage", "fanouts": (10, 5), "hidden": 32, "batch_size": 256, "dropout": 0.0, "epochs": 1, "threads": 1, "strict": True,
    "evaluate": "none", "bulk_size": 1,
}  # fmt: skip


def graph_of(folder: Path) -> bs.Graph:
    """Return the graph whose results say whether the car finished, with embeddings for the types of EMBEDDED."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    try:
        import relational_f1 as example
    finally:
        sys.path.pop(0)
    tables = example.read_tables(folder)
    graph = example.make_graph(tables)
    results = graph.type("results")
    finished = (tables["results"]["statusId"].to_numpy()[: results.count] == 1).astype(np.int64)
    train = results.times < np.datetime64(example.T_VAL, "s").astype(np.int64)
    labelled = replace(results, labels=finished, num_classes=2, masks={"train": train, "val": ~train})
    kinds = (labelled if kind.name == "results" else kind for kind in graph.types)
    return replace(graph, types=tuple(replace(kind, features=None) if kind.name in EMBEDDED else kind for kind in kinds)).validate()


def trainer(graph: bs.Graph, comm: Comm | None, **options: Any) -> Trainer:
    return make_trainer(TrainConfig.of(**{**OPTIONS, **options}), graph, comm)


def run(graph: bs.Graph, comm: Comm | None = None, **options: Any) -> dict[str, Any]:
    """Train; return the report, the rows of each table on this rank, and the gradients of these rows in the first step."""
    made, first = trainer(graph, comm, **options), dict[str, tuple[np.ndarray, np.ndarray]]()
    model, step = made.model, made.context.optimizer.step

    def observed() -> None:
        for name, own in zip(model.types[0], model.inputs, strict=True):
            if own.bias is None and name not in first:
                members = np.arange(own.rows) if own.members is None else own.members
                first[name] = members, own.weight.grad.numpy().copy()
        step()

    made.context.optimizer.step = observed
    report = made.run()
    shards = sum(own.numel() for own in model.shards.values())
    return {"report": report, "gradients": first, "theta": sum(own.numel() for own in model.parameters()) - shards}


def minibatches(graph: bs.Graph, comm: Comm | None = None, **options: Any) -> list[Any]:
    """Return this rank's mini-batches of the first epoch, None where it has none."""
    return [batch.minibatch for batch in trainer(graph, comm, **options).context.batches]


def digest(of_ranks: list[list[Any]]) -> str:
    """Return 16 hex digits of the mini-batches of all ranks, in the order of their numbers."""
    found = sorted((one.id, one.digest()) for own in of_ranks for one in own if one is not None)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def predicted(graph: bs.Graph, drawn: list[list[Any]], c: int, theta: int, needed: tuple[str, ...]) -> dict[str, int]:
    """Return the bytes of an epoch of these mini-batches by kind: of features, embeddings, their gradients, and all other gradients."""
    total, p = dict.fromkeys(COUNTED, 0), len(drawn)
    for step in zip(*drawn, strict=True):
        for name in needed:
            kind = graph.type(name)
            asked = [np.empty(0, np.int32) if one is None else one.vertices[name] for one in step]
            bounds = np.arange(p // c + 1) * kind.count // (p // c)
            learned = not kind.num_features
            sent = (
                predict_learned_steps(c, [[ids] for ids in asked], bounds, OPTIONS["hidden"])
                if learned
                else predict_fetch(c, asked, bounds, kind.num_features)
            )
            for of_rank in sent:
                for key in total:
                    total[key] += of_rank[key].bytes if key in of_rank else 0
        total["gradients"] += 2 * (p - 1) * 4 * (theta + 3)
    return total


def sent_to_sample(graph: bs.Graph, c: int, exchange: str) -> int:
    """Return the bytes that ranks with relations in block rows will send to sample an epoch, by the draws of one rank."""
    made, hops = trainer(graph, None), []
    view = made.context.view
    for rank in range(RANKS):
        view.adjacency = HopRecorder(graph, backends.make("native", 1))
        list(view.loader(made.context.sampler, view.seeds, batch_size=OPTIONS["batch_size"], rank=rank, ranks=RANKS, bulk_size=1))
        hops.append(view.adjacency.hops)
    layouts = [Layout.even(kind.count, RANKS // c) for kind in graph.types]
    if exchange == "owner":
        sent = predict_hops(hops, layouts, c) + predict_counts(hops[0], layouts, c)
    else:
        sent = predict_row_hops(hops, graph, layouts, c)
    return int(sent[SENT_KINDS.index("topology"), 1].sum())


def seconds_of_sampling(graph: bs.Graph, topology: str) -> dict[str, float]:
    """Return the processor seconds and the edges of an epoch that one rank samples, eight mini-batches at a time."""
    loader = trainer(graph, None, topology=topology, bulk_size=8).context.batches.loader
    begun = time.process_time()
    edges = sum(minibatch.num_edges for minibatch in loader)
    return {"edges": edges, "seconds": time.process_time() - begun}


def cost_of_block_rows(graph: bs.Graph, turns: int = 5) -> dict[str, Any]:
    """Return the seconds of sampling on one rank with its relations whole and in block rows, in turn, and the median of their ratios."""
    found = [{topology: seconds_of_sampling(graph, topology) for topology in TOPOLOGIES} for _ in range(turns + 1)][1:]
    ratios = [turn["partitioned"]["seconds"] / turn["replicated"]["seconds"] for turn in found]
    return {"turns": found, "ratio": float(np.median(ratios)), "least": min(ratios), "most": max(ratios)}


def compare(graph: bs.Graph, c: int, topology: str, exchange: str, one: dict[str, Any]) -> dict[str, Any]:
    """Compare a grid of RANKS / c x c ranks with `one`, the run of one rank on the mini-batches of RANKS virtual ranks."""
    options: dict[str, Any] = {"topology": topology, "features": "partitioned", "replication": c, "exchange": exchange}
    drawn = on_threads(RANKS, lambda comm: minibatches(graph, comm, **options))
    start = on_threads(RANKS, lambda comm: run(graph, comm, **options, epochs=0))[0]["report"]
    runs = on_threads(RANKS, lambda comm: run(graph, comm, **options))
    whole, report = one["gradients"], runs[0]["report"]
    off = max(np.abs(own - whole[name][1][ids]).max() for of_rank in runs for name, (ids, own) in of_rank["gradients"].items())
    needed = tuple(trainer(graph, None, features="replicated").context.view.features.needed)
    foreseen = predicted(graph, drawn, c, runs[0]["theta"], needed)
    if topology == "partitioned":
        foreseen["topology"] += sent_to_sample(graph, c, exchange)
    return {
        "topology": topology,
        "exchange": exchange,
        "grid": f"{RANKS // c} x {c}",
        "digest": digest(drawn),
        "largest_gradient": float(max(np.abs(own).max() for _, own in whole.values())),
        "largest_difference": float(off),
        "loss": report["train_loss"],
        "bytes": {kind: report["bytes_sent"][kind] - start["bytes_sent"][kind] for kind in COUNTED},
        "predicted": foreseen,
        "adjacency_bytes": report["held_bytes"]["adjacency"],
        "rows": {name: max(len(of_rank["gradients"][name][0]) for of_rank in runs) for name in whole},
        "embedding_bytes": report["held_bytes"]["embeddings"],
    }


def measure(folder: Path) -> dict[str, Any]:
    """Compare all grids with one rank; return the figures."""
    graph = graph_of(folder)
    one = run(graph, virtual_ranks=RANKS)
    report = one["report"]
    return {
        "rows": {name: graph.type(name).count for name in one["gradients"]},
        "digest": digest([minibatches(graph, virtual_ranks=RANKS)]),
        "loss": report["train_loss"],
        "steps": report["steps"],
        "embedding_bytes": report["embedding_bytes"],
        "adjacency_bytes": report["held_bytes"]["adjacency"],
        "grids": [compare(graph, c, topology, exchange, one) for topology, exchange in PLACEMENTS for c in GRIDS],
    }


def relational_ranks(data: Annotated[Path, Option(metavar="FOLDER", help="folder of the Formula 1 tables")]) -> dict[str, Any]:
    return {**measure(data), "sampling_on_one_rank": cost_of_block_rows(graph_of(data))}
