"""Checkpoints that are written completely or not at all: tensors as safetensors, the rest as JSON, never a pickle.

A checkpoint is a folder ``step-<number>`` with two files. It is written under a temporary name, synced and renamed;
the JSON holds the SHA-256 of the tensors, so a damaged checkpoint is detected and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from ..data.files import sync_folder, write_synced
from ..errors import DataError, UsageError

FORMAT = 1
KEPT = 2
_STATE, _TENSORS = "state.json", "tensors.safetensors"

Snapshot = tuple[dict[str, torch.Tensor], dict[str, Any]]


def save(directory: str | os.PathLike[str], number: int, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> Path:
    """Write one checkpoint and remove all but the newest two.

    Parameters
    ----------
    number : int
        Steps of the run so far; names the folder.
    tensors : dict of tensors
    state : dict, a JSON object

    Raises
    ------
    OSError
        If the checkpoint cannot be written; earlier checkpoints stay as they are.
    """
    from safetensors.torch import save as as_bytes

    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    data = as_bytes({name: tensor.detach().contiguous() for name, tensor in tensors.items()})
    text = json.dumps({"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest(), **state}, indent=1).encode()
    new, target = root / f".new-{os.getpid()}", root / f"step-{number:09d}"
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir()
        write_synced(new / _TENSORS, data)
        write_synced(new / _STATE, text)
        sync_folder(new)
        if target.exists():  # a resumed run writes the same step with the same content
            shutil.rmtree(target)
        new.rename(target)
        sync_folder(root)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    for old in _found(root)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def newest(directory: str | os.PathLike[str]) -> tuple[Path, Snapshot] | None:
    """Return the newest complete checkpoint below a directory, or None. Damaged checkpoints are named on standard error and skipped."""
    for path in _found(Path(directory)):
        try:
            return path, load(path)
        except DataError as error:
            print(f"bulksample: {error}; trying the checkpoint before it", file=sys.stderr)
    return None


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
    if not folder.is_dir():
        raise UsageError(f"there is no checkpoint at {folder}")
    try:
        state = json.loads((folder / _STATE).read_bytes())
        data = (folder / _TENSORS).read_bytes()
        if state["format"] != FORMAT:
            raise DataError(f"checkpoint {folder} is of format {state['format']}; this version reads {FORMAT}")
        if hashlib.sha256(data).hexdigest() != state["sha256"]:
            raise DataError(f"checkpoint {folder} is damaged: the SHA-256 of {_TENSORS} is not the one in {_STATE}")
        return from_bytes(data), state
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"checkpoint {folder} is incomplete or damaged: {error}") from error


def _found(root: Path) -> list[Path]:
    """Return the checkpoints below a directory, the newest first."""
    return sorted((path for path in root.glob("step-*") if path.name[5:].isdigit()), key=lambda path: int(path.name[5:]), reverse=True)
