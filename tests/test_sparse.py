"""The CSR format: what it promises, what it refuses, and fixed-point weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulksample import CSR, DataError
from bulksample.sparse import MAX_VERTICES, fixed_point, row_pointers

GOOD = dict(indptr=np.array([0, 2, 2, 3]), indices=np.array([0, 2, 1], np.int32), values=None, shape=(3, 3))


def broken(**change):
    return CSR(**{**GOOD, **change})


def test_a_good_matrix_is_frozen_and_valid():
    matrix = broken().validate()
    with pytest.raises(ValueError, match="read-only"):
        matrix.indices[0] = 1
    with pytest.raises(AttributeError, match="cannot assign to field 'shape'"):
        matrix.shape = (1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(indptr=np.array([0, 2, 3])), "4 entries for 3 rows"),
        (dict(indptr=np.array([1, 2, 2, 3])), "runs from 1 to 3"),
        (dict(indptr=np.array([0, 2, 2, 4])), "runs from 0 to 4"),
        (dict(indptr=np.array([0, 2, 2, 3], np.int32)), "indptr must be one-dimensional int64"),
        (dict(indices=np.array([0, 2, 1])), "indices must be one-dimensional int32"),
        (dict(indices=np.array([[0, 2, 1]], np.int32)), "one-dimensional"),
        (dict(values=np.array([1, 2])), "of shape"),
        (dict(values=np.array([1, 2, 3], np.int32)), "values must be int64"),
        (dict(shape=(3, 2**31)), "does not fit int32"),
        (dict(shape=(-1, 3)), "does not fit int32"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(change, message):
    with pytest.raises(DataError, match=message):
        broken(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(indptr=np.array([0, 3, 2, 3])), "row 1 runs from 3 to 2"),
        (dict(indices=np.array([0, 3, 1], np.int32)), "row 0 names column 3; columns run from 0 to 2"),
        (dict(indices=np.array([0, 2, -1], np.int32)), "row 2 names column -1"),
        (dict(indices=np.array([2, 0, 1], np.int32)), "row 0 does not ascend: column 2 is followed by 0"),
        (dict(indices=np.array([2, 2, 1], np.int32)), "row 0 repeats: column 2"),
        (dict(values=np.array([1.0, np.nan, 1.0])), "row 0 holds nan"),
        (dict(values=np.array([1.0, 1.0, -np.inf], np.float32)), "row 2 holds -inf"),
    ],
)
def test_validate_names_the_row(change, message):
    with pytest.raises(DataError, match=message):
        broken(**change).validate()


@pytest.mark.parametrize("piece", [1, 2, 3, 5])
def test_validation_in_pieces_finds_what_it_finds_at_once(piece, monkeypatch):
    rng = np.random.default_rng(piece)
    for _ in range(40):
        indptr = np.concatenate([[0], np.sort(rng.integers(0, 9, 4)), [8]])
        matrix = CSR(indptr, rng.integers(0, 40, 8).astype(np.int32), None, (5, 39))
        whole = _fault(matrix)
        with monkeypatch.context() as patch:
            patch.setattr("bulksample.sparse._PIECE", piece)
            assert _fault(matrix) == whole
        rows = np.split(matrix.indices, indptr[1:-1])
        assert (whole is None) == (all((np.diff(row) > 0).all() for row in rows) and matrix.indices.max() < 39)


def _fault(matrix):
    try:
        matrix.validate()
    except DataError as error:
        return str(error)


def test_rows_may_start_lower_after_empty_rows():
    CSR(np.array([0, 2, 2, 2, 4]), np.array([1, 3, 0, 2], np.int32), None, (4, 4)).validate()


@pytest.mark.parametrize("entries", [0, 1, 2, 9])
def test_entries_are_found_where_a_dense_matrix_has_them(entries):
    rng = np.random.default_rng(entries)
    dense = np.full((4, 5), -1)
    dense.flat[np.sort(rng.choice(20, entries, replace=False))] = np.arange(entries)
    rows, columns = np.nonzero(dense >= 0)
    matrix = CSR.from_edges(rows, columns, dense.shape)
    asked = np.indices(dense.shape).reshape(2, -1)
    assert np.array_equal(matrix.find(*asked), dense.ravel())
    ends = [[np.count_nonzero(rows < i) + np.count_nonzero((rows == i) & (columns <= j)) for j in range(5)] for i in range(4)]
    assert np.array_equal(matrix.find_end(*asked), np.ravel(ends))
    assert matrix.value_bound == min(entries, 1)
    assert matrix.with_values(np.arange(entries) - 3).value_bound == max(map(abs, range(-3, entries - 3)), default=0)


entries = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5), st.integers(-3, 3)), max_size=40)


@given(entries)
def test_from_edges_sums_repetitions_like_a_dense_matrix(triples):
    rows, columns, values = (np.array(part, np.int64) for part in zip(*triples, strict=True)) if triples else (np.empty(0, np.int64),) * 3
    dense = np.zeros((8, 6), np.int64)
    np.add.at(dense, (rows, columns), values)
    matrix = CSR.from_edges(rows, columns, (8, 6), values).validate()
    assert np.array_equal(matrix.to_scipy().toarray(), dense)
    assert np.array_equal(matrix.transpose().validate().to_scipy().toarray(), dense.T)
    pattern = CSR.from_edges(rows, columns, (8, 6)).validate()
    assert set(zip(pattern.row_of_entry(), pattern.indices, strict=True)) == set(zip(rows, columns, strict=True))


def test_from_edges_names_the_entry_that_is_out_of_range():
    with pytest.raises(DataError, match="entry 1 names column 9"):
        CSR.from_edges(np.array([0, 1]), np.array([0, 9]), (3, 3))
    with pytest.raises(DataError, match="entry 0 names row -1"):
        CSR.from_edges(np.array([-1, 1]), np.array([0, 2]), (3, 3))


@pytest.mark.parametrize("most_summed", [1, 1000, 2**22])
def test_fixed_point_is_finer_than_2_to_the_minus_40_and_sums_fit(most_summed):
    weights = np.random.default_rng(0).exponential(size=5000)
    integers, unit = fixed_point(weights, most_summed)
    assert np.abs(integers * unit - weights).max() <= weights.max() * 2.0**-40 / 2
    assert int(integers.max()) * most_summed <= 2**62


def test_fixed_point_of_the_largest_graph_still_fits():
    integers, _ = fixed_point(np.ones(3), MAX_VERTICES)
    assert int(integers.max()) * MAX_VERTICES <= 2**62


def test_fixed_point_keeps_zero_zero_and_small_positive():
    integers, _ = fixed_point(np.array([0.0, 1e-300, 1.0]), 10)
    assert integers[0] == 0
    assert integers[1] == 1


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_fixed_point_names_the_bad_weight(bad):
    with pytest.raises(DataError, match="weight 2 is"):
        fixed_point(np.array([1.0, 2.0, bad]), 3)


def test_the_kept_entries_are_those_of_scipy():
    matrix = broken(values=np.array([5, 6, 7]))
    kept = matrix.keep(np.array([False, True, True]))
    assert np.array_equal(kept.validate().to_scipy().toarray(), [[0, 0, 6], [0, 0, 0], [0, 7, 0]])
    assert np.array_equal(broken().keep(np.zeros(3, bool)).indptr, [0, 0, 0, 0])


def test_row_pointers_start_at_zero_and_are_wide():
    pointers = row_pointers(np.array([2, 0, 2**31 - 1], np.int32))
    assert (pointers.dtype, pointers.tolist()) == (np.int64, [0, 2, 2, 2**31 + 1])
    assert row_pointers([]).tolist() == [0]
