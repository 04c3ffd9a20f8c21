"""Time the public loader: beside the trainer's own loop, DDP over it beside `bulksample train`, its input layers, the start of an epoch."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from harness import Numbers, call, quick
from ranks import mpirun

import bulksample as bs
from bulksample.data.rmat import rmat
from bulksample.distributed.comm.ledger import Ledger
from bulksample.distributed.comm.threads import SerialComm
from bulksample.loading.loader import BulkLoader
from bulksample.nn.model import Gnn
from bulksample.rng import Stream
from bulksample.shuffle import Shuffle
from bulksample.training.batches import MiniBatchSource
from bulksample.views.plain_view import whole_view
from bulksample.views.view import as_index

FANOUTS, BATCH, HIDDEN = (10, 5), 512, 64


def epoch_of(model, steps):
    """Train on the steps of an epoch: (blocks, x, rows of the seeds, labels). Returns wall-clock and CPU seconds."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    began = time.perf_counter(), time.process_time()
    for blocks, x, rows, labels in steps:
        loss = F.cross_entropy(model(blocks, x, torch.zeros(len(x)))[rows], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def alone(store, epochs, threads):
    """Time epochs by the engine's source of steps and by the public loader, in alternation."""
    graph, backend = bs.load(store), bs.backends.make("auto", threads)
    torch.set_num_threads(threads)
    view = whole_view(graph, SerialComm(), backend, "")
    bulks = BulkLoader(view.adjacency, bs.samplers.make("sage", FANOUTS), view.seeds, batch_size=BATCH, seed=1)
    source = MiniBatchSource(bulks, view, Ledger(SerialComm()))
    loader = bs.Loader(graph, fanouts=FANOUTS, batch_size=BATCH, seeds="train", seed=1, threads=threads)

    def engine():
        for step in source:
            batch = step.minibatch
            yield batch.blocks, step.x, as_index(batch.seed_rows), torch.from_numpy(view.truth(batch.seeds))

    def public():
        for batch in loader:
            yield batch.minibatch.blocks, batch.x, batch.seed_rows, batch.y

    found = {"engine": [], "public": []}
    for epoch in range(epochs + 1):
        for name, steps in (("engine", engine), ("public", public)):
            model = Gnn(
                "sage", [graph.num_features, HIDDEN, graph.num_classes], dropout=0.0, input_dropout=0.0, batch_norm=False, heads=1, seed=1
            )
            taken = epoch_of(model, steps())
            found[name] += [taken] if epoch else []
    return found


def ddp(store, epochs, threads):
    """Run one rank of a plain DDP loop over a partitioned graph; rank 0 prints the seconds of each epoch."""
    world, epochs, threads = bs.init(process_group="gloo"), int(epochs), int(threads)
    torch.set_num_threads(threads)
    graph = bs.load(store, world=world)
    loader = bs.Loader(graph, fanouts=FANOUTS, batch_size=BATCH, seeds="train", seed=1, threads=threads)

    class Sage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(
                torch.nn.Linear(2 * a, b) for a, b in ((graph.num_features, HIDDEN), (HIDDEN, graph.num_classes))
            )

        def forward(self, x, blocks):
            for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
                x = layer(torch.cat([x[: block.num_destinations], block.aggregate(x)], dim=1))
                x = x if i else x.relu()
            return x

    model = torch.nn.parallel.DistributedDataParallel(Sage())
    optimizer, taken = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(epochs):
        began = time.perf_counter(), time.process_time()
        for batch in loader.to("cpu"):
            loss = F.cross_entropy(model(batch.x, batch.blocks), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        taken.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    if world.rank == 0:
        print(json.dumps({"epochs": taken}), flush=True)


def on_ranks(store, epochs, count, threads, rounds):
    """Run rounds of both programs on `count` ranks; return wall-clock and CPU seconds of an epoch of rank 0, without evaluation."""
    launcher = mpirun()
    train = [
        sys.executable, "-m", "bulksample", "train", str(store), "--graph", "partitioned", "--layers", "2", "--fanouts", "10,5",
        "--hidden", str(HIDDEN), "--batch-size", str(BATCH), "--dropout", "0", "--lr", "0.01", "--threads", str(threads), "--quiet",
        "--json", "-", "--epochs", str(epochs), "--eval-every", "1000", "--seed", "1",
    ]  # fmt: skip
    own = call(ddp, store, epochs, threads)
    found = {"train": [], "ddp": []}
    for _ in range(rounds):
        for name, words in (("train", train), ("ddp", own)):
            out = subprocess.run([launcher, "-n", str(count), *words], check=True, capture_output=True, text=True).stdout
            report = json.loads(out[out.index("{") :])
            if name == "train":
                found[name].append((report["seconds_per_epoch"], report["compute_seconds"] / epochs))
            else:
                found[name].append(tuple(statistics.mean(clock) for clock in zip(*report["epochs"], strict=True)))
    return found


def compared(ours, theirs):
    """The median ratio of our seconds to theirs, by the clock and of the processor."""
    clocks = enumerate(("seconds", "processor_seconds"))
    return {clock: statistics.median(a[i] / b[i] for a, b in zip(ours, theirs, strict=True)) for i, clock in clocks}


def loader_alone(store: Path, epochs: int = 5, threads: int = 1) -> dict[str, Any]:
    """Time epochs of the same model fed by the public loader and by the trainer's own source, in one process and in alternation."""
    found = alone(store, epochs, threads)
    return {"ratios": compared(found["public"], found["engine"]), **found}


def loader_input(store: Path, epochs: int = 5, threads: int = 1, fanouts: Numbers = FANOUTS) -> dict[str, Any]:
    """Time epochs of sampling and of the input of a GraphSAGE layer, by `x` and a mean over it and by `own_and_mean`, in alternation."""
    torch.set_num_threads(threads)
    graph, sizes = bs.load(store), []
    reads = {"x": lambda batch: batch.blocks[0].aggregate(batch.x), "own_and_mean": lambda batch: batch.own_and_mean()}
    loaders = {name: bs.Loader(graph, fanouts=fanouts, batch_size=BATCH, seeds="train", seed=1, threads=threads) for name in reads}
    found = {name: [] for name in reads}
    for epoch in range(epochs + 1):
        for name, read in reads.items():
            began = time.perf_counter(), time.process_time()
            for batch in loaders[name]:
                read(batch)
                sizes.append((batch.blocks[0].num_sources, batch.blocks[0].num_edges))
            found[name] += [(time.perf_counter() - began[0], time.process_time() - began[1])] if epoch else []
    sources, edges = np.mean(sizes, axis=0).tolist()
    return {"ratios": compared(found["own_and_mean"], found["x"]), **found, "sources": sources, "edges": edges}


def loader_ranks(store: Path, epochs: int = 5, rounds: int = 3, ranks: int = 2, threads: int = 1) -> dict[str, Any]:
    """Time epochs of `bulksample train` and of a plain DistributedDataParallel loop over a partitioned graph, in alternation."""
    found = on_ranks(store, epochs, ranks, threads, rounds)
    return {"ratios": compared(found["ddp"], found["train"]), **found}


def mapped_seeds(folder, count, n):
    """Write seeds 0, 1, ..., n - 1, 0, ... to a file, and map it."""
    path, once = Path(folder) / "seeds.bin", np.arange(n, dtype=np.int32)
    with path.open("wb") as file:
        for first in range(0, count, n):
            once[: count - first].tofile(file)
    return np.memmap(path, np.int32, "r")


def milliseconds(function, rounds):
    """Time a function: the median of the rounds after the first, the minimum and the maximum."""
    found = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        function()
        found.append(1000 * (time.perf_counter() - began))
    return [statistics.median(found[1:]), min(found[1:]), max(found[1:])]


@quick(seeds=(2000, 100_000), epochs=2)
def loader_start(seeds: Numbers = (1_200_000, 20_000_000, 160_000_000), epochs: int = 9, sorts: int = 20_000_000) -> dict[str, Any]:
    """Time the start of an epoch of so many seeds in a mapped file: its order, the seeds of a mini-batch of 1024, and the first mini-batch.

    Peak bytes are those that a start allocates. Up to `sorts` seeds are also sorted by random keys at once, for comparison.
    """
    graph, found = rmat(16, 8, seed=1), {}
    for count in seeds:
        with tempfile.TemporaryDirectory() as folder:
            adjacency, law = bs.LocalAdjacency(graph.adjacency, bs.backends.make("auto", 1)), bs.samplers.make("sage", FANOUTS)
            loader = BulkLoader(adjacency, law, mapped_seeds(folder, count, graph.n), batch_size=1024, seed=1)
            order = Shuffle(Stream(1), count)
            row = {
                "order_ms": milliseconds(lambda n=count: Shuffle(Stream(1), n), epochs),
                "seeds_of_minibatch_ms": milliseconds(lambda own=order, n=count: own.at(np.arange(min(1024, n))), epochs),
                "first_minibatch_ms": milliseconds(lambda made=loader: list(islice(made, 1)), epochs),
            }
            tracemalloc.start()
            list(islice(loader, 1))
            row["peak_bytes"] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if count <= sorts:
                row["sorted_ms"] = milliseconds(lambda n=count: Stream(1).permutation(n), 1)
            found[str(count)] = row
    return {"seeds": found}
