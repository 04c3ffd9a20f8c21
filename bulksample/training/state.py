"""Convert the whole state of a run to tensors and JSON and back, so that a resumed run repeats an uninterrupted one bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config.groups import MOST_VIRTUAL_RANKS
from ..config.train import TrainOptions
from ..distributed.comm.agree import checked_on_rank_0, together
from ..distributed.comm.base import Comm
from ..errors import BackendUnavailable, DataError, PeerLost, UsageError, is_whole
from ..version import __version__
from . import checkpoint
from .checkpoint import Snapshot
from .context import Progress, TrainingContext
from .method import Method
from .shards import own_shard, shards_from_rank_0
from .weights import moments_at


def capture(context: TrainingContext, method: Method) -> Snapshot:
    """Return the whole state of a run; shards are left out, see `training.shards`, and the state names their tensors."""
    shard, schema = own_shard(context), context.view.targets.schema
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
        **({"schema": schema.to_json()} if schema is not None else {}),
        **({} if context.sampling_weights is None else {"sampling_weights": context.sampling_weights.identity}),
        **({} if method.edges is None else {"pair_features": list(method.edges.table.feature_names)}),
        "virtual_ranks": context.virtual_ranks,
        "loader": context.batches.state_dict(),
        "progress": dict(vars(context.progress)),
        **({"shard_tensors": sorted(shard)} if shard else {}),
    }
    replicated = {name: tensor for name, tensor in tensors.items() if name not in shard}
    return replicated, {**state, "tensors": sorted(replicated)}


def restore(context: TrainingContext, method: Method, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Restore a run from a state that `capture` returned.

    Raises `UsageError`, which names what differs, if the state belongs to another configuration, graph or number of ranks, and `DataError`
    if it is not what `capture` returned: a tensor is missing or foreign, or has another shape.
    """
    folder = Path(state["folder"])
    now = context.config.computed()
    before = type(context.config).of().computed() | state["config"]  # options that its version did not have had their defaults
    if state["graph"] != context.view.fingerprint:
        raise UsageError("the checkpoint does not fit this run: it is of a training on another graph, or on this one before it was changed")
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise UsageError(f"the checkpoint does not fit this run: {name} was {before.get(name)!r} and is {now.get(name)!r} now")
    given = context.sampling_weights
    if (saved := state.get("sampling_weights")) != (None if given is None else given.identity):
        by = "without sampling_weights" if given is None else f"by sampling_weights {context.config.sampling_weights}"
        was = "without any" if saved is None else "by others" if given is not None else "by some"
        fits = "leave them out" if saved is None else "use those of the run that saved it"
        raise UsageError(f"the checkpoint does not fit this run: it draws seeds {by}, and the checkpoint's were drawn {was}; {fits}")
    if bool(state.get("shard_tensors")) != bool(context.model.shards):
        was, placed = ("replicated", "partitioned") if context.model.shards else ("partitioned", "replicated")
        raise UsageError(f"the checkpoint does not fit this run: learned rows were {was} and are {placed} now; use features {was}")
    if context.model.shards:
        tensors = {**tensors, **shards_from_rank_0(context, state, state["folder"])}
    stages = len(method.stages())
    if (stage := state["progress"]["stage"]) > stages:
        raise DataError(f"checkpoint {folder} is of stage {stage}; method {method.name!r} has {stages}: use another checkpoint")
    context.batches.load_state_dict(state["loader"])
    vars(context.progress).update({key: state["progress"].get(key) for key in vars(context.progress)})  # earlier versions have no `lr`
    try:
        method.load_state_dict(_below(tensors, "method."))
        if context.progress.stage:
            context.set_model(method.model(context, context.progress.stage))
    except (DataError, UsageError, BackendUnavailable, PeerLost, torch.OutOfMemoryError):
        raise
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise _damaged(folder, f"method {method.name!r} cannot read what it kept ({type(error).__name__}: {error})") from error
    together(context.comm, lambda: check_tensors(folder, context, tensors, state.get("tensors")))
    context.model.load_state_dict(_below(tensors, "model."))
    context.best_weights = _below(tensors, "best.")
    for name, parameter in context.model.named_parameters():
        moments = _below(tensors, f"adam.{name}.")
        if moments:
            context.optimizer.state[parameter] = moments_at(parameter, moments)


