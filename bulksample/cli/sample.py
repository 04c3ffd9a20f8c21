"""`bulksample sample`: sample the minibatches of one epoch, count them, time them, and witness them by a digest."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Annotated

import typer

from .options import bulk_size_of, fanout_list, sampler_options
from .output import JsonOption, SeedOption, emit


def sample(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format.")],
    sampler: Annotated[str, typer.Option(help="sage, ladies, fastgcn, labor, full, shadow or saint.")] = "sage",
    fanouts: Annotated[str, typer.Option(help="Per hop from the seeds on; -1 takes all.")] = "15,10,5",
    options: Annotated[str | None, typer.Option(help="Options of the sampler, such as replace=true or importance=squared_sum.")] = None,
    frontier: Annotated[str, typer.Option(help="all: expand every vertex again in each layer; new: only those not expanded yet.")] = "all",
    batch_size: Annotated[int, typer.Option(min=1)] = 1024,
    bulk_size: Annotated[str, typer.Option(help="Minibatches sampled in one call, or auto.")] = "auto",
    backend: Annotated[str, typer.Option(help="auto, native or reference.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    seeds: Annotated[str | None, typer.Option(help="train, val, test or all; train where there is such a mask.")] = None,
    minibatches: Annotated[int | None, typer.Option(min=1, help="Only the first so many of the epoch.")] = None,
    epoch: Annotated[int, typer.Option(min=0)] = 0,
    drop_last: Annotated[bool, typer.Option("--drop-last")] = False,
    memory_budget: Annotated[int | None, typer.Option(min=1, help="Bytes for sampled minibatches, for --bulk-size auto.")] = None,
    digest: Annotated[bool, typer.Option("--digest/--no-digest", help="Witness the minibatches by a SHA-256 (not timed).")] = True,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Sample one epoch in bulk and report what was drawn, how fast, and its digest."""
    from .. import backends, samplers
    from ..adjacency import LocalAdjacency
    from ..data import store
    from ..loader import BulkLoader
    from ..minibatch import digest as digest_of

    drawn = samplers.make(sampler, fanout_list(fanouts), frontier=frontier, **sampler_options(options))
    engine = backends.make(backend, threads)
    graph = store.load(directory, features=False)
    chosen = graph.seeds(seeds) if seeds else graph.default_seeds()
    loader = BulkLoader(
        LocalAdjacency(graph.adjacency, engine),
        drawn,
        chosen,
        batch_size=batch_size,
        seed=seed,
        drop_last=drop_last,
        bulk_size=bulk_size_of(bulk_size),
        memory_budget=memory_budget,
        prefetch=False,  # so that the time waited is the time of sampling, and nothing else runs meanwhile
    )
    loader.epoch = epoch
    count = edges = inputs = 0
    witnesses = []
    for minibatch in loader:
        assert minibatch is not None  # one rank: every step has its minibatch
        count, edges, inputs = count + 1, edges + minibatch.num_edges, inputs + len(minibatch.vertices)
        if digest:
            witnesses.append((minibatch.epoch, minibatch.id, minibatch.digest()))
        if count == minibatches:
            break
    seconds = loader.wait_seconds
    emit(
        {
            "sampler": drawn.name,
            "fanouts": list(drawn.fanouts),
            "frontier": frontier,
            "batch_size": batch_size,
            "seed": seed,
            "epoch": epoch,
            "minibatches": count,
            "sampled_edges": edges,
            "input_vertices": inputs,
            "seconds": seconds,
            "sampled_edges_per_second": edges / seconds if seconds else 0.0,
            "backend": engine.name,
            "threads": engine.threads,
            "bulk_size": loader.bulk_size,
            "predicted_bytes": loader.predicted_bytes,
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "digest": digest_of(witnesses) if digest else None,
        },
        json_file,
        f"sample {directory}",
    )
