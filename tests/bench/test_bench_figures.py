"""The figures of benchmarks, drawn from the results that are kept."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pip install matplotlib would bring it")

import bench_exchange
import slow_network
import sweep_grid
from peers import run as peers

BENCH = Path(sweep_grid.__file__).parent
DRAWN = {
    "grid_cpu_train": (sweep_grid.plot, "results"), "slow_network_sample": (slow_network.plot, "lines"),
    "exchange": (bench_exchange.plot, "results"), "peers_sampling_clock": (peers.plot, "contests"),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_it_draws_what_was_measured(name, tmp_path):
    plot, key = DRAWN[name]
    plot(json.loads((BENCH / "results" / f"{name}_2026-11-21.json").read_text())[key], tmp_path / "x.png")
    drawn = (tmp_path / "x.png").read_bytes()
    assert drawn[:4] == b"\x89PNG"
    assert len(drawn) > 5000
