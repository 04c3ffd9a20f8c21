"""`bulksample partition`: divide the vertices of a graph into parts, and measure the cut."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError, instead_of
from .output import Check, CheckOption, JsonOption, OverwriteOption, SeedOption, emit, hold_checked, hold_outputs
from .process import peak_memory

if TYPE_CHECKING:
    from ..distributed.matrix.partition import Partition
    from ..graph import Graph


def partition(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format.")],
    parts: Annotated[int, typer.Option(min=1, help="Number of parts.")],
    out: Annotated[str, typer.Option("-o", "--out", help="Folder of the parts, PARTS/; without a slash the file of a partition, .npz.")],
    by: Annotated[str, typer.Option(help="Partitioner: block, random, metis, stream, or super (METIS clusters, at random).")] = "block",
    clusters: Annotated[int | None, typer.Option(min=1, help="Clusters of super. Default: 16 for each part.")] = None,
    seed: SeedOption = 0, check: CheckOption = Check.auto, overwrite: OverwriteOption = False, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Divide the vertices into parts; report their sizes, the edges cut, and how far labels differ between parts.

    A folder of parts takes the place of DIR in train, sample and predict; each rank reads its own part.
    """
    from ..data import store
    from ..data.parts_manifest import describe_parts, graph_manifest
    from ..data.parts_writer import check_parts_target, write_parts
    from ..data.result_places import check_ending
    from ..distributed.matrix import partition as makers

    if by not in makers.PARTITIONERS:
        raise UsageError(f"--by: got {by!r}; {instead_of(by, makers.PARTITIONERS)}")
    path, whole = Path(out), out.endswith(("/", os.sep)) or Path(out).is_dir()
    if not whole:
        check_ending("--out", path, ".npz")
    if whole:
        hold_checked(lambda: check_parts_target(directory, path, overwrite), path)
    hold_outputs(overwrite, *[None if whole else path, json_file])
    graph_manifest(directory)  # a graph that is not plain is refused
    graph = store.load(directory, features=whole, check=check)
    if parts > max(1, graph.n):
        raise UsageError(f"--parts: got {parts} parts of {graph.n} vertices; use at most {max(1, graph.n)}")
    began, before = time.perf_counter(), peak_memory()
    made = makers.make(by, graph.adjacency, parts, seed, clusters, train=graph.masks.get("train"))
    seconds, grown = time.perf_counter() - began, peak_memory() - before
    began, written = time.perf_counter(), {}
    if whole:
        written = describe_parts(write_parts(directory, path, made.assignment, parts, by, seed, overwrite))
    else:
        made.save(path)
    spent = {"memory_per_edge_bytes": grown / max(1, graph.adjacency.nnz), "seed": seed, "seconds": seconds}
    spent |= {"seconds_writing": time.perf_counter() - began, "peak_memory_bytes": peak_memory()}
    title = {"folder" if whole else "file": out, "by": by, "parts": parts, "vertices": made.n}
    emit({**title, **_measured(graph, made), **written, **spent}, json_file, f"partition {directory}")


def _measured(graph: Graph, made: Partition) -> dict[str, Any]:
    """Return the sizes of the parts, the edges between them, and their balance."""
    import numpy as np

    from ..distributed.matrix.partition_quality import balances, tradeoff

    quality, sizes = tradeoff(graph.adjacency, graph.labels, made.assignment, made.parts), np.diff(made.bounds)
    crossing = graph.adjacency.nnz - round(quality["edges_kept"] * graph.adjacency.nnz)
    return {
        "smallest_part": int(sizes.min()), "largest_part": int(sizes.max()), "crossing_edges": crossing,
        "crossing_share": crossing / max(1, graph.adjacency.nnz), **quality,
        "max_over_mean": balances(graph.adjacency, made.assignment, made.parts, graph.masks.get("train")),
    }  # fmt: skip
