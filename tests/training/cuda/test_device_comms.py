"""Tensor communicators have the results and byte counts of a host communicator. gloo stands for NCCL."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from launch import run_ranks

from bulksample import PeerLost, UsageError
from bulksample.distributed.comm.mpi import CudaAware
from bulksample.distributed.comm.threads import SerialComm, ThreadComm, on_threads
from bulksample.training.cuda import device_comms
from bulksample.training.cuda.device_comms import GroupTensorComm, choose_tensor_comm
from bulksample.training.process_group import listen_at, shared_store, store_host
from bulksample.training.tensor_comm import HostTensorComm

DTYPES = {np.int32: torch.int32, np.int64: torch.int64, np.float32: torch.float32, np.float16: torch.float16, np.uint8: torch.uint8}


def exercise(comm, over, cases, seed=0):
    """Send ragged parts, some empty, by a tensor communicator and by the ranks' own; compare bits and byte counts."""
    for case in range(seed, seed + cases):
        rng = np.random.default_rng([case, comm.size])
        dtype = list(DTYPES)[case % len(DTYPES)]
        shape = [(), (3,), (2, 5), (0,)][rng.integers(4)]
        sizes = rng.integers(0, 9, (comm.size, comm.size)) * rng.integers(0, 2, (comm.size, comm.size))
        own = np.random.default_rng([case, comm.rank])
        parts = [own.integers(0, 100, (rows, *shape)).astype(dtype) for rows in sizes[comm.rank]]
        before = dict(comm.tally)
        expected = comm.alltoall(parts, "topology")
        between = dict(comm.tally)
        arrival = over.start_alltoall([torch.from_numpy(part) for part in parts], "topology")
        got = arrival.wait()
        tallies = [{kind: np.subtract(b[kind], a[kind]).tolist() for kind in a} for a, b in ((before, between), (between, comm.tally))]
        if over._comm is comm:
            assert tallies[0] == tallies[1]
        assert [part.dtype for part in got] == [DTYPES[dtype]] * comm.size
        for part, there in zip(got, expected, strict=True):
            assert part.shape == there.shape
            assert part.numpy().tobytes() == there.tobytes()
        whole, counts = arrival.whole()
        assert counts == sizes[:, comm.rank].tolist()
        assert whole.numpy().tobytes() == np.concatenate(expected).tobytes()


RANKS = """
import json, sys, torch
sys.path.insert(0, {folder!r})
from test_device_comms import exercise
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.training.cuda.device_comms import GroupTensorComm, MpiTensorComm
from bulksample.training.tensor_comm import HostTensorComm
from bulksample.distributed.comm.mpi import MpiComm

with world(PATIENCE) as comm:
    grid = ProcessGrid(comm, 2)
    found = []
    for among in (comm, grid.row_comm, grid.column_comm):
        sums = []
        for over in (HostTensorComm(among), GroupTensorComm(among, "gloo")):
            before = dict(among.tally)
            tensor = torch.arange(1001, dtype=torch.float32) * (comm.rank + 1)
            over.allreduce(tensor, "gradients")
            sent = among.tally["gradients"]
            sums.append((tensor.tolist(), [sent[0] - before["gradients"][0], sent[1] - before["gradients"][1]]))
        found.append(sums[0] == sums[1] and sums[0][0][-1] / 1000)
        exercise(among, over, 10)
        exercise(among, over.among(among.duplicate()), 3, seed=10)
        if isinstance(among, MpiComm):  # which reads tensors of the host
            direct = MpiTensorComm(among)
            exercise(among, direct, 10)
            exercise(among, direct.among(among.duplicate()), 3, seed=10)
            summed = []
            for over in (HostTensorComm(among), direct):
                before, tensor = among.tally["gradients"], torch.rand(1001, generator=torch.Generator().manual_seed(comm.rank))
                over.allreduce(tensor, "gradients")
                summed.append((tensor.tolist(), [after - was for after, was in zip(among.tally["gradients"], before)]))
            assert summed[0] == summed[1]
    found = comm.gather_control(found)
    if comm.rank == 0:
        print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_rows_and_columns_of_the_grid_have_groups_of_their_own(launcher):
    """The numbers are whole, so the order of a sum does not matter."""
    ended = run_ranks(4, RANKS.format(folder=__file__.rsplit("/", 1)[0]), launcher=launcher)
    assert ended.code == 0, ended
    assert json.loads(ended.out) == [[10, 3, 4], [10, 3, 6], [10, 7, 4], [10, 7, 6]]


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("how", ["host", "gloo"])
def test_all_to_all_equals_that_of_the_ranks_in_bits_and_bytes(p, how):
    on_threads(p, lambda comm: exercise(comm, HostTensorComm(comm) if how == "host" else GroupTensorComm(comm, how), 20))


@pytest.mark.parametrize("how", ["host", "gloo"])
def test_bfloat16_travels_unchanged(how):
    def sent(comm):
        over = HostTensorComm(comm) if how == "host" else GroupTensorComm(comm, how)
        return over.alltoall([torch.tensor([1.5 + comm.rank, -2.0], dtype=torch.bfloat16)] * 2, "features")

    for parts in on_threads(2, sent):
        assert [part.tolist() for part in parts] == [[1.5, -2.0], [2.5, -2.0]]
        assert parts[0].dtype == torch.bfloat16


def test_parts_of_different_dtypes_raise_on_all_ranks():
    def body(comm):
        over = GroupTensorComm(comm, "gloo")
        with pytest.raises(UsageError, match="one kind, dtype and shape of rows"):
            over.alltoall([torch.zeros(2, dtype=torch.int32 if comm.rank else torch.int64)] * 2, "topology")
        with pytest.raises(UsageError, match="kind must be one of"):
            over.alltoall([torch.zeros(2)] * 2, "gossip")

    on_threads(2, body)


def test_a_group_that_fails_or_times_out_is_a_lost_peer():
    def fails():
        raise RuntimeError("connection closed by peer")

    def body(comm):
        with pytest.raises(PeerLost, match="rank 0: alltoall failed: connection closed by peer"):
            comm.wait_for("alltoall", fails)
        with pytest.raises(PeerLost, match=r"rank 0 waited 0.2 s for alltoall"):
            comm.wait_for("alltoall", lambda: False)

    on_threads(1, body, timeout=0.2)


LOST = """
import os, torch
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
from bulksample.training.cuda.device_comms import GroupTensorComm

