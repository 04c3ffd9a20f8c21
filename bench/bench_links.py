"""Measure link prediction: the dot decoder beside one that gathers rows, and edge splitting beside `numpy.isin`.

The decoder scores edges and their negatives and computes the gradient, at the size of one step on 418,000 edges of a graph with 14,000
vertices. Splitting is `bulksample data split-edges` of an R-MAT graph with 100 negatives; contestants differ in how they look up pairs
among edges. They are checked against each other first and run in turn; milliseconds per call. Gathering writes 5 rows per edge, and as
many for gradients: 1.1 GB. The sparse products read 8 rows of Z per edge, which stay in a cache (3.5 MB), and write none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import alternate, milliseconds, summary

from bulksample import CSR
from bulksample.data import edge_split
from bulksample.data.rmat import rmat
from bulksample.nn.decoders import LinkModel
from bulksample.nn.model import Gnn

VERTICES, EDGES, WIDTH = 13_752, 418_000, 64


def decoder(rounds: int) -> dict[str, Any]:
    model, rng = LinkModel(Gnn("sage", [4, WIDTH, WIDTH]), "dot", WIDTH), torch.Generator().manual_seed(0)
    z = torch.randn(VERTICES, WIDTH, generator=rng)
    rows = torch.randint(0, VERTICES, (3 * EDGES,), generator=rng)

    def step(scores: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        leaf = z.clone().requires_grad_()
        true, false = scores(leaf)
        (torch.nn.functional.softplus(-true).sum() + torch.nn.functional.softplus(false).sum()).backward()
        assert leaf.grad is not None
        return leaf.grad

    def gathered(leaf: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        source, destination, other = leaf[rows].chunk(3)
        return model.score(source, destination), model.score(source, other)

    ways = {"sparse products": lambda: step(lambda leaf: model.scores(leaf, rows)), "gathered rows": lambda: step(gathered)}
    torch.testing.assert_close(ways["sparse products"](), ways["gathered rows"](), rtol=1e-3, atol=1e-3)
    return figures(ways, rounds) | {"vertices": VERTICES, "edges": EDGES, "width": WIDTH}


def splitting(rounds: int) -> dict[str, Any]:
    graph = rmat(14, 16, seed=1)

    def split() -> np.ndarray:
        return edge_split.split_edges(graph, 0.05, 0.1, 100, 0)[1].negatives["test"]

    def by_isin() -> np.ndarray:
        ours, edge_split.joined = edge_split.joined, _by_isin
        try:
            return split()
        finally:
            edge_split.joined = ours

    ways = {"bulksample": split, "numpy.isin": by_isin}
    assert np.array_equal(split(), by_isin())
    return figures(ways, rounds) | {"vertices": graph.n, "edges": graph.adjacency.nnz}


def _by_isin(a: CSR, sources: np.ndarray, destinations: np.ndarray, entries: bool = False) -> np.ndarray:
    keys, wanted = a.row_of_entry() * a.shape[1] + a.indices, destinations.astype(np.int64) * a.shape[1] + sources
    return np.isin(keys, wanted) if entries else np.isin(wanted, keys)


def figures(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Return the milliseconds of two ways in alternation, ours first, and how many times as fast ours is."""
    found = alternate({name: milliseconds(call) for name, call in ways.items()}, rounds)
    told = {name: summary(values) for name, values in found.items()}
    ours, other = (one["median"] for one in told.values())
    return {"milliseconds": told, "times_as_fast": other / ours}


def links(threads: int = 1, rounds: int = 7) -> dict[str, Any]:
    torch.set_num_threads(threads)
    return {"torch": torch.__version__, "threads": threads, "decoder": decoder(rounds), "splitting": splitting(rounds)}
