"""Every primitive of every back end equals the reference, bit by bit; and what the contract says of each."""

import numpy as np
import pytest
from engines import engine
from oracles import assert_identical
from zoo import random_matrix

from bulksample import CSR, BackendUnavailable, Selection, Stream, UsageError, backends
from bulksample.backends.base import check_fanout
from bulksample.rng import Law

FANOUTS = (-1, 0, 1, 2, 5, 15, 40, 255, 256, 300)


def frontier(n, seed, k=7, most=60):
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(n)[: rng.integers(0, min(n, most) + 1)] for _ in range(k)]
    return Selection.of(lists, n, np.arange(k) * 1000 + 3)


@pytest.mark.parametrize("law", Law)
def test_draws_equal_the_reference(fast, reference, matrix, law):
    q = frontier(matrix.shape[0], 5)
    for s in FANOUTS:
        draw = Stream(2**63 + 17).draw(law, layer=3, epoch=77)
        assert_identical(fast.sample_rows(matrix, q, s, draw), reference.sample_rows(matrix, q, s, draw), f"fanout {s}")


@pytest.mark.parametrize("law", [Law.UNIFORM, Law.REPLACEMENT])
def test_picks_are_located_where_they_stand(backend, matrix, law):
    q = frontier(matrix.shape[0], 5)
    for s in (-1, 0, 3, 40):
        picks = backend.sample_rows(matrix, q, s, Stream(8).draw(law))
        entries = backend.locate(matrix, q.vertices, picks.pointers, picks.columns)
        assert entries.dtype == np.int64
        np.testing.assert_array_equal(matrix.indices[entries], picks.columns)
        np.testing.assert_array_equal(matrix.row_of_entry()[entries], np.repeat(q.vertices, np.diff(picks.pointers)))


@pytest.mark.long
@pytest.mark.heavy
@pytest.mark.parametrize("law", Law)
def test_draws_of_a_hub_equal_the_reference(fast, reference, law):
    """A vertex with 40,000 neighbours and one with none."""
    hub = CSR(np.array([0, 40_000, 40_000]), np.arange(40_000, dtype=np.int32), None, (2, 50_000))
    q, draw = Selection(np.arange(2), np.arange(3), np.zeros(2), 50_000), Stream(9).draw(law)
    most = (39_999,) if law in (Law.RACE, Law.LABOR) else ()  # the reference makes the draws of the others one by one
    for s in (1, 10, 256, 5000, *most):
        assert_identical(fast.sample_rows(hub, q, s, draw), reference.sample_rows(hub, q, s, draw), f"s = {s}")


def test_weighted_draws_of_a_hub_equal_the_reference(fast, reference):
    """Weights from 0 to 2**45: the bound that spares logarithms must rule out no key that is drawn."""
    d = 20_000
    weights = 2 ** np.random.default_rng(7).integers(0, 46, d)
    weights[::9] = 0
    hub = CSR(np.array([0, d]), np.arange(d, dtype=np.int32), weights, (1, d))
    q = Selection(np.arange(4), np.arange(5), np.zeros(4), d)
    for law in (Law.RACE, Law.LABOR):
        for s in (1, 5, 64, 300, d - 1):
            draw = Stream(9).draw(law)
            assert_identical(fast.sample_rows(hub, q, s, draw), reference.sample_rows(hub, q, s, draw), f"{law.name} {s}")


def test_smallest_keys_equal_the_reference(fast, reference, matrix):
    q = frontier(matrix.shape[0], 6)
    p = reference.spgemm(q.per_minibatch(), matrix)
    for weights in (p.values.astype(float), np.square(p.values.astype(float)), np.where(p.indices % 3 == 0, 0.0, 1.5)):
        for s in (-1, 0, 1, 3, 64, 1000):
            arguments = (p.indptr, p.indices, weights, s, q.minibatches, Stream(4).layer_draw(layer=1, epoch=2))
            assert_identical(fast.smallest_keys(*arguments), reference.smallest_keys(*arguments), f"s = {s}")


def test_one_row_shared_by_all_minibatches(backend):
    n, k = 500, 6
    weights = np.random.default_rng(0).exponential(size=n)
    columns = np.arange(n, dtype=np.int32)
    draw = Stream(1).layer_draw()
    shared = backend.smallest_keys(np.array([0, n]), columns, weights, 20, np.arange(k), draw)
    repeated = backend.smallest_keys(np.arange(k + 1) * n, np.tile(columns, k), np.tile(weights, k), 20, np.arange(k), draw)
    assert_identical(shared, repeated)


