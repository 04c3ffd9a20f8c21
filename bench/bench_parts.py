"""Measure a graph from its import to training on 8 ranks by way of parts: seconds, peak memory, bytes read, and papers100M by formula.

The graph resembles papers100M: a degree-corrected block model with 128 features, stored in FOLDER together with its parts. Each step is
a process of its own, so its peak is its own: `data make`, `data import ogb` of the same graph in files as OGB writes papers100M,
`partition --by stream` and one epoch of GraphSAGE without evaluation, a rank for each part. Ranks run one after the other's work on few
cores, so their seconds are not reported. "Anonymous" memory is what a rank allocates; pages of mapped files are left out, which the
ranks of a machine share and the system takes back. The peak of an undivided process counts them.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from harness import call
from oracles.ogb_memory import peak_bytes

from bulksample.data.manifest import load_manifest
from bulksample.data.parts_manifest import load_parts
from bulksample.data.store import load
from bulksample.report.launch import starter

PAPERS = {"vertices": 111_059_956, "entries": 3_231_371_744, "features": 128}
QUALITY = ("crossing_share", "max_over_mean", "memory_per_edge_bytes", "seconds", "seconds_writing")
PIECES = 300e6  # bytes beside the assignment while parts are written


def run(command: list[str]) -> dict[str, float]:
    """Run a command; return its seconds and its peak memory in bytes. Its failure ends the benchmark."""
    began = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return {"seconds": time.perf_counter() - began, "processor_seconds": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}


def rank(parts: str, out: str) -> None:
    """Train as one rank; rank 0 writes what all ranks read and held."""
    from bulksample.distributed.comm.world import world
    from bulksample.methods.run import train

    comm = world(1800.0)
    before = _memory()
    result = train(
        parts, comm=comm, fanouts=(10, 5), hidden=64, batch_size=1024, epochs=1, evaluate="none", timeout=1800.0, threads=1, quiet=True
    )
    everyone = comm.gather_control([before, _memory()])
    if comm.rank == 0:
        kept = {name: result[name] for name in ("read_bytes", "bytes_sent", "held_bytes", "steps", "train_loss")}
        Path(out).write_text(
            json.dumps({**kept, "memory_before": [b for b, _ in everyone], "memory_after": [a for _, a in everyone]}), encoding="utf-8"
        )


def _memory() -> dict[str, int]:
    """Return the peak of the resident memory and the anonymous memory now, in bytes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return {"peak": 1024 * int(status["VmHWM"].split()[0]), "anonymous": 1024 * int(status["RssAnon"].split()[0])}


def measure(folder: Path, vertices: int, degree: float, parts: int) -> dict[str, Any]:
    """Make, divide and train on a graph."""
    command, store, divided = [sys.executable, "-m", "bulksample"], folder / "graph", folder / "parts"
    made = None
    if not store.exists():
        sizes = ["--vertices", str(vertices), "--degree", str(degree), "--features", "128"]
        made = run([*command, "data", "make", "dcsbm", *sizes, "-o", str(store)])
    manifest = load_manifest(store)
    imported = _imported(command, store, folder / "imported")
    partitioned = run([
        *command, "partition", str(folder / "imported"), "--parts", str(parts), "--by", "stream", "-o", f"{divided}/", "--overwrite",
        "--json", str(folder / "partition.json"),
    ])  # fmt: skip
    quality = json.loads((folder / "partition.json").read_text())
    trained = folder / "train.json"
    run([*starter(parts, None), *call(rank, divided, trained)])
    ranks = json.loads(trained.read_text())
    own = [part.bytes for part in load_parts(divided).parts]
    tables = 8 * manifest.vertices
    return {
        "graph": {"vertices": manifest.vertices, "entries": manifest.edges, "bytes": sum(e.bytes for e in manifest.arrays.values())},
        "make": made,
        "import": {**imported, "formula_bytes": peak_bytes(manifest.vertices, manifest.edges, False)},
        "partition": {**partitioned, "anonymous_formula_bytes": 4 * manifest.vertices + PIECES},
        "quality": {key: quality[key] for key in QUALITY},
        "ranks": {
            **ranks, "part_bytes": own, "read_over_part": [read / part for read, part in zip(ranks["read_bytes"], own, strict=True)],
            "read_with_tables_over_part": [(read + tables) / part for read, part in zip(ranks["read_bytes"], own, strict=True)],
        },
        "papers100M": papers(128),
    }  # fmt: skip


def _imported(command: list[str], store: Path, into: Path) -> dict[str, float]:
    """Import a stored graph from files in the layout of papers100M, which are written and deleted here; the result has the same entries."""
    files = into.with_name("ogb")
    run(call(write_files, store, files))  # the peak of a process counts that of the one which started it
    measured = run([*command, "data", "import", "ogb", str(files), "--directed", "-o", str(into), "--overwrite"])
    shutil.rmtree(files)
    entries = [load_manifest(folder).arrays["indices"].sha256 for folder in (store, into)]
    if entries[0] != entries[1]:
        raise SystemExit("the imported graph has other entries")
    return measured


def write_files(store: str, folder: str) -> None:
    """Write a stored graph in the layout of papers100M."""
    graph, files = load(store, check="none"), Path(folder)
    (files / "raw").mkdir(parents=True, exist_ok=True)
    ends = np.stack([graph.adjacency.indices.astype(np.int64), graph.adjacency.row_of_entry()])
    np.savez(
        files / "raw" / "data.npz", edge_index=ends, num_nodes_list=np.array([graph.n]), num_edges_list=np.array([graph.adjacency.nnz]),
        node_feat=graph.features,
    )  # fmt: skip
    np.savez(files / "raw" / "node-label.npz", node_label=graph.labels[:, None])
    (files / "split" / "random").mkdir(parents=True, exist_ok=True)
    for split, name in {"train": "train", "val": "valid", "test": "test"}.items():
        lines = "\n".join(map(str, np.flatnonzero(graph.masks[split])))
        (files / "split" / "random" / f"{name}.csv.gz").write_bytes(gzip.compress(f"{lines}\n".encode(), 1))


def papers(ranks: int) -> dict[str, float]:
    """Return bytes by formula for papers100M: of partitioning, and of a rank that holds one part of it."""
    n, m, f = PAPERS["vertices"], PAPERS["entries"], PAPERS["features"]
    imported = peak_bytes(n, m, False)
    part = (n * (4 * f + 4 + 8 + 8 + 8 + 3) + 4 * m) / ranks
    return {
        "ranks": ranks,
        "import_bytes": imported,
        "partition_anonymous_bytes": 4 * n + PIECES,
        "part_bytes": part,
        "tables_mapped_bytes": 8 * n,
    }


def parts(
    folder: Annotated[Path, "keeps the graph and its parts"], vertices: int = 700_000, degree: float = 29, parts: int = 8
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    return measure(folder, vertices, degree, parts)
