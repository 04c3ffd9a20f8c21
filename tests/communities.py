"""Small graphs whose labels can be learnt: communities with features that point to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse

from bulksample import CSR, Graph
from bulksample.sparse import fixed_point


def community_graph(n=300, classes=3, width=8, degree=8, sparse=False, weighted=False, half=False, seed=0, noise=1.5):
    """A directed graph in which four of five edges stay in a community; every ninth vertex is isolated, a few have no label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    rows = rng.integers(0, n, n * degree)
    inside = rng.permutation(n)[np.argsort(labels[rng.permutation(n)], kind="stable")]
    members = [np.flatnonzero(labels == c) for c in range(classes)]
    columns = np.where(rng.random(len(rows)) < 0.8, [rng.choice(members[labels[v]]) for v in rows], inside[rng.integers(0, n, len(rows))])
    keep = (rows % 9 != 4) & (rows != columns)
    adjacency = CSR.from_edges(rows[keep], columns[keep], (n, n))
    unit = 1.0
    if weighted:
        weights, unit = fixed_point(rng.random(adjacency.nnz) + 0.1, n)
        adjacency = adjacency.with_values(weights)
    x = (np.eye(classes, width)[labels] + noise * rng.standard_normal((n, width))).astype(np.float32)
    features = CSR.from_scipy(scipy.sparse.csr_array(np.where(x > 0.5, x, 0).astype(np.float32))) if sparse else x
    if half:
        features = x.astype(np.float16)
    labels = np.where(rng.random(n) < 0.05, -1, labels).astype(np.int64)
    split = rng.random(n)
    masks = {
        "train": (split < 0.5) & (labels >= 0),
        "val": (split >= 0.5) & (split < 0.7) & (labels >= 0),
        "test": (split >= 0.7) & (labels >= 0),
    }
    return Graph(adjacency, unit, features, labels, classes, masks, {"other": (labels > 0).astype(np.int64)}, "communities").validate()


def with_columns_of_labels(graph, target, missing=0.1):
    """The graph with labels of three columns, some missing, that its features tell: signs (multilabel) or numbers (regression)."""
    rng = np.random.default_rng(1)
    x = dense_features(graph)[:, :3]
    values = x + dense_adjacency(graph) @ x / np.maximum(graph.adjacency.degrees, 1)[:, None]
    values[rng.random(values.shape) < missing] = np.nan
    labels = np.where(np.isnan(values), -1, values > 0).astype(np.int8) if target == "multilabel" else values.astype(np.float32)
    return replace(graph, labels=labels, num_classes=3, name=target).validate()


def undirected(n=200, degree=6, seed=0):
    """Edges at random, every one both ways, some of them loops; features that say nothing."""
    u, v = np.random.default_rng(seed).integers(0, n, (2, n * degree // 2))
    return Graph(CSR.from_edges(np.concatenate([u, v]), np.concatenate([v, u]), (n, n)), features=np.ones((n, 1), np.float32))


def dense_adjacency(graph, weighted=False):
    """A as a dense float64 matrix."""
    a = graph.adjacency
    values = a.values * graph.weight_unit if weighted and a.values is not None else np.ones(a.nnz)
    return scipy.sparse.csr_array((values, a.indices, a.indptr), shape=a.shape).toarray()


def dense_features(graph):
    return np.asarray(graph.features.to_scipy().toarray() if isinstance(graph.features, CSR) else graph.features, np.float64)
