"""Scaling on paper: the limits that any prediction has, and the marks on every figure."""

import json
import subprocess
import sys

import keep
import pytest
import scaling
from harness import RUNNER
from waiting import PATIENCE

from bulksample.errors import UsageError


@pytest.fixture(scope="module")
def products():
    return scaling.OnPaper("products", "a100-80gb", None, [])


def test_replicated_epochs_shrink_as_devices_share_the_minibatches(products):
    """196 minibatches: with 256 devices an epoch is one step, and more devices have nothing to do."""
    epochs = [products.row("replicated", p).seconds.epoch for p in (4, 8, 16, 256, 512)]
    assert epochs[0] > epochs[1] > epochs[2] > epochs[3]
    assert epochs[4] == pytest.approx(epochs[3], rel=0.01)


def test_only_gradients_travel_where_everything_is_replicated(products):
    sent = products.row("replicated", 64).traffic
    assert sent.topology == sent.features == 0 < sent.gradients


def test_owner_sends_less_topology_than_rows(products):
    owner, rows = (products.row(policy, 64, c=4).traffic for policy in ("owner", "rows"))
    assert owner.topology < rows.topology
    assert owner.features == rows.features


def test_the_paper_s_replication_is_kept_beyond_its_runs(products):
    assert [products.row("published", p).grid.replication for p in (4, 8, 16, 1024)] == [1, 2, 4, 4]


def test_measured_rates_take_the_place_of_others(tmp_path):
    (tmp_path / "fast.json").write_text('{"sampling": 3e12}')
    slow, fast = (scaling.OnPaper("products", "a100-80gb", None, files) for files in ([], [tmp_path / "fast.json"]))
    assert fast.rates()["sampling"] == {"value": 3e12, "origin": "measured", "source": "fast.json"}
    assert fast.row("replicated", 4).seconds.sample == pytest.approx(slow.row("replicated", 4).seconds.sample * 1.5e9 / 3e12)


def test_measured_minibatches_take_the_place_of_expected_ones(tmp_path):
    sample = {"sampler": "sage", "fanouts": [15, 10, 5], "frontier": "all", "batch_size": 1024, "minibatches": 2, "graph": "partitioned",
              "sampled_edges": 1_600_000, "input_vertices": 1_100_000, "ranks": 1}  # fmt: skip
    (tmp_path / "sample.json").write_text(json.dumps(sample))
    found = scaling.OnPaper("products", "h200", None, [tmp_path / "sample.json"]).to_dict()["minibatch"]
    assert found == {"edges": pytest.approx(800_000), "inputs": 550_000, "origin": "measured"}
    (tmp_path / "sample.json").write_text(json.dumps(sample | {"fanouts": [10, 5]}))
    with pytest.raises(UsageError, match="was made with fanouts"):
        scaling.OnPaper("products", "h200", None, [tmp_path / "sample.json"])


def test_the_kept_results_are_what_the_script_says(tmp_path):
    """So a change of a formula or of a profile renews them; every rate has a mark."""
    for name in ("a100-80gb", "h200"):
        kept = keep.read("scaling", name)
        for graph, said in kept["graphs"].items():
            found = json.loads(json.dumps(scaling.OnPaper(graph, name, None, []).to_dict()))
            assert [row["seconds"]["epoch"] for row in found["policies"]["owner"]] == pytest.approx(
                [row["seconds"]["epoch"] for row in said["policies"]["owner"]]
            )
            assert [line["origin"].split(":")[0].split(",")[0] for line in said["paper"]][:2] == ["published", "derived"]
        assert {rate["origin"] for rate in kept["rates"].values()} <= {"measured", "published", "assumed"}


def test_it_draws_and_prints(tmp_path):
    pytest.importorskip("matplotlib", reason="pip install matplotlib would bring it")
    command = [sys.executable, RUNNER, "scaling", "--graphs", "products", "--json", tmp_path / "s.json", "--plot", tmp_path / "s.png"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| replicated |") == 1
    assert "derived: 88% efficiency" in done.stdout
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads((tmp_path / "s.json").read_text())["graphs"]["products"]["policies"]["rows"]) == len(scaling.RANKS)
