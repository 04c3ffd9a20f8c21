"""`bulksample sample`: sample the mini-batches of one epoch; report their number, time and digest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from ..config.groups import TimeOptions
from ..config.train import SampleConfig
from ..errors import UsageError
from ..version import __version__
from .configured import Requested, config_beside, config_file, configured, write_config
from .output import JsonOption, OverwriteOption, emit, hold_outputs, tell_launch
from .process import peak_memory

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..distributed.comm.base import Comm
    from ..distributed.matrix.placement import Placement
    from ..graph import Graph, VertexType
    from ..loading.loader import BulkLoader
    from ..samplers import Sampler
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
    from ..data.parts_manifest import is_parts
    from ..data.store import manifest
    from ..distributed.comm.agree import agree, checked_on_rank_0
    from ..distributed.comm.launchers import launched
    from ..distributed.comm.ledger import Ledger, combine
    from ..distributed.comm.machines import fair_threads
    from ..distributed.comm.world import world
    from ..distributed.matrix.placement import Placement
    from ..graph.minibatch import digest as digest_of
    from ..training.environment import environment

    config: SampleConfig = requested.config(SampleConfig)
    drawn = samplers.make(config.sampler, config.fanouts, frontier=config.frontier, **config.sampler_options)
    placement = Placement.of(config, "partitioned" if is_parts(directory) else "replicated")
    alike = {
        **drawn.settings, "batch_size": config.batch_size, "bulk_size": config.bulk_size, "seeds": config.seeds,
        "minibatches": config.minibatches, "epoch": config.epoch, "drop_last": config.drop_last,
        "steps_per_epoch": config.steps_per_epoch, "seed": config.seed, **vars(placement),
        **{name: getattr(config, name) for name in TimeOptions.model_fields},
    }  # fmt: skip
    with world(config.timeout) as comm:
        checked_on_rank_0(comm, lambda: hold_outputs(overwrite, json_file, config_file(config_beside(json_file), requested)))
        graph = manifest(directory)
        agree(comm, {"version": __version__, **alike}, {"graph": graph.digest})
        engine = backends.make(config.backend, config.threads or fair_threads(comm))
        if comm.rank == 0 and comm.size > 1:
            tell_launch(comm.size, str(engine.threads))
        opened = (open_graph if graph.plain else open_relations)(config, drawn, directory, placement, comm, engine)
        ledger = Ledger(comm, opened.sampling)
        loader = opened.loader(
            batch_size=config.batch_size, seed=config.seed, drop_last=config.drop_last, ranks=comm.size, bulk_size=config.bulk_size,
            steps_per_epoch=config.steps_per_epoch,
            memory_budget=config.memory_budget, prefetch=False,  # the seconds waited are then those of sampling
        )  # fmt: skip
        loader.bulk_size = min(comm.gather_control(loader.bulk_size))  # sampling a partitioned graph is a collective call
        loader.epoch = config.epoch
        wanted = len(loader) if config.minibatches is None else min(config.minibatches, len(loader))
        steps = loader.steps if config.seed_locality else -(-wanted // comm.size)
        count, edges, inputs, digests, fetching = _sampled(loader, steps, wanted, opened.rows, config.digest)
        everyone = comm.gather_control([count, edges, inputs, loader.wait_seconds, peak_memory(), digests, fetching, opened.read_bytes])
        total = combine(comm.gather_control(ledger.total()))
        if comm.rank == 0:
            write_config(config, requested, None, config_beside(json_file))
            counts, all_edges, all_inputs, waits, peaks, digests_by_rank, fetched, reads = zip(*everyone, strict=True)
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
                "fetch_seconds": max(fetched) if opened.rows is not None else None,
                "digest": digest_of((e, i, text) for rank in digests_by_rank for e, i, text in rank) if config.digest else None,
                "data": {name: getattr(graph, name) for name in ("name", "vertices", "edges")}, "environment": environment(),
            }, json_file, f"sample {directory}")  # fmt: skip


def _sampled(
    loader: BulkLoader, steps: int, wanted: int, rows: FeatureSource | None, digest: bool
) -> tuple[int, int, int, list[tuple[int, int, str]], float]:
    """Sample the mini-batches of this rank with numbers below `wanted`, and fetch their features where there are any.

    Returns the numbers of mini-batches, of edges and of input vertices, the digests with their epochs and numbers, and the seconds of
    fetching.
    """
    from ..loading.loader import in_bulks

    count = edges = inputs = 0
    digests, fetching = [], 0.0
    for sampled in in_bulks(loader, steps):
        bulk = [None if one is None or one.id >= wanted else one for one in sampled]
        begun = perf_counter()
        fetches = [] if rows is None else rows.ask([rows.joined([] if one is None else [one.vertices]) for one in bulk])
        for begin in fetches:  # collective: a rank without a mini-batch takes part
            begin()()
        fetching += perf_counter() - begun
        for minibatch in bulk:
            if minibatch is None:
                continue
            by_type = minibatch.vertices.values() if isinstance(minibatch.vertices, dict) else [minibatch.vertices]
            count, edges, inputs = count + 1, edges + minibatch.num_edges, inputs + sum(map(len, by_type))
            if digest:
                digests.append((minibatch.epoch, minibatch.id, minibatch.digest()))
    return count, edges, inputs, digests, fetching


class SampledGraph(NamedTuple):
    """The parts of a graph that an epoch of sampling needs on this rank."""

    loader: Callable[..., BulkLoader]  # which takes its other options
    sampling: Comm | None  # the communicator of sampling, if that is its own
    rows: FeatureSource | None  # if a placement of them was asked for
    read_bytes: int  # of the topology that this rank read into memory


def open_graph(
    config: SampleConfig, sampler: Sampler, directory: Path, placement: Placement, comm: Comm, engine: Backend
) -> SampledGraph:  # fmt: skip
    """Open a graph of one vertex type; collective."""
    from ..distributed.comm.agree import together
    from ..distributed.matrix.open_graph import open_for_sampling
    from ..distributed.matrix.rank_graph import open_rank_graph
    from ..distributed.matrix.verify import verify_together
    from ..loading.division import SeedGroups
    from ..loading.loader import BulkLoader

    def refuse_relational() -> None:
        for name, field in TimeOptions.model_fields.items():
            if getattr(config, name) != field.default:
                raise UsageError(f"{name} is an option of heterogeneous graphs; {directory} holds a graph of one vertex type: leave it out")

    together(comm, refuse_relational)
    if config.features is None:
        verify_together(directory, comm, config.check, features=False)
        adjacency, seeds, read, near = open_for_sampling(directory, config.seeds, comm, engine, placement, config.seed)
        sampling: Comm | None = None
        rows: FeatureSource | None = None
    else:
        from ..views.loading import open_features  # which needs torch

        graph = open_rank_graph(directory, comm, **vars(placement), seed=config.seed, check=config.check)
        seeds = graph.seeds(config.seeds) if config.seeds else graph.default_seeds()
        (adjacency, sampling), rows = graph.open_adjacency(engine), open_features(graph)
        read, near = graph.read_bytes, graph.part_order(seeds)
    groups = SeedGroups(config.seed_locality, near) if config.seed_locality else None
    place = placement.place(comm) if groups else comm.rank
    return SampledGraph(partial(BulkLoader, adjacency, sampler, seeds, rank=place, groups=groups), sampling, rows, read)


def open_relations(
    config: SampleConfig, sampler: Sampler, directory: Path, placement: Placement, comm: Comm, engine: Backend
) -> SampledGraph:  # fmt: skip
    """Open a heterogeneous graph; collective. Relations whose vertices or edges have times are drawn from in time, as in training."""
    from ..distributed.comm.agree import together
    from ..distributed.matrix.rank_graph import open_rank_graph
    from ..graph.seed_list import SeedList
    from ..interop.requests import relation_sampler
    from ..loading.loader import BulkLoader
    from ..samplers import LayerWise
    from ..views.seed_times import rule_for, seed_times

    if config.seed_locality:
        raise UsageError(f"seed_locality is for graphs of one vertex type; {directory} is heterogeneous: leave it out")
    options = {**vars(placement), "features": placement.features if config.features else "replicated"}
    share = open_rank_graph(directory, comm, **options, seed=config.seed, check=config.check)

    def asked() -> tuple[Any, SeedList]:
        kind = _seed_type(share.graph, config.target_type)
        times = seed_times(config, share.graph, kind)
        if times is not None and isinstance(sampler, LayerWise):
            raise UsageError(
                f"graph {share.graph.name!r} has times, and {sampler.name} draws from all relations together, whatever their times: use "
                "sage, labor or full"
            )
        ids = kind.seeds(config.seeds) if config.seeds else kind.default_seeds()
        rule = None if times is None else rule_for(times.rule, sampler)
        listed = SeedList.of(share.graph, (kind.name, ids), None if times is None else times.of_vertex[ids])
        return relation_sampler(share.graph, sampler, None, rule, None, {}), listed

    law, seeds = together(comm, asked)
    relations, sampling = share.open_adjacency(engine)
    rows: FeatureSource | None = None
    if config.features:
        from ..views.loading import open_type_features  # which needs torch

        rows = open_type_features(share)
    return SampledGraph(partial(BulkLoader, cast(Any, relations), law, seeds, rank=comm.rank), sampling, rows, share.read_bytes)


def _seed_type(graph: Graph, name: str | None) -> VertexType:
    """Return the named type of a graph, or the only one with labels."""
    if name is not None:
        return graph.type(name)
    labelled = [kind for kind in graph.types if kind.labels is not None]
    if len(labelled) != 1:
        names = ", ".join(kind.name for kind in labelled or graph.types)
        raise UsageError(f"target_type: name the type of the seeds, of {names}; {len(labelled)} types of graph {graph.name!r} have labels")
    return labelled[0]
