"""Measure link prediction: the dot decoder beside one that gathers rows, and the time to split edges.

The decoder scores edges and their negatives and computes the gradient, at the size of one step on 418,000 edges of a graph with 14,000
vertices; contestants are checked against each other first and run in turn. Splitting is `bulksample data split-edges` of an R-MAT graph
with 100 negatives. Milliseconds per call. Gathering writes 5 rows per edge, and as many for gradients: 1.1 GB. The sparse products read 8
rows of Z per edge, which stay in a cache (3.5 MB), and write none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import alternate, milliseconds, summary

from bulksample.data.link_split import hold_out
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
    found = alternate({"bulksample": milliseconds(lambda: hold_out(graph, "to", 0.05, 0.1, 100, 0))}, rounds)
    return {"milliseconds": {name: summary(values) for name, values in found.items()}, "vertices": graph.n, "edges": graph.num_edges}


def figures(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Return the milliseconds of two ways in alternation, ours first, and how many times as fast ours is."""
    found = alternate({name: milliseconds(call) for name, call in ways.items()}, rounds)
    told = {name: summary(values) for name, values in found.items()}
    ours, other = (one["median"] for one in told.values())
    return {"milliseconds": told, "times_as_fast": other / ours}


def links(threads: int = 1, rounds: int = 7) -> dict[str, Any]:
    torch.set_num_threads(threads)
    return {"torch": torch.__version__, "threads": threads, "decoder": decoder(rounds), "splitting": splitting(rounds)}
