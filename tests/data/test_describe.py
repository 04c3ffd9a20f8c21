"""Statistics of `data info`: directions counted on a dense matrix."""

import numpy as np
import pytest

from bulksample import CSR, Graph, Relation, VertexType
from bulksample.data import describe as module
from bulksample.data.describe import describe


@pytest.mark.parametrize("step", [3, 2**22])
@pytest.mark.parametrize("seed", range(4))
def test_directions_are_those_of_a_dense_matrix(monkeypatch, step, seed):
    monkeypatch.setattr(module, "_STEP", step)
    rng = np.random.default_rng(seed)
    dense = rng.random((12, 12)) < 0.15
    dense[[3, 7]] = False
    dense[:, 7] = False
    dense = dense | dense.T if seed == 3 else dense
    matrix, labels = CSR.from_edges(*np.nonzero(dense), (12, 12)), rng.integers(-1, 3, 12)
    found = describe(Graph(matrix, labels=labels, num_classes=3))
    types = (VertexType("a", 12, labels=labels, num_classes=3), VertexType("b", 2))
    typed = describe(
        Graph.of(types, [Relation("a", "r", "a", matrix), Relation("b", "s", "a", CSR.from_edges(np.array([7]), np.array([1]), (12, 2)))])
    )
    rows, columns = np.nonzero(dense)
    known = (labels[rows] >= 0) & (labels[columns] >= 0)
    for own in (found, typed["relations"]["a r a"] | typed["types"]["a"]):
        assert own["self_loops"] == np.trace(dense)
        assert own["edges_with_reverse"] == pytest.approx((dense & dense.T).sum() / dense.sum())
        assert own["symmetric"] == bool((dense == dense.T).all()) == (seed == 3)
        assert own["homophily"] == pytest.approx((labels[rows] == labels[columns])[known].mean())
        assert (own["labelled"], own["degree_median"]) == ((labels >= 0).sum(), np.median(dense.sum(1)))
    assert found["without_in_edges"] == (~dense.any(1)).sum()
    assert found["isolated"] == (~(dense.any(0) | dense.any(1))).sum() >= 1
    assert typed["types"]["a"]["isolated"] == found["isolated"] - 1
    assert "symmetric" not in typed["relations"]["b s a"]


def test_a_graph_without_edges_is_symmetric():
    found = describe(Graph(CSR(np.zeros(4, np.int64), np.empty(0, np.int32), None, (3, 3))))
    assert (found["symmetric"], found["edges_with_reverse"], found["self_loops"], found["isolated"]) == (True, 1.0, 0, 3)
