"""Malformed input of the importers: words, lines, arrays and bytes. `bulksample data import` must refuse it with exit code 65.

Text has no checksum, so each damage to text is malformed by its construction, such as a word in place of a vertex. Archives have checksums,
so their bytes are damaged at random: a damage is refused, or the graph is that of the whole file.
"""

from __future__ import annotations

import gzip
import random
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bulksample.errors import EXIT_BAD_DATA

from .damage import BYTES, FILES, apply
from .verdict import judged
from .whole_inputs import EDGES, N, import_in, whole

BAD_IDS = (
    "foo", "-4", "+1", "2.0", "2e3", "0x1", "1_0", "nan", "9223372036854775808", "9" * 100, '"1"', "\u0663", "\ufeff1", "1\0", "1;2", "",
)  # fmt: skip
BAD_WEIGHTS = ("heavy", "nan", "inf", "-inf", "1e999", "-0.5", "0,5", "--1", "1e", "1.2.3", "1 2")
OUTSIDE = ("0", str(N + 1), str(2**31))  # of a matrix
SIZES = ("", "40 40", "40 41 60", "40 40 61", "40 40 59", "-40 40 60", "40 x 60", "2147483648 2147483648 60", "2000000000 2000000000 60")
BANNERS = ("", "%%MatrixMarket", "%%MatrixMarket matrix array real general", "%%MatrixMarket matrix coordinate complex general")
ARRAYS = {
    "npz": ("indptr", "indices", "x", "y", "num_classes", "train_mask", "val_mask", "test_mask"),
    "npz compressed": ("indptr", "indices", "x_indptr", "x_indices", "x_data", "x_shape", "y", "train_mask"),
    "npz scipy": ("shape", "data", "indices", "indptr"),
    "npz benchmark": (
        "adj_data",
        "adj_indices",
        "adj_indptr",
        "adj_shape",
        "attr_data",
        "attr_indices",
        "attr_indptr",
        "attr_shape",
        "labels",
    ),
    "npz edges": ("edge_index", "edge_weight", "x", "y", "train_mask"),
}
RETYPED = {
    "as text": lambda array: np.full(array.shape, "a"),
    "of objects": lambda array: np.full(array.shape, None, object),
    "as a table": lambda array: np.zeros((N, 2, 2), array.dtype),
    "complex": lambda array: array.astype(complex),
    "one short": lambda array: array.reshape(-1)[:-1],
    "one long": lambda array: np.append(array.reshape(-1), array.reshape(-1)[-1:]),
    "as dates": lambda array: np.zeros(array.shape, "M8[s]"),
}
NPY = {
    **RETYPED,
    "empty": lambda array: array[:0],
    "not finite": lambda array: np.full(array.shape, np.nan),
    "of other vertices": lambda array: np.concatenate([array, array]),
}
CSV = ("edge", "node-feat", "num-node-list", "num-edge-list", "node-label")
SPLITS = ("train", "valid", "test")


