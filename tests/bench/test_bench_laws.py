"""The counts of bench_laws.py against a graph on which they are known."""

import bench_laws
import numpy as np

from bulksample import CSR


def test_vertices_and_edges_of_a_ring():
    """With all neighbors and two hops, two seeds far apart reach 2 x 5 vertices by 2 x (2 + 6) edges. A job has means of mini-batches."""
    n = 40
    rows = np.sort(np.stack([(np.arange(n) - 1) % n, (np.arange(n) + 1) % n], axis=1), axis=1)
    ring = CSR(np.arange(n + 1, dtype=np.int64) * 2, rows.ravel().astype(np.int32), np.ones(2 * n, np.int64), (n, n))
    batches = [np.array([0, 20]), np.array([10, 11])]  # neighbors share: 6 vertices, 4 + 8 edges
    for law in ("uniform", "labor"):
        job = bench_laws.Job(law, ring, [-1, -1], batches, 1)
        assert (job.vertices, job.edges) == ((10 + 6) / 2, (2 * (2 + 6) + 4 + 8) / 2)


def test_a_graph_of_a_file(tmp_path):
    np.savez(tmp_path / "graph.npz", indptr=np.array([0, 2, 3, 4]), indices=np.array([1, 2, 0, 0], np.int32), y=np.zeros(3))
    found = bench_laws.of_file(tmp_path / "graph.npz")
    assert found.shape == (3, 3)
    assert found.degrees.tolist() == [2, 1, 1]
    assert found.values is None
