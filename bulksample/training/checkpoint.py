"""Checkpoints that are written completely or not at all: tensors as safetensors, the rest as JSON, never a pickle.

A checkpoint is a folder ``step-<number>`` with two files; `data.atomic` writes it. The JSON holds the SHA-256 of the tensors and
that of itself, so a damaged checkpoint is detected and the one before it is used. Where ranks divide parameters, each shard is a file more.

Only content that contradicts its own hashes is damaged. A checkpoint of an unknown format, and one that cannot be read now, may be whole:
it is never passed over, because the run that goes on from an older one would remove it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..data.atomic import folder_of, new_folder, sweep, write_synced
from ..errors import DataError, UsageError

FORMAT, SHARDED = 2, 3  # without and with shards
READABLE = (1, 2, 3)  # format 1 has no digest of the state
KEPT = 2
_STATE, _TENSORS, _SHARD = "state.json", "tensors.safetensors", "shard-{:05d}.safetensors"

Snapshot = tuple[dict[str, torch.Tensor], dict[str, Any]]


class Damaged(DataError):
    """A checkpoint lacks a file, or holds content that its hashes contradict."""


def require() -> None:
    """Raise `ModuleNotFoundError` if the package that checkpoints need is missing; call it before long work."""
    import safetensors.torch  # noqa: F401


def save(
    directory: str | os.PathLike[str], number: int, tensors: dict[str, torch.Tensor], state: dict[str, Any],
    shards: Iterable[dict[str, torch.Tensor]] = (),
) -> Path:  # fmt: skip
    """Write one checkpoint; remove later ones, which this run does not continue, and all but the newest two of the others.

    Whoever calls it holds the folder and has asked whether what is there may be removed; see `training.overwrite`. `number`, the steps of
    the run so far, names the folder. Each of the shards is written before the next is taken, into a file of its own. If it raises OSError,
    earlier checkpoints stay as they are.
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
            encoded = as_bytes({name: tensor.detach().contiguous() for name, tensor in shard.items()})
            write_synced(made / _SHARD.format(place), encoded)
            sums.append(hashlib.sha256(encoded).hexdigest())
        kind = {"format": SHARDED, "shards": sums} if sums else {"format": FORMAT}
        whole = json.loads(json.dumps({**kind, "sha256": hashlib.sha256(data).hexdigest(), **state}))  # as `load` reads it
        write_synced(made / _STATE, json.dumps({"digest": _digest(whole), **whole}, indent=1).encode())
    ours = [path for path in listed(root) if _is_ours(path)]
    later = [path for path in ours if _number(path) > number]
    for old in later + ours[len(later) + KEPT :]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def clear(directory: str | os.PathLike[str]) -> None:
    """Remove the checkpoints of a run that another one replaces; `save` tells who may ask for it."""
    for path in listed(Path(directory)):
        if _is_ours(path):
            shutil.rmtree(path, ignore_errors=True)


def listed(root: Path) -> list[Path]:
    """Return the checkpoints in a folder, also damaged ones, the newest first; none if there is no such folder.

    Raises `DataError` if the folder cannot be read, or is a link that leads nowhere: its checkpoints may be there again later.
    """
    try:
        names = os.listdir(root)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not root.is_symlink():
            return []
        raise DataError(f"the checkpoints in {root} cannot be read: {error.strerror}") from error
    return sorted((root / name for name in names if name.startswith("step-") and name[5:].isdecimal()), key=_number, reverse=True)


def newest(directory: str | os.PathLike[str]) -> tuple[Path, Snapshot] | None:
    """Return the newest complete checkpoint below a directory, or None if it holds none; nothing but leftovers of dead writers is removed.

    Damaged checkpoints are named on standard error, and the one before them is used. Raises `DataError` if all are damaged, or if the
    directory or the newest one that is not damaged cannot be read or is of another format.
    """
    sweep(Path(directory))
    faults = []
    for path in listed(Path(directory)):
        try:
            return path, load(path)
        except Damaged as error:
            print(f"bulksample: {error}; trying the checkpoint before it", file=sys.stderr)
            faults.append(str(error))
    if faults:
        raise DataError(f"no checkpoint in {directory} can be used, and all are left as they are: {faults[0]}")
    return None


