"""A small heterogeneous graph with everything that one may have, and a comparison of two."""

from __future__ import annotations

import numpy as np

from bulksample import CSR, Graph, Relation, VertexType, relation_from_edges

PAPERS, AUTHORS = 5, 3


def small_hetero(sparse: bool = False) -> Graph:
    """Papers with features, labels, splits and times; authors without; three relations, one with parallel edges and times, one empty."""
    dense = np.arange(PAPERS * 2, dtype=np.float32).reshape(PAPERS, 2) / 4
    paper = VertexType(
        "paper",
        PAPERS,
        CSR.from_scipy(dense) if sparse else dense,
        np.array([0, 1, 2, 0, -1]),
        3,
        {"train": np.array([True, False, False, False, False]), "test": np.array([False, True, True, False, False])},
        np.array([2010, -(2**63), 2012, 2**63 - 1, 2011]),
        {"venue": np.array(["a", "b", "a", "", "c"]), "features": np.arange(PAPERS, dtype=np.int16)},
    )
    author = VertexType("field of study", AUTHORS)
    writes = relation_from_edges(
        author, "writes", paper, [2, 0, 0, 0, 1], [0, 3, 3, 1, 3], weights=[1.0, 0.5, 2.0, 0.25, 0.0], times=[5, 9, 7, 8, 6],
        features=np.arange(5, dtype=np.float16).reshape(5, 1),
    )  # fmt: skip
    written = relation_from_edges(paper, "written by", author, [0, 1, 3], [2, 0, 0])
    cites = relation_from_edges(paper, "cites", paper, [], [])
    return Graph.of((paper, author), (writes, written, cites), "small").validate()


def assert_same_hetero(found: Graph, expected: Graph) -> None:
    """Every array of two graphs is equal, dtype and all."""
    assert (found.name, len(found.types), len(found.relations)) == (expected.name, len(expected.types), len(expected.relations))
    for one, other in zip(found.types, expected.types, strict=True):
        assert (one.name, one.count, one.num_classes) == (other.name, other.count, other.num_classes)
        _same_matrix(one.features, other.features)
        _same(one.labels, other.labels, "labels")
        _same(one.times, other.times, "times")
        for mine, yours in ((one.masks, other.masks), (one.extra, other.extra)):
            assert sorted(mine) == sorted(yours)
            for name in mine:
                _same(mine[name], yours[name], name)
    for left, right in zip(found.relations, expected.relations, strict=True):
        _same_relation(left, right)


def _same(found, expected, what):
    assert (found is None) == (expected is None), what
    if expected is not None:
        assert found.dtype == expected.dtype, what
        np.testing.assert_array_equal(found, expected, err_msg=what)


def _same_relation(found: Relation, expected: Relation) -> None:
    assert (found.key, found.weight_unit) == (expected.key, expected.weight_unit)
    _same_matrix(found.adjacency, expected.adjacency)
    for name in ("edge_ids", "times", "features"):
        _same(getattr(found, name), getattr(expected, name), name)


def _same_matrix(found, expected):
    assert isinstance(found, CSR) == isinstance(expected, CSR)
    if not isinstance(expected, CSR):
        return _same(found, expected, "features")
    assert found.shape == expected.shape
    for name in ("indptr", "indices", "values"):
        _same(getattr(found, name), getattr(expected, name), name)
