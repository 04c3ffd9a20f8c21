"""Checks of what a checkpoint says, beyond its hashes: a file that was edited, or made by hand, has hashes that fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..config.groups import MOST_VIRTUAL_RANKS
from ..errors import BackendUnavailable, DataError, PeerLost, UsageError, is_whole
from .context import Progress, TrainingContext

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
    told = state["progress"]
    sound = {
        **{key: is_whole(told.get(key), 0, 2**63 - 1) for key in _COUNTS},
        "best_epoch": is_whole(told.get("best_epoch"), -1, 2**63 - 1),
        **{key: _is_number(told.get(key)) for key in ("seeds", "loss")},
        "last_loss": told.get("last_loss") is None or _is_number(told["last_loss"]),
        "finished": isinstance(told.get("finished"), bool),
        "best_scores": isinstance(scores := told.get("best_scores"), dict)
        and all(one is None or _is_number(one) for one in scores.values()),
    }
    assert sound.keys() == vars(Progress()).keys()
    if wrong := [key for key, right in sound.items() if not right]:
        raise _damaged(folder, f"{wrong[0]} of its progress is {_shown(told.get(wrong[0]))}")


def check_tensors(folder: Path, context: TrainingContext, tensors: dict[str, torch.Tensor], named: list[str] | None) -> None:
    """Raise `DataError` unless tensors are those of this run's model and optimizer: all of them, of the right shapes and types.

    Parameters
    ----------
    tensors : dict of tensors
        Of the checkpoint, with the rows of shards that this rank holds.
    named : list of str, optional
        The tensors that the run saved; states of earlier versions do not tell.
    """
    if named is not None and (missing := sorted(set(named) - tensors.keys())):
        raise _damaged(folder, f"it lacks the tensor {missing[0]}")
    weights, parameters = context.model.state_dict(), dict(context.model.named_parameters())
    expected = {f"{kind}.{name}": tensor for kind in ("model", "best") for name, tensor in weights.items()}
    scalar = torch.zeros(())
    expected |= {f"adam.{name}.{key}": scalar if key == "step" else one for name, one in parameters.items() for key in _MOMENTS}
    best, own = any(name.startswith("best.") for name in tensors), {name for name in tensors if not name.startswith("method.")}
    wanted = {f"model.{name}" for name in weights} | {f"best.{name}" for name in weights if best}
    moments = {name.rpartition(".")[0] for name in own if name.startswith("adam.")}
    wanted |= {f"{name}.{key}" for name in moments for key in _MOMENTS}
    if missing := sorted(wanted - own):
        raise _damaged(folder, f"it lacks the tensor {missing[0]}")
    if foreign := sorted(own - expected.keys()):
        raise _damaged(folder, f"its tensor {foreign[0]} is of no part of this run")
    for name in sorted(own):
        found, right = tensors[name], expected[name]
        if found.shape != right.shape or found.dtype != right.dtype:
            was = f"{tuple(found.shape)} of {found.dtype}"
            raise _damaged(folder, f"its tensor {name} has the shape {was}; this run needs {tuple(right.shape)} of {right.dtype}")
    for name in (f"{one}.step" for one in sorted(moments)):
        if not (float(tensors[name]) >= 1 and float(tensors[name]).is_integer()):
            raise _damaged(folder, f"its tensor {name} is {float(tensors[name])}")


@contextmanager
def method_state(folder: Path, method: str) -> Iterator[None]:
    """Raise `DataError` if what a method keeps cannot be taken back in the block."""
    try:
        yield
    except (DataError, UsageError, BackendUnavailable, PeerLost, torch.OutOfMemoryError):
        raise
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise _damaged(folder, f"method {method!r} cannot read what it kept ({type(error).__name__}: {error})") from error


def _damaged(folder: Path, what: str) -> DataError:
    return DataError(f"checkpoint {folder} does not hold the state of a run: {what}; use another checkpoint")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) < 60 else f"{text[:56]} ..."