with world(PATIENCE) as comm:
    over = GroupTensorComm(comm, "gloo")
    comm.barrier()
    if {seconds}:
        comm.watch.timeout = {seconds}
    comm.exchange_counts = lambda rows, *what: __import__("numpy").array(rows)  # so that only the group waits
    if comm.rank == 1:
        {what}
    over.alltoall([torch.zeros(3)] * 3, "features")
"""


@pytest.mark.long
@pytest.mark.parametrize(("what", "seconds", "said"), [
    ("raise SystemExit(0)", 0, "rank 1 left early while this rank is in"), ("os.kill(os.getpid(), 9)", 0, "was killed by signal 9"),
    ("import time; time.sleep(10_000)", 6, "waited 6 s for alltoall features 36 bytes for 36 by gloo"),
])  # fmt: skip
def test_a_rank_missing_from_a_group_ends_all_ranks(what, seconds, said):
    ended = run_ranks(3, LOST.format(what=what, seconds=seconds))
    assert ended.code == 75, ended
    assert said in ended.err, ended


@pytest.mark.parametrize("p", [1, 2, 3])
def test_allreduce_over_the_host_is_in_place(p):
    def added(comm):
        tensor = torch.full((5,), float(comm.rank))
        HostTensorComm(comm).allreduce(tensor, "gradients")
        return tensor.tolist()

    assert on_threads(p, added) == [[p * (p - 1) / 2] * 5] * p


def test_allreduce_over_the_host_copies_the_sum_back(monkeypatch):
    """Make `cpu` copy, as for a tensor on a device."""
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: tensor.clone())

    def added(comm):
        tensor = torch.full((5,), float(comm.rank + 1))
        HostTensorComm(comm).allreduce(tensor, "gradients")
        return tensor.tolist()

    assert on_threads(2, added) == [[3.0] * 5] * 2


def test_without_nccl_tensors_travel_over_the_host_or_all_ranks_refuse(monkeypatch):
    monkeypatch.setattr(device_comms, "device_name", str)
    here = torch.device("cpu")
    assert choose_tensor_comm(SerialComm(), here, "nccl").name == "host"
    assert on_threads(2, lambda comm: choose_tensor_comm(comm, here, "auto").name) == ["host", "host"]
    assert on_threads(2, lambda comm: choose_tensor_comm(comm, here, "host").name) == ["host", "host"]

    def refused(comm):
        where = torch.device("cuda" if comm.rank else "cpu")
        with pytest.raises(UsageError, match=r"nccl was asked for, but rank 0 computes on the cpu; use device_comm host"):
            choose_tensor_comm(comm, where, "nccl")
        return True

    assert on_threads(2, refused) == [True, True]


def test_mpi_gets_tensors_only_if_it_reads_their_memory(monkeypatch):
    here = torch.device("cpu")

    def reached(comm, answers, asked):
        monkeypatch.setattr(type(comm), "cuda_aware", property(lambda comm: CudaAware(*answers[comm.rank])), raising=False)
        return choose_tensor_comm(comm, here, asked)

    def refused(comm):
        with pytest.raises(UsageError, match=r"device_comm mpi was asked for, but it says no; use device_comm host"):
            reached(comm, [(True, "it says yes"), (False, "it says no")], "mpi")
        return reached(comm, [(True, "it says yes"), (False, "it says no")], "auto").why

    assert on_threads(2, refused) == ["rank 0 computes on the cpu; it says no"] * 2
    monkeypatch.setattr(device_comms, "MpiComm", ThreadComm)
    both = on_threads(2, lambda comm: [reached(comm, [(True, "it says yes")] * 2, asked) for asked in ("mpi", "auto")])
    assert [[over.name for over in found] for found in both] == [["mpi", "host"]] * 2
    assert both[0][1].why == "rank 0 computes on the cpu; it says yes, so device_comm mpi would work"


def test_ranks_that_share_a_device_do_not_use_nccl(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    made = []
    monkeypatch.setattr(device_comms, "group_of", lambda comm, backend: made.append(backend))
    monkeypatch.setattr(device_comms, "device_name", str)
    shared = on_threads(2, lambda comm: choose_tensor_comm(comm, torch.device("cuda", 0), "auto"))
    one, why = [over.name for over in shared], {over.why for over in shared}
    assert why == {"ranks 0, 1 share a device; the ranks do not meet by MPI"}
    each = on_threads(2, lambda comm: choose_tensor_comm(comm, torch.device("cuda", comm.rank), "auto").name)
    assert (one, each, made) == (["host", "host"], ["nccl", "nccl"], ["nccl", "nccl"])


@pytest.mark.parametrize(("ranks", "found"), [
    ([["a", ""], ["a", ""]], "127.0.0.1"), ([["a", "a.net"], ["a", "a.net"]], "127.0.0.1"), ([["a", ""], ["b", ""]], "a"),
    ([["a", "a.net"], ["b", "a.net"]], "a.net"),
])  # fmt: skip
def test_ranks_of_one_machine_meet_on_localhost_and_others_at_master_addr(ranks, found):
    assert store_host(ranks) == found


def test_a_group_of_one_rank_works():
    tensor = torch.ones(3)
    GroupTensorComm(SerialComm(), "gloo").allreduce(tensor, "gradients")
    assert tensor.tolist() == [1, 1, 1]


TRAINED = """
import json, torch
torch.set_num_threads(1)
from communities import community_graph
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
from bulksample.training.compute import ComputeContext
from bulksample.training.cuda.device_comms import GroupTensorComm
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

