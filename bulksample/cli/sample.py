"""`bulksample sample`: sample the minibatches of one epoch, count them, time them, and witness them by a digest."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Annotated

import typer

from ..version import __version__
from .options import ExchangeOption, GraphOption, PartitionOption, ReplicationOption, bulk_size_of, fanout_list, sampler_options
from .output import JsonOption, SeedOption, emit


def sample(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format.")],
    sampler: Annotated[str, typer.Option(help="sage, ladies, fastgcn, labor, full, shadow or saint.")] = "sage",
    fanouts: Annotated[str, typer.Option(help="Per hop from the seeds on; -1 takes all.")] = "15,10,5",
    options: Annotated[str | None, typer.Option(help="Options of the sampler, such as replace=true or importance=squared_sum.")] = None,
    frontier: Annotated[str, typer.Option(help="all: expand every vertex again in each layer; new: only those not expanded yet.")] = "all",
    batch_size: Annotated[int, typer.Option(min=1)] = 1024,
    bulk_size: Annotated[str, typer.Option(help="Minibatches sampled in one call, or auto.")] = "auto",
    backend: Annotated[str, typer.Option(help="auto, native, reference or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    seeds: Annotated[str | None, typer.Option(help="train, val, test or all; train where there is such a mask.")] = None,
    minibatches: Annotated[int | None, typer.Option(min=1, help="Only the first so many of the epoch.")] = None,
    epoch: Annotated[int, typer.Option(min=0)] = 0,
    drop_last: Annotated[bool, typer.Option("--drop-last")] = False,
    memory_budget: Annotated[int | None, typer.Option(min=1, help="Bytes for sampled minibatches, for --bulk-size auto.")] = None,
    digest: Annotated[bool, typer.Option("--digest/--no-digest", help="Witness the minibatches by a SHA-256 (not timed).")] = True,
    graph: GraphOption = None,
    replication: ReplicationOption = 1,
    exchange: ExchangeOption = "owner",
    partition: PartitionOption = "block",
    timeout: Annotated[float, typer.Option(help="Seconds that a rank may wait for another.")] = 300.0,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Sample one epoch in bulk and report what was drawn, how fast, and its digest; under mpirun, ranks share the minibatches."""
    from .. import backends, samplers
    from ..data.manifest import load_manifest
    from ..dist.agree import agree
    from ..dist.comm import world
    from ..dist.opening import Placement, open_for_sampling
    from ..dist.placement import fair_threads
    from ..loader import BulkLoader
    from ..minibatch import digest as digest_of
    from ..report.ledger import Ledger, combine

    drawn = samplers.make(sampler, fanout_list(fanouts), frontier=frontier, **sampler_options(options))
    placement = Placement(graph or "replicated", replication, exchange, partition)
    asked = {
        "sampler": f"{drawn.name} {sorted(vars(drawn).items())}", "batch size": batch_size, "bulk size": bulk_size, "seeds": seeds,
        "minibatches": minibatches, "epoch": epoch, "drop_last": drop_last, "random seed": seed, "placement": str(placement),
    }  # fmt: skip
    with world(timeout) as comm:
        agree(comm, {"version": __version__, "graph": load_manifest(directory).digest, **asked})
        ledger = Ledger(comm)
        engine = backends.make(backend, threads or fair_threads(comm))
        adjacency, chosen = open_for_sampling(directory, seeds, comm, engine, placement, seed)
        loader = BulkLoader(
            adjacency, drawn, chosen, batch_size=batch_size, seed=seed, drop_last=drop_last, rank=comm.rank, ranks=comm.size,
            bulk_size=bulk_size_of(bulk_size), memory_budget=memory_budget,
            prefetch=False,  # so that the time waited is the time of sampling, and nothing else runs meanwhile
        )  # fmt: skip
        loader.bulk_size = min(comm.gather_control(loader.bulk_size))  # sampling a partitioned graph is collective
        loader.epoch = epoch
        wanted = len(loader) if minibatches is None else min(minibatches, len(loader))
        count = edges = inputs = 0
        witnesses = []
        for step, minibatch in zip(range(-(-wanted // comm.size)), loader, strict=False):
            if minibatch is None or step * comm.size + comm.rank >= wanted:
                continue
            count, edges, inputs = count + 1, edges + minibatch.num_edges, inputs + len(minibatch.vertices)
            if digest:
                witnesses.append((minibatch.epoch, minibatch.id, minibatch.digest()))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        everyone = comm.gather_control([count, edges, inputs, loader.wait_seconds, peak, witnesses])
        sent = combine(comm.gather_control(ledger.total()))["bytes_sent"]
        if comm.rank == 0:
            counts, all_edges, all_inputs, waits, peaks, found = zip(*everyone, strict=True)
            seconds = max(waits)
            emit({
                "sampler": drawn.name, "fanouts": list(drawn.fanouts), "frontier": frontier, "batch_size": batch_size, "seed": seed,
                "epoch": epoch, "ranks": comm.size, "graph": placement.graph, "replication": replication, "exchange": exchange,
                "partition": partition,
                "minibatches": sum(counts), "sampled_edges": sum(all_edges), "input_vertices": sum(all_inputs), "seconds": seconds,
                "sampled_edges_per_second": sum(all_edges) / seconds if seconds else 0.0,
                "backend": engine.name, "threads": engine.threads, "bulk_size": loader.bulk_size,
                "predicted_bytes": loader.predicted_bytes, "peak_memory_bytes": max(peaks), "bytes_sent": sent,
                "digest": digest_of((e, i, text) for rank in found for e, i, text in rank) if digest else None,
            }, json_file, f"sample {directory}")  # fmt: skip
