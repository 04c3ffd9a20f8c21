"""Heterogeneous graphs on which samplers go wrong, and slow answers to hold them against."""

import numpy as np

from bulksample.graph import Graph, Relation, VertexType
from bulksample.graph.types import relation_from_edges

COUNTS = {"paper": 60, "author": 40, "venue": 7, "word": 25, "alone": 5}
ENDS = [  # a relation within a type, both ways between two, one of few destinations, one with parallel edges, one without edges
    ("paper", "cites", "paper", 400),
    ("author", "writes", "paper", 200),
    ("paper", "rev_writes", "author", 200),
    ("venue", "hosts", "paper", 60),
    ("word", "in", "paper", 900),
    ("paper", "about", "venue", 300),
    ("word", "hosts", "venue", 0),
]


def library(times=None, weighted=False, span=50, parallel=True, seed=1):
    """Five types, seven relations; `times` of ``vertices`` (papers and authors), of ``edges`` (three relations), or ``constant``."""
    rng, clock = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    stamps = {}
    if times in ("vertices", "constant"):
        stamps = {name: clock.integers(0, 1 if times == "constant" else span, COUNTS[name]) for name in ("paper", "author")}
    types = {name: VertexType(name, count, times=stamps.get(name)) for name, count in COUNTS.items()}
    relations = []
    for source, name, destination, m in ENDS:
        u, v = rng.integers(0, COUNTS[source], m), (COUNTS[destination] * rng.random(m) ** 2).astype(int)
        if not parallel:
            pairs = np.unique(np.stack([v, u]), axis=1)
            v, u = pairs[:, rng.permutation(pairs.shape[1])]
        weights = clock.integers(0, 5, len(u)) if weighted and name != "hosts" else None
        when = clock.integers(0, span, len(u)) if times == "edges" and name in ("cites", "in", "about") else None
        relations.append(relation_from_edges(types[source], name, types[destination], u, v, weights=weights, times=when))
    return Graph.of(tuple(types.values()), tuple(relations), "library").validate()


def one_relation(matrix, times=None):
    """A graph of one type whose relation has this matrix."""
    return Graph.of((VertexType("node", matrix.shape[0], times=times),), (Relation("node", "to", "node", matrix),)).validate()


def edges_of(graph, relation):
    """The edges of a relation into each destination: {v: [(entry, source, time or None)]} in the order of the adjacency."""
    matrix, stamps = relation.adjacency, graph.type(relation.source).times
    out = {}
    for v in range(matrix.shape[0]):
        for e in range(matrix.indptr[v], matrix.indptr[v + 1]):
            u = int(matrix.indices[e])
            time = int(relation.times[e]) if relation.times is not None else None if stamps is None else int(stamps[u])
            out.setdefault(v, []).append((e, u, time))
    return out


def drawn_edges(minibatch, layer, key):
    """The edges of a block as (tree, destination, source, entry), by vertices of the graph."""
    block, entries = minibatch.blocks[layer][key], minibatch.entries[layer][key]
    rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
    into, outof = minibatch.rows[key[2]], minibatch.rows[key[0]]
    trees = np.zeros(len(rows), int) if into.trees is None else into.trees[rows]
    if outof.trees is not None:
        assert (outof.trees[block.indices] == trees).all()
    return list(zip(trees.tolist(), into.vertices[rows].tolist(), outof.vertices[block.indices].tolist(), entries.tolist(), strict=True))
