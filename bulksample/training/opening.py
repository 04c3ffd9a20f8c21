"""Open a run on one rank: agree on the options, choose where it computes, read its checkpoint, open its view, and make its context.

Every rank takes these steps in this order. What one rank refuses, all ranks raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import nn

from .. import backends
from ..backends.base import Backend
from ..config.train import TrainOptions
from ..distributed.comm.agree import agree, together
from ..distributed.comm.base import Comm
from ..distributed.comm.ledger import Ledger, Sent, sent_by
from ..distributed.comm.machines import ThreadBudget, divide_threads, fair_threads
from ..distributed.matrix.grid import choose_order
from ..distributed.matrix.placement import Placement
from ..distributed.matrix.verify import verify_together
from ..errors import BackendUnavailable, UsageError
from ..graph import Graph
from ..log import warn
from ..samplers import Sampler
from ..version import __version__
from ..views.view import View
from . import checkpoint
from .allocator import choose_allocator
from .compute import ComputeContext
from .context import TrainingContext
from .edge_labels import read_edge_task
from .edge_task import EdgeTask
from .link_batches import held_out
from .method import Method
from .sampling_weights import SamplingWeights, read_weights
from .schedule import warmup_warning
from .setup import check_scores, make_sampler
from .source import Source, ViewRequest, fitted, gaps, open_source, preferred, readable, shared_fingerprint, sizes_of
from .state import read, restore
from .weights import has_batch_norm


class Choices(NamedTuple):
    """Everything that a run decides before it opens its view: what to train, and where and with what."""

    config: TrainOptions  # with its target and metric
    method: Method
    placement: Placement
    compute: ComputeContext
    all_threads: int  # of this rank, which `threads` divides
    threads: ThreadBudget
    backend: Backend  # samples
    sampler: Sampler
    allocator: str  # what becomes of freed memory; see `choose_allocator`


class OpenRun(NamedTuple):
    """A run that is ready for its next step, on one rank."""

    choices: Choices
    context: TrainingContext
    data: dict[str, str | int]  # the name of the graph and its sizes
    store: str | None  # the folder that the graph was given as; None for a graph in memory
    resumed: bool  # the run continues a checkpoint
    warnings: list[str]  # printed so far, on rank 0
    temporary: TemporaryDirectory[str] | None  # the store of a graph in memory, which is deleted with this object


def open_run(
    config: TrainOptions, graph: Source, comm: Comm, compute: ComputeContext | None, method: type[Method], module: nn.Module | None,
    edge_labels: Any = None,
) -> OpenRun:  # fmt: skip
    """Open a run, and restore it if it is to be resumed; collective. See `Trainer` for the parameters and errors."""
    before = sent_by(comm)
    agree(comm, {"version": __version__, **{f"option {key}": value for key, value in config.model_dump(mode="json").items()}})
    source = open_source(graph, config, comm, method.maps_relations)
    weights_file, edges = read_weights(config, source, comm), read_edge_task(config, source, comm, edge_labels)
    choices = _choose(config, source, comm, compute, method, module, edges)
    config, method_of_run, placement = choices.config, choices.method, choices.placement

    mark, check = shared_fingerprint(source, comm), config.check
    if not isinstance(source, Graph):
        verify_together(source, comm, check)
    snapshot = read(config, comm)
    virtual = virtual_ranks(config, comm, None if snapshot is None else snapshot[1], method_of_run.name, method_of_run.elastic)
    needs_store = method_of_run.needs_store(placement) and not config.is_relational  # models of relations read columns, wherever they lie
    opened, temporary = readable(source, needs_store, comm)
    store = None if isinstance(graph, Graph) else str(graph)
    gather = choices.threads.gather
    asked = ViewRequest(opened, mark, placement, choices.backend, choices.sampler, comm, gather, virtual, store, edges=edges)
    view = method_of_run.open(asked)
    warnings = gaps(source, config, edges) if comm.rank == 0 else []
    warn(*warnings)
    check_scores(config, view, edges)
    weights = None if weights_file is None else weights_file.of_run(view, comm)

    context = _make_context(choices, comm, view, virtual, before, weights)
    if comm.rank == 0:
        late = _warnings_of(context, method_of_run)
        warn(*late)
        warnings += late
    if snapshot is not None:
        restore(context, method_of_run, *snapshot)
    seeds = len(view.seeds if edges is None else edges.rows)
    data = {**sizes_of(source), "features": view.num_features, "classes": view.num_classes, "seeds": seeds}
    return OpenRun(choices, context, data, store, snapshot is not None, warnings, temporary)


def _warnings_of(context: TrainingContext, method: Method) -> list[str]:
    """Return warnings about options that do not suit the steps or the model of a run."""
    config, found = context.config, list[str]()
    if config.seed_locality and has_batch_norm(context.model):
        found.append(
            f"batch norm takes its statistics from mini-batches, and seed_locality {config.seed_locality} draws each from a part of "
            "the graph; use layer_norm"
        )
    if warning := warmup_warning(config, context.batches.steps, max(method.stages())):  # each stage has a warm-up of its own
        found.append(warning)
    return found


def _choose(
    config: TrainOptions, source: Source, comm: Comm, compute: ComputeContext | None, method: type[Method], module: nn.Module | None,
    edges: EdgeTask | None,
) -> Choices:  # fmt: skip
    """Choose where and with what a run samples and computes; collective."""

    def method_and_place() -> tuple[TrainOptions, Method, Placement, ComputeContext]:
        fits = fitted(config, source, edges)
        if fits.task == "links" and isinstance(source, Graph):
            held_out(source)  # before a graph without them is written for ranks to read
        if fits.checkpoint or fits.resume:
            checkpoint.require()
        made = method(fits)
        if module is not None:
            made.train_module(module)
        placement = _placement(fits, method, preferred(source, method.graphs), comm)
        return fits, made, placement, compute or make_compute_context(fits)

    fits, made, placement, place = together(comm, method_and_place)
    placement = placement.on_devices(comm) if place.has_device else placement
    all_threads = fits.threads or fair_threads(comm)
    threads = divide_threads(all_threads, fits.sampling_threads, waits=placement.partitioned or place.ahead)
    torch.set_num_threads(threads.compute)

    def backend_and_sampler() -> tuple[Backend, Sampler, str]:
        if threads.sample and placement.partitioned:
            comm.check_threads()
        return place.backend(fits, threads.sample or all_threads), make_sampler(fits), choose_allocator(fits.allocator)

    return Choices(fits, made, placement, place, all_threads, threads, *together(comm, backend_and_sampler))


def virtual_ranks(config: TrainOptions, comm: Comm, state: dict[str, Any] | None, method: str, elastic: str) -> int:
    """Return W of a run, of its checkpoint's state, its option, or the ranks; raises `UsageError` on every rank if they do not fit."""
    wanted, p = config.virtual_ranks, comm.size
    before = None if state is None else state.get("virtual_ranks", state["loader"].get("ranks"))  # none in old states of whole graphs
    if elastic != "minibatches":
        if wanted not in (None, p):
            raise UsageError(f"method {method!r} does not share mini-batches; got virtual_ranks {wanted} with {p} ranks: leave it out")
        if before not in (None, p) and elastic == "no":
            why = f"method {method!r} keeps a part of the graph or other state on each rank; use {before} ranks"
            raise UsageError(f"the checkpoint does not fit this run: ranks was {before} and is {p} now, and {why}")
        return p
    if None not in (before, wanted) and wanted != before:
        raise UsageError(f"the checkpoint does not fit this run: virtual_ranks was {before} and is {wanted} now; leave it out")
    virtual: int = before or wanted or p
    if p > virtual:
        fits = f"use at most {virtual} ranks, or start a run with virtual_ranks {p}"
        raise UsageError(f"a step has the mini-batches of {virtual} virtual ranks, too few for {p} ranks; {fits}")
    return virtual


