"""A graph keeps its promises, and a broken one is named."""

import numpy as np
import pytest
from zoo import ZOO, random_matrix

from bulksample import CSR, DataError, Graph, UsageError, load

N = 200


def mask(*vertices):
    out = np.zeros(N, bool)
    out[list(vertices)] = True
    return out


def graph(**change):
    parts = {
        "adjacency": ZOO["random"],
        "features": np.ones((N, 3), np.float32),
        "labels": np.arange(N) % 4,
        "num_classes": 4,
        "masks": {"train": mask(1, 2), "val": mask(3), "test": mask(4, 5)},
        "extra": {"year": np.arange(N), "note": np.zeros((N, 2))},
    }
    return Graph(**{**parts, **change})


def sparse_features(value=1.0):
    x = random_matrix(N, 600, 3)
    values = np.ones(x.nnz, np.float32)
    values[17] = value
    return x.with_values(values)


def test_a_graph_without_labels_has_no_classes(tmp_path):
    bare = Graph(ZOO["random"])
    bare.validate().save(tmp_path / "g")
    assert bare.num_classes == load(tmp_path / "g").num_classes == 0


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"features": None},
        {"features": np.ones((N, 0), np.float16)},
        {"labels": None, "masks": {}},
        {"masks": {}},
        {"features": sparse_features()},
        {"adjacency": ZOO["weighted"]},
        {"labels": None},
    ],
)
def test_a_good_graph_is_valid(change):
    assert graph(**change).validate().n == N


def one_bad_value(shape, row, value):
    x = np.ones(shape, np.float32)
    x[row, 1] = value
    return x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adjacency": CSR.from_edges([0], [5], (N, N + 1))}, "must be square"),
        ({"adjacency": CSR(np.array([0] + [2] * N), np.array([7, 3], np.int32), None, (N, N))}, "adjacency: row 0 does not ascend"),
        ({"adjacency": ZOO["random"].with_values(np.ones(ZOO["random"].nnz))}, "int64 fixed point"),
        ({"adjacency": ZOO["random"].with_values(np.full(ZOO["random"].nnz, -3))}, "weights: row 0 holds -3"),
        ({"adjacency": ZOO["weighted"], "weight_unit": np.nan}, "weight_unit"),
        (
            {
                "adjacency": ZOO["star"].with_values(np.full(120, 2**57)),
                **dict.fromkeys(("features", "labels"), None),
                "masks": {},
                "extra": {},
            },
            "those of row 0 add up to 8.6",
        ),
        ({"extra": {"year": np.array(3)}}, "year must have"),
        ({"features": np.ones((N - 1, 3), np.float32)}, f"features must have {N} rows"),
        ({"features": np.ones((N, 3))}, "float32 or float16"),
        ({"features": one_bad_value((N, 3), 77, np.nan)}, "features: row 77 is not finite"),
        ({"features": one_bad_value((N, 3), 0, -np.inf)}, "features: row 0 is not finite"),
        ({"features": sparse_features(np.inf)}, "features: row .* holds inf"),
        ({"features": random_matrix(N, 600, 3)}, "float32 values"),
        ({"labels": np.arange(N - 1)}, "labels must be int64"),
        ({"labels": (np.arange(N) % 4).astype(np.int32)}, "labels must be int64"),
        ({"labels": np.full(N, 4)}, "labels: row 0 holds 4; classes run from 0 to 3"),
        ({"labels": np.full(N, -2)}, "row 0 holds -2"),
        ({"labels": np.where(np.arange(N) == 2, -1, 0)}, "train mask: row 2"),
        ({"masks": {"train": mask(1), "val": mask(1)}}, "val mask: row 1"),
        ({"masks": {"dev": mask(1)}}, "'dev' is not a split"),
        ({"masks": {"train": mask(1)[:-1]}}, "train mask must be bool"),
        ({"masks": {"train": mask(1).astype(int)}}, "train mask must be bool"),
        ({"extra": {"year": np.arange(3)}}, "year must have"),
    ],
)
def test_a_broken_promise_is_named(change, message):
    with pytest.raises(DataError, match=message):
        graph(**change).validate()


def test_seeds_are_the_vertices_of_a_split():
    assert graph().seeds("train").tolist() == [1, 2]
    assert graph().default_seeds().tolist() == [1, 2]
    assert len(graph(masks={}).default_seeds()) == N
    with pytest.raises(UsageError, match="has no 'dev' split; it has train, val, test, all"):
        graph().seeds("dev")


def test_another_column_can_be_the_label():
    other = graph(extra={"area": np.where(np.arange(N) == 2, -1, np.arange(N) % 3)}).with_label("area").validate()
    assert other.num_classes == 3
    assert other.seeds("train").tolist() == [1]
    with pytest.raises(UsageError, match="no label 'venue'; use year"):
        graph().with_label("venue")
