"""The benchmark of model averages makes the local steps that it was asked for, in whole epochs."""

import bench_tma
import pytest
from communities import community_graph

from bulksample.data import store


@pytest.mark.parametrize(("name", "steps", "made"), [("psgd-pa", 5, 6), ("random-tma", 7, 8)])
def test_a_row_makes_its_steps_in_whole_epochs(tmp_path, name, steps, made):
    """A part has about 26 training vertices, two batches of 16: an epoch has two steps."""
    store.save(community_graph(n=200), tmp_path / "graph")
    row = {"graph": "communities", "row": name, "task": "nodes", "scores": {}}
    asked = bench_tma.COMMON | {"task": "nodes", "seed": 4, "batch_size": 16}
    bench_tma.run(tmp_path / "graph", row, asked, steps)
    assert 0 <= row["scores"]["4"] <= 100
    assert row["steps"] == made
