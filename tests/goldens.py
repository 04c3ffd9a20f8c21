"""Runs and samples whose digests, messages, bytes, losses and files are kept: ``python tests/goldens.py`` writes what they give now.

They call the package by the names that users have, so they stay as they are while the code beneath is rebuilt. Whoever writes them
anew says in the change which moved, and why.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from battery import SETTINGS, frontiers, needs_weights
from communities import community_graph
from planted_relations import planted, shop
from recorder import Recorder
from relations_zoo import library

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads

NUMBERS = Path(__file__).with_name("goldens.json")
FILES = Path(__file__).with_name("goldens.tar.xz")  # stores, held-out links and a checkpoint of each world
COMMAND = (sys.executable, "-m", "bulksample")
CITES, BUYS = ("paper", "cites", "paper"), ("user", "buys", "item")


def of_one_relation(graph):
    """A plain graph as one of a type and a relation that may hold parallel edges, which is no plain one."""
    return graph.replace(relations=(replace(graph.relations[0], parallel=True),))


@cache
def graph_of(kind: str):
    """A graph of each kind: plain, with one relation, with several, and with times of vertices or of edges."""
    return {
        "plain": lambda: community_graph(n=120),
        "weighted": lambda: community_graph(n=120, weighted=True),
        "one relation": lambda: of_one_relation(community_graph(n=120, weighted=True)),
        "several": planted,
        "times": lambda: planted(times=True),
        "edge times": lambda: planted(edge_times=True),
        "library": lambda: library(weighted=True, parallel=False),
        "library in time": lambda: library("vertices", weighted=True, parallel=False),
        "library of edges in time": lambda: library("edges", weighted=True, parallel=False),
        "shop": shop,
        "shop times": lambda: shop(edge_times=True),
    }[kind]()


# ---- samples: SHA-256 of the mini-batches of two epochs

LAWS = {
    **{
        name: SETTINGS[name]
        for name in ("sage", "sage replace", "sage weighted", "labor", "labor layer-dependent", "ladies", "fastgcn", "full")
    },
    "ladies unbiased": ("ladies", {"renormalise": False}),
}
RULES = {
    "times": {"time": bs.TimeRule()},
    "window": {"time": bs.TimeRule(window=9, strict=True)},
    "last": {"time": bs.TimeRule(strategy="last")},
}


def sample_cases() -> dict[str, tuple[str, dict]]:
    """The name of each case, the kind of its graph and the arguments of its loader."""
    cases = {}
    for setting, (sampler, options) in SETTINGS.items():
        for frontier in frontiers(setting):
            more = {"frontier": frontier} if len(frontiers(setting)) > 1 else {}
            given = {"sampler": sampler, "fanouts": (4, 3), **options, **more}
            for kind in ("weighted",) if needs_weights(setting) else ("plain", "weighted"):
                cases[f"{kind}, {setting}, {frontier}"] = kind, given
    for name, (sampler, options) in LAWS.items():
        given = {"sampler": sampler, "fanouts": (4, 3), **options}
        cases[f"one relation, {name}"] = "one relation", given
        cases[f"library, {name}"] = "library", {"seeds": {"paper": None, "venue": None}, **given}
        if name.startswith(("ladies", "fastgcn")):
            continue
        cases[f"library, {name}, new"] = "library", {"seeds": "paper", "frontier": "new", **given}
        cases[f"library, {name}, trees"] = "library", {"seeds": "paper", "disjoint": True, **given}
        for kind in ("library in time", "library of edges in time"):
            for rule, asked in RULES.items():
                if rule != "last" or name == "sage":
                    cases[f"{kind}, {name}, {rule}"] = kind, {"seeds": "paper", "times": np.arange(60), **asked, **given}
    cases["several, parallel edges"] = "several", {"fanouts": {CITES: (2, -1), "default": (3, 0)}, "seeds": ("paper", "train")}
    return cases


SAMPLES = sample_cases()


def loader_of(case: str, graph=None, **more):
    """The loader of a case, on its graph or on a rank's share of it."""
    kind, options = SAMPLES[case]
    asked = {"seeds": None, "batch_size": 25, "seed": 2**40 + 3, "threads": 1, **options, **more}
    return bs.Loader(graph or graph_of(kind), **asked)


