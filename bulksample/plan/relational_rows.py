"""Predict what ranks send when rows of relations travel to the ranks that draw from them, by `--exchange rows` and `rows-oblivious`.

Let V_t be the vertices of type t in the frontier of a hop, U_t = n_t (1 - (1 - V_t / n_t)^c) those of the c ranks of a process row,
q = p / c, and W_t the words of a row: for each relation into t one, and for each of its edges one, or three where edges have times. A hop
sends

    told      (1 - 1 / c) p sum of 4 V_t                   ids, in process rows
    stages    (q - 1) sum of U_t (8 + 4 W_t)               ids, lengths and rows, in process columns; by rows-oblivious, whatever is drawn,
              (q - 1) (4 n + 4 sum of n_t W_t)             lengths and rows of all n vertices of all types
    returned  (1 - 1 / c) p sum of V_t (4 + 4 W_t)         lengths and rows, in process rows

Rows travel whole, so fanouts count only through V_t (`distributed.matrix.relation_rows`). Where both vertices and edges have times, the
plan does not know which of them count, and refuses these policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..data.manifest import Manifest
from ..errors import UsageError


def rows_sent(
    manifest: Manifest, frontiers: Sequence[Mapping[str, float]], fanouts: Sequence[int], p: int, c: int, oblivious: bool
) -> float:  # fmt: skip
    """Return the bytes of topology that all ranks send in a step, given the vertices of each type before each hop.

    A bulk has one mini-batch. A larger one sends less, since each row travels once for all of them.
    """
    counts, sent, others = {kind.name: kind.vertices for kind in manifest.types}, 0.0, p // c - 1
    words = words_of_rows(manifest)
    for held, fanout in zip(frontiers, fanouts, strict=False):
        if not fanout or not words:
            continue
        sent += (1 - 1 / c) * p * sum(held[name] * (8 + 4 * of_row) for name, of_row in words.items())  # told and returned
        if oblivious:
            sent += others * 4 * (sum(counts.values()) + sum(counts[name] * of_row for name, of_row in words.items()))
        else:
            together = {name: counts[name] * (1 - (1 - held[name] / counts[name]) ** c) for name in words}
            sent += others * sum(together[name] * (8 + 4 * of_row) for name, of_row in words.items())
    return sent


def words_of_rows(manifest: Manifest) -> dict[str, float]:
    """Return the mean words of a row of each type into which relations with edges lead; see above.

    Raises
    ------
    UsageError
        If both vertices and edges have times.
    """
    counts, words = {kind.name: kind.vertices for kind in manifest.types}, dict[str, float]()
    of_vertices = any("times" in manifest.of_type(i) for i in range(len(manifest.types)))
    if of_vertices and any("times" in manifest.of_relation(i) for i in range(len(manifest.relations))):
        raise UsageError(
            f"both vertices and edges of {manifest.name!r} have times, and rows travel with those of edges only where these count: "
            "plan exchange owner, or a store with times of one kind"
        )
    for i, relation in enumerate(manifest.relations):
        if relation.edges:
            of_edges = (3 if "times" in manifest.of_relation(i) else 1) * relation.edges
            words[relation.destination] = words.get(relation.destination, 0.0) + 1 + of_edges / counts[relation.destination]
    return words
