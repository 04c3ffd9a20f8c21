"""A synthetic heterogeneous graph: types and relations of any size, a power law of the sources, and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..backends.base import Backend
from ..errors import UsageError, instead_of
from ..graph import Graph, Relation, VertexType
from ..graph.types import relation_from_edges
from ..rng import Substream, as_unit
from ..sparse import MAX_VERTICES
from .columns import Array
from .random_words import Words

_MOST_POWER = 16


class RelationSize(NamedTuple):
    """One relation: its ends, its name and the number of its edges."""

    source: str
    name: str
    destination: str
    edges: int


PAPERS_TYPES = {"paper": 1_000_000, "author": 600_000, "institute": 20_000, "fos": 100_000}
PAPERS_RELATIONS = (
    RelationSize("paper", "cites", "paper", 12_000_000),
    RelationSize("author", "writes", "paper", 3_000_000),
    RelationSize("paper", "written_by", "author", 3_000_000),
    RelationSize("institute", "employs", "author", 600_000),
    RelationSize("author", "affiliated_to", "institute", 600_000),
    RelationSize("fos", "topic_of", "paper", 5_000_000),
    RelationSize("paper", "topic", "fos", 5_000_000),
)


def papers(scale: float) -> tuple[dict[str, int], tuple[RelationSize, ...]]:
    """Return the types and relations of a graph of papers, in the proportions of IGBH, with `scale` million papers."""
    if not 0 < scale <= 100:
        raise UsageError(f"scale: got {scale}; use a number of million papers above 0, at most 100")
    types = {name: max(1, round(count * scale)) for name, count in PAPERS_TYPES.items()}
    return types, tuple(one._replace(edges=round(one.edges * scale)) for one in PAPERS_RELATIONS)


def parse_types(words: Sequence[str]) -> dict[str, int]:
    """Read types as ``NAME:COUNT``; raises `UsageError`."""
    counts: dict[str, int] = {}
    for word in words:
        name, _, count = word.rpartition(":")
        if not name or ":" in name or not count.isdecimal() or name in counts:
            raise UsageError(f"type {word!r}: use NAME:COUNT, each name once and without a colon")
        counts[name] = int(count)
    return counts


def parse_relations(words: Sequence[str]) -> list[RelationSize]:
    """Read relations as ``SOURCE:NAME:DESTINATION:EDGES``; raises `UsageError`."""
    sizes = []
    for word in words:
        parts = word.split(":")
        if len(parts) != 4 or not all(parts) or not parts[3].isdecimal():
            raise UsageError(f"relation {word!r}: use SOURCE:NAME:DESTINATION:EDGES")
        sizes.append(RelationSize(parts[0], parts[1], parts[2], int(parts[3])))
    return sizes


def hetero(
    types: Mapping[str, int], relations: Sequence[RelationSize | tuple[str, str, str, int]], *, power: int = 2, features: int = 0,
    classes: int = 0, times: int = 0, edge_times: int = 0, parallel: bool = False, seed: int = 0, backend: Backend | None = None,
    name: str = "hetero",
) -> Graph:  # fmt: skip
    """Draw a heterogeneous graph. Destinations of edges are uniform; a source is floor(n u^power) of a uniform u, so few have most edges.

    The graph is a function of the arguments alone. A type or a relation that is appended leaves the others as they are.
    Raises `UsageError` if an argument is out of range, or a relation names an unknown type.

    Parameters
    ----------
    types : dict of names to numbers of vertices
    relations : sequence of (source, name, destination, number of edges that are drawn)
        One that repeats another is dropped.
    power : int
        1 makes sources uniform.
    features : int
        Width of the features of each type: uniform numbers below 1. In the first type a vertex of class k has 1 more in column k modulo the
        width.
    classes : int
        Uniform classes of the first type; 60, 20 and 20 percent of it are for training, validation and test.
    times, edge_times : int
        If not 0, each vertex or edge gets a uniform time 0 .. times - 1.
    parallel : bool
        Keep edges that repeat others, as events do.
    backend : Backend, optional
        Generates the random words; every back end generates the same.
    """
    sizes = [RelationSize(*one) for one in relations]
    if not types or not all(0 < count <= MAX_VERTICES for count in types.values()):
        raise UsageError(f"types: got {dict(types)}; use one or more names, each with 1 to {MAX_VERTICES} vertices")
    for one in sizes:
        what = f"relation {one.source}:{one.name}:{one.destination}"
        for end in (one.source, one.destination):
            if end not in types:
                raise UsageError(f"{what}: there is no type {end!r}; {instead_of(end, types)}")
        if not 0 <= one.edges < 2**40:
            raise UsageError(f"{what}: got {one.edges} edges; use 0 or more")
    for label, number in (("features", features), ("classes", classes), ("times", times), ("edge_times", edge_times)):
        if not 0 <= number < 2**31:
            raise UsageError(f"{label}: got {number}; use 0 to {2**31 - 1}")
    if not 1 <= power <= _MOST_POWER:
        raise UsageError(f"power: got {power}; use 1 to {_MOST_POWER}")
    words = Words(seed, backend)
    made = {}
    for place, (kind, count) in enumerate(types.items()):
        made[kind] = _type(words, place, kind, count, features, classes if place == 0 else 0, times)
    joined = tuple(_relation(words, place, one, made, power, edge_times, parallel) for place, one in enumerate(sizes))
    return Graph.of(tuple(made.values()), joined, name).validate()


def _type(words: Words, place: int, name: str, count: int, width: int, classes: int, times: int) -> VertexType:
    stamps = _uniform(words.of(Substream.HETERO_TIME, 0, count, place)[:, :2], times) if times else None
    x = None
    if width:  # uniform multiples of 2^-24: item v * width + j is the number in column j of vertex v
        drawn = words.of(Substream.HETERO_FEATURE, 0, -(-count * width // 4), place).reshape(-1)[: count * width]
        x = (drawn >> np.uint32(8)).astype(np.float32).reshape(count, width) * np.float32(2.0**-24)
    if not classes:
        return VertexType(name, count, x, times=stamps)
    second = words.of(Substream.HETERO_LABEL, 0, count, place)
    labels, share = _uniform(second[:, :2], classes), as_unit(second[:, 2:])
    if x is not None:
        x[np.arange(count), labels % width] += 1
    masks = {"train": share < 0.6, "val": (share >= 0.6) & (share < 0.8), "test": share >= 0.8}
    return VertexType(name, count, x, labels, classes, {split: mask for split, mask in masks.items() if mask.any()}, stamps)


def _relation(
    words: Words, place: int, size: RelationSize, types: Mapping[str, VertexType], power: int, times: int, parallel: bool
) -> Relation:  # fmt: skip
    drawn = words.of(Substream.HETERO_EDGE, 0, size.edges, place)
    source, destination = types[size.source], types[size.destination]
    stamps = _uniform(words.of(Substream.HETERO_EDGE_TIME, 0, size.edges, place)[:, :2], times) if times else None
    sources, destinations = _uniform(drawn[:, :2], source.count, power), _uniform(drawn[:, 2:], destination.count)
    if not parallel:  # the first of those that repeat stays
        kept = np.sort(np.unique(destinations * source.count + sources, return_index=True)[1])
        sources, destinations, stamps = sources[kept], destinations[kept], None if stamps is None else stamps[kept]
    return relation_from_edges(source, size.name, destination, sources, destinations, times=stamps)


def _uniform(words: Array, bound: int, power: int = 1) -> Array:
    """Return floor(bound * u^power): int64, of a u of 53 bits; products, which all machines round alike."""
    unit = as_unit(words)
    product = unit
    for _ in range(power - 1):
        product = product * unit
    return np.minimum((product * bound).astype(np.int64), bound - 1)