def _make_context(
    choices: Choices, comm: Comm, view: View, virtual: int, before: dict[str, Sent], weights: SamplingWeights | None
) -> TrainingContext:  # fmt: skip
    """Make the context of a run, with its moved view, its steps and its first model; `before` is what was sent until now. Collective."""
    config, method, compute = choices.config, choices.method, choices.compute
    ledger, tensor_comm = Ledger(comm, view.sampling, compute.phase, before), method.tensor_comm(compute, comm)
    place = choices.placement.place(comm) if config.seed_locality else comm.rank
    context = TrainingContext(config, comm, compute, tensor_comm, choices.sampler, choices.threads, ledger, view, virtual, place, weights)
    context.module = method.module
    method.view(context)
    context.batches = method.batches(context)
    if context.batches.together != config.fetch_together:
        asked = f"fetch_together {config.fetch_together}"
        raise UsageError(f"method {method.name!r} fetches features of one mini-batch at a time; got {asked}: use 1")
    context.set_model(method.model(context, 0))
    return context


def _placement(config: TrainOptions, method: type[Method], topologies: Sequence[str], comm: Comm) -> Placement:
    """Return the placement that options name, by default on the first topology; raises `UsageError` if method or ranks do not fit it."""
    if config.graph not in (None, *topologies):
        raise UsageError(f"the method {method.name!r} needs a {' or '.join(topologies)} graph; got graph {config.graph}")
    placement = Placement.of(config, topologies[0])
    for what, where, fits in (("topology", placement.topology, topologies), ("features", placement.features, method.feature_placements)):
        if where not in fits:
            raise UsageError(f"the method {method.name!r} needs {what} {' or '.join(fits)}; got {what} {where}")
    choose_order(comm, placement.grid_order)
    return placement


def make_compute_context(config: TrainOptions) -> ComputeContext:
    """Make the compute context that a configuration names; ``auto`` takes a GPU if there is one that supports every option.

    Raises `BackendUnavailable` if it names a GPU and there is none, `UsageError` if an option does not work on the device that it names.
    """
    unsupported, missing = unsupported_on_cuda(config), why_no_cuda()
    if config.device == "cpu" or (config.device == "auto" and (unsupported or missing)):
        if config.device_comm in ("nccl", "mpi"):
            raise UsageError(f"device_comm {config.device_comm} moves tensors between GPUs, and this run computes on the CPU; use auto")
        return ComputeContext(config.precision)
    if missing:
        raise BackendUnavailable(f"device 'cuda' was asked for, but {missing}; use device cpu")
    if unsupported:
        raise UsageError(f"{unsupported}; use device cpu")
    from .cuda.compute import CudaComputeContext, open_cuda  # a run on a CPU needs none of it

    return CudaComputeContext(open_cuda(), config.precision, config.device_comm)


def unsupported_on_cuda(config: TrainOptions) -> str | None:
    """Name the option of a configuration that does not work on a GPU, or return None."""
    if config.exclude_targets != "none":
        return "exclude_targets takes edges out of mini-batches on the host, and device 'cuda' was asked for"
    return None


def why_no_cuda() -> str | None:
    """Say why there is no GPU to train on, or return None if there is one."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees none"
    return backends.why_not("cuda")
