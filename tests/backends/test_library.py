"""Products by a library behind a guard, SciPy in the place of CuPy's: the same sums as our own, and a library that errs is found out."""

import types

import numpy as np
import pytest
import scipy.sparse
from emulation.host import compiler, emulated
from oracles import assert_identical
from zoo import random_matrix

from bulksample import CSR, LocalAdjacency, Selection, Stream, samplers
from bulksample.backends.cuda import library

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


def with_library(sparse=scipy.sparse):
    engine = emulated()
    engine.device.library = sparse
    return engine


def matrices(kind):
    """A of a few rows and B, one of them of ones; entries up to 2^62, some of them 0."""
    rng = np.random.default_rng(1)
    a, b = random_matrix(40, 300, 2), random_matrix(40, 500, 3)
    a = CSR(a.indptr[:13], a.indices[: a.indptr[12]], None, (12, 40))
    values = {"small": rng.integers(0, 3, 500), "large": rng.integers(0, 2**56, 500)}.get(kind[1:].strip("_"))
    if kind.startswith("a"):
        return a.with_values(values[: a.nnz]), b
    return a, b if values is None else b.with_values(values[: b.nnz])


@pytest.mark.parametrize("most", [1, 50, 2**28])
@pytest.mark.parametrize("kind", ["ones", "a_small", "a_large", "b_small", "b_large"])
def test_sums_are_those_of_the_reference(monkeypatch, reference, kind, most):
    monkeypatch.setattr(library, "MOST_PRODUCTS", most)
    a, b = matrices(kind)
    got, expected = with_library().spgemm(a, b), reference.spgemm(a, b)
    assert_identical((got.indptr, got.indices, got.values), (expected.indptr, expected.indices, expected.values))


def test_it_is_the_library_that_multiplies(monkeypatch):
    asked = []
    counted = types.SimpleNamespace(csr_matrix=lambda *given, **shape: asked.append(shape) or scipy.sparse.csr_matrix(*given, **shape))
    a, b = matrices("b_large")
    with_library(counted).spgemm(a, b)
    assert len(asked) == 2 * (1 + library.PIECES)
    asked.clear()
    with_library(counted).spgemm(a.with_values(np.ones(a.nnz, np.int64)), b)  # two that have values are our own business
    assert not asked


class Erring(scipy.sparse.csr_matrix):
    """A matrix whose products are wrong in a way that has been seen, or could be."""

    how = None

    def __matmul__(self, other):
        made = scipy.sparse.csr_matrix(scipy.sparse.csr_matrix(self) @ scipy.sparse.csr_matrix(other))
        if self.how == "zeros":
            made.data[:] = 0
        if self.how == "lost":
            made = scipy.sparse.csr_matrix(made.shape)
        if self.how == "one off":
            made.data[0] += 1
        if self.how == "moved" and made.data.max() > 100:  # a sum of pieces at another place
            made.sort_indices()
            made.indices[0] += made.indices[1] > made.indices[0] + 1 or -1
        return made


@pytest.mark.parametrize("how", ["zeros", "lost", "one off", "moved"])
def test_what_does_not_add_up_is_not_used(monkeypatch, reference, how):
    monkeypatch.setattr(Erring, "how", how)
    a, b = matrices("b_large")
    with pytest.warns(UserWarning, match="does not add up; our own is used"):
        got = with_library(types.SimpleNamespace(csr_matrix=Erring)).spgemm(a, b)
    expected = reference.spgemm(a, b)
    assert_identical((got.indptr, got.indices, got.values), (expected.indptr, expected.indices, expected.values))


@pytest.mark.parametrize("weighted", [False, True])
def test_ladies_has_its_digest_either_way(reference, weighted):
    matrix = random_matrix(200, 3000, 1, weighted=weighted)
    seeds = Selection.of([np.arange(j, 200, 29) for j in range(4)], 200)
    sampler = samplers.make("ladies", (20, 10))
    one, other = (sampler.sample_bulk(LocalAdjacency(matrix, engine), seeds, Stream(1)) for engine in (with_library(), reference))
    assert [m.digest() for m in one] == [m.digest() for m in other]
