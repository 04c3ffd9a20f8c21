"""`bulksample partition`: deal the vertices of a graph to parts, and say what the cut costs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .output import JsonOption, SeedOption, emit


def partition(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format.")],
    parts: Annotated[int, typer.Option(min=1)],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file of the partition.")],
    by: Annotated[str, typer.Option(help="block rows, at random, metis, or super: METIS clusters dealt at random.")] = "block",
    clusters: Annotated[int | None, typer.Option(min=1, help="Of super; 16 for each part unless given.")] = None,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Deal the vertices to parts, and report their sizes and what those lose who train on parts alone (see `distributed.costs.partition_quality`)."""
    import numpy as np

    from ..data import store
    from ..distributed.costs.partition_quality import tradeoff
    from ..distributed.matrix import partition as makers

    if by not in makers.PARTITIONERS:
        raise UsageError(f"by must be one of {', '.join(makers.PARTITIONERS)}; got {by!r}")
    graph = store.load(directory, features=False)
    adjacency, labels = graph.adjacency, np.full(graph.n, -1) if graph.labels is None else graph.labels
    began = time.perf_counter()
    made = makers.make(by, adjacency, parts, seed, clusters)
    seconds = time.perf_counter() - began
    made.save(out)
    crossing = int((made.assignment[adjacency.row_of_entry()] != made.assignment[adjacency.indices]).sum())
    sizes = np.diff(made.bounds)
    emit({
        "file": str(out), "by": by, "parts": parts, "vertices": made.n, "smallest_part": int(sizes.min()), "largest_part": int(sizes.max()),
        "crossing_edges": crossing, "crossing_share": crossing / max(1, adjacency.nnz),
        **tradeoff(adjacency, labels, made.assignment, parts), "seed": seed, "seconds": seconds,
    }, json_file, f"partition {directory}")  # fmt: skip
