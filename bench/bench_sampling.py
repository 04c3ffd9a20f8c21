"""Measure sampled edges per second, with deduplication and relabelling, for bulksample and the installed peers.

All sample the same R-MAT graph from the same seeds, one mini-batch per thread, without features. bulksample expands every vertex again in
each layer, as DGL does; with ``--frontier new`` it expands a vertex once, as torch_geometric does. Peers are torch_geometric's
NeighborLoader sampler (on pyg-lib or torch-sparse) and DGL's NeighborSampler with int32 ids, not fused: the fused sampler draws too few
edges from the second mini-batch on. Peers that are not installed are skipped. A peer runs one mini-batch on each of ``--threads`` Python
threads, with OpenMP held to one thread in each; otherwise DGL would use all cores for one mini-batch. In every round a peer must draw as
many edges as bulksample under the same rule, within 2 %. Quote ratios.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

os.environ["OMP_NUM_THREADS"] = "1"  # read once, when a peer loads OpenMP; ours are an argument

import numpy as np
from graphs import seeds
from harness import Numbers, check_edges, compare

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.data.rmat import rmat

Work = Callable[[np.ndarray], int]  # samples one minibatch, returns its edges


def ours(matrix: CSR, fanouts: tuple[int, ...], threads: int, frontier: str, batches: list[np.ndarray]) -> Callable[[], float]:
    adjacency = LocalAdjacency(matrix, backends.make("native", threads))
    sampler = samplers.make("sage", fanouts, frontier=frontier)
    seeds = Selection.of(batches, matrix.shape[0])

    def run() -> float:
        began = time.perf_counter()
        bulk = sampler.sample_bulk(adjacency, seeds, Stream(1))
        return sum(minibatch.num_edges for minibatch in bulk) / (time.perf_counter() - began) / 1e6

    return run


def timed(name: str, work: Work, batches: Iterable[np.ndarray], threads: int, expected: int) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            edges = sum(pool.map(work, batches))
        seconds = time.perf_counter() - began
        check_edges(name, edges, expected)
        return edges / seconds / 1e6

    return run


def drawn(matrix: CSR, fanouts: tuple[int, ...], rule: str, batches: list[np.ndarray]) -> int:
    """Count the edges of all mini-batches under a frontier rule."""
    sampler = samplers.make("sage", fanouts, frontier=rule)
    bulk = sampler.sample_bulk(LocalAdjacency(matrix, backends.make()), Selection.of(batches, matrix.shape[0]), Stream(1))
    return sum(minibatch.num_edges for minibatch in bulk)


def pyg(matrix: CSR, fanouts: tuple[int, ...]) -> tuple[str, Work]:
    import torch
    from torch_geometric.data import Data
    from torch_geometric.sampler import NeighborSampler, NodeSamplerInput
    from torch_geometric.typing import WITH_PYG_LIB

    torch.set_num_threads(1)
    ends = np.stack([matrix.indices.astype(np.int64), matrix.row_of_entry()])  # source -> target
    data = Data(edge_index=torch.from_numpy(ends), num_nodes=matrix.shape[0])
    sampler = NeighborSampler(data, num_neighbors=list(fanouts))

    def work(batch: np.ndarray) -> int:
        return len(sampler.sample_from_nodes(NodeSamplerInput(None, torch.from_numpy(batch))).row)

    return f"torch_geometric on {'pyg-lib' if WITH_PYG_LIB else 'torch-sparse'}", work


def dgl(matrix: CSR, fanouts: tuple[int, ...]) -> tuple[str, Work]:
    import dgl
    import torch

    ends = torch.from_numpy(matrix.indices), torch.from_numpy(matrix.row_of_entry().astype(np.int32))
    graph = dgl.graph(ends, num_nodes=matrix.shape[0], idtype=torch.int32).formats("csc")
    sampler = dgl.dataloading.NeighborSampler(list(reversed(fanouts)), fused=False)

    def work(batch: np.ndarray) -> int:
        return sum(block.num_edges() for block in sampler.sample_blocks(graph, torch.from_numpy(batch.astype(np.int32)))[2])

    return f"dgl {dgl.__version__}, not fused", work


def sampling(
    scale: Annotated[int, "the graph has 2^scale vertices"] = 20, edges: int = 30_000_000, fanouts: Numbers = (15, 10, 5),
    batch_size: int = 1024, minibatches: int = 16, rounds: int = 5, threads: int = 1,
) -> dict[str, Any]:  # fmt: skip
    matrix = rmat(scale, edges=edges // 2, seed=1).adjacency
    batches = seeds(matrix, minibatches, batch_size)
    contestants = {f"bulksample, frontier {rule}": ours(matrix, fanouts, threads, rule, batches) for rule in ("all", "new")}
    for peer, rule in ((pyg, "new"), (dgl, "all")):
        try:
            name, work = peer(matrix, fanouts)
            work(batches[0])  # torch_geometric looks for its libraries now
        except ImportError as error:
            print(f"left out: {peer.__name__}: {error}")
            continue
        contestants[name] = timed(name, work, batches, threads, drawn(matrix, fanouts, rule, batches))
    return {
        "unit": "million sampled edges per second", "threads": threads, "fanouts": fanouts, "batch_size": batch_size,
        "minibatches": minibatches, "rounds": rounds, "vertices": matrix.shape[0], "edges": matrix.nnz,
        "results": compare(contestants, rounds),
    }  # fmt: skip
