"""Checkpoints that are written completely or not at all: tensors as safetensors, the rest as JSON, never a pickle.

A checkpoint is a folder ``step-<number>`` with two files; `data.atomic` writes it. The JSON holds the SHA-256 of the tensors and
that of itself, so a damaged checkpoint is detected and the one before it is used. Where ranks divide parameters, each shard is a file more.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from ..data.atomic import new_folder, sweep
from ..data.files import folder_of, write_synced
from ..data.npy import regular_size
from ..errors import DataError, UsageError

FORMAT, SHARDED = 2, 3  # without and with shards
READABLE = (1, 2, 3)  # format 1 has no digest of the state
KEPT = 2
_STATE, _TENSORS, _SHARD = "state.json", "tensors.safetensors", "shard-{:05d}.safetensors"

Snapshot = tuple[dict[str, torch.Tensor], dict[str, Any]]


def require() -> None:
    """Raise `ModuleNotFoundError` if the package that checkpoints need is missing; call it before long work."""
    import safetensors.torch  # noqa: F401


def save(
    directory: str | os.PathLike[str], number: int, tensors: dict[str, torch.Tensor], state: dict[str, Any],
    shards: Iterable[dict[str, torch.Tensor]] = (),
) -> Path:  # fmt: skip
    """Write one checkpoint; remove later ones, which another run has left, and all but the newest two of the others.

    Parameters
    ----------
    number : int
        Steps of the run so far; names the folder.
    tensors : dict of tensors
    state : dict, a JSON object
    shards : iterable of dicts of tensors
        Each is written before the next is taken, into a file of its own.

    Raises
    ------
    OSError
        If the checkpoint cannot be written; earlier checkpoints stay as they are.
    """
    from safetensors.torch import save as as_bytes

    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    data = as_bytes({name: tensor.detach().contiguous() for name, tensor in tensors.items()})
    target = root / f"step-{number:09d}"
    with new_folder(target) as made:  # a resumed run replaces the same step by the same content
        write_synced(made / _TENSORS, data)
        sums = []
        for place, shard in enumerate(shards):
            own = as_bytes({name: tensor.detach().contiguous() for name, tensor in shard.items()})
            write_synced(made / _SHARD.format(place), own)
            sums.append(hashlib.sha256(own).hexdigest())
        kind = {"format": SHARDED, "shards": sums} if sums else {"format": FORMAT}
        whole = json.loads(json.dumps({**kind, "sha256": hashlib.sha256(data).hexdigest(), **state}))  # as `load` reads it
        write_synced(made / _STATE, json.dumps({"digest": _digest(whole), **whole}, indent=1).encode())
    later = [path for path in _found(root) if _number(path) > number]  # of a run that this one replaces
    for old in later + _found(root)[len(later) + KEPT :]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def newest(directory: str | os.PathLike[str]) -> tuple[Path, Snapshot] | None:
    """Return the newest complete checkpoint below a directory, or None. Damaged checkpoints are named on standard error and skipped."""
    sweep(Path(directory))
    for path in _found(Path(directory)):
        try:
            return path, load(path)
        except DataError as error:
            print(f"bulksample: {error}; trying the checkpoint before it", file=sys.stderr)
    return None


def read(path: str | os.PathLike[str]) -> tuple[Path, Snapshot]:
    """Read the newest checkpoint ``step-...`` in a folder, or the folder itself, which may have any name; return its folder as well.

    Raises
    ------
    UsageError
        If there is no checkpoint.
    DataError
        If it is incomplete or damaged, and so is every other one in the folder.
    """
    found = newest(root := folder_of(path, "a checkpoint"))
    if found is not None:
        return found
    if damaged := _found(root):
        return damaged[0], load(damaged[0])  # raises
    if root.is_dir() and not root.name.startswith("step-") and not (root / _STATE).exists():
        raise UsageError(f"{root} holds no checkpoint; use the folder of train --checkpoint, or a folder step-... in it")
    return root, load(root)


def load(path: str | os.PathLike[str]) -> Snapshot:
    """Read one checkpoint: its tensors and its state.

    Raises
    ------
    UsageError
        If there is no such folder.
    DataError
        If it is incomplete or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    folder = Path(path)
    if not folder.exists():
        raise UsageError(f"there is no checkpoint at {folder}")
    state = _state(folder)
    try:
        data = _bytes(folder, _TENSORS)
        if hashlib.sha256(data).hexdigest() != state["sha256"]:
            raise DataError(f"checkpoint {folder} is damaged: the SHA-256 of {_TENSORS} is not the one in {_STATE}")
        for place, sha256 in enumerate(state.get("shards", ())):
            _shard(folder, place, sha256)
        return from_bytes(data), state
    except (KeyError, SafetensorError) as error:
        raise DataError(f"checkpoint {folder} is incomplete or damaged: {error}") from error


def read_shards(folder: Path, state: dict[str, Any]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the shards of a checkpoint, one at a time; `state` is that of the checkpoint. Raises `DataError` for a damaged one."""
    from safetensors.torch import load as from_bytes

    for place, sha256 in enumerate(state["shards"]):
        yield from_bytes(_shard(folder, place, sha256))


def _shard(folder: Path, place: int, sha256: str) -> bytes:
    """Read the file of a shard and compare it with its hash."""
    data = _bytes(folder, _SHARD.format(place))
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"checkpoint {folder} is damaged: the SHA-256 of {_SHARD.format(place)} is not the one in {_STATE}")
    return data


def _state(folder: Path) -> dict[str, Any]:
    """Read the JSON of a checkpoint and check its format and its digest; raises `DataError`."""
    try:
        state = json.loads(_bytes(folder, _STATE))
        if not isinstance(state, dict):
            raise ValueError(f"{_STATE} holds no object")
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"checkpoint {folder} is incomplete or damaged: {error}") from error
    written, format_ = state.pop("digest", None), state.get("format")
    if type(format_) is not int or format_ not in READABLE:
        raise DataError(f"checkpoint {folder} is of format {format_!r}; this version reads {' and '.join(map(str, READABLE))}")
    if (written is not None or format_ > 1) and written != _digest(state):
        raise DataError(f"checkpoint {folder} is damaged: the content of {_STATE} does not fit its digest")
    return state


def _bytes(folder: Path, name: str) -> bytes:
    """Read a regular file of a checkpoint; raises `DataError` for a link, which may change later, and for a pipe, which could block."""
    what = f"checkpoint {folder} is incomplete or damaged: {name}"
    if (folder / name).is_symlink():
        raise DataError(f"{what} is a link; use a copy of the file")
    regular_size(folder / name, what)
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise DataError(f"{what}: cannot be read: {error.strerror}") from error


def _digest(state: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON object with sorted keys."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _found(root: Path) -> list[Path]:
    """Return the checkpoints below a directory, the newest first."""
    found = (path for path in root.glob("step-*") if path.name[5:].isdecimal())
    return sorted(found, key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