class Gloo(ComputeContext):
    def tensors(self, comm):
        return GroupTensorComm(comm, "gloo")

with world(PATIENCE) as comm:
    small = {"fanouts": (3, 2), "hidden": 8, "batch_size": 16, "epochs": 2, "threads": 1, "quiet": True, "batch_norm": True}
    config, graph = TrainConfig.of(**small), community_graph(150)
    reports = [make_trainer(config, graph, comm, compute=compute).run() for compute in (ComputeContext(), Gloo())]
    if comm.rank == 0:
        print(json.dumps([[r["train_loss"], r["test_accuracy"], r["bytes_sent"]["gradients"], r["device_comm"]] for r in reports]))
"""


@pytest.mark.long
def test_gradients_summed_by_a_group_train_the_same_model():
    """Two ranks, since a sum of two has the same bits in either order."""
    ended = run_ranks(2, TRAINED)
    assert ended.code == 0, ended
    staged, grouped = json.loads(ended.out)
    assert (staged.pop(), grouped.pop()) == ("host", "gloo")
    assert staged[:2] == grouped[:2]
    assert grouped[2] == staged[2]  # a run counts its own bytes


def listening_addresses(port):
    """The addresses at which this machine listens on a port, as the kernel lists them."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) == port}


def test_the_store_of_ranks_of_one_machine_listens_on_loopback_alone():
    def rank(comm):
        store = shared_store(comm)
        store.set(f"{comm.rank}", "here")
        found = [store.get(str(other)) for other in range(2)]
        at = listening_addresses(store.port)
        comm.barrier()
        return found, at

    assert on_threads(2, rank) == [([b"here"] * 2, {"0100007F"})] * 2  # 127.0.0.1, its bytes in reverse


@pytest.mark.parametrize("host", ["localhost", "no-such-host.invalid", "192.0.2.1"])
def test_an_address_that_others_cannot_reach_is_not_listened_at_alone(host):
    """A loopback address of a name that other machines know, a name that is unknown here, and an address of another machine."""
    with closing(listen_at(host)) as made:
        assert made.getsockname()[0] == "0.0.0.0"
