"""The alpha-beta model by hand, and the parsing of networks."""

import pytest
from reports import report

from bulksample.errors import UsageError
from bulksample.plan.profiles import NETWORKS
from bulksample.report.network import NetworkModel, name_and_options, network_models


def test_seconds_are_computing_and_latency_and_transfer():
    # 2 s of computing, 50 messages of 1 ms, 4 MB at 1.25 MB/s
    assert NetworkModel("slow", 1e-3, 1.25e6).seconds(report()) == pytest.approx(2 + 0.05 + 3.2)


def test_the_table_of_networks_is_that_of_plan():
    for name, network in NETWORKS.items():
        link = network_models([name], 10**6)[0]
        assert link.latency == network.latency.value
        assert link.bandwidth == (network.between if network.per_node < 10**6 else network.inside).value


def test_ranks_of_one_node_stay_inside():
    inside, between = (network_models(["hgx-h200"], ranks)[0].bandwidth for ranks in (8, 9))
    assert (inside, between) == (450e9, 50e9)


def test_rates_of_a_network_can_be_set():
    assert network_models(["ethernet-10g:between=1.25e6:latency=2e-3"], 4) == [
        NetworkModel("ethernet-10g:between=1.25e6:latency=2e-3", 2e-3, 1.25e6)
    ]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["token-ring"], "there is no network 'token-ring'; use perlmutter"),
        (["loopback:speed=3"], "no 'speed'; use latency, inside, between"),
        (["loopback:inside=fast"], "inside must be a positive number; got 'fast'"),
        (["loopback:inside=0"], "inside must be a positive number; got '0'"),
        (["loopback:inside=inf"], "inside must be a positive number"),
        (["loopback", "loopback"], "use each name once"),
    ],
)
def test_a_malformed_network_is_refused(labels, said):
    with pytest.raises(UsageError, match=said):
        network_models(labels, 4)


def test_names_and_options_are_split():
    assert name_and_options("sync") == ("sync", {})
    assert name_and_options("adaqp:bits=4:partition=a=b") == ("adaqp", {"bits": "4", "partition": "a=b"})


@pytest.mark.parametrize("label", ["", ":bits=4", "adaqp:", "adaqp:bits", "adaqp:=4", "adaqp:bits=2:bits=4", "adaqp:bits=4:more"])
def test_malformed_options_are_refused(label):
    with pytest.raises(UsageError, match="NAME:KEY=VALUE"):
        name_and_options(label)
