"""Tensors added over ranks: through torch.distributed as over the host, the same sums and the same counts. gloo stands for NCCL."""

import json

import pytest
import torch
from launch import run_ranks

from bulksample import UsageError
from bulksample.device import tensors
from bulksample.device.tensors import Grouped, Staged, group_of, meeting_place, over_nccl
from bulksample.dist.threads import SerialComm, on_threads

RANKS = """
import json, torch
from bulksample.dist.comm import world
from bulksample.dist.grid import ProcessGrid
from bulksample.device.tensors import Grouped, Staged, group_of

with world(60) as comm:
    grid = ProcessGrid(comm, 2)
    found = []
    for among in (comm, grid.row_comm, grid.column_comm):
        sums = []
        for over in (Staged(among), Grouped(among, group_of(among, "gloo"), "gloo")):
            before = dict(among.tally)
            tensor = torch.arange(1001, dtype=torch.float32) * (comm.rank + 1)
            over.allreduce(tensor, "gradients")
            sent = among.tally["gradients"]
            sums.append((tensor.tolist(), [sent[0] - before["gradients"][0], sent[1] - before["gradients"][1]]))
        found.append(sums[0] == sums[1] and sums[0][0][-1] / 1000)
    found = comm.gather_control(found)
    if comm.rank == 0:
        print(json.dumps(found))
"""


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_rows_and_columns_of_the_grid_have_groups_of_their_own(launcher):
    """Whole numbers, so the order of a sum does not matter."""
    ended = run_ranks(4, RANKS, 90, launcher=launcher)
    assert ended.code == 0, ended
    assert json.loads(ended.out) == [[10, 3, 4], [10, 3, 6], [10, 7, 4], [10, 7, 6]]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_staging_adds_where_the_tensor_lies(p):
    def added(comm):
        tensor = torch.full((5,), float(comm.rank))
        Staged(comm).allreduce(tensor, "gradients")
        return tensor.tolist()

    assert on_threads(p, added) == [[p * (p - 1) / 2] * 5] * p


def test_staging_brings_the_sum_back_to_a_device(monkeypatch):
    """A tensor whose copy on the host is another one."""
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: tensor.clone())

    def added(comm):
        tensor = torch.full((5,), float(comm.rank + 1))
        Staged(comm).allreduce(tensor, "gradients")
        return tensor.tolist()

    assert on_threads(2, added) == [[3.0] * 5] * 2


def test_what_nccl_cannot_add_is_staged_or_refused_on_all_ranks(monkeypatch):
    monkeypatch.setattr(tensors, "device_name", str)
    here = torch.device("cpu")
    assert over_nccl(SerialComm(), here, "nccl").name == "host"
    assert on_threads(2, lambda comm: over_nccl(comm, here, "auto").name) == ["host", "host"]
    assert on_threads(2, lambda comm: over_nccl(comm, here, "host").name) == ["host", "host"]

    def refused(comm):
        where = torch.device("cuda" if comm.rank else "cpu")
        with pytest.raises(UsageError, match=r"nccl was asked for, but rank 0 computes on the cpu; device_comm host would fit"):
            over_nccl(comm, where, "nccl")
        return True

    assert on_threads(2, refused) == [True, True]


def test_ranks_that_share_a_device_do_not_use_nccl(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    made = []
    monkeypatch.setattr(tensors, "group_of", lambda comm, backend: made.append(backend))
    monkeypatch.setattr(tensors, "device_name", str)
    one = on_threads(2, lambda comm: over_nccl(comm, torch.device("cuda", 0), "auto").name)
    each = on_threads(2, lambda comm: over_nccl(comm, torch.device("cuda", comm.rank), "auto").name)
    assert (one, each, made) == (["host", "host"], ["nccl", "nccl"], ["nccl", "nccl"])


@pytest.mark.parametrize(("ranks", "found"), [
    ([["a", ""], ["a", ""]], "127.0.0.1"), ([["a", "a.net"], ["a", "a.net"]], "127.0.0.1"), ([["a", ""], ["b", ""]], "a"),
    ([["a", "a.net"], ["b", "a.net"]], "a.net"),
])  # fmt: skip
def test_ranks_of_one_machine_meet_on_it_and_others_where_they_are_told(ranks, found):
    assert meeting_place(ranks) == found


def test_one_rank_makes_a_group_alone():
    tensor = torch.ones(3)
    Grouped(SerialComm(), group_of(SerialComm(), "gloo"), "gloo").allreduce(tensor, "gradients")
    assert tensor.tolist() == [1, 1, 1]


TRAINED = """
import json, torch
torch.set_num_threads(1)
from communities import community_graph
from bulksample.dist.comm import world
from bulksample.device.place import Place
from bulksample.device.tensors import Grouped, group_of
from bulksample.train.loop import train

class Gloo(Place):
    def tensors(self, comm):
        return Grouped(comm, group_of(comm, "gloo"), "gloo")

with world(60) as comm:
    small = {"fanouts": (3, 2), "hidden": 8, "batch_size": 16, "epochs": 2, "threads": 1, "quiet": True, "batch_norm": True}
    reports = [train(community_graph(150), comm, place=place, **small) for place in (Place(), Gloo())]
    if comm.rank == 0:
        print(json.dumps([[r["train_loss"], r["test_accuracy"], r["bytes_sent"]["gradients"], r["device_comm"]] for r in reports]))
"""


def test_gradients_that_a_group_adds_train_the_same_model():
    """Of two ranks, whose sums are the same in either order."""
    ended = run_ranks(2, TRAINED, 120)
    assert ended.code == 0, ended
    staged, grouped = json.loads(ended.out)
    assert (staged.pop(), grouped.pop()) == ("host", "gloo")
    assert staged[:2] == grouped[:2]
    assert grouped[2] == 2 * staged[2]  # a communicator's tally goes on from run to run
