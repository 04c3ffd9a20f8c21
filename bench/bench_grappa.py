"""Compare the test accuracy of Grappa with full-graph training and with isolated parts, with every ablation; and of cofree and bns.

The graph is a stochastic block model with 3000 vertices, 24000 undirected edges (60 % of them within one of five classes), features of
width 32 (a unit vector per class, noise of 0.9), and a fifth of the vertices for training. FOLDER may hold cora.npz. Ranks are threads and
every step is one pass over a view, so figures are accuracies and bytes, not times. The rows of the gates run first, seed by seed, then
the other methods, then the ablations. FILE is written after each run, and a later call continues from it. Each seed has another graph,
partition and model.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from harness import Numbers, some_of, spread

from bulksample import CSR, Graph
from bulksample.data import npz, store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.grappa.method import Grappa
from bulksample.methods.grappa.seed_weights import walk_coverage
from bulksample.methods.run import make_trainer
from bulksample.training.loop import Trainer

COMMON = {"epochs": 80, "lr": 0.01, "dropout": 0.5, "eval_every": 5, "threads": 1, "partition": "random", "quiet": True}
STRICT = {"view": "strict", "swap_every": 5, "full_graph": True}
HALO = {"view": "halo", "swap_every": 5, "full_graph": True}
ALONE = {"view_chunks": 1}
UNIFORM, RAW = {"seed_weights": "none"}, {"shrink": 1.0}
ROWS: dict[str, dict[str, Any]] = {
    "full graph": {},
    "alone, strict, uniform": STRICT | ALONE | UNIFORM,
    "alone, strict, node": STRICT | ALONE,
    "alone, strict, 1/kappa": STRICT | ALONE | {"inverse": True},
    "alone, halo, uniform": HALO | ALONE | UNIFORM,
    "pair, strict, uniform": STRICT | UNIFORM,
    "pair, strict, batch": STRICT | RAW | {"seed_weights": "batch"},
    "pair, strict, node": STRICT,
    "pair, strict, node, first hop": STRICT | {"weight_hops": 1},
    "pair, strict, node, lambda 1": STRICT | RAW,
    "pair, strict, node, first hop, lambda 1": STRICT | RAW | {"weight_hops": 1},
    "pair, strict, node, first hop, lambda 0.5": STRICT | {"shrink": 0.5, "weight_hops": 1},
    "pair, strict, 1/kappa": STRICT | RAW | {"inverse": True},
    "pair, strict, fresh, uniform": STRICT | UNIFORM | {"chunking": "fresh"},
    "pair, strict, fresh, node": STRICT | {"chunking": "fresh"},
    "pair, halo, uniform": HALO | UNIFORM,
    "pair, halo, node": HALO,
    "pair, halo, fresh, uniform": HALO | UNIFORM | {"chunking": "fresh"},
    "pair, halo, fresh, node": HALO | {"chunking": "fresh"},
    "pair, halo of 300 rows, uniform": HALO | UNIFORM | {"halo_rows": 300},
    "pair, strict, node, never swapped": STRICT | {"swap_every": 0},
    "pair, strict, node, swapped every 20": STRICT | {"swap_every": 20},
    "pair, strict, node, swapped every 1": STRICT | {"swap_every": 1},
    "cofree, cut by degree": {"method": "cofree"},
    "cofree, random cut": {"method": "cofree", "vertex_cut": "random"},
    "cofree, cut by degree, 0.3 of the edges dropped": {"method": "cofree", "drop_edge": 0.3},
    "bns, 0.1 of the halo": {"method": "bns"},
    "bns, 0.5 of the halo": {"method": "bns", "boundary_share": 0.5},
}
OTHERS = tuple(name for name in ROWS if name.startswith(("cofree", "bns")))
GATED = ("full graph", "alone, strict, uniform", "pair, strict, uniform", "pair, strict, node", "pair, halo, uniform", "pair, halo, node")


class Inverse(Grappa):
    """Weights that are the inverse coverage of the first hop: a common misreading of Grappa's weights."""

    def _coverage_weights(self) -> tuple[np.ndarray, float]:
        local, seeds = self.local, self.local.view.seeds
        covered = walk_coverage(local.relations, 1)[local.target][seeds]
        raw = 1 / np.maximum(covered, 1 / np.maximum(local.relations[0].degrees[seeds], 1))
        n, total = self.comm.allreduce(np.array([len(raw), raw.sum()]), "control")
        return raw * (n / total), 1.0


def block_model(seed: int) -> Graph:
    rng, n, classes, width = np.random.default_rng(seed), 3000, 5, 32
    labels = rng.integers(0, classes, n)
    members = [np.flatnonzero(labels == c) for c in range(classes)]
    u, same = rng.integers(0, n, 24000), rng.random(24000) < 0.6
    chosen = np.where(same, labels[u], (labels[u] + rng.integers(1, classes, len(u))) % classes)
    v = np.array([rng.choice(members[c]) for c in chosen])
    u, v = u[u != v], v[u != v]
    adjacency = CSR.from_edges(np.concatenate([u, v]), np.concatenate([v, u]), (n, n))
    centres = rng.standard_normal((classes, width))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    x = (centres[labels] + 0.9 * rng.standard_normal((n, width))).astype(np.float32)
    split = rng.random(n)
    masks = {"train": split < 0.2, "val": (split >= 0.2) & (split < 0.45), "test": split >= 0.45}
    return Graph(adjacency, 1.0, x, labels.astype(np.int64), classes, masks, {}, "block-model").validate()


