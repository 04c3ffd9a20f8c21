"""Every primitive of a back end against scipy and numpy alone, on graphs on which samplers go wrong.

Nothing here asks the reference back end: random words come from Philox in plain integers, keys from `math.log2`, matrices from scipy.
`covers` names the primitives that a test calls; a primitive without such a test fails the last one.
"""

import math
from functools import cache

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from zoo import ZOO

from bulksample import CSR, LocalAdjacency, Selection, Stream, UsageError, samplers
from bulksample.backends.base import Backend
from bulksample.backends.dropout import Mask
from bulksample.backends.quantiser import Noise
from bulksample.backends.relational import RelationLaw, RelationMatrix, Trees, TreeVertices
from bulksample.rng import Draw, Law

SEED, EPOCH, HOP = 2**63 + 9, 3, 1
UNIFORM, RACE, LABOR, LAYER = 1, 2, 3, 4  # purposes, in the upper four bits of the last word of a counter
PREDICTIONS = {"expand_tables", "layer_tables"}  # bytes of memory, checked in backends/test_tables.py


def covers(*primitives):
    def mark(test):
        test.covers = frozenset(primitives)
        return test

    return mark


class Watched:
    """A back end that remembers the primitives that were asked for."""

    def __init__(self, backend):
        self._backend, self.asked = backend, set()

    def __getattr__(self, name):
        self.asked.add(name)
        return getattr(self._backend, name)


@pytest.fixture
def backend(backend, request):
    watched = Watched(backend)
    yield watched
    assert request.function.covers <= watched.asked, "a test does not call a primitive that it covers"


# ---- oracles


@cache
def philox(index, vertex, minibatch, tag, key=SEED):
    """The words of one counter, remembered."""
    return oracles.philox((index, vertex, minibatch, tag), key)


def tag(purpose, layer=HOP):
    return purpose << 28 | layer << 20 | EPOCH


def exponential(words):
    """-log2 of the first two words, as a number in (0, 1)."""
    return 64 - math.log2(max(1, words[0] | words[1] << 32))


def smallest(columns, weights, s, key_of):
    """The s columns of smallest key / weight, ascending, and their inclusion probabilities 1 - 2**(-w tau)."""
    raced = sorted((key_of(int(v)) / w, int(v), w) for v, w in zip(columns, weights, strict=True) if w > 0)
    s = len(raced) if s == -1 else s
    tau = raced[s][0] if s < len(raced) else math.inf
    return {v: -math.expm1(-w * tau * math.log(2)) if tau < math.inf else 1.0 for _, v, w in sorted(raced[:s], key=lambda one: one[1])}


def below(bound, t, name, minibatch, layer=HOP):
    """Draw number t of a row, uniform in 0 .. bound - 1, by multiply-shift with rejection (Lemire 2019)."""
    product, retry = philox(t // 4, name, minibatch, tag(UNIFORM, layer))[t % 4] * bound, 0
    while product & 0xFFFFFFFF < (2**32 - bound) % bound:
        product, retry = philox(2**31 + retry * 2**20 + t, name, minibatch, tag(UNIFORM, layer))[0] * bound, retry + 1
    return product >> 32


def floyd(degree, s, name, minibatch, layer=HOP):
    """s distinct positions of 0 .. degree - 1, each subset equally likely (Bentley and Floyd 1987)."""
    chosen = set()
    for t in range(s):
        position = below(degree - s + t + 1, t, name, minibatch, layer)
        chosen.add(degree - s + t if position in chosen else position)
    return sorted(chosen)


def scipy_of(matrix, data=None):
    """The matrix for scipy; with `data`, other numbers at its entries."""
    data = np.ones(matrix.nnz, np.int64) if data is None and matrix.values is None else matrix.values if data is None else data
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def positions(matrix):
    """A matrix that holds at each entry its position, counted from 1."""
    return scipy_of(matrix, np.arange(1, matrix.nnz + 1))


def assert_equal(got, expected):
    """A CSR of the package and a matrix of scipy: the same entries in the same places."""
    expected.sort_indices()
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got.indptr, expected.indptr)
    np.testing.assert_array_equal(got.indices, expected.indices)
    np.testing.assert_array_equal(np.ones(got.nnz) if got.values is None else got.values, expected.data)


