"""`bulksample sample`: sample the mini-batches of one epoch; report their number, time and digest."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Annotated

import typer

from ..config.sample import SampleConfig
from ..version import __version__
from .configured import Requested, config_beside, config_file, configured, write_config
from .output import JsonOption, emit, tell_launch
from .outputs import OverwriteOption, check_outputs


@configured(SampleConfig)
def sample(
    requested: Requested,
    directory: Annotated[Path, typer.Argument(help="A graph in the store format.")],
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Sample one epoch in bulk; report edges, seconds and a digest. Under mpirun, ranks share the mini-batches."""
    from .. import backends, samplers
    from ..data.manifest import load_manifest
    from ..distributed.comm.agree import agree, checked_on_rank_0
    from ..distributed.comm.launchers import launched
    from ..distributed.comm.ledger import Ledger, combine
    from ..distributed.comm.thread_budget import fair_threads
    from ..distributed.comm.world import world
    from ..distributed.matrix.open_graph import Placement, open_for_sampling
    from ..distributed.matrix.verify import verify_together
    from ..loader import BulkLoader
    from ..minibatch import digest as digest_of
    from ..training.environment import environment

    config: SampleConfig = requested.config(SampleConfig)
    drawn = samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **config.sampler_options)
    placement = Placement(config.graph or "replicated", config.replication, config.exchange, config.partition)
    alike = {
        "sampler": f"{drawn.name} {sorted(vars(drawn).items())}", "batch size": config.batch_size, "bulk size": config.bulk_size,
        "seeds": config.seeds, "minibatches": config.minibatches, "epoch": config.epoch, "drop_last": config.drop_last,
        "random seed": config.seed, "placement": str(placement),
    }  # fmt: skip
    with world(config.timeout) as comm:
        checked_on_rank_0(comm, lambda: check_outputs(overwrite, json_file, config_file(config_beside(json_file), requested)))
        manifest = load_manifest(directory)
        agree(comm, {"version": __version__, "graph": manifest.digest, **alike})
        verify_together(directory, comm, config.check, features=False)
        ledger = Ledger(comm)
        engine = backends.make(config.backend, config.threads or fair_threads(comm))
        if comm.rank == 0 and comm.size > 1:
            tell_launch(comm.size, str(engine.threads))
        adjacency, chosen = open_for_sampling(directory, config.seeds, comm, engine, placement, config.seed)
        loader = BulkLoader(
            adjacency, drawn, chosen, batch_size=config.batch_size, seed=config.seed, drop_last=config.drop_last, rank=comm.rank,
            ranks=comm.size, bulk_size=config.bulk_size, memory_budget=config.memory_budget,
            prefetch=False,  # the seconds waited are then those of sampling
        )  # fmt: skip
        loader.bulk_size = min(comm.gather_control(loader.bulk_size))  # sampling a partitioned graph is a collective call
        loader.epoch = config.epoch
        wanted = len(loader) if config.minibatches is None else min(config.minibatches, len(loader))
        count = edges = inputs = 0
        digests = []
        for step, minibatch in zip(range(-(-wanted // comm.size)), loader, strict=False):
            if minibatch is None or step * comm.size + comm.rank >= wanted:
                continue
            count, edges, inputs = count + 1, edges + minibatch.num_edges, inputs + len(minibatch.vertices)
            if config.digest:
                digests.append((minibatch.epoch, minibatch.id, minibatch.digest()))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        everyone = comm.gather_control([count, edges, inputs, loader.wait_seconds, peak, digests])
        sent = combine(comm.gather_control(ledger.total()))["bytes_sent"]
        if comm.rank == 0:
            write_config(config, requested, None, config_beside(json_file))
            counts, all_edges, all_inputs, waits, peaks, found = zip(*everyone, strict=True)
            seconds = max(waits)
            emit({
                "sampler": drawn.name, "fanouts": list(drawn.fanouts), "frontier": config.frontier, "batch_size": config.batch_size,
                "seed": config.seed, "epoch": config.epoch, "ranks": comm.size,
                "launcher": launched().launcher, "graph": placement.graph,
                "replication": config.replication, "exchange": config.exchange, "partition": config.partition,
                "minibatches": sum(counts), "sampled_edges": sum(all_edges), "input_vertices": sum(all_inputs), "seconds": seconds,
                "sampled_edges_per_second": sum(all_edges) / seconds if seconds else 0.0,
                "backend": engine.name, "threads": engine.threads, "bulk_size": loader.bulk_size,
                "predicted_bytes": loader.predicted_bytes, "peak_memory_bytes": max(peaks), "bytes_sent": sent,
                "digest": digest_of((e, i, text) for rank in found for e, i, text in rank) if config.digest else None,
                "data": {"name": manifest.name, "vertices": manifest.vertices, "edges": manifest.edges}, "environment": environment(),
            }, json_file, f"sample {directory}")  # fmt: skip
