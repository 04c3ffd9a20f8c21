"""A measured network: what a plan reads from the JSON of `bulksample info --network`, and which files it refuses."""

import json

import pytest
from uniform import request

from bulksample.errors import DataError, UsageError
from bulksample.plan.profiles import NETWORKS, network_named

LINKS = {"ranks": 2, "latency": 3e-5, "bandwidth": 4e9}
FOUND = {
    "ranks_of_machines": [2, 2],
    "collective": 1e-5,
    "message": 2e-6,
    "inside": LINKS,
    "between": LINKS | {"latency": 7e-5, "bandwidth": 1e8},
}


@pytest.fixture
def written(tmp_path):
    def write(**changes):
        path = tmp_path / "network.json"
        path.write_text(json.dumps({"network": FOUND | changes}))
        return str(path)

    return write


def test_every_rate_is_measured(written):
    found = network_named(written())
    rates = (found.latency, found.latency_inside, found.inside, found.between, found.collective, found.message)
    assert [rate.value for rate in rates] == [7e-5, 3e-5, 4e9, 1e8, 1e-5, 2e-6]
    assert {(rate.origin, rate.source) for rate in rates} == {("measured", "network.json: 2, 2 ranks on 2 machines")}
    assert found.per_node == 2


def test_links_that_were_not_measured_are_assumed(written):
    found = network_named(written(between=None))
    assert (found.between.value, found.between.origin, found.latency.value) == (4e9, "assumed", 3e-5)
    assert "none between machines was measured" in found.between.source
    assert found.per_node > 2**30  # every rank is on the one machine that was measured
    assert network_named(written(inside=None, ranks_of_machines=[1, 1])).inside.origin == "assumed"


def test_options_come_before_a_file(written):
    made = request(network=written(), between=5e8, devices_per_node=8).connection()
    assert (made.between.value, made.between.origin, made.per_node, made.inside.value) == (5e8, "given", 8, 4e9)


@pytest.mark.parametrize(
    "changes",
    [
        {"collective": -1}, {"collective": 10**400}, {"message": True}, {"inside": {}}, {"inside": None, "between": None},
        {"ranks_of_machines": []}, {"ranks_of_machines": [0.5, 2]},
    ],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_other_files_are_refused(written, changes):
    with pytest.raises(DataError, match=r"is no result of `mpirun -n 4 bulksample info --network --json network\.json`"):
        network_named(written(**changes))


def test_a_file_that_changed_is_read_again(written):
    assert network_named(written()).message.value == 2e-6
    assert network_named(written(message=3e-6)).message.value == 3e-6


def test_names_stay_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loopback").write_text("{}")
    assert network_named("loopback") is NETWORKS["loopback"]
    with pytest.raises(UsageError, match="there is no network 'nothing'"):
        network_named("nothing")