def some(n, seed, k=5, most=12):
    """Vertices of k mini-batches: distinct, none in one of them."""
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(n)[: rng.integers(1, most)] for _ in range(k)]
    lists[1] = lists[1][:0]
    return Selection.of(lists, n, np.arange(k) * 1000 + 3)


def rows_of(picks):
    return [picks.columns[first:last].tolist() for first, last in zip(picks.pointers, picks.pointers[1:], strict=False)]


def named_rows(q):
    """(vertex, id of the mini-batch) of each row of a selection."""
    return list(zip(q.vertices.tolist(), np.repeat(q.minibatches, np.diff(q.pointers)).tolist(), strict=True))


# ---- matrices


@covers("spgemm", "check_product")
def test_a_product_is_that_of_scipy(matrix, backend):
    n, rng = matrix.shape[0], np.random.default_rng(1)
    plain = matrix.values is None  # weights use up to 62 bits
    q = sp.random_array((9, n), density=0.3, format="csr", rng=rng, data_sampler=lambda size: rng.integers(1, 6 if plain else 2, size))
    q.data, q.indices, q.indptr = q.data.astype(np.int64), q.indices.astype(np.int32), q.indptr.astype(np.int64)
    given, ours = scipy_of(matrix), CSR(q.indptr, q.indices, q.data, q.shape)
    products = [(ours, matrix, q @ given), (matrix.with_values(None), matrix.with_values(None), abs(given.sign()) @ abs(given.sign()))]
    for a, b, expected in products if plain else products[:1]:
        expected.eliminate_zeros()
        assert_equal(backend.spgemm(a, b), expected)
    backend.check_product(ours, matrix)
    with pytest.raises(UsageError, match="as many columns in A as rows in B"):
        backend.check_product(ours, CSR(np.zeros(n + 2, np.int64), np.empty(0, np.int32), None, (n + 1, n)))


@covers("spgemm", "check_product")
def test_the_largest_product_is_exact_and_a_larger_one_is_refused(backend):
    def row(*values):
        return CSR(np.array([0, len(values)]), np.arange(len(values), dtype=np.int32), np.array(values), (1, len(values)))

    def column(*values):
        return CSR(np.arange(len(values) + 1), np.zeros(len(values), np.int32), np.array(values), (len(values), 1))

    assert backend.spgemm(row(2**31 - 1, 2**31 - 1), column(2**31, 2**31)).values.tolist() == [2**63 - 2**32]
    with pytest.raises(OverflowError, match="could exceed int64"):
        backend.check_product(row(2**31, 2**31), column(2**31, 2**31))


@covers("extract_rows")
def test_extracted_rows_are_those_of_scipy(matrix, backend):
    rows = np.random.default_rng(2).integers(0, matrix.shape[0], 40).astype(np.int32)  # some twice
    assert_equal(backend.extract_rows(matrix, rows), scipy_of(matrix)[rows])


@covers("restrict")
def test_a_restriction_is_that_of_scipy(matrix, backend):
    n, placed = matrix.shape[0], positions(matrix)
    for rows, columns in ((some(n, 3), some(n, 4, most=n + 1)), (some(n, 5, most=n + 1), some(n, 6))):
        kept = backend.restrict(matrix.with_values(None), rows, columns)
        for j in range(len(rows)):
            expected = placed[rows.part(j)][:, columns.part(j)]
            own = kept.pointers[rows.pointers[j] : rows.pointers[j + 1] + 1]
            np.testing.assert_array_equal(own - own[0], expected.indptr)
            row = np.repeat(np.arange(len(own) - 1), np.diff(expected.indptr))
            order = np.lexsort((expected.data, row))  # ascending by global vertex: in the order of A
            np.testing.assert_array_equal(kept.entries[own[0] : own[-1]], expected.data[order] - 1)
            np.testing.assert_array_equal(kept.columns[own[0] : own[-1]], expected.indices[order])


