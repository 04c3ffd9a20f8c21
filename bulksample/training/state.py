"""Convert the whole state of a run to tensors and JSON and back, so that a resumed run repeats an uninterrupted one bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config.train import TrainOptions
from ..distributed.comm.agree import checked_on_rank_0, together
from ..distributed.comm.base import Comm
from ..errors import DataError, UsageError
from ..version import __version__
from ..views.relational import RelationalView
from . import checkpoint
from .checkpoint import Snapshot
from .context import TrainingContext
from .method import Method
from .shards import own_shard, shards_from_rank_0
from .sound_state import check_state, check_tensors, method_state
from .weights import moments_at


def capture(context: TrainingContext, method: Method) -> Snapshot:
    """Return the weights, Adam's moments, the best weights, the method's tensors, the loader's position, and the progress.

    Shards are left out, see `training.shards`; the state names their tensors.
    """
    shard = own_shard(context)
    tensors = {f"model.{name}": tensor for name, tensor in context.model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in context.best_weights.items()}
    for name, parameter in context.model.named_parameters():
        for key, value in context.optimizer.state.get(parameter, {}).items():
            tensors[f"adam.{name}.{key}"] = torch.as_tensor(value)
    tensors |= {f"method.{name}": tensor for name, tensor in method.state_dict().items()}
    state = {
        "version": __version__,
        "config": context.config.computed(),
        "graph": context.view.fingerprint,
        "features": context.view.num_features,
        "outputs": context.view.num_classes,
        **({"schema": context.view.schema.to_json()} if isinstance(context.view, RelationalView) else {}),
        "virtual_ranks": context.virtual_ranks,
        "loader": context.batches.state_dict(),
        "progress": context.progress.to_json(),
        **({"shard_tensors": sorted(shard)} if shard else {}),
    }
    own = {name: tensor for name, tensor in tensors.items() if name not in shard}
    return own, {**state, "tensors": sorted(own)}


def restore(context: TrainingContext, method: Method, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Restore a run from a state that `capture` returned.

    Raises
    ------
    UsageError
        If the state belongs to another configuration, graph or number of ranks; the message names what differs.
    DataError
        If it is not what `capture` returned: a tensor is missing or foreign, or has another shape.
    """
    folder = Path(state["folder"])
    differences = _differences(state["config"], context.config.computed())
    if state["graph"] != context.view.fingerprint:
        raise UsageError("the checkpoint does not fit this run: it is of a training on another graph, or on this one before it was changed")
    for name, before, now in differences:
        if before != now:
            raise UsageError(f"the checkpoint does not fit this run: {name} was {before!r} and is {now!r} now")
    if bool(state.get("shard_tensors")) != bool(context.model.shards):
        was, now = ("replicated", "partitioned") if context.model.shards else ("partitioned", "replicated")
        raise UsageError(f"the checkpoint does not fit this run: learned rows were {was} and are {now} now; use features {was}")
    if context.model.shards:
        tensors = {**tensors, **shards_from_rank_0(context, state, state["folder"])}
    stages = len(method.stages())
    if (stage := state["progress"]["stage"]) > stages:
        raise DataError(f"checkpoint {folder} is of stage {stage}; method {method.name!r} has {stages}: use another checkpoint")
    context.batches.load_state_dict(state["loader"])
    context.progress.from_json(state["progress"])
    with method_state(folder, method.name):
        method.load_state_dict(_below(tensors, "method."))
        if context.progress.stage:
            context.set_model(method.model(context, context.progress.stage))
    together(context.comm, lambda: check_tensors(folder, context, tensors, state.get("tensors")))
    context.model.load_state_dict(_below(tensors, "model."))
    context.best_weights = _below(tensors, "best.")
    for name, parameter in context.model.named_parameters():
        moments = _below(tensors, f"adam.{name}.")
        if moments:
            context.optimizer.state[parameter] = moments_at(parameter, moments)


def read(config: TrainOptions, comm: Comm) -> Snapshot | None:
    """Read the checkpoint that the configuration names, on every rank; return None if it names none, or ``auto`` finds none.

    Rank 0 reads and sends the tensors to the others (kind "model"), so only rank 0 needs to see the directory.

    Raises
    ------
    DataError, UsageError
        On every rank, if there are checkpoints and none can be used; see `checkpoint.newest` and `checkpoint.read`.
    """
    if not config.resume:
        return None
    tensors: dict[str, torch.Tensor] = {}
    state: dict[str, Any] | None = None
    found = checked_on_rank_0(comm, lambda: _found(config))
    if found is not None:
        tensors, state = found[1]
        state = {**state, "folder": str(found[0])}  # which rank 0 alone sees
    if comm.size > 1:
        tensors, state = _from_rank_0(comm, tensors, state)
    return None if state is None else (tensors, state)


def _found(config: TrainOptions) -> tuple[Path, Snapshot] | None:
    found = checkpoint.newest(config.checkpoint or "") if config.resume == "auto" else checkpoint.read(config.resume or "")
    if found is not None:
        check_state(found[0], found[1][1])
    return found


def _from_rank_0(
    comm: Comm, tensors: dict[str, torch.Tensor], state: dict[str, Any] | None
) -> tuple[dict[str, torch.Tensor], dict[str, Any] | None]:
    """Send rank 0's tensors and state to every rank."""
    shapes = [[name, list(tensor.shape), str(tensor.numpy().dtype)] for name, tensor in tensors.items()]
    shapes, state = comm.gather_control([shapes, state])[0]
    received = {}
    for name, shape, dtype in shapes:
        array = tensors[name].numpy().copy() if comm.rank == 0 else np.empty(shape, dtype)
        received[name] = torch.from_numpy(comm.broadcast(np.ascontiguousarray(array), "model")).reshape(shape)
    return received, state


def _below(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names start with a prefix, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(key, before.get(key), now.get(key)) for key in sorted(before.keys() | now.keys())]
