"""Choose the sampler of a drop-in loader: the one for plain graphs, or the one for types and times."""

from __future__ import annotations

from typing import Any, Literal

from torch_geometric.sampler.base import SubgraphType

from ...distributed.comm.base import Comm
from ...errors import UsageError
from .bulk_sampler import SamplerOfBulks
from .edge_lists import check_input
from .sampler import BulkSampler
from .typed_graph import has_types
from .typed_sampler import STRIDE, TypedSampler


def sampler_for(
    given: Any,
    data: Any,
    num_neighbors: Any,
    subgraph_type: SubgraphType | str,
    directed: bool,
    *,
    seeds: Any,
    time_attr: str | None,
    temporal_strategy: Literal["uniform", "last"],
    comm: Comm | None,
    grid: int | None,
    **options: Any,
) -> SamplerOfBulks:
    """Return the user's `neighbor_sampler`, or make one from the other options.

    `seeds` is the number of seeds of a mini-batch, or None if it is not known.

    Raises
    ------
    UsageError
        If the sampler is of another library, or the graph or an option is not supported.
    """
    if given is not None:
        if not isinstance(given, SamplerOfBulks):
            raise UsageError(f"neighbor_sampler must be a BulkSampler or a TypedSampler; got {type(given).__name__}")
        pairs = {"comm": (comm, given.comm), "grid": (grid, given.grid), "seed": (options["seed"], given.stream.seed)}
        if several := [name for name, (asked, own) in pairs.items() if asked is not None and asked != own]:
            raise UsageError(f"{', '.join(several)}: the neighbor_sampler has its own; give them to it, and leave them out here")
        return given
    form = subgraph_type if directed else "induced"
    if not has_types(data) and time_attr is None:
        check_input(data, options["weight_attr"])
        return BulkSampler(data, num_neighbors, subgraph_type=form, comm=comm, grid=grid, **options)
    if grid is not None:
        raise UsageError("got a grid of ranks and a graph with types or times; leave out grid: each rank then holds the graph")
    stride = STRIDE if seeds is None else max(1, int(seeds))
    return TypedSampler(
        data,
        num_neighbors,
        subgraph_type=form,
        time_attr=time_attr,
        temporal_strategy=temporal_strategy,
        stride=stride,
        comm=comm,
        **options,
    )


def seeds_of_batch(options: dict[str, Any]) -> Any:
    """Return the batch size of the options of a `DataLoader`; None if a sampler of the user's makes the batches."""
    return None if options.get("batch_sampler") is not None else options.get("batch_size", 1)
