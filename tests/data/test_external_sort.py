"""Edges that are sorted on the disk: the matrix, the counts and the errors of a list of edges that fits into memory."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import coo_array

from bulksample.data import edges as edges_module
from bulksample.data.edges import EdgeTally, adjacency
from bulksample.errors import DataError, UsageError

N = 300_000  # more than the bins of rows, so that a bin holds several rows


def edges(n, e, seed=0):
    """Random edges of a skewed graph, with repetitions and self loops; row n // 2 has a quarter of them."""
    draw = np.random.default_rng(seed)
    u, v = (n * draw.random((2, e)) ** 3).astype(np.int64)
    v[: e // 4], u[: e // 20] = n // 2, n // 2
    return u, v


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("self_loops", ["keep", "drop"])
@pytest.mark.parametrize("n", [1, 50, N])
def test_the_matrix_is_that_of_scipy(tmp_path, monkeypatch, n, self_loops, undirected):
    monkeypatch.setattr(edges_module, "BUCKET", 500)
    u, v = edges(n, 20_000)
    tally = EdgeTally()
    made, unit = adjacency(u, v, n, undirected=undirected, self_loops=self_loops, tally=tally, scratch=tmp_path)
    rows, columns = (np.concatenate([v, u]), np.concatenate([u, v])) if undirected else (v, u)
    kept = (rows != columns) | (self_loops == "keep")
    wanted = coo_array((np.ones(kept.sum(), np.int64), (rows[kept], columns[kept])), shape=(n, n)).tocsr()
    assert np.array_equal(made.indptr, wanted.indptr)
    assert np.array_equal(made.indices, wanted.indices)
    assert (unit, made.values) == (1.0, None)
    made.validate()
    named = np.unique(np.sort([u, v], axis=0) if undirected else [u, v], axis=1)
    loops = int((u == v).sum())
    distinct = int((named[0] != named[1]).sum()) if self_loops == "drop" else named.shape[1]
    assert tally == EdgeTally(len(u), loops, len(u) - loops * (self_loops == "drop") - distinct)
    assert list(tmp_path.iterdir()) == []  # the files have no names


def test_a_bucket_holds_whole_rows_and_no_more_keys_than_it_must(tmp_path, monkeypatch):
    """At most `BUCKET` keys, and those of the last bin of rows, 8 of them here; the row of 5,000 keys is in one run."""
    monkeypatch.setattr(edges_module, "BUCKET", 500)
    u, v = edges(N, 20_000)
    runs = list(edges_module.sorted_runs(lambda: iter([(v[::2], u[::2]), (v[1::2], u[1::2])]), N, tmp_path))
    assert np.array_equal(np.concatenate(runs), np.unique(v << 32 | u))
    ends = [(run[0] >> 32, run[-1] >> 32) for run in runs]
    assert all(last < first for (_, last), (first, _) in pairwise(ends))
    most = np.bincount(v // 8).max()
    assert max(len(run) for run in runs) <= 500 + most
    assert len(runs) > 10


def test_few_edges_or_those_with_weights_are_sorted_in_memory(tmp_path, monkeypatch):
    calls, matrix_of = [], edges_module.matrix_of
    monkeypatch.setattr(edges_module, "matrix_of", lambda *given: calls.append(given) or matrix_of(*given))
    u, v = edges(50, 100)
    few, _ = adjacency(u, v, 50, scratch=tmp_path)
    monkeypatch.setattr(edges_module, "BUCKET", 10)
    weighted, _ = adjacency(u, v, 50, np.ones(100), scratch=tmp_path)
    assert calls == []
    many, _ = adjacency(u, v, 50, scratch=tmp_path)
    assert len(calls) == 1
    for made in (few, weighted):
        assert np.array_equal(made.indptr, many.indptr)
        assert np.array_equal(made.indices, many.indices)


def test_only_self_loops_that_are_dropped_leave_an_empty_matrix(tmp_path, monkeypatch):
    monkeypatch.setattr(edges_module, "BUCKET", 10)
    made, _ = adjacency(np.arange(50), np.arange(50), 50, self_loops="drop", scratch=tmp_path)
    assert (made.nnz, made.shape) == (0, (50, 50))


def test_a_repetition_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(edges_module, "BUCKET", 10)
    u, v = np.arange(50), np.roll(np.arange(50), 1)
    with pytest.raises(DataError, match="edge 50, from 7 to 6, was listed before"):
        adjacency(np.append(u, 7), np.append(v, 6), 50, duplicates="error", scratch=tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(edges_module, "BUCKET", 10)
    with pytest.raises(UsageError, match=r"cannot sort edges in .*nowhere: No such file or directory; use a folder on a larger disk"):
        adjacency(np.arange(50), np.arange(50), 50, scratch=tmp_path / "nowhere")
