"""Run the method that a configuration names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from ..config.file import write
from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..distributed.comm.world import meet_first
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError, check_switches
from ..log import warn
from ..nn.model import Gnn
from ..training.callbacks import Callback, JsonLines, lines_of, progress_shown
from ..training.compute import ComputeContext
from ..training.edge_labels import IN_MEMORY
from ..training.loop import Trainer
from ..training.overwrite import CONFIG, among_checkpoints, owned
from ..training.source import Source
from ..training.trackers import check_trackers, make_tracking
from . import load
from .config import TrainConfig
from .readers import unread_warning


def make_trainer(
    config: TrainConfig, graph: Source, comm: Comm | None = None, callbacks: Sequence[Callback] = (), compute: ComputeContext | None = None,
    module: nn.Module | None = None, edge_labels: Any = None,
) -> Trainer:  # fmt: skip
    """Return a trainer of the method that the configuration names; see `Trainer` for the parameters."""
    return Trainer(config, graph, comm, callbacks, compute, method=load(config.method), module=module, edge_labels=edge_labels)


def train(
    graph: Source | RankGraph, /, comm: Comm | None = None, callbacks: Sequence[Callback] = (),
    overwrite: bool = False, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train with options given as keyword arguments, and return the report of `Trainer.run`.

    Of a share of a graph that ranks opened (`bulksample.load` with a `world`), those ranks train on its store, placed as they opened it;
    they read their rows anew.

    The options are fields of `TrainConfig`, such as ``method="adaqp"`` or ``epochs=10``; `Trainer` describes the other parameters.
    The lines of the epochs are written to ``metrics``, or else to metrics.jsonl in the folder ``checkpoint``, and trackers are those of
    ``track``. Nothing is printed but warnings, unless ``quiet=False``. With `overwrite` the run replaces what another one has left there.
    Without `comm`, the ranks that a launcher started train together, also those that `bulksample.init` connected; a rank that is to
    train alone passes ``SerialComm()``. `model` may be a `torch.nn.Module`. It is trained in place, and has the weights of the best
    validation score afterwards. `edge_labels` may be a table in memory, the same on every rank: a dict of arrays, a pandas.DataFrame or a
    pyarrow.Table; see `bulksample.data.edge_table`.
    Raises `UsageError` if an option is unknown or out of range, or does not suit the graph.
    """
    if comm is not None and not isinstance(comm, Comm):
        raise UsageError(f"comm: got a {type(comm).__name__}; use what bulksample.init() returns")
    share, source = (graph, graph.opened.directory) if isinstance(graph, RankGraph) else (None, graph)
    comm = comm or (meet_first(options.get("timeout")) if share is None else share.comm)

    options, table = _table_apart(options)

    def checked() -> tuple[TrainConfig, list[Callback], nn.Module | None]:
        check_switches(overwrite=overwrite)
        return _checked(callbacks, options if share is None else _placed_as(share, comm, options))

    config, callbacks, module = together(comm, checked)
    if comm.rank == 0 and (warning := unread_warning(config, {name: name for name in options})):
        warn(warning)
    lines, kept = lines_of(config), among_checkpoints(config, CONFIG)
    shown = [progress_shown()] if comm.rank == 0 and not options.get("quiet", True) else []

    def begun(trainer: Trainer) -> None:
        if kept is not None:
            outputs.write(kept, write(config, config.method))

    with owned(config, overwrite, comm, lines, None, kept) as outputs:
        written = [JsonLines(lines, outputs)] if lines else []
        return train_tracked(config, source, comm, [*callbacks, *written, *shown], begun, module, table)


def train_tracked(
    config: TrainConfig, graph: Source, comm: Comm, callbacks: Sequence[Callback], begun: Callable[[Trainer], None],
    module: nn.Module | None = None, edge_labels: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Train with the trackers of the configuration, and return the report; rank 0 calls `begun` with the trainer before the first step."""
    tracking = make_tracking(config.track if comm.rank == 0 else (), config.model_dump(mode="json"))
    trainer = make_trainer(config, graph, comm, [*callbacks, tracking], module=module, edge_labels=edge_labels)
    if comm.rank == 0:
        begun(trainer)
    with tracking:
        return tracking.finish(trainer.run())


def _table_apart(options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the options with a path for the table of labelled edges, and the table itself if it was given in memory."""
    table = options.get("edge_labels")
    if table is None or isinstance(table, str):
        return options, None
    if isinstance(table, os.PathLike):
        return options | {"edge_labels": os.fspath(table)}, None
    return options | {"edge_labels": IN_MEMORY}, table


def _placed_as(share: RankGraph, comm: Comm, options: dict[str, Any]) -> dict[str, Any]:
    """Add the options by which the ranks opened a graph; raise `UsageError` if the call names others, or other ranks."""
    if comm is not share.comm:
        raise UsageError("comm: the ranks that opened the graph train on it; leave comm out")
    opened = share.opened.run_options(share.placement)
    both = {**opened, "graph": share.placement.topology}
    for name, value in options.items():
        if name in both and value != both[name]:
            raise UsageError(f"{name}: got {value!r}, and the graph was opened with {both[name]!r}; leave the option out")
    return {**{name: value for name, value in options.items() if name != "graph"}, **opened}


def _checked(callbacks: Sequence[Callback], options: dict[str, Any]) -> tuple[TrainConfig, list[Callback], nn.Module | None]:
    """Check the arguments of `train`; return the configuration, the callbacks, and the module to train; raises `UsageError`."""
    if not isinstance(callbacks, Iterable):
        raise UsageError(f"callbacks: got a {type(callbacks).__name__}; use a list of bulksample.Callback")
    callbacks = list(callbacks)
    for one in callbacks:
        missing = [event for event in ("begin", "step", "epoch", "end") if not callable(getattr(one, event, None))]
        if missing:
            raise UsageError(f"callbacks: {one!r} has no {', '.join(missing)}; derive its class from bulksample.Callback")
    module = options.get("model")
    if isinstance(module, nn.Module):
        options = options_beside(module, options)
    elif module is not None and not isinstance(module, str):
        kind = isinstance(module, type) and issubclass(module, nn.Module)
        found = f"the class {module.__name__}" if kind else f"a {type(module).__name__}"
        raise UsageError(f"model: got {found}; use a torch.nn.Module that has been made, the name of a model, or 'package.module:factory'")
    config = TrainConfig.of(**options)
    check_trackers(config.track)
    return config, callbacks, module if isinstance(module, nn.Module) else None


def options_beside(module: nn.Module, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options together with those that the module determines: `model`; of a `Gnn` also layers, widths, heads, dropout and norms.

    Raises `UsageError` if an option contradicts the module.
    """
    kind = type(module)
    described: dict[str, Any] = {"model": f"{kind.__module__}:{kind.__name__}"}
    if isinstance(module, Gnn):
        described = {
            "model": module.name, "layers": len(module.layers), "dropout": module.dropout, "input_dropout": module.input_dropout,
            **({"heads": module.heads} if module.name == "gat" else {}),
            **({"hidden": module.widths[1]} if len(module.widths) > 2 else {}),
            "layer_norm": any(isinstance(norm, nn.LayerNorm) for norm in module.norms),
            "batch_norm": any(isinstance(norm, nn.BatchNorm1d) for norm in module.norms),
        }  # fmt: skip
    for name, value in described.items():
        if name != "model" and options.get(name, value) != value:
            raise UsageError(f"{name}: got {options[name]!r}, but the model has {value!r}; leave the option out")
    return {**options, **described}
