"""All partitioners return valid partitions, and a rank reads only its own block of a store."""

import sys
import types
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from communities import community_graph

from bulksample import CSR, BackendUnavailable, DataError, PeerLost, UsageError
from bulksample.data.npy import sealed
from bulksample.data.store import save
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.graph_block import load_block
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.partition import (
    Partition,
    balanced_bounds,
    block_bounds,
    block_rows,
    make,
    metis,
    random,
    shared_assignment,
    super_nodes,
)
from bulksample.sparse import row_pointers

SIZES = (1, 2, 3, 4, 8)


def check(partition, n, parts):
    layout, vertices = Layout.of(partition), np.arange(n, dtype=np.int32)
    assert (partition.n, partition.parts) == (n, parts)
    assert partition.assignment.dtype == layout.vertices(vertices).dtype == layout.places(vertices).dtype == np.int32
    assert partition.bounds.dtype == np.int64
    assert layout.bounds.tolist() == partition.bounds.tolist() == [(partition.assignment < part).sum() for part in range(parts + 1)]
    assert (layout.vertices(layout.places(vertices)) == vertices).all()
    for part in range(parts):
        assert layout.members(part).tolist() == np.flatnonzero(partition.assignment == part).tolist()


def cut(adjacency, partition):
    """Count the edges between parts."""
    return np.count_nonzero(partition.assignment[adjacency.row_of_entry()] != partition.assignment[adjacency.indices])


@pytest.mark.parametrize("n", [0, 1, 5, 300])
@pytest.mark.parametrize("parts", SIZES)
def test_every_partitioner_returns_a_valid_partition(n, parts):
    rng = np.random.default_rng(n)
    edges = rng.integers(0, max(n, 1), (2, 8 * n))
    adjacency = CSR.from_edges(*edges, (n, n))
    for partition in (block_rows(n, parts), random(n, parts, 3), metis(adjacency, parts, 3), super_nodes(adjacency, parts, 3 * parts, 3)):
        check(partition, n, parts)


@pytest.mark.parametrize("maker", [block_rows, lambda n, parts: random(n, parts, 1)])
def test_sizes_are_even(maker):
    for n in (0, 7, 8, 100):
        for parts in (1, 3, 8, 11):
            sizes = np.diff(maker(n, parts).bounds)
            assert sizes.max() - sizes.min() <= 1


def test_block_rows_are_the_identity():
    partition = block_rows(10, 4)
    assert partition.bounds.tolist() == block_bounds(10, 4).tolist() == [0, 2, 5, 7, 10]
    assert Layout.of(partition).position is None


@pytest.mark.parametrize("seed", range(6))
def test_balanced_bounds_have_the_least_largest_load_of_all_bounds(seed):
    """Against every choice of three bounds; loads are shares of vertices, entries and training vertices, added up."""
    rng = np.random.default_rng(seed)
    n, parts = int(rng.integers(1, 12)), 4
    degrees, train = rng.integers(0, 9, n) ** 2, rng.random(n) < 0.4
    shares = [weight / weight.sum() for weight in (np.ones(n), degrees, train) if weight.sum()]

    def largest(bounds):
        return max(sum(share[a:b].sum() for share in shares) for a, b in pairwise(bounds))

    bounds = balanced_bounds(row_pointers(degrees), parts, train)
    best = min(largest([0, *inner, n]) for inner in combinations_with_replacement(range(n + 1), parts - 1))
    assert (bounds[0], bounds[-1], len(bounds)) == (0, n, parts + 1)
    assert (np.diff(bounds) >= 0).all()
    assert largest(bounds) == pytest.approx(best, abs=1e-9)


def test_balanced_bounds_of_even_loads_are_even():
    assert balanced_bounds(np.arange(13) * 5, 4).tolist() == [0, 3, 6, 9, 12]
    assert (np.diff(balanced_bounds(np.arange(11), 4)) > 0).all()
    assert balanced_bounds(np.zeros(1, np.int64), 3).tolist() == [0, 0, 0, 0]


def test_block_parts_of_a_skewed_graph_are_balanced_in_entries():
    degrees = np.sort(np.random.default_rng(0).pareto(1.5, 4000).astype(np.int64) + 1)[::-1]
    matrix = CSR(row_pointers(degrees), np.concatenate([np.arange(d, dtype=np.int32) for d in degrees]), None, (4000, 4000))
    heaviest = {}
    for name, made in (("balanced", make("block", matrix, 4, 0)), ("even", block_rows(4000, 4))):
        heaviest[name] = (np.bincount(made.assignment) / 4000 + np.bincount(made.assignment, degrees) / matrix.nnz).max()
    assert heaviest["balanced"] < 1.02 * 2 / 4 < 1.2 * 2 / 4 < heaviest["even"]