def test_restriction_and_relabelling_equal_the_reference(fast, reference, matrix):
    n = matrix.shape[0]
    pattern = matrix.with_values(None)
    for seed in range(5):
        rows, columns = frontier(n, seed), frontier(n, seed + 100, most=5 if seed % 2 else n)
        assert_identical(fast.restrict(pattern, rows, columns), reference.restrict(pattern, rows, columns), "restrict")
        got, expected = (b.relabel(rows, columns.pointers, columns.vertices) for b in (fast, reference))
        assert_identical((got[0].pointers, got[0].vertices, got[1]), (expected[0].pointers, expected[0].vertices, expected[1]), "relabel")


def test_restriction_is_the_product_with_both_selections(backend):
    matrix = random_matrix(120, 2500, 8)
    rows, columns = frontier(120, 1), frontier(120, 2)
    kept = backend.restrict(matrix, rows, columns)
    dense = matrix.to_scipy().toarray()
    for j in range(len(rows)):
        expected = dense[np.ix_(rows.part(j), columns.part(j))]
        got = np.zeros_like(expected)
        for i, r in enumerate(range(rows.pointers[j], rows.pointers[j + 1])):
            entries = slice(kept.pointers[r], kept.pointers[r + 1])
            got[i, kept.columns[entries]] = 1
            assert np.array_equal(matrix.indices[kept.entries[entries]], columns.part(j)[kept.columns[entries]])
            assert (np.diff(kept.entries[entries]) > 0).all()
        assert np.array_equal(got, expected)


def test_relabelling_follows_first_occurrence(backend):
    known = Selection.of([[7, 3], []], 100)
    held, local = backend.relabel(known, np.array([0, 5, 7]), np.array([9, 3, 8, 9, 0, 0, 0], np.int32))
    assert held.part(0).tolist() == [7, 3, 9, 8, 0]
    assert held.part(1).tolist() == [0]
    assert local.tolist() == [2, 1, 3, 2, 4, 0, 0]


def test_rows_are_extracted_in_order_with_repetitions(backend, matrix):
    rows = np.random.default_rng(3).integers(0, matrix.shape[0], 50).astype(np.int32)
    got = backend.extract_rows(matrix, rows).validate()
    q = CSR(np.arange(51), rows, None, (50, matrix.shape[0]))  # one 1 in each row
    product = backend.spgemm(q, matrix)
    nonzero = got.entries() != 0
    assert_identical((got.indices[nonzero], got.entries()[nonzero]), (product.indices, product.values), "Q A")


def test_a_large_relabelling_grows_its_table(fast, reference):
    rng = np.random.default_rng(4)
    columns = rng.integers(0, 2**31 - 1, 300_000).astype(np.int32)
    known = Selection.of([rng.permutation(1000)], 2**31 - 1)
    got, expected = (b.relabel(known, np.array([0, len(columns)]), columns) for b in (fast, reference))
    assert_identical((got[0].vertices, got[1]), (expected[0].vertices, expected[1]))


def sparse_rows(weighted, dtype=np.float32):
    """300 rows of 0 to 40 entries over 200 columns, in any order, some twice; and the pointers of rows 20 to 250."""
    rng = np.random.default_rng(6)
    degrees = rng.integers(0, 41, 300) * (rng.random(300) > 0.2)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    weights = rng.standard_normal(indptr[-1]).astype(dtype) if weighted else None
    return indptr, rng.integers(0, 200, indptr[-1]).astype(np.int32), weights


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [0, 1, 33, 130])
def test_sparse_times_dense_equals_the_reference(fast, reference, weighted, width):
    """To the bit without weights; with them a device may round a product and its sum once."""
    x = np.random.default_rng(7).standard_normal((200, width)).astype(np.float32)
    indptr, indices, weights = sparse_rows(weighted)
    for rows in (slice(None), slice(20, 251), slice(5, 6)):
        got, expected = (one.spmm(indptr[rows], indices, weights, x) for one in (fast, reference))
        assert got.dtype == np.float32
        assert got.shape == expected.shape
        if weighted:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        else:
            assert_identical((got.view(np.uint32),), (expected.view(np.uint32),))


