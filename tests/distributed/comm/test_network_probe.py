"""Measured messages between ranks: a transport whose clock is a formula gives its own rates back; groups follow the machines."""

import numpy as np
import pytest
from launch import run_ranks

from bulksample.distributed.comm import network_probe
from bulksample.distributed.comm.machines import VARIABLE
from bulksample.distributed.comm.network_probe import MirrorComm, host_seconds, measure_network
from bulksample.distributed.comm.threads import on_threads

COLLECTIVE, MESSAGE, LATENCY, BANDWIDTH = 3e-5, 2e-6, 5e-4, 2e8


class ClockedComm(MirrorComm):
    """A mirrored communicator that sets a clock forward by the formula of the module, where the transport would work."""

    now = 0.0

    def _alltoall_words(self, words):
        type(self).now += COLLECTIVE + (self.size - 1) * (MESSAGE + LATENCY)
        return super()._alltoall_words(words)

    def _start_alltoall(self, sent, outgoing, into, incoming, kind):
        type(self).now += (self.size - 1) * (MESSAGE + LATENCY) + outgoing[1:].sum() / BANDWIDTH
        return super()._start_alltoall(sent, outgoing, into, incoming, kind)

    def _split(self, color, members):
        return ClockedComm(len(members))


@pytest.mark.parametrize("ranks", [2, 7])
def test_rates_of_a_clock_come_back(monkeypatch, ranks):
    monkeypatch.setattr(network_probe.time, "perf_counter", lambda: ClockedComm.now)
    monkeypatch.setattr(network_probe, "host_seconds", lambda: (COLLECTIVE, MESSAGE))
    found = measure_network(ClockedComm(ranks), 3, 2**16)
    assert (found["collective"], found["message"]) == (COLLECTIVE, MESSAGE)
    assert found["inside"]["latency"] == pytest.approx(LATENCY, rel=1e-3)  # 8 bytes travel with it
    assert found["inside"]["bandwidth"] == pytest.approx(BANDWIDTH, rel=0.01)


def test_host_seconds_are_a_line_through_the_sizes(monkeypatch):
    """Each all-to-all among p ranks takes 2e-5 + 3e-6 * 2 (p - 1) s of the processor, by its own clock."""
    clock = [0.0]

    def alltoall(self, parts, kind):
        clock[0] += 2e-5 + 3e-6 * 2 * (self.size - 1)

    monkeypatch.setattr(network_probe.time, "process_time", lambda: clock[0])
    monkeypatch.setattr(MirrorComm, "alltoall", alltoall)
    assert host_seconds(3) == (pytest.approx(2e-5), pytest.approx(3e-6))


@pytest.mark.parametrize(
    ("machines", "inside", "between"), [("4", 4, None), ("1,1,1,1", None, 4), ("2,2", 2, 2), ("3,1", 3, 2)]
)  # fmt: skip
def test_groups_follow_the_machines(monkeypatch, machines, inside, between):
    monkeypatch.setenv(VARIABLE, machines)
    results = on_threads(4, lambda comm: measure_network(comm, 1, 2**10))
    assert all(found == results[0] for found in results)
    found = results[0]
    assert [found[name] and found[name]["ranks"] for name in ("inside", "between")] == [inside, between]
    assert found["ranks_of_machines"] == [int(n) for n in machines.split(",")]
    assert found["even"] == (machines != "3,1")
    rates = [value for name in ("inside", "between") if found[name] for value in found[name].values()]
    assert all(np.isfinite(rates))
    assert min(rates) > 0


def test_a_mirror_answers_with_what_it_is_sent():
    comm = MirrorComm(3)
    parts = [np.array([r, r]) for r in range(3)]
    assert [part.tolist() for part in comm.alltoall(parts, "control")] == [[0, 0], [1, 1], [2, 2]]
    assert comm.allreduce(np.array([1, 2]), "control").tolist() == [3, 6]
    assert comm.tally["control"].bytes == 2 * 8 + 2 * 16 + (8 + 2 * 8)  # counts, two parts, and an all-reduce


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_ranks_measure_and_one_tells(tmp_path, launcher):
    file = tmp_path / "network.json"
    ended = run_ranks(4, ["-m", "bulksample", "info", "--network", "--json", str(file)], env={VARIABLE: "2"}, launcher=launcher)
    assert ended.code == 0, ended
    plan = ["-m", "bulksample", "plan", "--vertices", "1000", "--edges", "9000", "--feature-width", "10", "--device", "cpu", "--json", "-"]
    planned = run_ranks(1, [*plan, "--ranks", "4", "--network", str(file)])
    assert planned.code == 0, planned
    assert '"source": "network.json: 2, 2 ranks on 2 machines"' in planned.out


def test_one_rank_has_no_network():
    ended = run_ranks(1, ["-m", "bulksample", "info", "--network"])
    assert ended.code == 2
    assert "use mpirun -n 4 bulksample info --network" in ended.err
