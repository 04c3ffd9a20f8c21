"""The figures of benchmarks, drawn from the results that are kept."""

import pytest

pytest.importorskip("matplotlib", reason="pip install matplotlib would bring it")

import keep
import slow_network
import sweep_grid
from peers import contest

DRAWN = {
    "grid": ("train", sweep_grid.plot, "results"), "slow_network": ("sample", slow_network.plot, "lines"),
    "peers": ("sampling", contest.plot, "contests"),
}  # fmt: skip


@pytest.mark.parametrize("theme", DRAWN)
def test_it_draws_what_was_measured(theme, tmp_path):
    part, plot, key = DRAWN[theme]
    plot(keep.read(theme, part)[key], tmp_path / "x.png")
    drawn = (tmp_path / "x.png").read_bytes()
    assert drawn[:4] == b"\x89PNG"
    assert len(drawn) > 5000