def two_epochs(loader) -> list[tuple[int, int, str]]:
    """Epoch, number and digest of the mini-batches of two epochs; those that repeat to give all ranks equally many are left out."""
    return [(epoch, batch.minibatch.id, batch.digest()) for epoch in range(2) for batch in loader if not batch.repeated]


# ---- runs: losses, scores, messages and bytes

STILL = {"fanouts": (4, 3), "hidden": 8, "batch_size": 12, "epochs": 2, "lr": 0.01, "threads": 1, "bulk_size": 2, "seed": 5, "dropout": 0.0}
TYPED = {"model": "hetero-sage"}
ON_GRIDS = {
    "replicated": (2, {}), "features": (2, {"features": "partitioned"}), "rows": (4, {"graph": "partitioned", "exchange": "rows"}),
    "owner": (4, {"graph": "partitioned", "replication": 2, "partition": "random"}),
}  # fmt: skip
PLAIN_RUNS = {
    "one rank": (1, {}), **ON_GRIDS, "oblivious": (4, {"graph": "partitioned", "exchange": "rows-oblivious", "replication": 2}),
    "machine": (2, {"features": "machine"}), "host": (2, {"topology": "partitioned", "features": "host"}),
    "ladies": (4, {"graph": "partitioned", "sampler": "ladies", "fanouts": (20, 20)}), "saint": (1, {"sampler": "saint"}),
    "cached": (2, {"features": "partitioned", "cache_bytes": 500, "feature_codec": "int8", "fetch_together": 2}),
    "locality": (2, {"features": "partitioned", "seed_locality": 2, "gradient_codec": "bf16"}),
    "gat": (1, {"model": "gat", "heads": 2}), "gcn": (1, {"model": "gcn", "evaluate": "sampled", "eval_fanouts": (5, 5)}),
    "full": (2, {"method": "full"}), "bns": (2, {"method": "bns", "boundary_share": 0.5}), "cofree": (2, {"method": "cofree"}),
    "adaqp": (2, {"method": "adaqp", "reassign_every": 2}), "retexo": (2, {"method": "retexo"}),
    "grappa": (4, {"method": "grappa", "swap_every": 1}), "random-tma": (3, {"method": "random-tma"}),
    "super-tma": (3, {"method": "super-tma", "clusters": 6}), "psgd-pa": (3, {"method": "psgd-pa"}), "llcg": (3, {"method": "llcg"}),
}  # fmt: skip
RUNS = {
    **{f"plain, {name}": ("plain", ranks, options) for name, (ranks, options) in PLAIN_RUNS.items()},
    **{f"{kind}, {name}": (kind, ranks, {**TYPED, **more}) for kind in ("several", "times") for name, (ranks, more) in ON_GRIDS.items()},
    "edge times, owner": ("edge times", 4, {**TYPED, "seed_times": "asked", **ON_GRIDS["owner"][1]}),
    "several, one rank": ("several", 1, {**TYPED, "evaluate": "sampled"}),
    "several, gat": ("several", 1, {"model": "hetero-gat", "heads": 2}),
    "several, psgd-pa": ("several", 3, {**TYPED, "featureless": "constant", "method": "psgd-pa"}),
    "several, random-tma": ("several", 3, {**TYPED, "featureless": "constant", "method": "random-tma"}),
    "weighted, ladies": ("weighted", 1, {"sampler": "ladies", "fanouts": (20, 20)}),
    "plain links": ("plain links", 2, {"task": "links"}), "links": ("links", 2, {**TYPED, "task": "links"}),
    "links in time": ("links in time", 4, {**TYPED, "task": "links", "graph": "partitioned"}),
}  # fmt: skip


