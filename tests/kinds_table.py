"""The table of docs/kinds.md: each method, sampler, placement and option on each kind of graph, by short runs of the code.

``python tests/kinds_table.py`` writes it anew. A cell is "yes" if a run of one epoch ends; else a number, of the reason that the user gets.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import goldens
import numpy as np

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods import METHODS
from bulksample.samplers import SAMPLERS

PAGE = Path(__file__).parents[1] / "docs" / "kinds.md"
BEGIN, END = "<!-- the table, by tests/kinds_table.py -->\n", "<!-- end of the table -->\n"
KINDS = {  # name: the graph, that of links, and options of all its runs
    "plain": ("weighted", "plain-links", {"model": "sage"}),
    "several types": ("several", "links", {"model": "hetero-sage", "featureless": "constant"}),
    "in time": ("times", "links-in-time", {"model": "hetero-sage", "featureless": "constant"}),
}
STILL = {**goldens.STILL, "epochs": 1, "batch_size": 16, "hidden": 4}
RANKS = {"grappa": 4, "random-tma": 3, "super-tma": 3, "psgd-pa": 3, "llcg": 3}
CUT = {"graph": "partitioned"}
LINKS = {"task": "links"}
EDGES = {"task": "edges"}
ROWS = {
    **{f"`--method {name}`": {"method": name, **({"clusters": 6} if name == "super-tma" else {})} for name in METHODS},
    "`--method grappa --seed-weights none`": {"method": "grappa", "seed_weights": "none"},
    **{f"`--sampler {name}`": {"sampler": name, **({"fanouts": (-1, -1)} if name == "saint" else {})} for name in SAMPLERS},
    "`--sampler sage:replace=true`": {"sampler_options": {"replace": True}},
    "`--sampler sage:weighted=true`": {"sampler_options": {"weighted": True}},
    "`--frontier new`": {"frontier": "new"},
    "`--graph partitioned`": CUT,
    **{f"`--graph partitioned --exchange {name}`": {**CUT, "exchange": name} for name in ("rows", "rows-oblivious")},
    **{f"`--graph partitioned --sampler {name}`": {**CUT, "sampler": name} for name in ("labor", "ladies", "fastgcn")},
    **{f"`--graph partitioned --partition {name}`": {**CUT, "partition": name} for name in ("random", "metis", "super", "stream")},
    **{f"`--features {name}`": {"features": name} for name in ("partitioned", "machine", "host")},
    **{f"`--feature-codec {name}`": {**CUT, "feature_codec": name} for name in ("bf16", "int8")},
    **{f"`--cache-by {name}`": {**CUT, "cache_bytes": 200, "cache_by": name} for name in ("degree", "frequency")},
    "`--fetch-together 2`": {**CUT, "fetch_together": 2},
    "`--seed-locality 2`": {**CUT, "seed_locality": 2},
    "`--gradient-codec bf16`": {"gradient_codec": "bf16"},
    "`--virtual-ranks 4`": {"virtual_ranks": 4},
    "`--precision bf16`": {"precision": "bf16"},
    "`--feature-storage bf16`": {"feature_storage": "bf16"},
    "`--evaluate exact`": {"evaluate": "exact"},
    "`--evaluate exact --eval-memory 1000`": {"evaluate": "exact", "eval_memory": 1000},
    "`--evaluate sampled`": {"evaluate": "sampled", "eval_fanouts": (3, 3)},
    "`--task links`": LINKS,
    "`--task links --graph partitioned`": {**LINKS, **CUT},
    "`--task links --method psgd-pa`": {**LINKS, "method": "psgd-pa"},
    "`--task edges`": EDGES,
    "`--task edges --graph partitioned`": {**EDGES, **CUT},
}


def without_parallel_edges(graph: bs.Graph, weighted: bool = False) -> bs.Graph:
    """Return a graph of the same types in which no pair of vertices has two edges of one relation; with weights of 1, 2 and 3."""
    relations = []
    for relation in graph.relations:
        matrix, ends = relation.adjacency, (graph.type(relation.source), relation.name, graph.type(relation.destination))
        pairs = np.unique([matrix.row_of_entry(), matrix.indices], axis=1)
        weights = 1 + np.arange(pairs.shape[1]) % 3 if weighted else None
        relations.append(bs.relation_from_edges(*ends, pairs[1], pairs[0], weights=weights))
    return replace(graph, relations=tuple(relations))


def labelled_edges(graph: bs.Graph) -> dict[str, Any]:
    """Return the options that name pairs of vertices with two classes, between papers if there are several types, each at a time."""
    pairs = np.arange(60)
    table = {"source": pairs, "destination": pairs[::-1], "label": pairs % 2, "split": np.array(["train", "val", "test"])[pairs % 3]}
    timed = any(kind.times is not None for kind in graph.types)
    table |= {"time": pairs} if timed else {}
    return {"edge_labels": table} | ({} if graph.plain else {"target_relation": "paper:cites:paper"})


def outcome(kind: str, row: str, folder: Path) -> str:
    """Return "yes" if a run ends, else what the user is told."""
    graph, links, common = KINDS[kind]
    options = {**STILL, **common, **ROWS[row]}
    whole = goldens.graph_of(graph)
    source = (
        folder / links if options.get("task") == "links" else whole if whole.plain else without_parallel_edges(whole, "weighted" in row)
    )
    if options.get("task") == "edges":
        options |= labelled_edges(whole)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            on_threads(RANKS.get(options.get("method", ""), 2), lambda comm: bs.train(source, comm=comm, **options))
    except bs.UsageError as error:
        return str(error)
    return "yes"


def outcomes() -> dict[str, list[str]]:
    """Run each row on each kind of graph."""
    with tempfile.TemporaryDirectory() as name:
        goldens.unpack(Path(name))
        return {row: [outcome(kind, row, Path(name)) for kind in KINDS] for row in ROWS}


def table(found: dict[str, list[str]]) -> str:
    """Return the table, and the reasons below it."""
    reasons: list[str] = []
    lines = [f"| | {' | '.join(KINDS)} |", "|---" * (1 + len(KINDS)) + "|"]
    for row, cells in found.items():
        reasons += [cell for cell in dict.fromkeys(cells) if cell != "yes" and cell not in reasons]
        words = [cell if cell == "yes" else f"no ({reasons.index(cell) + 1})" for cell in cells]
        lines.append(f"| {row} | {' | '.join(words)} |")
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, "", *notes, ""])


def kept() -> str:
    """Return the table that the page holds."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(outcomes()) + END + rest.partition(END)[2], encoding="utf-8")
