"""Features by vertex: dense, half precision, memory-mapped or sparse, normalized as they are fetched."""

from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph, dense_features

from bulksample import CSR, UsageError
from bulksample.views.features import Features, FeatureSource

VERTICES = np.array([5, 5, 0, 299, 13])


def as_dense(rows):
    if hasattr(rows, "numpy"):
        return rows.numpy()
    return CSR(rows.indptr, rows.indices, rows.weights, rows.shape).to_scipy().toarray()


@pytest.mark.parametrize("kind", ["dense", "half", "sparse", "mapped"])
@pytest.mark.parametrize("norm", ["none", "l1", "l2"])
def test_rows_are_fetched_in_order_and_normalized(kind, norm, tmp_path):
    graph = community_graph(sparse=kind == "sparse", half=kind == "half")
    expected = dense_features(graph)
    if kind == "mapped":
        np.save(tmp_path / "x.npy", graph.features)
        graph = replace(graph, features=np.load(tmp_path / "x.npy", mmap_mode="r"))
    if norm != "none":
        size = np.abs(expected).sum(1) if norm == "l1" else np.sqrt((expected**2).sum(1))
        expected = expected / np.where(size > 0, size, 1)[:, None]
    features = Features(graph, norm)
    rows = features.fetch(VERTICES)
    assert features.is_sparse == (kind == "sparse")
    assert rows.shape == (5, features.width)
    np.testing.assert_allclose(as_dense(rows), expected[VERTICES], rtol=1e-5, atol=1e-7)
    assert features.fetch(np.empty(0, np.int32)).shape == (0, features.width)


def test_rows_of_zeros_stay_zeros():
    graph = community_graph()
    x = graph.features.copy()
    x[3] = 0
    assert not Features(replace(graph, features=x), "l2").fetch(np.array([3])).any()


def test_a_graph_without_features_is_refused():
    with pytest.raises(UsageError, match="has no features"):
        Features(replace(community_graph(), features=None))
    with pytest.raises(UsageError, match="no feature norm 'l3'"):
        Features(community_graph(), "l3")


def test_a_source_that_could_not_fetch_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="Mute has neither `start` nor `ask`"):
        type("Mute", (FeatureSource,), {"nbytes": lambda self: 0})
