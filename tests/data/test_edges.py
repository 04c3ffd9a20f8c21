"""Arrays of edges are checked before they become a matrix: lengths, dtypes, ids and weights."""

import numpy as np
import pytest

from bulksample import DataError
from bulksample.data.edges import adjacency

EDGES = {"sources": np.array([0, 1, 2]), "targets": np.array([1, 2, 0]), "n": 3}

REFUSED = {
    "one source for all": ({"sources": np.array([0])}, "got 1 sources and 3 targets"),
    "one target for all": ({"targets": np.array([0])}, "got 3 sources and 1 targets"),
    "one weight for all": ({"weights": np.ones(1)}, r"weights: got shape \(1,\); use one number for each of the 3 edges"),
    "weights in a column": ({"weights": np.ones((3, 1))}, r"weights: got shape \(3, 1\)"),
    "float ids": ({"sources": np.array([0.0, 1.5, 2.0])}, r"sources: got float64 of shape \(3,\); use int64"),
    "booleans": ({"targets": np.array([True, False, True])}, r"targets: got bool of shape \(3,\)"),
    "uint64": ({"targets": np.array([1, 2, 0], np.uint64)}, r"targets: got uint64 of shape \(3,\)"),
    "pairs": ({"sources": np.zeros((3, 2), int)}, r"sources: got int64 of shape \(3, 2\)"),
    "a negative id": ({"sources": np.array([0, -1, 2])}, "edge 1 names source -1; vertices run from 0 to 2"),
    "an id of n": ({"targets": np.array([1, 2, 3])}, "edge 2 names target 3; vertices run from 0 to 2"),
    "ids of 33 bits": ({"sources": np.array([0, 1, 2**32])}, f"edge 2 names source {2**32}"),
    "more vertices than int32": ({"n": 2**31}, f"{2**31} vertices do not fit int32"),
    "a weight that is no number": ({"weights": np.array([1.0, np.nan, 1.0])}, "weight 1 is nan; weights must be finite"),
    "an infinite weight": ({"weights": np.array([1.0, 1.0, np.inf])}, "weight 2 is inf"),
    "a negative weight": ({"weights": np.array([-1.0, 1.0, 1.0])}, "weight 0 is -1.0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_edges_are_refused(case):
    change, message = REFUSED[case]
    with pytest.raises(DataError, match=message):
        adjacency(**{**EDGES, **change})


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint32, np.int64])
def test_integers_of_any_width_are_read(dtype):
    matrix, unit = adjacency(EDGES["sources"].astype(dtype), EDGES["targets"].astype(dtype), 3)
    assert (matrix.to_scipy().toarray() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]).all()
    assert unit == 1.0
