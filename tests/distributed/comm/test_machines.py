"""The machine of each rank, and the bytes that leave it, counted by hand."""

import numpy as np
import pytest

from bulksample import UsageError
from bulksample.distributed.comm import machines
from bulksample.distributed.comm.machines import VARIABLE, machines_of_ranks, numbered, on_one_machine, simulated, uneven
from bulksample.distributed.comm.threads import on_threads


@pytest.mark.parametrize(("text", "ranks", "expected"), [
    ("2", 5, [0, 0, 1, 1, 2]), ("8", 3, [0, 0, 0]), ("1,3", 4, [0, 1, 1, 1]), ("4", 4, [0, 0, 0, 0]),
])  # fmt: skip
def test_the_variable_puts_ranks_on_machines(text, ranks, expected):
    assert simulated(text, ranks).tolist() == expected


@pytest.mark.parametrize("text", ["", "two", "0", "2,1", "4,0", "2,-1,3", "1,1,1,1,1"])
def test_a_variable_that_does_not_fit_is_refused(text):
    with pytest.raises(UsageError, match=f"{VARIABLE}: got '{text}' for 4 ranks; use the ranks of each machine"):
        simulated(text, 4)


def test_every_rank_learns_of_a_fault_of_one(monkeypatch):
    monkeypatch.setattr(machines, "_own_machine", lambda rank, ranks: "!rank 1 is nowhere" if rank else "here")

    def rank(comm):
        with pytest.raises(UsageError, match="rank 1 is nowhere"):
            machines_of_ranks(comm)

    on_threads(2, rank)


def test_hosts_are_numbered_by_their_first_rank_and_cost_no_counted_bytes(monkeypatch):
    monkeypatch.setattr(machines, "_own_machine", lambda rank, ranks: "bac"[rank % 3])

    def rank(comm):
        comm.machine_of = machines_of_ranks(comm)
        assert not any(sent.bytes for sent in comm.tally.values())
        inside = on_one_machine(comm)
        return comm.machine_of.tolist(), inside.rank, inside.size, uneven(comm)

    assert numbered(["b", "a", "b"]).tolist() == [0, 1, 0]
    found = on_threads(5, rank)
    assert found[0] == ([0, 1, 2, 0, 1], 0, 2, "2, 2 and 1")
    assert [(number, size) for _, number, size, _ in found] == [(0, 2), (0, 2), (0, 1), (1, 2), (1, 2)]


def test_bytes_to_other_machines_are_those_of_the_contract(monkeypatch):
    """Ranks 0 and 1 share a machine, rank 2 has its own. An all-reduce of five numbers has shares of 2, 2 and 1."""
    monkeypatch.setenv(VARIABLE, "2,1")

    def rank(comm):
        comm.allreduce(np.ones(5, np.float32), "gradients")
        comm.broadcast(np.ones(3, np.float64), "model")
        comm.allgather_rows(np.ones((comm.rank + 1, 2), np.int32), np.arange(3) + 1, "topology")
        comm.alltoall([np.ones(r + 1, np.float32) for r in range(3)], "features")
        pair = comm.split(0 if comm.rank % 2 == 0 else 1)  # ranks 0 and 2
        pair.allreduce(np.ones(2, np.float32), "activations")
        assert pair.between_machines is comm.between_machines
        assert sum(comm.duplicate().between_machines.values()) == 0
        return dict(comm.between_machines)

    first, second, alone = on_threads(3, rank)
    assert [sent["gradients"] for sent in (first, second, alone)] == [4 * (1 + 2), 4 * (1 + 2), 4 * (2 + 2) + 2 * 4 * 1]
    assert [sent["model"] for sent in (first, second, alone)] == [24, 0, 0]
    assert [sent["topology"] for sent in (first, second, alone)] == [8, 16, 2 * 24]
    assert [sent["features"] for sent in (first, second, alone)] == [12, 12, 4 + 8]
    assert [sent["activations"] for sent in (first, second, alone)] == [4 + 4, 0, 4 + 4]
    assert first["control"] == 8 + 16 + 16  # counts of the all-to-all, the split, and the duplicate