def test_block_bounds_do_not_overflow():
    assert block_bounds(2**31 - 1, 2**10)[-1] == 2**31 - 1


def test_random_depends_on_the_seed_alone():
    assert (random(100, 4, 1).assignment == random(100, 4, 1).assignment).all()
    assert (random(100, 4, 1).assignment != random(100, 4, 2).assignment).any()
    assert random(12, 3, 7).assignment.tolist() == [1, 2, 0, 2, 2, 0, 1, 0, 2, 0, 1, 1]  # on any machine


def test_metis_cuts_fewer_edges_and_repeats_itself():
    graph = community_graph(n=600, classes=4, degree=10)
    found = metis(graph.adjacency, 4, 1)
    assert cut(graph.adjacency, found) < 0.7 * cut(graph.adjacency, random(600, 4, 1))
    assert (found.assignment == metis(graph.adjacency, 4, 1).assignment).all()
    sizes = np.diff(found.bounds)
    assert sizes.max() < 1.3 * sizes.min()


def test_super_nodes_keep_clusters_together():
    graph = community_graph(n=600, classes=4, degree=10)
    clusters, dealt = Layout.of(metis(graph.adjacency, 12, 5)), super_nodes(graph.adjacency, 3, 12, 5)
    for cluster in range(12):
        assert len(set(dealt.assignment[clusters.members(cluster)])) == 1
    owners = [dealt.assignment[clusters.members(cluster)[0]] for cluster in range(12)]
    assert np.bincount(owners).tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    "edges",
    [
        ([], []),  # no edges
        ([0, 1, 2], [0, 1, 2]),  # loops only
        ([5] * 19, list(range(19))),  # a star
        (list(range(19)), list(range(1, 20))),  # a path, one way
    ],
)
@pytest.mark.parametrize("parts", [2, 7, 19, 20, 50])
def test_metis_on_odd_graphs(edges, parts):
    adjacency = CSR.from_edges(np.array(edges[0], np.int64), np.array(edges[1], np.int64), (20, 20))
    check(metis(adjacency, parts, 0), 20, parts)


def test_metis_never_sees_a_bad_matrix():
    bad = CSR(np.array([0, 1, 2]), np.array([1, 7], np.int32), None, (2, 2))
    with pytest.raises(DataError, match="row 1 names column 7"):
        metis(bad, 2, 0)
    with pytest.raises(DataError, match="square"):
        metis(CSR.from_edges([0], [2], (2, 3)), 2, 0)


@pytest.mark.parametrize("width", ["int32", "int64"])
def test_metis_gets_the_integers_of_its_build(width, monkeypatch):
    seen = []
    fake = types.SimpleNamespace(
        zero_copy_dtype=lambda: width, CSRAdjacency=lambda *arrays: seen.extend(a.dtype for a in arrays), Options=lambda seed: None,
        part_graph=lambda parts, graph, options: (0, np.zeros(3, np.int32)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pymetis", fake)
    metis(CSR.from_edges([0, 1, 2], [1, 2, 0], (3, 3)), 2, 0)
    assert seen == [np.dtype(width)] * 2
    fake.zero_copy_dtype = lambda: "int8"
    big = CSR.from_edges(*np.nonzero(np.ones((12, 12))), (12, 12))  # 132 entries without the diagonal
    with pytest.raises(UsageError, match="counts edges in 8 bits; 132 are too many: use stream"):
        metis(big, 2, 0)


def test_without_pymetis_the_error_says_what_would_fit(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(BackendUnavailable, match="pip install pymetis"):
        metis(CSR.from_edges([0, 1, 2], [1, 2, 0], (3, 3)), 2, 0)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: block_rows(3, 0), "parts must be a positive number; got 0"),
        (lambda: random(3, -1, 0), "parts must be a positive number; got -1"),
        (lambda: random(3, 2, -1), "seed must be a 64-bit number: got -1"),
        (lambda: super_nodes(CSR.from_edges([0], [1], (3, 3)), 4, 3, 0), "got 3 clusters for 4 parts"),
    ],
)
def test_misuse_is_refused(call, why):
    with pytest.raises(UsageError, match=why):
        call()


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        (np.array([0, 2]), "vertex 1 is in part 2"), (np.array([-1]), "vertex 0 is in part -1"), (np.array([0.5]), "got float64"),
        (np.zeros((2, 2), int), r"got int64 of shape \(2, 2\)"), (np.array([2**32]), "in part 4294967296"),
    ],
)  # fmt: skip
def test_an_assignment_names_parts_that_there_are(assignment, why):
    with pytest.raises(DataError, match=why):
        Partition(2, assignment)