def cases(seed: int) -> list[dict[str, Any]]:
    """Return the malformed inputs of every importer."""
    found = []
    for kind, draw in product(("edgelist", "edgelist.gz", "mtx"), range(2)):
        words = [*product((0, 1), (*BAD_IDS, *(OUTSIDE if kind == "mtx" else ()))), *((2, weight) for weight in BAD_WEIGHTS)]
        found += [{"kind": kind, "damage": "word", "column": column, "word": word, "draw": f"{seed}/{draw}"} for column, word in words]
    for kind, damage, draw in product(("edgelist", "mtx"), ("shorter line", "longer line", "lines joined"), range(4)):
        found.append({"kind": kind, "damage": damage, "draw": f"{seed}/{draw}"})
    heads = [*((0, text) for text in BANNERS), *((1, text) for text in SIZES)]
    found += [{"kind": "mtx", "damage": "line", "line": line, "text": text} for line, text in heads]
    found += [
        {"kind": "mtx", "damage": damage, "draw": f"{seed}/{draw}"} for damage, draw in product(("line gone", "line twice"), range(4))
    ]
    for kind, draws in (*((f"edgelist.{ending}", 4) for ending in ("gz", "bz2", "xz")), *((kind, 12) for kind in ARRAYS)):
        found += [{"kind": kind, "damage": damage, "draw": f"{seed}/{draw}"} for damage, draw in product(BYTES, range(draws))]
    found += [
        {"kind": kind, "damage": "array", "array": name, "how": how} for kind in ARRAYS for name, how in product(ARRAYS[kind], RETYPED)
    ]
    found += [{"kind": "columns", "damage": "npy", "file": file, "how": how} for file, how in product(("features.npy", "labels.npy"), NPY)]
    found += [{"kind": "columns", "damage": damage, "file": file, "draw": seed} for file, damage in product(
        ("features.npy", "labels.npy", "split.npz"), ("cut", "cut_tail", "noise", *FILES))]  # fmt: skip
    tables = [*(f"raw/{name}.csv.gz" for name in CSV), *(f"split/time/{name}.csv.gz" for name in SPLITS)]
    for table in tables:
        found += [{"kind": "ogb", "damage": "cell", "file": table, "word": word, "draw": seed} for word in ("foo", "", "nan", "1;2", "0x1")]
        found += [{"kind": "ogb", "damage": damage, "file": table, "draw": f"{seed}/{draw}"} for damage, draw in product(BYTES, range(2))]
    found += [{"kind": kind, "damage": damage} for kind, damage in product(("edgelist", "mtx", "npz"), FILES)]
    return found


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Damage an input and import it."""
    original, digest = whole(case["kind"])

    def attempt(place: Path) -> dict[str, Any]:
        folder = place / "folder"
        shutil.copytree(original, folder)
        damage_input(folder, case)
        return dict(import_in(folder, case["kind"]))

    return judged(attempt, digest, (EXIT_BAD_DATA,))


def damage_input(folder: Path, case: dict[str, Any]) -> None:
    """Apply the damage of a case."""
    rng, damage = random.Random(str(case)), case["damage"]
    [first, *_] = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    path = next(folder.rglob(case["file"])) if "file" in case else first
    if damage in BYTES or damage in FILES:
        apply(damage, path, rng)
    elif damage == "array":
        with np.load(path) as archive:
            arrays = dict(archive)
        arrays[case["array"]] = RETYPED[case["how"]](np.atleast_1d(arrays[case["array"]]))
        np.savez(path, **arrays)
    elif damage == "npy":
        np.save(path, NPY[case["how"]](np.load(path)))
    else:
        packed = path.suffix == ".gz"
        lines = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode().splitlines()
        text = "\n".join([*damaged_lines(lines, case, rng), ""]).encode()
        path.write_bytes(gzip.compress(text, mtime=0) if packed else text)


def damaged_lines(lines: list[str], case: dict[str, Any], rng: random.Random) -> list[str]:
    """Return lines of which one is malformed."""
    at = len(lines) - 1 - rng.randrange(min(EDGES - 1, len(lines)))  # an entry, not a header
    mark = "," if case["kind"] == "ogb" else " "
    cells = lines[at].replace("\t", " ").split(mark)
    damage = case["damage"]
    if damage == "line":
        return [case["text"] if number == case["line"] else line for number, line in enumerate(lines)]
    if damage in ("line gone", "line twice"):
        return lines[:at] + lines[at : at + 1] * (2 if damage == "line twice" else 0) + lines[at + 1 :]
    if damage == "lines joined":
        return [*lines[: at - 1], f"{lines[at - 1]} {lines[at]}", *lines[at + 1 :]]
    if damage == "shorter line":
        cells.pop()
    elif damage == "longer line":
        cells.append("7")
    else:
        cells[case.get("column", 0)] = case["word"]
    return [*lines[:at], mark.join(cells), *lines[at + 1 :]]