def stored_as(x, stored):
    """Numbers as features are stored: float32, float16, or the bits of bfloat16."""
    return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if stored is np.uint16 else x.astype(stored)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("stored", [np.float32, np.float16, np.uint16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [0, 1, 33, 100, 130])
def test_stored_rows_are_summed_as_rows_that_were_gathered(fast, stored, scaled, weighted, width):
    """To the bit, in one product or in two steps: rows of any type with their factors, sums or means, rows without entries."""
    rng = np.random.default_rng(8)
    x, scale = (
        stored_as(rng.standard_normal((200, width)).astype(np.float32), stored),
        rng.random(200).astype(np.float32) if scaled else None,
    )
    indptr, indices, weights = sparse_rows(weighted)
    gathered = np.empty(x.shape, np.float32)
    fast.gather(x, np.arange(200, dtype=np.int32), scale, gathered)
    for rows in (slice(None), slice(20, 251), slice(5, 6)):
        for mean in (False, True):
            got, expected = fast.spmm(indptr[rows], indices, weights, x, scale, mean), fast.spmm(indptr[rows], indices, weights, gathered)
            if mean:
                expected *= (1.0 / np.maximum(np.diff(indptr[rows]), 1)).astype(np.float32)[:, None]
            assert_identical((got.view(np.uint32),), (expected.view(np.uint32),))
            into = np.full(got.shape, np.nan, np.float32)
            assert fast.spmm(indptr[rows], indices, weights, x, scale, mean, into) is into
            assert_identical((into.view(np.uint32),), (got.view(np.uint32),))


def test_rows_of_many_entries_are_summed_in_their_order(fast, reference):
    """A row of more entries than are taken at once, between short ones: scaled rows to the bit of the reference."""
    rng = np.random.default_rng(9)
    indptr = np.cumsum([0, 3, 500, 0, 1, 64, 32])
    indices, x = rng.integers(0, 200, indptr[-1]).astype(np.int32), rng.standard_normal((200, 5)).astype(np.float32)
    scale = rng.random(200).astype(np.float32)
    got, expected = (one.spmm(indptr, indices, None, x, scale, True) for one in (fast, reference))
    assert_identical((got.view(np.uint32),), (expected.view(np.uint32),))


def test_sparse_times_dense_is_the_dense_product(backend):
    indptr, indices, weights = sparse_rows(True)
    x = np.random.default_rng(7).standard_normal((200, 9)).astype(np.float32)
    dense = np.zeros((300, 200))
    np.add.at(dense, (np.repeat(np.arange(300), np.diff(indptr)), indices), weights)
    np.testing.assert_allclose(backend.spmm(indptr, indices, weights, x), dense @ x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_transposed_matrix_equals_the_reference(fast, reference, weighted):
    got, expected = (one.transpose(*sparse_rows(weighted), 200) for one in (fast, reference))
    assert_identical(got[: 2 + weighted], expected[: 2 + weighted])
    assert (got[2] is None) == (expected[2] is None) == (not weighted)


@pytest.mark.parametrize("stored", [np.float32, np.float16, np.uint16])
def test_gathered_rows_equal_the_reference(fast, reference, stored):
    x = np.random.default_rng(1).standard_normal((90, 35)).astype(np.float32)
    x = (x.view(np.uint32) >> 16).astype(np.uint16) if stored is np.uint16 else x.astype(stored)
    rows = np.random.default_rng(2).integers(0, 90, 500).astype(np.int32)
    for scale in (None, np.random.default_rng(3).random(90, dtype=np.float32)):
        got, expected = np.empty((500, 35), np.float32), np.empty((500, 35), np.float32)
        fast.gather(x, rows, scale, got)
        reference.gather(x, rows, scale, expected)
        assert_identical((got.view(np.uint32),), (expected.view(np.uint32),))


def test_a_wrong_dtype_is_refused_not_converted(matrix):
    native = engine("native 1")
    with pytest.raises(TypeError, match="incompatible function arguments"):
        native._kernels.extract_rows(matrix.indptr.astype(np.int32), matrix.indices, None, np.zeros(1, np.int32), 1)


@pytest.mark.parametrize("fanout", [-2, 2**20, 10**9])
def test_fanouts_out_of_range_are_refused(fanout):
    with pytest.raises(UsageError, match="fanout must be"):
        check_fanout(fanout)


def test_unknown_backends_are_refused_with_what_is_there():
    with pytest.raises(BackendUnavailable, match="available here: reference"):
        backends.make("quantum")


def test_threads_must_be_positive():
    with pytest.raises(UsageError, match="threads"):
        backends.make("native", 0)
