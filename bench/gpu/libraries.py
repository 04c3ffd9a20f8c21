"""Measure other libraries beside ours on the same card and graph, as ratios: sums over edges, and neighbor sampling.

Each is measured in alternation with ours. A library that is missing is named by an error.
Samples are other neighbors of the same seeds and fanouts; sums are the same, and compared.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import alternate

from bulksample import CSR
from bulksample.backends.cuda.products import FloatCSR, aggregate

from .baselines import Edges
from .inputs import edges_of

ROWS = 100_000  # of the block whose edges are summed over


def sums(bench: Any) -> dict[str, Any]:
    """Compare sums over the edges of a block with torch's sparse product and scatter, a copy of the same bytes, and our CPU back end."""
    import torch

    cuda, width = bench.context("fp32").cuda, bench.sizes.features
    device, n, rows = bench.device, bench.large.shape[0], min(ROWS, bench.large.shape[0])
    indptr = bench.large.indptr[: rows + 1]
    entries, columns = int(indptr[-1]), bench.large.indices[: int(indptr[-1])]
    x = np.random.default_rng(1).standard_normal((n, width), np.float32)
    there = cuda.put(x)
    block = FloatCSR(device.put(indptr), device.put(columns), None, rows, n)
    flat, ends, ids = cuda.array(there.reshape(-1)), cuda.put(indptr), cuda.put(columns.astype(np.int64))
    matrix = torch.sparse_csr_tensor(ends, ids, torch.ones(entries, device=there.device), (rows, n))
    of_row = torch.arange(rows, device=there.device).repeat_interleave(ends.diff(), output_size=entries)
    moved = torch.empty(entries * (width + 1) // 2 + rows * width // 2, device=there.device)  # read and written: the bytes of a sum
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: cuda.tensor(aggregate(device, block, flat, width, mean=False)),
        "torch.sparse.mm": lambda: matrix @ there,
        "torch index_add_": lambda: there.new_zeros(rows, width).index_add_(0, of_row, there[ids]),
        "copy of the same bytes": lambda: moved.clone(),
    }
    expected = ways["ours"]().reshape(rows, width)
    for name in ("torch.sparse.mm", "torch index_add_"):
        torch.testing.assert_close(ways[name](), expected, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
    with_host = ways | {"our CPU back end": lambda: bench.host.spmm(indptr, columns, None, x)}
    return {
        "rows": rows,
        "entries": entries,
        "width": width,
        "bytes": entries * (4 + 4 * width) + 4 * rows * width,
        **_ratios(bench, with_host),
    }


Library = Callable[[CSR, list[np.ndarray], tuple[int, ...]], Edges]


def sampled(bench: Any, library: Library, fanouts: tuple[int, ...], k: int = 8) -> dict[str, Any]:
    """Compare the edges a second of a library's neighbor sampler with ours, for k mini-batches; raises `ImportError` without it."""
    seeds = bench.seeds(k)
    theirs, ours = library(bench.large, [seeds.part(j) for j in range(len(seeds))], fanouts), partial(bench.draw, seeds)
    edges = {"theirs": theirs(), "ours": edges_of(ours())}
    found = _ratios(bench, {"ours": ours, "theirs": theirs})
    rate = {name: edges[name] / found["seconds"][name] for name in edges}
    return {**found, "edges": edges, "edges_per_second": rate, "ours_to_theirs": rate["ours"] / rate["theirs"]}


def _ratios(bench: Any, ways: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Measure in alternation, after a warm-up; return medians of seconds, and their ratios to ours."""
    figures = alternate({name: partial(bench.waited, work) for name, work in ways.items()}, bench.rounds)
    seconds = {name: statistics.median(values) for name, values in figures.items()}
    return {"seconds": seconds, "times_ours": {name: taken / seconds["ours"] for name, taken in seconds.items() if name != "ours"}}


def torch_geometric(matrix: CSR, batches: list[np.ndarray], fanouts: tuple[int, ...]) -> Edges:
    """Draw with torch_geometric's NeighborLoader, which samples on the host."""
    if not any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")):  # before the edges are converted
        raise ImportError("NeighborLoader needs pyg_lib or torch_sparse")
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    edges = torch.from_numpy(np.stack([matrix.indices.astype(np.int64), np.repeat(np.arange(matrix.shape[0]), matrix.degrees)]))
    data, asked = Data(edge_index=edges, num_nodes=matrix.shape[0]), torch.from_numpy(np.concatenate(batches).astype(np.int64))
    loader = NeighborLoader(data, list(fanouts), asked, batch_size=len(batches[0]))
    return lambda: sum(batch.edge_index.shape[1] for batch in loader)


def dgl(matrix: CSR, batches: list[np.ndarray], fanouts: tuple[int, ...]) -> Edges:
    """Draw with DGL's NeighborSampler, the graph on the device."""
    import dgl as library
    import torch

    parts = torch.from_numpy(matrix.indptr.copy()), torch.from_numpy(matrix.indices.astype(np.int64))
    graph = library.graph(("csc", (*parts, torch.empty(0, dtype=torch.int64))), num_nodes=matrix.shape[0]).to("cuda")
    sampler = library.dataloading.NeighborSampler(list(reversed(fanouts)))  # the hop of the seeds comes last there
    asked = [torch.from_numpy(batch.astype(np.int64)).cuda() for batch in batches]
    return lambda: sum(block.num_edges() for batch in asked for block in sampler.sample(graph, batch)[2])


def cugraph(matrix: CSR, batches: list[np.ndarray], fanouts: tuple[int, ...]) -> Edges:
    """Draw with pylibcugraph's neighbor sampler, which numbers nothing."""
    import cupy
    import pylibcugraph as library

    handle = library.ResourceHandle()
    arrays = cupy.asarray(matrix.indptr), cupy.asarray(matrix.indices.astype(np.int64))
    graph = library.SGGraph(
        handle, library.GraphProperties(is_symmetric=False, is_multigraph=False), *arrays, cupy.ones(matrix.nnz, cupy.float32),
        store_transposed=False, renumber=False, do_expensive_check=False, input_array_format="CSR",
    )  # fmt: skip
    asked, hops = [cupy.asarray(batch.astype(np.int64)) for batch in batches], np.array(fanouts, np.int32)
    options = {"with_replacement": False, "do_expensive_check": False}

    def work() -> int:
        drawn = (library.uniform_neighbor_sample(handle, graph, start_list=batch, h_fan_out=hops, **options) for batch in asked)
        return sum(len(found["majors"] if isinstance(found, dict) else found[0]) for found in drawn)

    return work


def quiver(matrix: CSR, batches: list[np.ndarray], fanouts: tuple[int, ...]) -> Edges:
    """Draw with torch-quiver's sampler, the graph on the device."""
    import quiver as library
    import torch

    topology = library.CSRTopo(indptr=torch.from_numpy(matrix.indptr.copy()), indices=torch.from_numpy(matrix.indices.astype(np.int64)))
    sampler = library.pyg.GraphSageSampler(topology, list(fanouts), device=0, mode="GPU")
    asked = [torch.from_numpy(batch.astype(np.int64)).cuda() for batch in batches]

    def work() -> int:
        return sum(hop.edge_index.shape[1] for batch in asked for hop in sampler.sample(batch)[2])

    return work
