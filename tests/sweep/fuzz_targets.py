"""Targets of the fuzzer: each reader of files, and the frames of the server of trainers, with valid inputs to start from.

A reader either raises one of its documented errors or returns a graph or options that the package can use: the graph is sampled by the
native back end, and the options are written and read again. Checksums would stop nearly every changed input, so some targets compute them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from samples import as_arrays, sign_manifest

from bulksample.config.file import read as read_config
from bulksample.config.file import write as write_config
from bulksample.config.train import SampleConfig
from bulksample.data import edgelist, edges, matrixmarket, npz, store, store_files
from bulksample.data.manifest import FORMAT, load_manifest
from bulksample.data.manifest_file import FILE, VERSION, file_of
from bulksample.data.npy import read_header
from bulksample.errors import DataError, UsageError
from bulksample.graph import Graph
from bulksample.methods.config import TrainConfig

from .configs import BROKEN, WHOLE
from .fuzz_target import Attempt, Target
from .small_graphs import KINDS, digest_of, graph
from .whole_inputs import FORMS, N, edge_list, matrix_market

MOST_VERTICES = 10**4  # of a graph that is sampled


def joined(parts: Iterable[bytes]) -> bytes:
    """Return parts one after another, each behind its length in two bytes."""
    return b"".join(len(part).to_bytes(2, "little") + part for part in parts)


def split(data: bytes) -> list[bytes]:
    """Return the parts of any bytes; a part that is cut short ends them."""
    found, at = [], 0
    while at + 2 <= len(data):
        length = int.from_bytes(data[at : at + 2], "little")
        found.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return found


def used(read: Graph) -> None:
    """Read all arrays of a graph and sample from it."""
    if 0 < read.n <= MOST_VERTICES:
        digest_of(read)


# ---- stores

ROLES = (
    "indptr", "indices", "weights", "features", "features_indptr", "features_indices", "features_values", "labels",
    "mask.train", "mask.val", "mask.test", "extra.other",
)  # fmt: skip


def stored(kind: str) -> dict[str, bytes]:
    """Return the files of a small store by name."""
    with TemporaryDirectory() as place:
        store.save(graph(kind, 12), place)
        return {path.name: path.read_bytes() for path in Path(place).iterdir()}


def manifest_target(place: Path) -> Attempt:
    """Read a manifest as it is, and if that is refused, with the digest that its content has."""
    folder = place / "store"
    folder.mkdir()
    for name, content in stored("weighted").items():
        (folder / name).write_bytes(content)

    def attempt(data: bytes) -> None:
        (folder / FILE).write_bytes(data)
        with suppress(DataError, UsageError):  # a store of another kind of graph is refused as bad use
            load_manifest(folder)
        (folder / FILE).write_bytes(_signed(data))
        store.info(folder)
        used(store.load(folder, check="full"))

    return attempt


def _signed(data: bytes) -> bytes:
    """Return a manifest with the digest that its content has, or unchanged if it is none."""
    try:
        body = json.loads(data)
        sign_manifest(body)
        return json.dumps(body).encode()
    except (ValueError, TypeError, RecursionError):
        return data


def stores() -> list[bytes]:
    """Return stores as parts: the file of each role, empty if there is none, and what the user's cache says about them."""
    return [joined([*(files.get(file_of(role), b"") for role in ROLES), b'{"files": {}}']) for files in map(stored, KINDS)]


def store_target(place: Path) -> Attempt:
    """Read the files of a store with a manifest that fits them."""
    folder = place / "store"
    folder.mkdir()

    def attempt(data: bytes) -> None:
        parts = split(data)
        for path in folder.iterdir():
            path.unlink()
        files = {role: part for role, part in zip(ROLES, parts, strict=False) if part}
        for role, content in files.items():
            (folder / file_of(role)).write_bytes(content)
        (folder / FILE).write_text(json.dumps(_manifest(files)))
        cache = store_files._cache_file(folder)
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_bytes(parts[-1] if parts else b"")
        used(store.load(folder))

    return attempt


def _manifest(files: dict[str, bytes]) -> dict[str, Any]:
    """Return the manifest of the files of a store by role."""
    entries = {}
    for role, content in files.items():
        header = read_header(io.BytesIO(content), role)
        entries[role] = {"file": file_of(role), "dtype": header.dtype.str, "shape": header.shape, "bytes": len(content),
                         "sha256": hashlib.sha256(content).hexdigest()}  # fmt: skip
    shapes = {role: entry["shape"] for role, entry in entries.items()}
    body = {
        "format": FORMAT, "version": VERSION, "name": "x", "vertices": shapes.get("indptr", (1,))[0] - 1,
        "edges": shapes.get("indices", (0,))[0], "weight_unit": 1.0, "num_features": shapes.get("features", (0, 8))[-1], "num_classes": 3,
        "arrays": entries,
    }  # fmt: skip
    sign_manifest(body)
    return body


