"""The Formula 1 graph on 2 x 2 and 4 x 1 grids, with relations whole and in block rows: one digest, predicted bytes, gradients of one rank,
no full table anywhere."""

from pathlib import Path

import pytest
from waiting import LONGEST

pytest.importorskip("pandas")
import bench_relational_ranks as ranks

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "f1"
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * LONGEST),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the Formula 1 tables are not here"),
]


@pytest.fixture(scope="module")
def figures():
    return ranks.measure(FOLDER)


@pytest.mark.parametrize("place", range(len(ranks.PLACEMENTS) * len(ranks.GRIDS)))
def test_a_grid_trains_as_one_rank(figures, place):
    found, c = figures["grids"][place], ranks.GRIDS[place % len(ranks.GRIDS)]
    assert found["digest"] == figures["digest"]
    assert found["bytes"] == found["predicted"]
    assert found["largest_difference"] < 1e-5 * found["largest_gradient"]
    assert found["loss"] == pytest.approx(figures["loss"], rel=1e-5)
    assert (found["topology"], found["exchange"]) == ranks.PLACEMENTS[place // len(ranks.GRIDS)]
    share = 1.3 * c / ranks.RANKS if found["topology"] == "partitioned" else 1
    assert found["adjacency_bytes"] <= share * figures["adjacency_bytes"]
    assert set(figures["rows"]) == set(ranks.EMBEDDED)
    for name, rows in figures["rows"].items():
        assert found["rows"][name] == -(-rows * c // ranks.RANKS)
