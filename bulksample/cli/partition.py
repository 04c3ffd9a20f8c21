"""`bulksample partition`: divide the vertices of a graph into parts, and measure the cut."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError, instead_of
from .output import Check, CheckOption, JsonOption, SeedOption, emit
from .outputs import OverwriteOption, check_outputs


def partition(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format.")],
    parts: Annotated[int, typer.Option(min=1, help="Number of parts.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File of the partition.")],
    by: Annotated[str, typer.Option(help="Partitioner: block, random, metis, or super (METIS clusters, assigned at random).")] = "block",
    clusters: Annotated[int | None, typer.Option(min=1, help="Clusters of super. Default: 16 for each part.")] = None,
    seed: SeedOption = 0,
    check: CheckOption = Check.auto,
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Divide the vertices into parts; report their sizes, the edges cut, and how far labels differ between parts."""
    import numpy as np

    from ..data import store
    from ..distributed.costs.partition_quality import tradeoff
    from ..distributed.matrix import partition as makers

    if by not in makers.PARTITIONERS:
        raise UsageError(f"--by: got {by!r}; {instead_of(by, makers.PARTITIONERS)}")
    check_outputs(overwrite, out, json_file)
    graph = store.load(directory, features=False, check=check)
    if parts > max(1, graph.n):
        raise UsageError(f"--parts: got {parts} parts of {graph.n} vertices; use at most {max(1, graph.n)}")
    adjacency = graph.adjacency
    began = time.perf_counter()
    made = makers.make(by, adjacency, parts, seed, clusters)
    seconds = time.perf_counter() - began
    made.save(out)
    crossing = int((made.assignment[adjacency.row_of_entry()] != made.assignment[adjacency.indices]).sum())
    sizes = np.diff(made.bounds)
    emit({
        "file": str(out), "by": by, "parts": parts, "vertices": made.n, "smallest_part": int(sizes.min()), "largest_part": int(sizes.max()),
        "crossing_edges": crossing, "crossing_share": crossing / max(1, adjacency.nnz),
        **tradeoff(adjacency, graph.labels, made.assignment, parts), "seed": seed, "seconds": seconds,
    }, json_file, f"partition {directory}")  # fmt: skip
