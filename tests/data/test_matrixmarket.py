"""Matrix Market against scipy, which reads the entries, and against what a header may claim."""

import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from bulksample import DataError
from bulksample.data import matrixmarket
from bulksample.data.edges import EdgeTally

HEAD = "%%MatrixMarket matrix coordinate "


def random_matrix(seed, n=20, density=0.2):
    matrix = scipy.sparse.random_array((n, n), density=density, rng=np.random.default_rng(seed))
    matrix.data = np.arange(1, matrix.nnz + 1) / 4
    return matrix


@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_scipy_writes_is_read(tmp_path, field, symmetry, suffix):
    matrix = random_matrix(1)
    if symmetry == "symmetric":
        matrix = matrix + matrix.T
    if field != "real":
        matrix = (matrix * 4).astype(np.int64)
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(path, scipy.sparse.coo_array(matrix), field=field, symmetry=symmetry, comment="made by a test")
    if suffix:
        (tmp_path / "m.mtx.gz").write_bytes(gzip.compress(path.read_bytes()))
    graph = matrixmarket.read(tmp_path / f"m.mtx{suffix}")
    assert graph.name == "m"
    found = graph.adjacency.to_scipy() * graph.weight_unit
    expected = matrix != 0 if field == "pattern" else matrix
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-9)
    assert (graph.adjacency.values is None) == (field == "pattern")


def test_directions(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "pattern general\n3 3 2\n1 2\n3 3\n")
    row_first = matrixmarket.read(path).adjacency.to_scipy().toarray()
    assert row_first.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert matrixmarket.read(path, transpose=True).adjacency.to_scipy().toarray().tolist() == row_first.T.tolist()
    both = matrixmarket.read(path, undirected=True, self_loops="drop").adjacency.to_scipy().toarray()
    assert both.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_a_symmetric_file_stands_for_both_triangles_whatever_is_asked(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "real symmetric\n3 3 3\n2 1 0.5\n3 1 2\n2 2 1\n")
    for undirected in (False, True):
        tally = EdgeTally()
        graph = matrixmarket.read(path, undirected=undirected, tally=tally)
        found = (graph.adjacency.to_scipy() * graph.weight_unit).toarray()
        np.testing.assert_allclose(found, [[0, 0.5, 2], [0.5, 1, 0], [2, 0, 0]])
        assert (tally.edges_read, tally.self_loops, tally.duplicates) == (3, 1, 0)


def test_repetitions_are_summed_or_refused(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "real general\n2 2 3\n1 2 0.5\n1 2 2\n2 1 1\n")
    for rule, weight in (("sum", 2.5), ("max", 2.0)):
        graph = matrixmarket.read(path, duplicates=rule)
        np.testing.assert_allclose((graph.adjacency.to_scipy() * graph.weight_unit).toarray(), [[0, weight], [1, 0]])
    with pytest.raises(DataError, match="was listed before"):
        matrixmarket.read(path, duplicates="error")


def test_an_empty_matrix(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "pattern general\n4 4 0\n")
    assert (matrixmarket.read(path).n, matrixmarket.read(path).adjacency.nnz) == (4, 0)
