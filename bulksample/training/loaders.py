"""Make the loaders of mini-batches of a run: one that all ranks share, or one for each rank that trains on its own part of the graph.

Ranks with their own parts train the same number of steps, and every seed is in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..config.epochs import EpochLengthOptions
from ..config.train import TrainOptions
from ..distributed.comm.agree import together
from ..errors import UsageError
from ..graph.labels import has_label
from ..loading.division import SeedGroups, minibatches_in_words
from ..loading.loader import BulkLoader
from ..loading.position import VERSION, check_version
from ..loading.weighted_seeds import class_weights
from ..samplers import Sampler
from ..views.view import View
from .batches import EMPTY_BATCH, BatchSource, MiniBatchSource, StepBatch
from .context import TrainingContext
from .input_layer import read_in_place, why_gathered
from .link_batches import EdgeLoader, labelled_pairs, links_of

PART_SEED = 0x9E3779B97F4A7C15  # every part draws with its own seed, because rows have the same numbers in all parts
_ROUND_SEED = 0xD1B54A32D192ED03  # and so does every trainer of a part, by the round in which it joined


def shared_loader(context: TrainingContext) -> BulkLoader:
    """Return this rank's loader of the shared sequence of mini-batches: of W virtual ranks, number v takes v, v + W, v + 2 W, ...

    With `drop_last`, every step has W mini-batches of b seeds. With `seed_locality` G, mini-batches come from G groups of seeds in part
    order, and a rank takes those whose rows it holds; see `division`. Bulks have the same sizes on all ranks, the smallest that any rank
    chose: a bulk may be a collective call, and is one request for the features that other ranks hold. Raises `UsageError` on every rank if
    `drop_last` leaves no step.
    """
    config, comm, view = context.config, context.comm, context.view
    groups = SeedGroups(config.seed_locality, view.part_order(view.seeds)) if config.seed_locality else None
    loader = private_loader(
        context, view, context.sampler, batch_size=config.batch_size, bulk_size=config.bulk_size, rank=context.place, ranks=comm.size,
        virtual_ranks=context.virtual_ranks, groups=groups, prefetch=context.threads.sample > 0, **epoch_options(config),
        even=config.drop_last,
    )  # fmt: skip
    if config.drop_last and not loader.steps:  # on every rank
        b, count, w = config.batch_size, loader.examples, minibatches_in_words(context.virtual_ranks)
        fits = "use a lower batch_size, or leave drop_last out"
        raise UsageError(f"drop_last leaves no step: {count} examples fill {count // b} of {b}, and a step has {w}; {fits}")
    sizes, grow = zip(*comm.gather_control([loader.bulk_size, loader.grows]), strict=True)
    loader.bulk_size, loader.grows = min(sizes), all(grow)
    return loader


def part_loader(context: TrainingContext, part: int, batch_size: int, joined_in: int = 0) -> BulkLoader:
    """Return a loader of the part that this rank sees; a trainer that joins in a later round draws other numbers than its predecessors."""
    options = {"batch_size": batch_size, "bulk_size": context.config.bulk_size, "prefetch": context.threads.sample > 0}
    options |= epoch_options(context.config)
    return private_loader(context, context.view, context.sampler, PART_SEED * part + _ROUND_SEED * joined_in, **options)


def epoch_options(config: TrainOptions) -> dict[str, Any]:
    """Return the options of `private_loader` that say what mini-batches an epoch has, and whether its seeds are balanced."""
    return {"balanced": config.balance_classes, **{name: getattr(config, name) for name in EpochLengthOptions.model_fields}}


def private_loader(context: TrainingContext, view: View, sampler: Sampler, seed_offset: int = 0, **options: Any) -> BulkLoader:
    """Return a loader of the examples of the task, seeds or edges of a view, with the seed of the run plus an offset.

    Options are those of `BulkLoader`, and `balanced`: seeds are drawn with replacement, all classes equally often. A part whose seeds have
    no labels, from which nothing is learned, takes each seed once; a graph without labels has been refused (`check_seeds`). With
    `sampling_weights` seeds are drawn by them; a part whose seeds all weigh 0 has no mini-batches, as one without seeds.
    """
    config = context.config
    if options["bulk_size"] == "auto":  # else a number of mini-batches bounds the bytes of a bulk
        options["memory_budget"] = config.memory_budget or context.compute.budget()
    options |= {"seed": (config.seed + seed_offset) % 2**64, "transform": view.stream_sync.bulk_sampled}
    seeds = view.seeds
    if options.pop("balanced", False) and has_label(truth := _truth(config, view)).any():
        options["sampling_weights"] = class_weights(truth)
    if context.sampling_weights is not None:
        weights = context.sampling_weights.of_seeds(view)
        seeds = seeds if weights.any() else seeds[:0]
        options["sampling_weights"] = weights if len(seeds) else None
    if config.task != "nodes":
        return EdgeLoader(view, sampler, config.exclude_targets, **options)
    return view.loader(sampler, seeds, **options)


def _truth(config: TrainOptions, view: View) -> np.ndarray:
    """Return the classes of the examples of a view; see `View.truth`."""
    if config.task != "edges":
        return view.truth(view.seeds)
    pairs = labelled_pairs(view)
    assert pairs.table.labels is not None
    return np.asarray(pairs.table.labels[pairs.edges])


def agree_on_input_layer(context: TrainingContext) -> None:
    """Let all ranks refuse input_layer "fused" if the device of one does not hold its features; those that sample together read alike."""
    config, view, comm = context.config, context.view, context.comm
    if not context.compute.has_device:
        return
    if config.input_layer == "fused":
        together(comm, lambda: why_gathered(config, view, context.sampler, context.module))
    elif config.input_layer == "auto" and view.adjacency.collective:  # the first mini-batch, which decides, is sampled by all
        view.features.can_average = all(comm.gather_control(view.features.can_average))


def steps_of(context: TrainingContext, loader: BulkLoader, view: View) -> MiniBatchSource:
    """Return the training steps of a loader of a view, whose first layer reads its input as `read_in_place` says."""
    config = context.config
    in_place = read_in_place(config, loader, view, context.sampler, context.module)
    if in_place is not None and in_place.gathers is None and config.task == "nodes":  # targets of edges are removed by numbers
        loader.number_late()
    return MiniBatchSource(loader, view, context.ledger, config.fetch_together, in_place=in_place)


def examples(task: str, view: View) -> int:
    """Return the number of examples of a rank: its seeds, or its edges."""
    return len(view.seeds if task == "nodes" else links_of(view).edges)


def equal_steps(seeds: list[int], config: TrainOptions) -> tuple[int, list[int]]:
    """Return the number of steps of an epoch, and the batch size of each rank, given its number n_r of seeds.

    A pass over all seeds takes T = max over r of ceil(n_r / b) steps, and with `drop_last` floor(n_r / b). A rank that needs all of them
    keeps the batch size b; a rank with fewer seeds takes smaller mini-batches, of ceil(n_r / T), and with `drop_last` leaves out its own
    last one unless it is full. An epoch has T steps, or `steps_per_epoch`. Raises `UsageError` if `drop_last` leaves no step.
    """
    b = config.batch_size
    needed = [count // b if config.drop_last else -(-count // b) for count in seeds]
    steps = max(needed)
    if not steps and any(seeds):
        raise UsageError(
            f"drop_last leaves no step: no rank has {b} examples, a mini-batch; use a lower batch_size, or leave drop_last out"
        )
    sizes = [b if own_steps == steps else max(1, -(-count // steps)) for own_steps, count in zip(needed, seeds, strict=True)]
    return (config.steps_per_epoch or steps) if steps else 0, sizes


def steps_alone(config: TrainOptions, count: int) -> int:
    """Return the steps of an epoch of a rank with so many examples that makes its steps alone."""
    one_pass = count // config.batch_size if config.drop_last else -(-count // config.batch_size)
    return config.steps_per_epoch or one_pass if one_pass else 0


class IsolatedBatches(BatchSource):
    """The training steps of a rank on its own view of the graph, which a method may replace during the run.

    A checkpoint must hold the values `fixed`, such as the number of ranks, for a run to resume from it. `on_drop` is called when steps that
    were prepared ahead are discarded. `minibatches` is None if a step is one pass over the whole view.
    """

    def __init__(self, fixed: dict[str, Any], on_drop: Callable[[], None] = lambda: None) -> None:
        self._fixed, self._on_drop = fixed, on_drop
        self.minibatches: MiniBatchSource | None = None

    def train_on(self, minibatches: MiniBatchSource | None, steps: int) -> None:
        """Continue at the current epoch and step with the mini-batches of another view, `steps` of them in an epoch."""
        self.minibatches, self.steps = minibatches, steps
        if minibatches is not None:
            position = {"epoch": self.epoch, "step": min(self.step, minibatches.steps)}
            minibatches.load_state_dict(minibatches.state_dict() | position)

    def __iter__(self) -> Iterator[StepBatch]:
        remaining = iter(self.minibatches or ())
        while self.step < self.steps:
            batch = next(remaining, EMPTY_BATCH)
            self.step += 1
            yield batch
        for _ in remaining:  # asking once more moves the loader on to the next epoch
            raise UsageError(f"there are more than {self.steps} steps in epoch {self.epoch}")
        self.epoch, self.step = self.epoch + 1, 0

    def drop(self) -> None:
        if self.minibatches is not None:
            self.minibatches.drop()
        self._on_drop()

    def state_dict(self) -> dict[str, Any]:
        return {"version": VERSION, "epoch": self.epoch, "step": self.step, **self._fixed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for key, now in self._fixed.items():
            if (before := state.get(key)) == now:
                continue
            if key == "ranks":
                differs = f"it is of {before} ranks, and there are {now} now; use {before}, or start a new run"
            else:
                steps = f", {before} steps an epoch and not {now}" if key == "steps" else ""  # a partition is named by a hash
                differs = f"its ranks trained on other vertices{steps}; use the partition of the run that saved it, or start a new run"
            raise UsageError(f"the checkpoint does not fit this run: {differs}")
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
        check_version(state, within=self.step not in (0, self.steps))  # on every rank, also where the own part is used up
        self.train_on(self.minibatches, self.steps)

    def describe(self) -> dict[str, Any]:
        return {} if self.minibatches is None else self.minibatches.describe()
