"""`bulksample sample`: sample the mini-batches of one epoch; report their number, time and digest."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from ..config.sample import SampleConfig
from ..version import __version__
from .configured import Requested, config_beside, config_file, configured, write_config
from .memory import peak_memory
from .output import JsonOption, emit, tell_launch
from .outputs import OverwriteOption, check_outputs

if TYPE_CHECKING:
    from ..adjacency import Adjacency
    from ..backends.base import Backend
    from ..distributed.comm.base import Comm
    from ..distributed.matrix.placement import Placement
    from ..loader import BulkLoader
    from ..views.features import FeatureSource


@configured(SampleConfig)
def sample(
    requested: Requested,
    directory: Annotated[Path, typer.Argument(help="A graph in the store format.")],
    overwrite: OverwriteOption = False,
    json_file: JsonOption = None,
) -> None:
    """Sample one epoch in bulk; report edges, seconds and a digest. Under mpirun, ranks share the mini-batches.

    With --features, ranks also fetch the features of every mini-batch.
    """
    from .. import backends, samplers
    from ..data.parts_manifest import graph_manifest, is_parts
    from ..distributed.comm.agree import agree, checked_on_rank_0
    from ..distributed.comm.launchers import launched
    from ..distributed.comm.ledger import Ledger, combine
    from ..distributed.comm.thread_budget import fair_threads
    from ..distributed.comm.world import world
    from ..distributed.matrix.placement import Placement
    from ..distributed.matrix.verify import verify_together
    from ..loader import BulkLoader
    from ..minibatch import digest as digest_of
    from ..seed_groups import SeedGroups
    from ..training.environment import environment

    config: SampleConfig = requested.config(SampleConfig)
    drawn = samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **config.sampler_options)
    placement = Placement.of(config, "partitioned" if is_parts(directory) else "replicated")
    alike = {
        "sampler": f"{drawn.name} {sorted(vars(drawn).items())}", "batch size": config.batch_size, "bulk size": config.bulk_size,
        "seeds": config.seeds, "minibatches": config.minibatches, "epoch": config.epoch, "drop_last": config.drop_last,
        "random seed": config.seed, "placement": str(placement), "seed_locality": config.seed_locality,
    }  # fmt: skip
    with world(config.timeout) as comm:
        checked_on_rank_0(comm, lambda: check_outputs(overwrite, json_file, config_file(config_beside(json_file), requested)))
        manifest = graph_manifest(directory)
        agree(comm, {"version": __version__, "graph": manifest.digest, **alike})
        verify_together(directory, comm, config.check, features=False)
        engine = backends.make(config.backend, config.threads or fair_threads(comm))
        if comm.rank == 0 and comm.size > 1:
            tell_launch(comm.size, str(engine.threads))
        adjacency, sampling, chosen, rows, read, near = _opened(config, directory, placement, comm, engine)
        groups = SeedGroups(config.seed_locality, near) if config.seed_locality else None
        place = placement.place(comm) if groups else comm.rank
        ledger = Ledger(comm, sampling)
        loader = BulkLoader(
            adjacency, drawn, chosen, batch_size=config.batch_size, seed=config.seed, drop_last=config.drop_last, rank=place,
            ranks=comm.size, groups=groups, bulk_size=config.bulk_size, memory_budget=config.memory_budget,
            prefetch=False,  # the seconds waited are then those of sampling
        )  # fmt: skip
        loader.bulk_size = min(comm.gather_control(loader.bulk_size))  # sampling a partitioned graph is a collective call
        loader.epoch = config.epoch
        wanted = len(loader) if config.minibatches is None else min(config.minibatches, len(loader))
        steps = -(-wanted // comm.size) if groups is None else loader.steps
        count, edges, inputs, digests, fetching = _sampled(loader, steps, wanted, rows, config.digest)
        everyone = comm.gather_control([count, edges, inputs, loader.wait_seconds, peak_memory(), digests, fetching, read])
        total = combine(comm.gather_control(ledger.total()))
        if comm.rank == 0:
            write_config(config, requested, None, config_beside(json_file))
            counts, all_edges, all_inputs, waits, peaks, found, fetched, reads = zip(*everyone, strict=True)
            seconds = max(waits)
            emit({
                "sampler": drawn.name, "fanouts": list(drawn.fanouts), "frontier": config.frontier, "batch_size": config.batch_size,
                "seed": config.seed, "epoch": config.epoch, "seed_locality": config.seed_locality, "ranks": comm.size,
                "launcher": launched().launcher, **placement.describe(comm), "partition": config.partition,
                "minibatches": sum(counts), "sampled_edges": sum(all_edges), "input_vertices": sum(all_inputs), "seconds": seconds,
                "sampled_edges_per_second": sum(all_edges) / seconds if seconds else 0.0,
                "backend": engine.name, "threads": engine.threads, "bulk_size": loader.bulk_size,
                "predicted_bytes": loader.predicted_bytes, "peak_memory_bytes": max(peaks), "read_bytes": list(reads),
                "bytes_sent": total["bytes_sent"], "bytes_between_machines": total["bytes_between_machines"],
                "messages_sent": total["messages_sent"], "collectives": total["collectives"],
                "fetch_seconds": max(fetched) if rows is not None else None,
                "digest": digest_of((e, i, text) for rank in found for e, i, text in rank) if config.digest else None,
                "data": {"name": manifest.name, "vertices": manifest.vertices, "edges": manifest.edges}, "environment": environment(),
            }, json_file, f"sample {directory}")  # fmt: skip


def _sampled(
    loader: BulkLoader, steps: int, wanted: int, rows: FeatureSource | None, digest: bool
) -> tuple[int, int, int, list[tuple[int, int, str]], float]:
    """Sample the mini-batches of this rank with numbers below `wanted`, and fetch their features where there are any.

    Returns
    -------
    tuple
        The numbers of mini-batches, of edges and of input vertices, the digests with their epochs and numbers, and the seconds of fetching.
    """
    count = edges = inputs = 0
    digests, fetching = [], 0.0
    for _, minibatch in zip(range(steps), loader, strict=False):
        if minibatch is not None and minibatch.id >= wanted:
            minibatch = None
        if rows is not None:  # collective: a rank without a mini-batch takes part
            begun = perf_counter()
            rows.fetch(np.empty(0, np.int32) if minibatch is None else minibatch.vertices)
            fetching += perf_counter() - begun
        if minibatch is None:
            continue
        count, edges, inputs = count + 1, edges + minibatch.num_edges, inputs + len(minibatch.vertices)
        if digest:
            digests.append((minibatch.epoch, minibatch.id, minibatch.digest()))
    return count, edges, inputs, digests, fetching


def _opened(
    config: SampleConfig, directory: Path, placement: Placement, comm: Comm, engine: Backend
) -> tuple[Adjacency, Comm | None, np.ndarray, FeatureSource | None, int, np.ndarray]:
    """Return the adjacency, its communicator if that is its own, the seeds, the features if a placement was given, the bytes read, and the
    places of the seeds in part order.

    Collective.
    """
    from ..distributed.matrix.open_graph import open_for_sampling

    if config.features is None:
        adjacency, seeds, read, near = open_for_sampling(directory, config.seeds, comm, engine, placement, config.seed)
        return adjacency, None, seeds, None, read, near
    from ..distributed.matrix.rank_graph import open_rank_graph
    from ..views.loading import open_features

    graph = open_rank_graph(directory, comm, **vars(placement), seed=config.seed, check=config.check)
    seeds = graph.seeds(config.seeds) if config.seeds else graph.default_seeds()
    return *graph.open_adjacency(engine), seeds, open_features(graph), graph.read_bytes, graph.part_order(seeds)