def accuracy(directory: Path, ranks: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return the report of one run."""
    asked = dict(options)
    method = Inverse if asked.pop("inverse", False) else Grappa
    config = TrainConfig.of(**asked)
    if config.method == "full":
        return make_trainer(config, directory).run()
    return on_threads(ranks, lambda comm: Trainer(config, directory, comm, method=method).run(), timeout=600.0)[0]


def gates(rows: dict[tuple[str, int, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the aims and findings in points, over the seeds that all rows of a gate have."""
    found = []
    for graph, layers in sorted({(graph, layers) for graph, layers, _ in rows}):
        scores = [rows.get((graph, layers, name), {"scores": {}})["scores"] for name in GATED]
        seeds = sorted(set.intersection(*map(set, scores)))
        if not seeds:
            continue
        full, alone, uniform, strict, *halos = (statistics.mean(one[seed] for seed in seeds) for one in scores)
        checks = [("margin of halo over alone", max(halos) - alone, None)]
        if graph == "block-model":
            checks += [("strict node - alone >= 10", strict - alone, strict - alone >= 10)]
            checks += [("strict node - uniform >= 2", strict - uniform, strict - uniform >= 2)]
        most = {("block-model", 2): 7.0, ("block-model", 3): 5.0, ("cora", 2): 2.0}.get((graph, layers))
        if most is not None:
            lost = {name[6:]: full - halo for name, halo in zip(GATED[4:], halos, strict=True)}
            checks += [(f"full - {name} <= {most:.0f}", points, points <= most) for name, points in lost.items()]
        where = {"graph": graph, "layers": layers, "seeds": len(seeds)}
        found += [where | {"gate": gate, "points": points, "met": met} for gate, points, met in checks]
    return found


def grappa(
    data: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder of cora.npz; without it, block models alone")] = None,
    seeds: Numbers = (0, 1, 2, 3, 4), layers: Numbers = (2, 3, 4),
    parts: some_of("gates", "others", "ablations") = ("gates", "others", "ablations"), ranks: int = 8,
    workers: Annotated[int, "concurrent runs; one uses about a fifth of a core"] = 1, kept: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    torch.set_num_threads(1)
    rows = {(row["graph"], row["layers"], row["row"]): row for row in (kept or {"rows": []})["rows"]}
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        stored = _stored(Path(folder), seeds, data)
        waiting = {}
        for part, seed, (graph, depth) in product(parts, seeds, _graphs(layers, data)):
            for name in _rows(part, 3 if graph == "cora" else depth):
                row = rows.setdefault((graph, depth, name), {"graph": graph, "layers": depth, "row": name, "scores": {}})
                if str(seed) not in row["scores"]:
                    waiting[pool.submit(run, stored[graph, seed], graph, depth, name, ranks, seed)] = row, seed
        for future in as_completed(waiting):
            _add(*waiting[future], future.result())
            yield told(rows, ranks)
    yield told(rows, ranks)


def run(directory: Path, graph: str, layers: int, name: str, ranks: int, seed: int) -> dict[str, Any]:
    """Return the report of one row and seed."""
    torch.set_num_threads(1)
    method = {"method": "grappa", **ROWS[name]} if ROWS[name] else {"method": "full"}
    hidden = 32 if graph == "block-model" else 64
    return accuracy(directory, ranks, {**COMMON, "layers": layers, "hidden": hidden, "seed": seed, **method})


def _add(row: dict[str, Any], seed: int, found: dict[str, Any]) -> None:
    row["scores"][str(seed)] = 100 * found["test_accuracy"]
    row |= spread(row["scores"].values())
    kept = ("weight_cv", "effective_share", "halo_rows", "initial_bytes", "repartition_bytes", "replication_factor", "drawn_share")
    row.update({key: found[key] for key in kept if key in found} | {"gradient_bytes": found["bytes_sent"]["gradients"]})
    print(f"{row['graph']:12} L={row['layers']} seed {seed} {row['row']:50} {row['scores'][str(seed)]:.1f}", file=sys.stderr, flush=True)


def told(rows: dict[tuple[str, int, str], dict[str, Any]], ranks: int) -> dict[str, Any]:
    """Summarize all finished runs."""
    made = [row for row in rows.values() if row["scores"]]
    return {"ranks": ranks, "settings": COMMON, "rows": made, "gates": gates(rows)}


def _stored(folder: Path, seeds: Sequence[int], data: Path | None) -> dict[tuple[str, int], Path]:
    """Store one block model per seed, and Cora once."""
    places = {("block-model", seed): folder / f"block-model-{seed}" for seed in seeds}
    for (_, seed), place in places.items():
        store.save(block_model(seed), place)
    if data:
        store.save(npz.read(data / "cora.npz"), folder / "cora")
    return places | {("cora", seed): folder / "cora" for seed in seeds}


def _graphs(depths: Sequence[int], data: Path | None) -> list[tuple[str, int]]:
    return [("block-model", layers) for layers in depths] + ([("cora", 2)] if data else [])


def _rows(part: str, layers: int) -> list[str]:
    """Return the rows of the gates and of other methods for every depth, and ablations for shallow models."""
    if part != "ablations":
        return list(GATED if part == "gates" else OTHERS)
    rest = [name for name in ROWS if name not in GATED + OTHERS]
    return [name for name in rest if layers == 2 or (layers == 3 and "swapped" not in name)]
