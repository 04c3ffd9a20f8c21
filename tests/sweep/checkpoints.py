"""Damaged checkpoints: `bulksample predict` must refuse the damaged one with exit code 65, and its folder gives way to the one before."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bulksample.data import store
from bulksample.errors import EXIT_BAD_DATA
from bulksample.training import checkpoint

from .child import command, in_child
from .damage import BYTES, FILES, apply
from .small_graphs import graph
from .verdict import DEADLINE, judged

RUNS = {"sage": ("--model", "sage", "--batch-norm"), "gcn": ("--model", "gcn"), "gat": ("--model", "gat")}
TRAIN = ("--quiet", "--fanouts", "3,3", "--hidden", 4, "--batch-size", 16, "--epochs", 2, "--threads", 1, "--checkpoint-every", 3)
KEYS = ("format", "sha256", "version", "config", "graph", "loader", "progress", "digest")
DRAWS = 3
_FOLDER = TemporaryDirectory(prefix="bulksample-sweep-")


@cache
def whole(run_name: str) -> tuple[Path, Path, str]:
    """Return a store, a folder with two checkpoints of a run on it, and the digest of the newer one."""
    root = Path(_FOLDER.name)
    if not (root / "graph").exists():
        store.save(graph("dense"), root / "graph")
    folder = root / run_name
    ended = in_child(lambda: command("train", root / "graph", *TRAIN, *RUNS[run_name], "--checkpoint", folder)._asdict(), DEADLINE)
    if ended.get("code") != 0:
        raise RuntimeError(f"the run to be damaged failed: {ended}")
    return root / "graph", folder, digest_of(newest(folder))


def newest(folder: Path) -> Path:
    """Return the newest checkpoint of a folder."""
    return max(folder.glob("step-*"))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of all tensors and of the whole state."""
    tensors, state = checkpoint.load(path)
    total = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def cases(seed: int) -> list[dict[str, Any]]:
    """Return damages to both files of the newest checkpoint of each run, and edits of its state."""
    damages = [*product(BYTES, range(DRAWS)), *((damage, 0) for damage in FILES)]
    files = product(RUNS, ("state.json", "tensors.safetensors"), damages)
    found = [{"run": name, "file": file, "damage": damage, "draw": f"{seed}/{draw}"} for name, file, (damage, draw) in files]
    edits = product(KEYS, (None, "7", [7], -1, {}))
    return found + [{"run": "sage", "file": "state.json", "damage": "edit", "key": key, "value": value} for key, value in edits]


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Damage the newest checkpoint in a copy of the folder, and predict with it."""
    stored, original, digest = whole(case["run"])

    def attempt(place: Path) -> dict[str, Any]:
        folder = place / "folder" / "checkpoints"
        shutil.copytree(original, folder)
        damaged, before = newest(folder), min(folder.glob("step-*"))
        if case["damage"] == "edit":
            state = json.loads((damaged / case["file"]).read_text())
            (damaged / case["file"]).write_text(json.dumps(state | {case["key"]: case["value"]}))
        else:
            apply(case["damage"], damaged / case["file"], random.Random(str(case)))
        ended = command("predict", stored, "--checkpoint", damaged, "-o", place / "out.npz", "--threads", 1)
        if ended.code == 0:
            return {"code": 0, "err": ended.err, "digest": digest_of(damaged)}
        found = checkpoint.newest(folder)
        gave_way = found is not None and found[0] == before
        return {"code": ended.code if gave_way else 1, "err": ended.err if gave_way else f"the checkpoint before is not used\n{ended.err}"}

    return judged(attempt, digest, (EXIT_BAD_DATA,))
