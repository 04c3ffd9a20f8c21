"""The benchmarks of growth, laws and memory, on graphs that take no time."""

import json

import bench_growth
import bench_laws
import bench_memory
import numpy as np
import pytest
import run

from bulksample import backends
from bulksample.data.rmat import rmat
from bulksample.loading.bulk_sizes import COPIES

pytestmark = pytest.mark.skipif("native" not in backends.available(), reason="they measure the native back end")


@pytest.fixture
def small(monkeypatch):
    """Every graph of the benchmarks is one of 4,096 vertices."""
    matrix = rmat(12, 8, seed=1).adjacency
    for module in (bench_growth, bench_laws, bench_memory):
        monkeypatch.setattr(module, "load", lambda name: matrix)
    return matrix


def test_a_series_is_measured_kept_and_drawn(small, monkeypatch, tmp_path):
    monkeypatch.setattr(bench_growth, "BATCH_SIZE", 64)
    file, picture = tmp_path / "growth.json", tmp_path / "growth.svg"
    for series in ("bulk", "fanout"):
        with pytest.raises(SystemExit, match=r"^0$"):
            run.run("growth", ["--series", series, "--rounds", "1", "--json", str(file), "--plot", str(picture)])
    found = json.loads(file.read_text())
    assert list(found) == ["machine", "bulk", "fanout"]
    together = {line["at"]: line["together"] for line in found["bulk"]["points"]}
    assert together == {1: 1, 8: 8, 32: 32, "all": int(0.08 * 4096) // 64}
    edges = [line["edges_per_minibatch"] for line in found["fanout"]["points"] if line["threads"] == 1]
    assert edges == sorted(edges)
    assert len(set(edges)) == len(edges)
    assert picture.stat().st_size > 10_000


def test_candidates_are_the_neighbours_of_rows_with_more_than_the_fanout(small):
    job = bench_laws.Job("labor", small, [3], [np.arange(200)], 1)
    degrees = small.degrees[:200]
    assert job.candidates == degrees[degrees > 3].sum()
    assert bench_laws.Job("uniform", small, [3], [np.arange(200)], 1).candidates == 0


def test_a_peak_is_held_against_the_prediction(small):
    found = bench_memory.measure(bench_memory.Pair("small", (5, 5), 64), 1, 64)
    assert found["k"] > 1
    assert found["predicted_mib"] > COPIES * 0.9 * found["bulk_mib"] > 0
    assert found["ratio"] == found["peak_mib"] / found["predicted_mib"]
