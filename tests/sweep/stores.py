"""Damaged stores: each file of three stores, and each field of a manifest. `bulksample train` must refuse them with exit code 65."""

from __future__ import annotations

import os
import random
import shutil
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from samples import edit_manifest, entry, put

from bulksample.data import store
from bulksample.errors import EXIT_BAD_DATA

from .child import command
from .damage import BYTES, FILES, apply
from .small_graphs import KINDS, graph, stored_digest
from .verdict import judged

DRAWS = 2  # of each damage to bytes
ANYTHING = (None, "7", [7], -1, 2.5, True, 2**64)
FIELDS = ("format", "version", "name", "vertices", "edges", "weight_unit", "num_features", "num_classes", "arrays", "digest")
ENTRY = {
    "file": (None, "", "../labels.npy", "gone.npy", "indptr.npy", 7),
    "dtype": (None, "", "<i4", "<f8", "|O", "nonsense", 7),
    "shape": (None, [], [-120], [119], [60, 2], [2**62], ["120"], 120),
    "bytes": (None, 0, -1, 10, 1089, 2**64, "1088"),
    "sha256": (None, "", "0" * 64, "G" * 64, 7),
}
TRAIN = ("--quiet", "--fanouts", "3", "--hidden", 4, "--batch-size", 64, "--epochs", 1, "--threads", 1)
_FOLDER = TemporaryDirectory(prefix="bulksample-sweep-")


@cache
def whole(kind: str) -> tuple[Path, str]:
    """Return an undamaged store whose files were written long ago, and its digest."""
    folder = Path(_FOLDER.name) / kind
    store.save(graph(kind), folder)
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))
    return folder, stored_digest(folder)


def cases(seed: int) -> list[dict[str, Any]]:
    """Return damages to every file, half of them to stores that were opened before, and edits of the manifest."""
    found = []
    for kind in KINDS:
        for name in sorted(path.name for path in whole(kind)[0].iterdir()):
            damages = [*product(BYTES, range(DRAWS)), *((damage, 0) for damage in FILES)]
            found += [{"graph": kind, "file": name, "damage": damage, "draw": f"{seed}/{draw}"} for damage, draw in damages]
    edits = [([name], value) for name, value in product(FIELDS, ANYTHING)]
    edits += [(["arrays", "labels", name], value) for name, values in ENTRY.items() for value in values]
    found += [
        {"graph": "dense", "file": "manifest.json", "damage": "edit", "place": place, "value": value, "signed": signed}
        for (place, value), signed in product(edits, (False, True))
    ]
    return [{**case, "opened": bool(number % 2)} for number, case in enumerate(found)]


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Damage a copy of a store, and train on it."""
    original, digest = whole(case["graph"])

    def attempt(place: Path) -> dict[str, Any]:
        os.environ["XDG_CACHE_HOME"] = str(place / "cache")
        folder = place / "folder" / "store"
        shutil.copytree(original, folder)
        if case["opened"]:
            store.load(folder)
        if case["damage"] == "edit":
            *entries, name = case["place"]
            change = entry("labels", **{name: case["value"]}) if entries else put(name, case["value"])
            edit_manifest(folder, change, case["signed"] and name != "digest")
        else:
            apply(case["damage"], folder / case["file"], random.Random(str(case)))
        ended = command("train", folder, *TRAIN)
        return {"code": ended.code, "err": ended.err, "digest": stored_digest(folder) if ended.code == 0 else ""}

    return judged(attempt, digest, (EXIT_BAD_DATA,))
