"""Predict what ranks hold and send when they train on a heterogeneous store, from its manifest.

    held      relations and the order of their times, c/p of them in block rows, with counts of all rows; features c/p, and
              4 (embeddings c/p + theta) words: weights, gradients, two moments
    sent      ids, features and embeddings of the distinct vertices of a mini-batch that other ranks hold, 1 - c/p of them; gradients
              of these embeddings; 2 (p - 1) theta words of other gradients; with c > 1 the sums of embeddings' gradients in process rows;
              with relations in block rows the rows of every frontier, and the picks of each in every relation; in windows of time, where
              answers are not padded, a count of these picks; or the rows of the relations themselves (`_rows_sent`)

Sizes of mini-batches are expectations: edges join vertices at random, and a vertex draws min(s, degree) sources of each relation.
Windows of time hold fewer, so on graphs with times these are upper estimates. Padded answers (`matrix.reply_slots`) are as long as the
longest row of each relation, which no manifest knows; they take up to twice what is predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np

from ..data.manifest import Manifest
from ..distributed.matrix.grid import divisors
from ..distributed.matrix.reply_slots import RowLaw, is_padded
from ..errors import UsageError
from .request import PlanRequest
from .sizes import union

_POISSON = 500  # a larger mean degree stands for all degrees


@dataclass(frozen=True)
class RelationalPlan:
    """The store, the model and the mini-batches of a plan."""

    manifest: Manifest
    request: PlanRequest
    counts: dict[str, int]  # vertices of each type
    timed: tuple[bool, ...]  # of each relation: it has edges, and they or their sources have times
    target: str  # the type that is predicted
    needed: tuple[str, ...]  # types whose input rows the model reads
    weights: int  # theta, the parameters without embeddings
    embeddings: dict[str, int]  # numbers in the table of each type without features
    frontiers: tuple[dict[str, float], ...]  # expected distinct vertices of a mini-batch by type, before each hop, and after the last

    @property
    def vertices(self) -> dict[str, float]:
        """Expected distinct vertices of a mini-batch."""
        return self.frontiers[-1]

    def is_ragged(self, fanout: int) -> bool:
        """Return True if lengths go ahead of the answers of a hop: a relation with times is not padded; see `HopForm.of`."""
        timed = [relation for relation, has_times in zip(self.manifest.relations, self.timed, strict=True) if has_times]
        return bool(fanout) and not all(is_padded(fanout, relation.edges, self.counts[relation.destination]) for relation in timed)


def plan_relations(manifest: Manifest, request: PlanRequest) -> dict[str, Any]:
    """Return the prediction as a JSON object: the model, the expected mini-batch, and a row for every number of ranks and placement.

    Raises `UsageError` if no type, or several, have labels.
    """
    made = _plan(manifest, request)
    rows = [_row(made, p, None) for p in request.ranks]
    for p in request.ranks:
        rows += [_row(made, p, c, divided) for c in request.replication or divisors(p) for divided in (False, True)]
    return {
        "graph": manifest.name, "target": made.target, "parameters": made.weights + sum(made.embeddings.values()),
        "embedding_bytes": 4 * sum(made.embeddings.values()), "vertices_of_a_minibatch": made.vertices,
        "rows": sorted(rows, key=lambda row: (row["ranks"], row["topology"], row["features"], row["replication"])),
    }  # fmt: skip


def _plan(manifest: Manifest, request: PlanRequest) -> RelationalPlan:
    labelled = [kind for i, kind in enumerate(manifest.types) if "labels" in manifest.of_type(i)]
    if len(labelled) != 1:
        labelled_names = ", ".join(kind.name for kind in labelled) or "no type"
        fits = "use a store with one such type; links are not planned"
        raise UsageError(f"a plan needs the one type to predict; {labelled_names} of {manifest.name!r} has labels: {fits}")
    target, layers = labelled[0], len(request.fanouts)
    widths = {kind.name: kind.num_features for kind in manifest.types}
    needed, weights, out = {target.name}, 0, target.num_classes
    for _ in range(layers):
        into = [relation for relation in manifest.relations if relation.destination in needed]
        weights += len(needed) * (request.hidden + 1) * out + len(into) * request.hidden * out
        needed, out = needed | {relation.source for relation in into}, request.hidden
    weights += sum((widths[name] + 1) * request.hidden for name in needed if widths[name])
    tables = {kind.name: kind.vertices * request.hidden for kind in manifest.types if kind.name in needed and not widths[kind.name]}
    names = tuple(kind.name for kind in manifest.types if kind.name in needed)
    counts = {kind.name: kind.vertices for kind in manifest.types}
    with_times = {kind.name for i, kind in enumerate(manifest.types) if "times" in manifest.of_type(i)}
    has_times = ("times" in manifest.of_relation(i) or one.source in with_times for i, one in enumerate(manifest.relations))
    timed = tuple(has and one.edges > 0 for has, one in zip(has_times, manifest.relations, strict=True))
    frontiers = _expected(manifest, request, counts, target.name)
    return RelationalPlan(manifest, request, counts, timed, target.name, names, weights, tables, frontiers)


def _expected(manifest: Manifest, request: PlanRequest, counts: dict[str, int], target: str) -> tuple[dict[str, float], ...]:
    """Return the expected distinct vertices of each type in a mini-batch, before the first hop and after each."""
    reached = dict.fromkeys(counts, 0.0) | {target: float(min(request.batch_size, counts[target]))}
    sizes = [reached]
    for fanout in request.fanouts:
        drawn = dict.fromkeys(counts, 0.0)
        for relation in manifest.relations:
            degree = relation.edges / max(1, counts[relation.destination])
            drawn[relation.source] += reached[relation.destination] * expected_picks(fanout, degree)
        reached = {name: n - (n - reached[name]) * exp(-drawn[name] / n) if n else 0.0 for name, n in counts.items()}
        sizes.append(reached)
    return tuple(sizes)


def expected_picks(fanout: int, degree: float) -> float:
    """Return E[min(s, X)] = sum over k < s of P(X > k) for a degree X of Poisson's law; its mean if s is -1."""
    if fanout < 0 or degree > _POISSON:
        return degree if fanout < 0 else min(float(fanout), degree)
    above, mass, total = 1.0, exp(-degree), 0.0
    for k in range(min(fanout, 4 * _POISSON)):
        above -= mass
        mass *= degree / (k + 1)
        total += max(0.0, above)
    return total