def test_a_partition_survives_a_file(tmp_path):
    for partition in (random(100, 7, 1), block_rows(0, 3)):
        partition.save(tmp_path / "parts")
        again = Partition.load(tmp_path / "parts")
        check(again, partition.n, partition.parts)
        assert (again.assignment == partition.assignment).all()
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def test_a_partition_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        block_rows(4, 2).save(tmp_path / "taken")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot write"):
        block_rows(4, 2).save(tmp_path / "file" / "parts")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


@pytest.mark.parametrize(
    "arrays",
    [
        {"parts": np.array(2)},
        {"parts": np.array(0), "assignment": np.zeros(3, np.int32)},
        {"parts": np.array([2]), "assignment": np.zeros(3, np.int32)},
        {"parts": np.array(2), "assignment": np.array([0, 2])},
        {"parts": np.array(2), "assignment": np.array([None, 1])},
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, arrays):
    path = tmp_path / "parts.npz"
    np.savez(path, **(arrays if "assignment" not in arrays or arrays["assignment"].dtype == object else sealed(arrays)))
    with pytest.raises(DataError, match=r"parts\.npz: (?!was changed|holds no sha256)"):
        Partition.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"parts\.npz"):
        Partition.load(path)


@pytest.mark.parametrize("kind", [{}, {"weighted": True}, {"sparse": True}, {"half": True}])
@pytest.mark.parametrize("p", SIZES)
def test_a_rank_loads_its_own_rows(tmp_path, kind, p):
    graph = community_graph(n=100, **kind)
    save(graph, tmp_path / "store")
    bounds = block_bounds(graph.n, p)
    bounds[p // 2] = bounds[p // 2 + 1] if p > 2 else bounds[p // 2]  # one rank has nothing
    blocks = on_threads(p, lambda comm: load_block(tmp_path / "store", np.arange(*bounds[comm.rank : comm.rank + 2])))
    for block in blocks:
        rows = block.vertices
        assert (block.n, block.weight_unit, block.num_classes) == (graph.n, graph.weight_unit, graph.num_classes)
        assert block.adjacency.shape == (len(rows), graph.n)
        assert (block.adjacency.to_scipy() != graph.adjacency.to_scipy()[rows]).nnz == 0
        if kind.get("sparse"):
            assert (block.features.to_scipy() != graph.features.to_scipy()[rows]).nnz == 0
        else:
            assert block.features.dtype == graph.features.dtype
            assert (block.features == graph.features[rows]).all()
        assert (block.labels == graph.labels[rows]).all()
        assert all((mask == graph.masks[split][rows]).all() for split, mask in block.masks.items())
        assert not isinstance(block.labels.base, np.memmap)
    assert sum(block.adjacency.nnz for block in blocks) == graph.adjacency.nnz


def test_a_block_without_features(tmp_path):
    save(community_graph(n=50), tmp_path / "store")
    (tmp_path / "store" / "features.npy").unlink()
    assert load_block(tmp_path / "store", np.arange(20), features=False).features is None
    with pytest.raises(DataError, match=r"features\.npy"):
        load_block(tmp_path / "store", np.arange(20))


@pytest.mark.parametrize("rows", [[-1, 3], [3, 2], [2, 2], [0, 50], [0.5]])
def test_rows_that_are_not_there_are_refused(tmp_path, rows):
    save(community_graph(n=50), tmp_path / "store")
    with pytest.raises(UsageError, match="ascending integers from 0 to 49"):
        load_block(tmp_path / "store", np.array(rows))


@pytest.mark.parametrize(
    ("role", "value"), [("indptr", 2**40), ("indptr", -1), ("indices", 99), ("weights", -5), ("labels", 9), ("features", np.nan)]
)
def test_damage_in_the_block_is_found(tmp_path, role, value):
    save(community_graph(n=50, weighted=True), tmp_path / "store")
    array = np.load(tmp_path / "store" / f"{role}.npy", mmap_mode="r+")
    array[10] = value
    array.flush()
    with pytest.raises(DataError, match="store: rows 0 to 19"):
        load_block(tmp_path / "store", np.arange(20))
    if role in ("labels", "features"):
        load_block(tmp_path / "store", np.arange(20, 50))


@pytest.mark.parametrize("error", [MemoryError("no room"), DataError("row 3 is damaged")])
def test_a_partition_that_rank_0_cannot_make_ends_every_rank(error):
    """Rank 0 alone makes it; the others wait for the assignment."""

    def whole():
        raise error

    def on_rank(comm):
        with pytest.raises((MemoryError, DataError, PeerLost, UsageError), match=str(error)):
            shared_assignment(comm, "metis", 8, 2, 0, whole)
        return True

    assert on_threads(2, on_rank) == [True, True]