def read(path: str | os.PathLike[str]) -> tuple[Path, Snapshot]:
    """Read the newest checkpoint ``step-...`` in a folder, or the folder itself, which may have any name; return its folder as well.

    Raises `UsageError` if there is none, `DataError` if it cannot be used, and neither can the others in the folder; see `newest`.
    """
    newest_one = newest(root := folder_of(path, "a checkpoint"))
    if newest_one is not None:
        return newest_one
    if root.is_dir() and not root.name.startswith("step-") and not (root / _STATE).exists():
        raise UsageError(f"{root} holds no checkpoint; use the folder that training was given as checkpoint, or a folder step-... in it")
    return root, load(root)


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state of the checkpoint that `read` would take, before any tensor is read or hashed; {} if there is none.

    Raises `DataError` if it cannot be read, or is of a format that this version does not know.
    """
    root = folder_of(path, "a checkpoint")
    for folder in [*listed(root), root]:
        with suppress(Damaged):
            return _state(folder)
    return {}


def load(path: str | os.PathLike[str]) -> Snapshot:
    """Read one checkpoint: its tensors and its state.

    Raises `UsageError` if there is no such folder, `Damaged` if it is incomplete or contradicts its hashes, and `DataError` if it cannot be
    read, or is of a format that this version does not know.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    folder = Path(path)
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"there is no checkpoint at {folder}") from None
    except OSError as error:
        raise DataError(f"checkpoint {folder} cannot be read: {error.strerror}") from error
    state = _state(folder)
    try:
        data = _hashed(folder, _TENSORS, state["sha256"])
        for place, sha256 in enumerate(state.get("shards", ())):
            _hashed(folder, _SHARD.format(place), sha256)
        return from_bytes(data), state
    except (KeyError, TypeError, SafetensorError) as error:
        raise Damaged(f"checkpoint {folder} is incomplete or damaged: {error}") from error


def read_shards(folder: Path, state: dict[str, Any]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the shards of a checkpoint, one at a time; `state` is that of the checkpoint. Raises `DataError` for a damaged one."""
    from safetensors.torch import load as from_bytes

    for place, sha256 in enumerate(state["shards"]):
        yield from_bytes(_hashed(folder, _SHARD.format(place), sha256))


def _hashed(folder: Path, name: str, sha256: str) -> bytes:
    """Read a file of tensors and compare it with its hash; raises as `load`."""
    data = _bytes(folder, name)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(f"checkpoint {folder} is damaged: the SHA-256 of {name} is not the one in {_STATE}")
    return data


def _state(folder: Path) -> dict[str, Any]:
    """Read the JSON of a checkpoint and check its format and its digest; raises as `load`."""
    data = _bytes(folder, _STATE)
    try:
        state = json.loads(data)
        if not isinstance(state, dict):
            raise ValueError(f"{_STATE} holds no object")
    except (ValueError, RecursionError) as error:
        raise Damaged(f"checkpoint {folder} is incomplete or damaged: {error}") from error
    written, format_ = state.pop("digest", None), state.get("format")
    if "format" in state and (type(format_) is not int or format_ not in READABLE):
        known = f"{', '.join(map(str, READABLE))}: use the version of bulksample that wrote it, or another folder"
        raise DataError(f"checkpoint {folder} is of format {format_!r}; this version reads {known}")
    if "format" not in state or ((written is not None or format_ != 1) and written != _digest(state)):
        raise Damaged(f"checkpoint {folder} is damaged: the content of {_STATE} does not fit its digest")
    return state


def _bytes(folder: Path, name: str) -> bytes:
    """Read a regular file of a checkpoint, also behind links: hashes tell whether it is the one that was written. Raises as `load`."""
    what = f"checkpoint {folder} is incomplete or damaged: {name}"
    try:
        if not stat.S_ISREG(os.stat(folder / name).st_mode):  # a pipe could block
            raise Damaged(f"{what}: is not a regular file")
        return (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if (folder / name).is_symlink() or folder.is_symlink():  # what it leads to may come back, such as another file system
            raise DataError(f"checkpoint {folder} cannot be read: {name} lies behind a link that leads nowhere") from error
        raise Damaged(f"{what}: {error.strerror}") from error
    except OSError as error:
        raise DataError(f"checkpoint {folder} cannot be read: {name}: {error.strerror}") from error


def _digest(state: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON object with sorted keys."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _is_ours(folder: Path) -> bool:
    """Return True for a folder that holds a file of a checkpoint, not for a link to one, nor for another folder of such a name."""
    return not folder.is_symlink() and any(os.path.lexists(folder / name) for name in (_STATE, _TENSORS))


def _number(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