def _row(made: RelationalPlan, p: int, c: int | None, divided: bool = False) -> dict[str, Any]:
    """Return what a rank holds, and what all ranks send in a step; c None: all on every rank; divided: relations in block rows too."""
    manifest, request = made.manifest, made.request
    share, tables = 1.0 if c is None else c / p, sum(made.embeddings.values())
    topology_share = share if divided else 1.0
    arrays = [
        entry for i, kind in enumerate(manifest.types) if kind.name in made.needed
        for role, entry in manifest.of_type(i).items() if role.startswith("features")
    ]  # fmt: skip
    memory = {
        "relations": topology_share * sum(_relation_bytes(manifest, i) for i in range(len(manifest.relations))),
        "counts": float(_count_bytes(made)) if divided and request.exchange == "owner" else 0.0,
        # of the edges or of the sources, and their order in the rows
        "times": topology_share * sum(16 * relation.edges for relation, timed in zip(manifest.relations, made.timed, strict=True) if timed),
        "features": share * sum(int(np.prod(entry.shape)) * np.dtype(entry.dtype).itemsize for entry in arrays),
        "embeddings": 16 * tables * share,
        "model": 16.0 * made.weights,
    }
    away = {name: p * made.vertices[name] * (1 - share) for name in made.needed}
    widths = {kind.name: kind.num_features or request.hidden for kind in manifest.types}
    returned = 4 * request.hidden * sum(away[name] for name in made.embeddings)
    # distinct rows of a whole table that the p / c ranks of one process column draw
    touched = {name: union(made.vertices[name], made.counts[name], p // (c or 1)) for name in made.embeddings}
    in_rows = 0.0 if c is None else (c - 1) * c * sum(touched.values())
    dense = made.weights + (tables if c is None else 0)
    sampling = _requests if request.exchange == "owner" else _rows_sent
    sent = {
        "topology": 4 * (sum(away.values()) + in_rows) + (sampling(made, p, c or 1) if divided else 0.0),
        "features": 4 * sum(widths[name] * size for name, size in away.items()),
        "gradients": returned + 4 * request.hidden * in_rows + 8.0 * (p - 1) * (dense + 3),
    }
    return {
        "ranks": p, "replication": c or 1, "topology": "partitioned" if divided else "replicated",
        "features": "replicated" if c is None else "partitioned",
        "held": {**memory, "total": sum(memory.values())}, "bytes_of_a_step": {**sent, "total": sum(sent.values())},
    }  # fmt: skip


def _relation_bytes(manifest: Manifest, place: int) -> int:
    """Return the bytes of an adjacency in memory."""
    arrays = manifest.of_relation(place)
    numbers = {role: int(np.prod(arrays[role].shape)) for role in ("indptr", "indices", "weights") if role in arrays}
    return sum(count * (4 if role == "indices" else 8) for role, count in numbers.items())


def _count_bytes(made: RelationalPlan) -> int:
    """Return the bytes of the counts of rows that all ranks know where answers are not padded; a row may have an edge from every source."""
    total = 0
    for relation in made.manifest.relations:
        rows = made.counts[relation.destination]
        drawing = (fanout for fanout in made.request.fanouts if fanout and not made.is_ragged(fanout))
        counted = [fanout for fanout in drawing if not is_padded(fanout, relation.edges, rows)]
        widths = (RowLaw(fanout).width_of_counts(made.counts[relation.source]) for fanout in counted)
        total += rows * max(widths, default=0) if relation.edges else 0
    return total


def _requests(made: RelationalPlan, p: int, c: int) -> float:
    """Return the bytes of the rows that all ranks ask others to draw from in a step, and of the answers; see `HopForm.of`."""
    request, others, sent = made.request, p // c - 1, 0.0
    trees, words = (request.batch_size, 4) if any(made.timed) else (1, 2)  # a run names its tree, their number, and the end of its window
    for frontier, fanout in zip(made.frontiers, request.fanouts, strict=False):
        into = {relation.destination for relation in made.manifest.relations if relation.edges and fanout}
        away = {name: frontier[name] / (p // c) for name in into}  # rows that one other rank holds
        sent += others * (2 * len(into) * any(away.values()) + sum(rows + words * min(rows, trees) for rows in away.values()))
        counted = made.is_ragged(fanout)
        for relation in made.manifest.relations if fanout else ():
            degree = relation.edges / max(1, made.counts[relation.destination])
            sent += others * away.get(relation.destination, 0.0) * (relation.edges > 0) * (counted + expected_picks(fanout, degree))
    return 4 * p * sent


def _rows_sent(made: RelationalPlan, p: int, c: int) -> float:
    """Return the bytes that all ranks send in a step where rows of relations travel: by `--exchange rows` and `rows-oblivious`.

    Let V_t be the vertices of type t in the frontier of a hop, U_t = n_t (1 - (1 - V_t / n_t)^c) those of the c ranks of a process row,
    q = p / c, and W_t the words of a row: for each relation into t one, and for each of its edges one, or three where edges have times. A
    hop sends

        told      (1 - 1 / c) p sum of 4 V_t               ids, in process rows
        stages    (q - 1) sum of U_t (8 + 4 W_t)           ids, lengths and rows, in process columns; by rows-oblivious, whatever is drawn,
                  (q - 1) (4 n + 4 sum of n_t W_t)         lengths and rows of all n vertices of all types
        returned  (1 - 1 / c) p sum of V_t (4 + 4 W_t)     lengths and rows, in process rows

    A bulk has one mini-batch. A larger one sends less, since each row travels once for all of them. Rows travel whole, so fanouts count
    only through V_t (`distributed.matrix.spgemm15d`).
    """
    counts, sent, others, words = made.counts, 0.0, p // c - 1, _words_of_rows(made)
    for frontier, fanout in zip(made.frontiers, made.request.fanouts, strict=False):
        if not fanout or not words:
            continue
        sent += (1 - 1 / c) * p * sum(frontier[name] * (8 + 4 * of_row) for name, of_row in words.items())  # told and returned
        if made.request.exchange == "rows-oblivious":
            sent += others * 4 * (sum(counts.values()) + sum(counts[name] * of_row for name, of_row in words.items()))
        else:
            together = {name: union(frontier[name], counts[name], c) for name in words}
            sent += others * sum(together[name] * (8 + 4 * of_row) for name, of_row in words.items())
    return sent


def _words_of_rows(made: RelationalPlan) -> dict[str, float]:
    """Return the mean words of a row of each type into which relations with edges lead; see `_rows_sent`.

    Raises `UsageError` if vertices and edges both have times.
    """
    manifest, words = made.manifest, dict[str, float]()
    of_vertices = any("times" in manifest.of_type(i) for i in range(len(manifest.types)))
    if of_vertices and any("times" in manifest.of_relation(i) for i in range(len(manifest.relations))):  # unknown which of them count
        raise UsageError(
            f"both vertices and edges of {manifest.name!r} have times, and rows travel with those of edges only where these count: "
            "plan exchange owner, or a store with times of one kind"
        )
    for i, relation in enumerate(manifest.relations):
        if relation.edges:
            of_edges = (3 if "times" in manifest.of_relation(i) else 1) * relation.edges
            words[relation.destination] = words.get(relation.destination, 0.0) + 1 + of_edges / made.counts[relation.destination]
    return words