# ---- archives and text


def archives() -> list[bytes]:
    """Return whole archives, plain and compressed."""
    made = []
    for kind, save in (("dense", np.savez), ("sparse", np.savez_compressed)):
        stream = io.BytesIO()
        save(stream, **as_arrays(graph(kind, 6)))
        made.append(stream.getvalue())
    return made


def members() -> list[bytes]:
    """Return archives as parts: name and content of each member."""
    made = []
    for arrays in (*(as_arrays(graph(kind, 6)) for kind in ("dense", "sparse")), *(make() for make in FORMS.values())):
        parts = []
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.save(stream, array)
            parts += [name.encode(), stream.getvalue()]
        made.append(joined(parts))
    return made


def zipped(data: bytes) -> bytes:
    """Return the archive of these parts, with the right checksums."""
    parts, stream = split(data), io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in zip(parts[::2], parts[1::2], strict=False):
            archive.writestr(zipfile.ZipInfo(f"{name.decode('latin-1')}.npy"), content)
    return stream.getvalue()


def archive_target(place: Path) -> Attempt:
    def attempt(data: bytes) -> None:
        path = place / "graph.npz"
        path.write_bytes(data)
        used(npz.read(path))

    return attempt


def members_target(place: Path) -> Attempt:
    attempt = archive_target(place)
    return lambda data: attempt(zipped(data))


def chosen(number: int, choices: Sequence[Any]) -> tuple[int, Any]:
    """Return one of some choices by a number, and what is left of the number for the next choice."""
    return number // len(choices), choices[number % len(choices)]


def edge_list_target(place: Path) -> Attempt:
    """Read an edge list with the options that its first byte names."""

    def attempt(data: bytes) -> None:
        left = data[0] if data else 0
        left, gz = chosen(left, (False, True))
        left, undirected = chosen(left, (False, True))
        left, (ids, vertices) = chosen(left, (("integer", None), ("text", None), ("integer", N)))
        left, self_loops = chosen(left, edges.SELF_LOOPS)
        left, duplicates = chosen(left, edges.DUPLICATES)
        path = place / "edges.txt"
        path.write_bytes(gzip.compress(data[1:], 1, mtime=0) if gz else data[1:])
        used(
            edgelist.read(path, undirected=undirected, ids=ids, vertices=vertices, self_loops=self_loops, duplicates=duplicates, skip=left)
        )

    return attempt


def matrix_market_target(place: Path) -> Attempt:
    def attempt(data: bytes) -> None:
        left = data[0] if data else 0
        left, undirected = chosen(left, (False, True))
        left, transpose = chosen(left, (False, True))
        path = place / "matrix.mtx"
        path.write_bytes(data[1:])
        used(matrixmarket.read(path, undirected=undirected, transpose=transpose))

    return attempt


# ---- configurations


def config_target(place: Path) -> Attempt:
    """Read options; then write them and read them again."""

    def attempt(data: bytes) -> None:
        path = place / "run.yaml"
        path.write_bytes(data)
        config = _config(path)
        path.write_text(write_config(config, config.method), encoding="utf-8")
        assert _config(path) == config, "the options are not those that were written"

    return attempt


def _config(path: Path) -> TrainConfig:
    given = read_config(path, TrainConfig, SampleConfig)
    return TrainConfig.made({key: one.value for key, one in given.items()}, {key: one.origin for key, one in given.items()})


TARGETS = {
    "manifest": Target(lambda: [stored("weighted")[FILE]], manifest_target),
    "store": Target(stores, store_target),
    "archive": Target(archives, archive_target),
    "members": Target(members, members_target),
    "edge list": Target(lambda: [b"\0" + edge_list(), b"\1" + edge_list(), b"\4# u v\n1,2\n2,3\n"], edge_list_target),
    "matrix market": Target(lambda: [b"\0" + matrix_market(), b"\3" + gzip.compress(matrix_market(), mtime=0)], matrix_market_target),
    "config": Target(lambda: [WHOLE.encode(), *(text.encode() for text in BROKEN.values() if len(text) < 1000)], config_target),
}