@covers("locate")
def test_located_entries_are_those_of_scipy(matrix, backend):
    rng, rows = np.random.default_rng(7), np.random.default_rng(8).integers(0, matrix.shape[0], 30).astype(np.int32)
    found = [own[rng.random(len(own)) < 0.6] for own in (matrix.indices[matrix.indptr[r] : matrix.indptr[r + 1]] for r in rows)]
    pointers, columns = np.cumsum([0, *map(len, found)]), np.concatenate(found).astype(np.int32)
    entries = backend.locate(matrix, rows, pointers, columns)
    np.testing.assert_array_equal(entries, positions(matrix).toarray()[np.repeat(rows, np.diff(pointers)), columns] - 1)


@covers("relabel")
def test_new_numbers_are_those_of_unique(matrix, backend):
    n = matrix.shape[0]
    known, rng = some(n, 9), np.random.default_rng(10)
    found = [rng.integers(0, n, size).astype(np.int32) for size in (0, 30, 1, 200, 5)]
    extended, local = backend.relabel(known, np.cumsum([0, *map(len, found)]), np.concatenate(found))
    parts = np.split(local, np.cumsum([len(one) for one in found])[:-1])
    for j, own in enumerate(found):
        both = np.concatenate([known.part(j), own])
        distinct, first = np.unique(both, return_index=True)
        vertices = distinct[np.argsort(first)]  # by first occurrence
        np.testing.assert_array_equal(extended.part(j), vertices)
        np.testing.assert_array_equal(vertices[parts[j]], own)
    np.testing.assert_array_equal(extended.minibatches, known.minibatches)


@covers("transpose")
def test_a_transposed_matrix_is_that_of_scipy(matrix, backend):
    weights = np.random.default_rng(11).random(matrix.nnz, np.float32)
    for given in (weights, None):
        indptr, indices, data = backend.transpose(matrix.indptr, matrix.indices, given, matrix.shape[1])
        expected = scipy_of(matrix, weights).T.tocsr()
        expected.sort_indices()
        np.testing.assert_array_equal(indptr, expected.indptr)
        np.testing.assert_array_equal(indices, expected.indices)
        assert (data is None) == (given is None)
        if given is not None:
            np.testing.assert_array_equal(data, expected.data)


