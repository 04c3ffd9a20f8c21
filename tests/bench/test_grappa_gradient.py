"""Figures of a mean gradient, against numbers by hand and against the exact limit of one rank."""

import bench_grappa_gradient as bench
import numpy as np
import pytest
from communities import community_graph

from bulksample.data import store


def test_error_and_noise_of_two_draws_by_hand():
    """The draws (1, 0) and (1, 4) have the mean (1, 2), whose standard error is 2; the truth is (2, 0)."""
    found = bench.line(np.array([[1.0, 0.0], [1.0, 4.0]]), np.array([2.0, 0.0]))
    assert found["cosine_of_one"] == pytest.approx((1 + 17**-0.5) / 2)
    assert found["cosine_of_mean"] == pytest.approx(5**-0.5)
    assert found["error_of_mean"] == pytest.approx(5**0.5 / 2)
    assert found["noise"] == pytest.approx(2 / 2)


def test_one_rank_has_the_gradient_of_the_whole_graph(tmp_path):
    """One rank sees everything, so every weight is one: no error with all neighbors, equal draws for all weights with one neighbor."""
    store.save(community_graph(n=120, classes=3, degree=6), tmp_path / "g")
    rows = bench.measure(tmp_path / "g", seed=3, layers=2, ranks=1, draws=2)
    assert {view for view, _ in rows} == set(bench.VIEWS)
    whole = {key: row for key, row in rows.items() if not key[0].startswith("sampled")}
    assert len(whole) == 4 * len(bench.WEIGHTS)
    assert max(row["error_of_mean"] for row in whole.values()) < 1e-6
    sampled = [rows["sampled, strict, fresh", name] for name in bench.OF_SAMPLED]
    assert sampled[0]["noise"] > 0.01
    assert all(row == pytest.approx(sampled[0], rel=1e-4) for row in sampled)
