"""The `stream` partitioner: C++ equals the Python definition; caps hold; small graphs are divided as by hand."""

import numpy as np
import pytest
from zoo import ZOO

from bulksample import CSR
from bulksample.backends.native import unavailable_because
from bulksample.distributed.matrix import stream as module
from bulksample.distributed.matrix.stream import caps_of_passes, reference, stream

needs_native = pytest.mark.skipif(unavailable_because() is not None, reason="the extension is not built")


def blocks(sizes, inside, across, seed=0):
    """A graph with dense communities of these sizes, ids shuffled."""
    rng = np.random.default_rng(seed)
    member = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    drawn = np.triu(rng.random((len(member),) * 2) < np.where(member[:, None] == member, inside, across), 1)
    rows, columns = np.nonzero(drawn | drawn.T)
    return CSR.from_edges(rows, columns, drawn.shape), member


def loads(adjacency, assignment, parts, train):
    return np.stack([np.bincount(assignment, weight, parts) for weight in (None, np.diff(adjacency.indptr), train)])


@needs_native
@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_native_equals_the_definition(name, parts):
    adjacency = ZOO[name]
    for train in (None, np.random.default_rng(parts).random(adjacency.shape[0]) < 0.3):
        caps = caps_of_passes(adjacency, parts, train)
        assert stream(adjacency, parts, train).tolist() == reference(adjacency, parts, train, caps).tolist()


@pytest.mark.parametrize("change", [
    {"parts": 0}, {"parts": -1}, {"caps": np.ones(3, np.int64)}, {"caps": np.ones((1, 2), np.int64)}, {"train": np.ones(5, bool)},
    {"indptr": np.empty(0, np.int64)},
])  # fmt: skip
def test_the_extension_refuses_arrays_that_do_not_fit(change):
    stream_parts = pytest.importorskip("bulksample._native").stream_parts
    given = {"indptr": np.arange(5), "indices": np.zeros(4, np.int32), "train": None, "caps": np.full((1, 3), 4), "parts": 2}
    assert stream_parts(**given).tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="the arrays do not fit each other"):
        stream_parts(**given | change)


def test_without_the_extension_the_definition_runs(monkeypatch):
    adjacency, _ = blocks([10, 10], 0.8, 0.1)
    made = stream(adjacency, 2)
    monkeypatch.setattr(module, "unavailable_because", lambda: "not built")
    assert stream(adjacency, 2).tolist() == made.tolist()


def test_two_triangles_are_two_parts():
    edges = [(a + t, b + t) for t in (0, 3) for a in range(3) for b in range(3) if a != b]
    assert stream(CSR.from_edges(*np.transpose(edges), (6, 6)), 2).tolist() == [0, 0, 0, 1, 1, 1]


def test_one_pass_by_hand():
    """Star of 0 with leaves 1 .. 4 that see 0 alone. Caps 4 vertices: 0 and 1 join part 0 (1 x 3/4), ... until it is full."""
    star = CSR.from_edges([1, 2, 3, 4, 5], [0, 0, 0, 0, 5], (6, 6))
    caps = np.array([[3, 100, 0]])
    assert reference(star, 2, None, caps).tolist() == [0, 0, 0, 1, 1, 1]  # 3: part 0 is full; 5: its loop is no neighbour, 1 has less room


def test_the_last_pass_leaves_ten_five_and_ten_percent_of_room():
    """Of vertices, entries and training vertices, as `stream` promises: of 100, 1000 and 60 in 4 parts, 27.5, 262.5 and 16.5."""
    adjacency = CSR.from_edges(np.repeat(np.arange(100), 10), (np.arange(1000) // 10 + np.arange(1000) % 10) % 100, (100, 100))
    assert caps_of_passes(adjacency, 4, np.arange(100) < 60)[-1].tolist() == [28, 263, 17]


@pytest.mark.parametrize("seed", range(3))
def test_caps_hold_on_three_loads_that_pull_apart(seed):
    """Degrees and training vertices are uneven between communities, so parts even in one load are not so in the others."""
    adjacency, member = blocks([500, 240, 120, 340], 0.2, 0.01, seed)
    train = np.random.default_rng(seed).random(1200) < np.where(member < 2, 0.7, 0.1)
    assignment = stream(adjacency, 4, train)
    held = loads(adjacency, assignment, 4, train)
    assert (held.max(1) / held.mean(1) <= np.array([1.10, 1.05, 1.10]) + 0.01).all()
    row = adjacency.row_of_entry()
    assert (assignment[row] != assignment[adjacency.indices]).mean() < 0.7  # 0.75 of random parts; the large community must be split


def test_communities_of_equal_size_are_found():
    adjacency, member = blocks([100] * 4, 0.3, 0.005)
    assignment = stream(adjacency, 4)
    row = adjacency.row_of_entry()
    least = (member[row] != member[adjacency.indices]).mean()
    assert (assignment[row] != assignment[adjacency.indices]).mean() < least + 0.05