@covers("spmm")
def test_an_aggregation_is_that_of_scipy(matrix, backend):
    rng = np.random.default_rng(12)
    x, weights = rng.standard_normal((matrix.shape[1], 7)).astype(np.float32), rng.standard_normal(matrix.nnz).astype(np.float32)
    some_rows = slice(matrix.shape[0] // 3, matrix.shape[0] + 1)  # pointers that start above 0
    for given in (weights, None):
        whole = scipy_of(matrix, np.ones(matrix.nnz) if given is None else weights.astype(np.float64)) @ x.astype(np.float64)
        got = backend.spmm(matrix.indptr, matrix.indices, given, x)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, whole, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(backend.spmm(matrix.indptr[some_rows], matrix.indices, given, x), whole[some_rows], rtol=1e-5, atol=1e-4)
        halves, factors = x.astype(np.float16), rng.random(matrix.shape[1]).astype(np.float32)
        entries = np.ones(matrix.nnz) if given is None else weights.astype(np.float64)
        averaged = scipy_of(matrix, entries) @ (halves.astype(np.float64) * factors[:, None]) / np.maximum(matrix.degrees, 1)[:, None]
        got = backend.spmm(matrix.indptr, matrix.indices, given, halves, factors, mean=True)
        np.testing.assert_allclose(got, averaged, rtol=1e-5, atol=1e-4)


# ---- rows of features


@covers("gather")
@pytest.mark.parametrize("stored", [np.float32, np.float16, np.uint16])
def test_gathered_rows_are_a_product_with_a_selection(backend, stored):
    rng, n = np.random.default_rng(13), 50
    x = rng.standard_normal((n, 9)).astype(np.float32)
    x = (x.view(np.uint32) >> 16).astype(np.uint16) if stored is np.uint16 else x.astype(stored)
    numbers = (x.astype(np.uint32) << 16).view(np.float32) if stored is np.uint16 else x.astype(np.float32)  # bits of bfloat16
    rows, scale = rng.integers(0, n, 120).astype(np.int32), rng.random(n, np.float32)
    q = sp.csr_array((np.ones(120, np.float32), rows, np.arange(121)), shape=(120, n))
    for given, expected in ((None, q @ numbers), (scale, q @ (sp.diags_array(scale) @ numbers))):
        out = np.full((120, 9), np.nan, np.float32)
        backend.gather(x, rows, given, out)
        np.testing.assert_array_equal(out, expected)


@covers("epilogue", "epilogue_gradient", "drop_entries")
@pytest.mark.parametrize("relu", [True, False])
def test_dropout_is_a_product_by_zeros_and_one_over_the_chance(backend, relu):
    """Dense rows, their gradient, and the same rows as a sparse matrix; the mask from words drawn one by one."""
    rng, rows, f, kept = np.random.default_rng(4), 300, 21, 40000
    vertices, trees = (rng.integers(0, 2**31, rows).astype(np.int32) for _ in range(2))
    mask = Mask(SEED, 77, vertices, trees, kept)
    names = list(zip(vertices.tolist(), trees.tolist(), strict=True))
    words = np.array([[philox(j // 8, v, 77, t)[j % 8 // 2] >> 16 * (j % 2) & 0xFFFF for j in range(f)] for v, t in names])
    m = np.where(words < kept, 65536 / kept, 0)
    z, grad, bias = rng.standard_normal((rows, f)), rng.standard_normal((rows, f)), rng.standard_normal(f)
    z, grad, bias = (array.astype(np.float32) for array in (z, grad, bias))
    y, dz = np.empty_like(z), np.empty_like(z)
    backend.epilogue(z, bias, relu, mask, y)
    lifted = z.astype(np.float64) + bias
    np.testing.assert_allclose(y, m * (np.maximum(lifted, 0) if relu else lifted), rtol=1e-5, atol=1e-6)
    db = backend.epilogue_gradient(grad, y if relu else None, mask, True, dz)
    expected = grad * m * (lifted > 0 if relu else 1)
    np.testing.assert_allclose(dz, expected, rtol=1e-5)
    np.testing.assert_allclose(db, expected.sum(0), rtol=1e-4, atol=1e-4)
    stored = sp.csr_array(np.where(rng.random((rows, f)) < 0.3, z, 0))
    indptr, indices = stored.indptr.astype(np.int64), stored.indices.astype(np.int32)
    dropped = sp.csr_array((backend.drop_entries(indptr, indices, stored.data, mask), indices, indptr), shape=(rows, f))
    np.testing.assert_allclose(dropped.toarray(), stored.toarray() * m, rtol=1e-5)


@covers("quantise", "dequantise", "random_words")
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_and_decoded_rows_follow_the_formula(backend, bits):
    m, f, top = 30, 21, 2**bits - 1
    rows, names = np.random.default_rng(14).standard_normal((m, f)).astype(np.float32), np.arange(m, dtype=np.int32) + 70
    for noise in (None, Noise(SEED, 77, 5)):
        records = backend.quantise(rows, bits, names, noise, wide=True)
        size = -(-f * bits // 8)
        zero, step = np.ascontiguousarray(records[:, size:]).view("<f4").astype(np.float64).T
        np.testing.assert_array_equal(zero, rows.min(1))
        np.testing.assert_allclose(step, np.ptp(rows.astype(np.float64), axis=1) / top, rtol=1e-6)
        coded = np.unpackbits(records[:, :size], axis=1, bitorder="little", count=f * bits).reshape(m, f, bits) @ (1 << np.arange(bits))
        y = (rows - zero[:, None]) / step[:, None]
        u = np.full((m, f), 0.5)  # to the nearest
        if noise is not None:
            u = np.array([[philox(k // 4, int(name), 5, 77)[k % 4] / 2**32 for k in range(f)] for name in names])
            assert backend.random_words(SEED, 77, 0, 6, 70, 5).reshape(-1)[:f].tolist() == (u[0] * 2**32).tolist()
        clear = np.abs(y - np.floor(y) - u) > 1e-4
        assert clear.mean() > 0.98
        np.testing.assert_array_equal(coded[clear], np.minimum(np.floor(y) + (y - np.floor(y) > u), top)[clear])
        np.testing.assert_allclose(
            backend.dequantise(records, f, bits, wide=True), zero[:, None] + coded * step[:, None], rtol=1e-5, atol=1e-6
        )


# ---- draws


@covers("random_words")
def test_words_are_those_of_philox_in_plain_integers(backend):
    for first, vertex, minibatch in ((0, 0, 0), (2**32 - 9, 2**31 - 1, 2**32 - 1), (2**31, 5, 3)):
        words = backend.random_words(SEED, tag(LABOR), first, 9, vertex, minibatch)
        assert words.tolist() == [philox(first + i, vertex, minibatch, tag(LABOR)) for i in range(9)]


@covers("sample_rows")
@pytest.mark.parametrize("s", [0, 1, 3, 10, -1])
def test_uniform_draws_are_those_of_floyd(matrix, backend, s):
    q, whole = some(matrix.shape[0], 15), scipy_of(matrix)
    for law in (Law.UNIFORM, Law.REPLACEMENT):
        picks = rows_of(backend.sample_rows(matrix, q, s, Draw(law, SEED, tag(UNIFORM))))
        for (v, minibatch), found in zip(named_rows(q), picks, strict=True):
            neighbours = whole.indices[whole.indptr[v] : whole.indptr[v + 1]].tolist()
            d = len(neighbours)
            if s == -1 or (d <= s and law is Law.UNIFORM):
                assert found == neighbours
            elif law is Law.UNIFORM:
                assert found == [neighbours[i] for i in floyd(d, s, v, minibatch)]
            else:
                assert found == [neighbours[i] for i in sorted(below(d, t, v, minibatch) for t in range(s))] if d else found == []


@covers("sample_rows")
@pytest.mark.parametrize("s", [1, 3, 10])
def test_weighted_draws_have_the_smallest_keys(matrix, backend, s):
    q, whole = some(matrix.shape[0], 16), scipy_of(matrix).astype(np.float64)
    for law, purpose in ((Law.RACE, RACE), (Law.LABOR, LABOR)):
        picks = rows_of(backend.sample_rows(matrix, q, s, Draw(law, SEED, tag(purpose))))
        for (v, minibatch), found in zip(named_rows(q), picks, strict=True):
            name = v if law is Law.RACE else 0
            own = slice(whole.indptr[v], whole.indptr[v + 1])
            key_of = cache(lambda u, name=name, id=minibatch, purpose=purpose: exponential(philox(u, name, id, tag(purpose))))
            assert found == list(smallest(whole.indices[own], whole.data[own], s, key_of))


@covers("smallest_keys")
@pytest.mark.parametrize("s", [0, 2, 9, -1])
def test_layer_draws_have_the_smallest_keys_and_their_probability(matrix, backend, s):
    q = some(matrix.shape[0], 17)
    order = np.lexsort((q.vertices, np.repeat(np.arange(len(q)), np.diff(q.pointers))))
    p = sp.csr_array((np.ones(len(order)), q.vertices[order], q.pointers), shape=(len(q), matrix.shape[0])) @ scipy_of(matrix).astype(float)
    p.sort_indices()
    indptr, columns = p.indptr.astype(np.int64), p.indices.astype(np.int32)
    picks = backend.smallest_keys(indptr, columns, p.data, s, q.minibatches, Draw(Law.LABOR, SEED, tag(LAYER)))
    for j, minibatch in enumerate(q.minibatches.tolist()):
        own, drawn = slice(p.indptr[j], p.indptr[j + 1]), slice(picks.pointers[j], picks.pointers[j + 1])
        expected = smallest(columns[own], p.data[own], s, lambda v, id=minibatch: exponential(philox(v, 0, id, tag(LAYER))))
        assert picks.columns[drawn].tolist() == list(expected)
        np.testing.assert_allclose(picks.inclusion[drawn], list(expected.values()), rtol=1e-9)


# ---- samplers


@covers("expand")
@pytest.mark.parametrize("frontier", ["all", "new"])
def test_supports_of_graphsage_are_neighbours_without_replacement(matrix, backend, frontier):
    """Two hops: min(s, degree) distinct neighbours of every row, those of Floyd; vertices are numbered as they are found."""
    fanouts, seeds, whole = (3, 2), some(matrix.shape[0], 18), scipy_of(matrix)
    sampler = samplers.make("sage", fanouts, frontier=frontier)
    for j, found in enumerate(sampler.sample_bulk(LocalAdjacency(matrix, backend), seeds, Stream(SEED), EPOCH)):
        vertices, blocks = found.vertices.tolist(), found.blocks[::-1]  # from the seeds on
        assert vertices[: len(seeds.part(j))] == seeds.part(j).tolist()
        known, begun = len(seeds.part(j)), 0
        for hop, (s, block) in enumerate(zip(fanouts, blocks, strict=True)):
            assert block.num_destinations == known
            listed = []
            for row in range(begun if frontier == "new" else 0, known):
                v, local = vertices[row], block.indices[block.indptr[row] : block.indptr[row + 1]]
                neighbours = whole.indices[whole.indptr[v] : whole.indptr[v + 1]]
                d = len(neighbours)
                expected = neighbours if d <= s else neighbours[floyd(d, s, v, found.id, hop)]
                assert [vertices[u] for u in local] == expected.tolist()
                assert len(set(local.tolist())) == min(s, d)
                listed += expected.tolist()
            begun, known = known, block.num_sources
            assert vertices[begun:known] == list(dict.fromkeys(v for v in listed if v not in vertices[:begun]))


def layer_of(matrix, rows, drawn, renormalise):
    """Q_R D^-1 A Q_C with 1 / pi on its columns, dense over all vertices; and its pattern, in which a weight of 0 is no entry."""
    whole = scipy_of(matrix).astype(np.float64)
    shares = sp.diags_array(1 / np.maximum(whole.sum(axis=1), 1)) @ whole
    kept = np.zeros(matrix.shape[1])
    kept[list(drawn)] = [1 / probability for probability in drawn.values()]
    layer = shares.toarray()[rows] * kept
    if renormalise:
        layer = np.divide(layer, total := layer.sum(axis=1, keepdims=True), out=np.zeros_like(layer), where=total > 0)
    return layer, (whole.toarray()[rows] > 0) & (kept > 0)


def assert_layer(found, matrix, drawn, renormalise):
    """A mini-batch of one layer holds the drawn columns and the weights of the formula."""
    block, rows = found.blocks[0], found.vertices[: found.blocks[0].num_destinations]
    layer, pattern = layer_of(matrix, rows, drawn, renormalise)
    row = np.repeat(np.arange(len(rows)), np.diff(block.indptr))
    column = found.vertices[block.indices]
    np.testing.assert_array_equal(np.stack([row, column]), np.stack(np.nonzero(pattern)))
    np.testing.assert_allclose(block.weights, layer[row, column], rtol=1e-5, atol=1e-9)


def squared_shares(matrix, rows):
    """The sum over rows of the squared row-normalised weights, for every column."""
    whole = scipy_of(matrix).astype(np.float64)
    shares = (sp.diags_array(1 / np.maximum(whole.sum(axis=1), 1)) @ whole).power(2)
    return np.asarray(shares.tocsr()[rows].sum(axis=0)).reshape(-1)


@covers("expand_layers")
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("s", [3, 20])
def test_a_layer_of_ladies_follows_its_formula(matrix, backend, s, renormalise):
    """p ~ column sums of (D^-1 A)^2 over the frontier; weights a / (d pi), in rows of sum one if renormalised."""
    seeds = some(matrix.shape[0], 19)
    sampler = samplers.make("ladies", (s,), renormalise=renormalise)
    for found in sampler.sample_bulk(LocalAdjacency(matrix, backend), seeds, Stream(SEED), EPOCH):
        p = squared_shares(matrix, found.vertices[: found.blocks[0].num_destinations])
        drawn = smallest(np.arange(len(p)), p, s, lambda v, id=found.id: exponential(philox(v, 0, id, tag(LAYER, 0))))
        assert_layer(found, matrix, drawn, renormalise)


def first_arrivals(p, s, minibatch):
    """The s columns that arrive first: arrival j comes after -log2(u_j), at a column with probability in proportion to p."""
    ends, time, first = np.cumsum(p) / p.sum(), 0.0, {}
    for j in range(2**32):
        words = philox(j, 0, minibatch, tag(LAYER, 0))
        time += exponential(words)
        v = int(np.searchsorted(ends, (words[2] | words[3] << 32) / 2**64, side="right"))
        if v not in first and len(first) == s:
            return {v: -math.expm1(-p[v] / p.sum() * time * math.log(2)) for v in sorted(first)}
        first.setdefault(v, time)
    raise AssertionError("unreachable")


@covers("smallest_keys", "first_arrivals")
def test_a_layer_of_fastgcn_follows_its_formula(backend):
    check_fastgcn(ZOO["random"], backend, 4)  # by arrivals
    check_fastgcn(ZOO["star"], backend, 4)  # by keys, since the centre has half of the weight


@covers("expand_layers")
@pytest.mark.parametrize("s", [2, 15])
def test_a_layer_of_fastgcn_is_drawn_from_one_distribution(matrix, backend, s):
    check_fastgcn(matrix, backend, s)


def check_fastgcn(matrix, backend, s):
    """q ~ column sums of (D^-1 A)^2 over all rows; weights a / (d pi), in rows of sum one."""
    p = squared_shares(matrix, np.arange(matrix.shape[0]))
    candidates, heaviest = np.count_nonzero(p), np.sort(p)[::-1][: s + 1].sum()
    arrivals = 16 * (s + 1) <= candidates and 16 * heaviest <= 15 * p.sum()
    seeds, adjacency, sampler = some(matrix.shape[0], 20), LocalAdjacency(matrix, backend), samplers.make("fastgcn", (s,))
    (picks,) = sampler.law(adjacency, seeds, [Stream(SEED).layer_draw(epoch=EPOCH)])  # by primitives, and below in the call for all hops
    for j, found in enumerate(sampler.sample_bulk(adjacency, seeds, Stream(SEED), EPOCH)):
        keys = {"key_of": lambda v, id=found.id: exponential(philox(v, 0, id, tag(LAYER, 0)))}
        drawn = first_arrivals(p, s, found.id) if arrivals else smallest(np.arange(len(p)), p, s, **keys)
        assert_layer(found, matrix, drawn, renormalise=True)
        own = slice(*picks.pointers[j : j + 2])
        assert picks.columns[own].tolist() == list(drawn)
        np.testing.assert_allclose(picks.inclusion[own], list(drawn.values()), rtol=1e-12)


@covers("expand_relations")
@pytest.mark.parametrize("only_new", [False, True])
def test_full_hops_on_relations_are_products_of_their_matrices(matrix, backend, only_new):
    """Two types, and relations in both directions: whole rows, and the vertices that boolean products reach."""
    n, whole = matrix.shape[0], scipy_of(matrix)
    back = sp.csr_array(whole.T)
    back.sort_indices()
    other = CSR(back.indptr.astype(np.int64), back.indices.astype(np.int32), None, (n, n))
    ends, matrices = [(0, 0), (1, 0), (0, 1)], [matrix.with_values(None), other, matrix.with_values(None)]
    relations = [RelationMatrix(*pair, a) for pair, a in zip(ends, matrices, strict=True)]
    seeds = np.unique(np.random.default_rng(1).integers(0, n, 4)).astype(np.int32) if n else np.empty(0, np.int32)
    trees = Trees(np.arange(2), np.arange(1), [seeds, seeds[:0]], [np.zeros(len(seeds), np.int64), np.empty(0, np.int64)])
    law = RelationLaw(-1, Draw(Law.UNIFORM, SEED, tag(UNIFORM)))
    found = backend.expand_relations([n, n], relations, trees, [[law] * 3] * 2, only_new)
    if found is None:
        assert backend.name != "native"
        return
    (one,) = found
    held = [np.isin(np.arange(n), seeds), np.zeros(n, bool)]
    for _ in range(2):
        grown = [part.copy() for part in held]
        for (source, destination), a in zip(ends, matrices, strict=True):
            grown[source] |= (held[destination].astype(np.int64) @ scipy_of(a).astype(bool).astype(np.int64)) > 0
        held = grown
    for part, vertices in zip(held, one.vertices, strict=True):
        assert sorted(vertices.tolist()) == np.flatnonzero(part).tolist()
    for (source, destination), a, hop in zip(ends, matrices, one.hops[-1], strict=True):
        for row, v in enumerate(one.vertices[destination][: len(hop.pointers) - 1]):
            own = one.vertices[source][hop.columns[hop.pointers[row] : hop.pointers[row + 1]]]
            assert own.tolist() == a.indices[a.indptr[v] : a.indptr[v + 1]].tolist()


@covers("sample_relation")
@pytest.mark.parametrize("s", [0, 1, 3, 10, -1])
def test_draws_from_windows_of_time_are_those_of_floyd(matrix, backend, s):
    """Floyd's positions count from the beginning of the window, in the order of time; equal times keep the order of the row."""
    n, rng, whole = matrix.shape[0], np.random.default_rng(18), scipy_of(matrix)
    rows, times = 40 if n else 0, rng.integers(0, 20, matrix.nnz)
    vertices, minibatches = rng.integers(0, max(n, 1), rows).astype(np.int32), rng.integers(0, 2**31, rows)
    starts = rng.integers(0, 12, rows)
    ends = starts + rng.integers(-1, 10, rows)
    relation = RelationMatrix(0, 0, matrix.with_values(None), times)
    law = RelationLaw(s, Draw(Law.UNIFORM, SEED, tag(UNIFORM)))
    for windows in ((None, None), (None, ends), (starts, ends)):
        found = backend.sample_relation(relation, vertices, vertices, minibatches, *windows, law)
        if found is None:
            assert backend.name != "native"
            return
        assert found.pointers[0] == 0
        for r, v in enumerate(vertices.tolist()):
            first, last = whole.indptr[v], whole.indptr[v + 1]
            allowed = sorted(range(first, last), key=lambda e: (times[e], e)) if windows[1] is not None else list(range(first, last))
            allowed = [e for e in allowed if windows[0] is None or times[e] >= starts[r]]
            allowed = [e for e in allowed if windows[1] is None or times[e] <= ends[r]]
            picks = allowed if s == -1 or len(allowed) <= s else [allowed[i] for i in floyd(len(allowed), s, v, int(minibatches[r]))]
            own = slice(*found.pointers[r : r + 2])
            assert found.entries[own].tolist() == sorted(picks)
            assert found.columns[own].tolist() == whole.indices[sorted(picks)].tolist()


@covers("relabel_trees")
@pytest.mark.parametrize("timed", [False, True])
def test_vertices_of_trees_are_numbered_by_first_occurrence(backend, timed):
    """Five trees in three mini-batches, one of which has none; a vertex counts once a tree, and once an end where windows move."""
    rng, tree_pointers = np.random.default_rng(19), np.array([0, 2, 2, 5])
    pointers, held = (
        np.zeros(4, np.int64),
        TreeVertices(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64) if timed else None),
    )
    lists = [[], [], []]
    for count in (60, 1, 200):
        trees = np.sort(rng.integers(0, 5, count))
        found = TreeVertices(rng.integers(0, 9, count).astype(np.int32), trees, rng.integers(0, 3, count) * 2**62 if timed else None)
        pointers, held, local = backend.relabel_trees(pointers, held, found, tree_pointers)
        for i, tree in enumerate(trees.tolist()):
            own, entry = lists[0 if tree < 2 else 2], (int(found.vertices[i]), tree, int(found.ends[i]) if timed else None)
            if entry not in own:
                own.append(entry)
            assert local[i] == own.index(entry)
        assert pointers.tolist() == [0, *np.cumsum([len(own) for own in lists]).tolist()]
        ends = held.ends.tolist() if timed else [None] * len(held.trees)
        assert list(zip(held.vertices.tolist(), held.trees.tolist(), ends, strict=True)) == [entry for own in lists for entry in own]


def test_every_primitive_has_an_oracle():
    """A new primitive of `Backend` needs a test in this file."""
    covered = set().union(*(test.covers for name, test in globals().items() if name.startswith("test_") and hasattr(test, "covers")))
    primitives = {name for name, value in vars(Backend).items() if callable(value) and not name.startswith("_")}
    assert covered == primitives - PREDICTIONS
