"""Make the loaders of mini-batches of a run: one that all ranks share, or one for each rank that trains on its own part of the graph."""

from __future__ import annotations

from typing import Any

from ..config.train import TrainOptions
from ..loader import BulkLoader
from ..samplers import Sampler
from ..seed_groups import SeedGroups
from ..views.relational_links import RelationalLinkView
from ..views.view import View
from .context import TrainingContext
from .link_batches import EdgeLoader, RelationEdgeLoader, links_of

PART_SEED = 0x9E3779B97F4A7C15  # every part draws with its own seed, because rows have the same numbers in all parts
_ROUND_SEED = 0xD1B54A32D192ED03  # and so does every trainer of a part, by the round in which it joined


def shared_loader(context: TrainingContext) -> BulkLoader:
    """Return this rank's loader of the shared sequence of mini-batches: of W virtual ranks, number v takes v, v + W, v + 2 W, ...

    With `seed_locality` G, mini-batches come from G groups of seeds in part order, and a rank takes those whose rows it holds; see
    `position`.
    Bulks have the same sizes on all ranks, the smallest that any rank chose: a bulk may be a collective call, and is one request for the
    features that other ranks hold.
    """
    config, comm, view = context.config, context.comm, context.view
    groups = SeedGroups(config.seed_locality, view.part_order(view.seeds)) if config.seed_locality else None
    loader = _loader_of(
        config, view, context.sampler,
        batch_size=config.batch_size, bulk_size=config.bulk_size, seed=config.seed, rank=context.place, ranks=comm.size,
        virtual_ranks=context.virtual_ranks, groups=groups, memory_budget=_budget(context, config.bulk_size),
        prefetch=context.threads.sample > 0, transform=view.stream_sync.bulk_sampled,
    )  # fmt: skip
    sizes, grow = zip(*comm.gather_control([loader.bulk_size, loader.grows]), strict=True)
    loader.bulk_size, loader.grows = min(sizes), all(grow)
    return loader


def part_loader(context: TrainingContext, part: int, batch_size: int, joined_in: int = 0) -> BulkLoader:
    """Return a loader of the part that this rank sees; it samples ahead if the rank has a thread for that.

    A trainer that joins in a later round uses other random numbers than its predecessors.
    """
    options = {"batch_size": batch_size, "bulk_size": context.config.bulk_size, "prefetch": context.threads.sample > 0}
    return private_loader(context, context.view, context.sampler, PART_SEED * part + _ROUND_SEED * joined_in, **options)


def private_loader(context: TrainingContext, view: View, sampler: Sampler, seed_offset: int, **options: Any) -> BulkLoader:
    """Return a loader of the examples of a view, with the seed of the run plus an offset."""
    seed = (context.config.seed + seed_offset) % 2**64
    budget = _budget(context, options["bulk_size"])
    return _loader_of(context.config, view, sampler, seed=seed, memory_budget=budget, transform=view.stream_sync.bulk_sampled, **options)


def _budget(context: TrainingContext, bulk_size: int | str) -> int | None:
    """Return the bytes that sampled mini-batches may take; None leaves that to the loader, or to a number of mini-batches in a bulk."""
    return context.config.memory_budget or context.compute.budget() if bulk_size == "auto" else None


def examples(task: str, view: View) -> int:
    """Return the number of examples of a rank: its seeds, or its edges."""
    return len(links_of(view).edges if task == "links" else view.seeds)


def _loader_of(config: TrainOptions, view: View, sampler: Sampler, **options: Any) -> BulkLoader:
    """Return a loader of the examples of the task: seeds, or edges."""
    if isinstance(view, RelationalLinkView):
        return RelationEdgeLoader(view, sampler, config.exclude_targets, **options)
    if config.task == "links":
        return EdgeLoader(view, sampler, config.exclude_targets, **options)
    return view.loader(sampler, view.seeds, **options)