def run(name: str, folder: Path) -> dict:
    """Train; the losses of all steps, scores, and by kind the bytes, messages and collectives of all ranks."""
    kind, ranks, options = RUNS[name]
    source = folder / kind.replace(" ", "-") if "links" in kind else graph_of(kind)

    def on_rank(comm):
        recorder = Recorder()
        report = bs.train(source, comm=comm, callbacks=[recorder], **{**STILL, **options})
        sent = {
            kind: (count.bytes if kind != "control" else 0, count.messages, comm.collectives[kind])  # control holds seconds, in JSON
            for kind, count in comm.tally.items()
        }
        return recorder.losses, report, sent

    found = on_threads(ranks, on_rank)
    losses, report, _ = found[0]
    sent = {kind: [sum(one) for one in zip(*(rank[2][kind] for rank in found), strict=True)] for kind in found[0][2]}
    scores = {key: value for key, value in report.items() if key.startswith(("test_", "val_", "train_")) and isinstance(value, float)}
    return {"losses": losses, "scores": scores, "sent": {kind: counts for kind, counts in sent.items() if any(counts)}}


# ---- files: what was written then is read now

STORED = {"plain-store": "weighted", "typed-store": "several"}
CHECKPOINT = {**STILL, "epochs": 1, "batch_size": 30}


def write_files(folder: Path) -> None:
    """Write a store of each world, its split of links, and a checkpoint after one of two epochs."""
    for name, kind in STORED.items():
        graph_of(kind).save(folder / name)
        bs.train(folder / name, checkpoint=str(folder / f"{name}-checkpoint"), **CHECKPOINT, **(TYPED if name == "typed-store" else {}))
    for name, kind, relation in (("plain-links", "plain", []), ("links", "shop", BUYS), ("links-in-time", "shop times", BUYS)):
        graph_of(kind).save(folder / "graph")
        more = ["--relation", ":".join(relation)] if relation else []
        given = ["--val", "0.1", "--test", "0.1", "--negatives", "8", "--seed", "0"]
        subprocess.run([*COMMAND, "data", "split-edges", folder / "graph", *more, *given, "-o", folder / name], check=True)
        shutil.rmtree(folder / "graph")


def unpack(folder: Path) -> None:
    """Unpack the kept files."""
    with tarfile.open(FILES) as archive:
        archive.extractall(folder, filter="data")


def resume(name: str, folder: Path) -> list[float]:
    """The losses of the second epoch of a run that goes on from its kept checkpoint."""
    recorder = Recorder()
    given = {**CHECKPOINT, "epochs": 2, "checkpoint": str(folder / f"{name}-checkpoint"), "resume": "auto"}
    report = bs.train(folder / name, callbacks=[recorder], **given, **(TYPED if name == "typed-store" else {}))
    assert report["resumed"]
    return recorder.losses


# ---- states of loaders

STATES = {"plain": "weighted, sage, all", "several": "library, sage", "times": "library in time, labor, window"}


def state_of(name: str) -> dict:
    """The state of a loader after two mini-batches, and the digests of the rest of its epoch."""
    loader = loader_of(STATES[name], batch_size=10)
    batches = iter(loader)
    next(batches), next(batches)
    return {"state": loader.state_dict(), "rest": [batch.digest() for batch in batches]}


def _pack(folder: Path) -> None:
    """Pack the files of a folder, with no trace of when and by whom."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(FILES, "w:xz") as archive:
        archive.add(folder, ".", filter=plain)


def write() -> None:
    """Write all goldens anew, and say how many of the kept numbers are others now."""
    before = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if FILES.exists():
            unpack(folder)
        else:  # whoever wants new ones deletes them first
            write_files(folder)
            _pack(folder)
        now = {
            "samples": {case: bs.digest(two_epochs(loader_of(case))) for case in SAMPLES},
            "runs": {case: run(case, folder) for case in RUNS},
            "resumed": {case: resume(case, folder) for case in STORED},
            "states": {case: state_of(case) for case in STATES},
        }
    text = json.dumps(now, indent=1) + "\n"
    now = json.loads(text)
    differ = Counter(part for part, cases in now.items() for case in cases if cases[case] != before.get(part, {}).get(case))
    NUMBERS.write_text(text, encoding="utf-8")
    print(f"changed: {dict(differ)}")


if __name__ == "__main__":
    write()