def read(config: TrainOptions, comm: Comm) -> Snapshot | None:
    """Read the checkpoint that the configuration names, on every rank; return None if it names none, or ``auto`` finds none.

    Rank 0 reads and sends the tensors to the others (kind "model"), so only rank 0 needs to see the directory. Raises `DataError` or
    `UsageError` on every rank if there are checkpoints and none can be used; see `checkpoint.newest` and `checkpoint.read`.
    """
    if not config.resume:
        return None
    tensors: dict[str, torch.Tensor] = {}
    state: dict[str, Any] | None = None

    def on_rank_0() -> tuple[Path, Snapshot] | None:
        newest = checkpoint.newest(config.checkpoint or "") if config.resume == "auto" else checkpoint.read(config.resume or "")
        if newest is not None:
            check_state(newest[0], newest[1][1])
        return newest

    newest = checked_on_rank_0(comm, on_rank_0)
    if newest is not None:
        tensors, state = newest[1]
        state = {**state, "folder": str(newest[0])}  # which rank 0 alone sees
    if comm.size > 1:
        shapes = [[name, list(tensor.shape), str(tensor.numpy().dtype)] for name, tensor in tensors.items()]
        shapes, state = comm.gather_control([shapes, state])[0]
        arrays = {name: tensors[name].numpy().copy() if comm.rank == 0 else np.empty(shape, dtype) for name, shape, dtype in shapes}
        for name, shape, _ in shapes:
            sent = comm.broadcast(np.ascontiguousarray(arrays.pop(name)), "model")
            tensors[name] = torch.from_numpy(sent).reshape(shape)
    return None if state is None else (tensors, state)


def _below(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names start with a prefix, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_COUNTS = ("steps", "since_best", "stage", "rounds")


def check_state(folder: Path, state: dict[str, Any]) -> None:
    """Raise `DataError` unless a state has the parts of a run's, each of its type and range."""
    for key, kind in (("config", dict), ("graph", str), ("loader", dict), ("progress", dict)):
        if not isinstance(state.get(key), kind):
            raise _damaged(folder, f"{key} is {_shown(state.get(key))}")
    for key in ("virtual_ranks", "ranks"):
        ranks = (state if key == "virtual_ranks" else state["loader"]).get(key)
        if ranks is not None and not is_whole(ranks, 1, MOST_VIRTUAL_RANKS):
            raise _damaged(folder, f"{key} is {_shown(ranks)}; there are 1 to {MOST_VIRTUAL_RANKS}")
    for key in ("epoch", "step"):
        if not is_whole(state["loader"].get(key), 0, 2**63 - 1):
            raise _damaged(folder, f"the loader's {key} is {_shown(state['loader'].get(key))}")
    progress = state["progress"]
    sound = {
        **{key: is_whole(progress.get(key), 0, 2**63 - 1) for key in _COUNTS},
        "best_epoch": is_whole(progress.get("best_epoch"), -1, 2**63 - 1),
        **{key: _is_number(progress.get(key)) for key in ("seeds", "loss")},
        **{key: progress.get(key) is None or _is_number(progress[key]) for key in ("last_loss", "lr")},
        "finished": isinstance(progress.get("finished"), bool),
        "best_scores": isinstance(scores := progress.get("best_scores"), dict)
        and all(one is None or _is_number(one) for one in scores.values()),
    }
    assert sound.keys() == vars(Progress()).keys()
    if wrong := [key for key, right in sound.items() if not right]:
        raise _damaged(folder, f"{wrong[0]} of its progress is {_shown(progress.get(wrong[0]))}")


def check_tensors(folder: Path, context: TrainingContext, tensors: dict[str, torch.Tensor], named: list[str] | None) -> None:
    """Raise `DataError` unless tensors are those of this run, own shards included; `named` are those it saved, None in earlier versions."""
    if named is not None and (missing := sorted(set(named) - tensors.keys())):
        raise _damaged(folder, f"it lacks the tensor {missing[0]}")
    weights, parameters = context.model.state_dict(), dict(context.model.named_parameters())
    expected = {f"{kind}.{name}": tensor for kind in ("model", "best") for name, tensor in weights.items()}
    scalar = torch.zeros(())
    expected |= {f"adam.{name}.{key}": scalar if key == "step" else one for name, one in parameters.items() for key in _MOMENTS}
    best, names = any(name.startswith("best.") for name in tensors), {name for name in tensors if not name.startswith("method.")}
    wanted = {f"model.{name}" for name in weights} | {f"best.{name}" for name in weights if best}
    moments = {name.rpartition(".")[0] for name in names if name.startswith("adam.")}
    wanted |= {f"{name}.{key}" for name in moments for key in _MOMENTS}
    if missing := sorted(wanted - names):
        raise _damaged(folder, f"it lacks the tensor {missing[0]}")
    if foreign := sorted(names - expected.keys()):
        raise _damaged(folder, f"its tensor {foreign[0]} is of no part of this run")
    for name in sorted(names):
        saved, right = tensors[name], expected[name]
        if saved.shape != right.shape or saved.dtype != right.dtype:
            was = f"{tuple(saved.shape)} of {saved.dtype}"
            raise _damaged(folder, f"its tensor {name} has the shape {was}; this run needs {tuple(right.shape)} of {right.dtype}")
    for name in (f"{one}.step" for one in sorted(moments)):
        if not (float(tensors[name]) >= 1 and float(tensors[name]).is_integer()):
            raise _damaged(folder, f"its tensor {name} is {float(tensors[name])}")


def _damaged(folder: Path, what: str) -> DataError:
    return DataError(f"checkpoint {folder} does not hold the state of a run: {what}; use another checkpoint")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) < 60 else f"{text[:56]} ..."
