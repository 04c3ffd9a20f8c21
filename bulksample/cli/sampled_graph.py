"""The graph of `bulksample sample` on this rank: a loader of its mini-batches, and its features if they are to be fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from ..config.groups import TimeOptions
from ..config.train import SampleConfig
from ..errors import UsageError

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..distributed.comm.base import Comm
    from ..distributed.matrix.placement import Placement
    from ..graph import Graph, VertexType
    from ..loading.loader import BulkLoader
    from ..samplers import Sampler
    from ..views.features import Fetching


class MakeLoader(Protocol):
    """Makes the loader; the options are those of `BulkLoader`."""

    def __call__(self, **options: Any) -> BulkLoader: ...


class Rows(Protocol):
    """Fetches the features of vertices: of arrays of ids, or by type; see `FeatureSource`."""

    def joined(self, lists: Sequence[Any]) -> Any: ...

    def ask(self, fetches: Sequence[Any]) -> list[Callable[[], Fetching]]: ...


class SampledGraph(NamedTuple):
    """The parts of a graph that an epoch of sampling needs.

    Parameters
    ----------
    loader : callable
    sampling : Comm, optional
        The communicator of sampling, if that is its own.
    rows : Rows, optional
        Features, if a placement of them was asked for.
    read_bytes : int
        Bytes of the topology that this rank read into memory.
    """

    loader: MakeLoader
    sampling: Comm | None
    rows: Rows | None
    read_bytes: int


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

    together(comm, lambda: _refuse_relational(config, directory))
    if config.features is None:
        verify_together(directory, comm, config.check, features=False)
        adjacency, seeds, read, near = open_for_sampling(directory, config.seeds, comm, engine, placement, config.seed)
        sampling: Comm | None = None
        rows: Rows | None = None
    else:
        from ..views.loading import open_features  # which needs torch

        graph = open_rank_graph(directory, comm, **vars(placement), seed=config.seed, check=config.check)
        seeds = graph.seeds(config.seeds) if config.seeds else graph.default_seeds()
        (adjacency, sampling), rows, read, near = (
            graph.open_adjacency(engine),
            open_features(graph),
            graph.read_bytes,
            graph.part_order(seeds),
        )
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
    rows: Rows | None = None
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
        found = ", ".join(kind.name for kind in labelled or graph.types)
        raise UsageError(f"target_type: name the type of the seeds, of {found}; {len(labelled)} types of graph {graph.name!r} have labels")
    return labelled[0]


def _refuse_relational(config: SampleConfig, directory: Path) -> None:
    """Raise `UsageError` for an option of heterogeneous graphs."""
    for name, field in TimeOptions.model_fields.items():
        if getattr(config, name) != field.default:
            raise UsageError(f"{name} is an option of heterogeneous graphs; {directory} holds a graph of one vertex type: leave it out")
