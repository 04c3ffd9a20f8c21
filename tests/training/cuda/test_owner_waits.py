"""A bulk drawn from block rows on devices waits for the device as often as the docstrings say: all that torch waits for is counted."""

import numpy as np
import pytest
import torch
from battery import make
from emulation.apart import READS, ApartCard, ApartComm, Apartness
from emulation.host import compiler
from grids import distributed, epoch, seeds_of
from zoo import ZOO

from bulksample import LocalAdjacency, PeerLost, Selection, Stream, backends
from bulksample.distributed.comm.threads import on_threads
from bulksample.training.cuda import device_comms
from bulksample.training.cuda.device_comms import GroupTensorComm
from bulksample.training.cuda.device_owner import DeviceOwnerAdjacency
from bulksample.training.cuda.owner_messages import BulkReads
from bulksample.training.tensor_comm import HostTensorComm

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
ONCE = 2  # for the mini-batches of the others, and for the counts of the bulk
PICKS = 2  # of FastGCN: picks and arrivals of a hop are drawn for all mini-batches and come to the host


def drawn(comm, sampler, matrix, seeds):
    """Sample twice; return mini-batches with digests, the waits of the second bulk, and the operations of torch that waited in it."""
    card, own = ApartCard(), np.flatnonzero([rank == comm.rank for rank, _ in seeds])
    asked = Selection.of([seeds[i][1] for i in own], matrix.shape[0], own)
    get, gets = card.kernels.get, []
    card.kernels.get = lambda array: gets.append(array.nbytes) or get(array)
    with Apartness():
        rows = distributed(comm, 1, "owner", matrix, None, card.engine)
        there = DeviceOwnerAdjacency(rows, card, ApartComm(rows.grid.column_comm))
        sampler.sample_bulk(there, asked, Stream(3), epoch=1)  # what belongs to the graph is made and put on the device now
        comm.barrier()  # ranks are threads, and share the list of what waited
        READS.clear()
        gets.clear()
        comm.barrier()
        got = sampler.sample_bulk(there, asked, Stream(3), epoch=1)
        comm.barrier()
        waits, waited = len(gets), list(READS)
        card.synchronize()
        comm.barrier()
        return [(minibatch.id, minibatch.digest()) for minibatch in got], waits, waited


@pytest.mark.parametrize(("setting", "fanouts", "each_hop"), [
    ("sage", (4, 3, 2), 1), ("full", (-1, -1), 2), ("ladies", (5, 5), 6),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("sage", (4,), 1), ("labor", (4, 3), 1), ("sage replace", (16, 5), 1), ("sage", (40, 40), 2), ("labor", (40, 40), 2),
        ("sage weighted", (40, 40), 2), ("ladies", (5, 5, 5), 6), ("ladies", (-1, 5), 6), ("fastgcn", (5, 5), 4 + PICKS),
    )),
])  # fmt: skip
@pytest.mark.parametrize("frontier", ["all", "new"])
def test_a_bulk_waits_as_often_as_is_said(setting, fanouts, each_hop, frontier):
    sampler, matrix, lists = make(setting, fanouts, frontier=frontier), ZOO["weighted"], seeds_of(200)
    seeds = [(i % 2, own) for i, own in enumerate(lists)]
    ranks = on_threads(2, lambda comm: drawn(comm, sampler, matrix, seeds))
    alone = epoch(sampler, LocalAdjacency(matrix, backends.make("reference")), lists)
    assert dict(pair for found, _, _ in ranks for pair in found) == dict(alone)
    assert [waits for _, waits, _ in ranks] == [each_hop * len(fanouts) + ONCE] * 2
    assert [waited for _, _, waited in ranks] == [[], []]


@pytest.mark.long
def test_the_mini_batches_of_a_rank_are_known_when_it_first_asks():
    """Vertex v has the neighbors v + 50 and v + 51: the seed of rank 0 reaches the rows of ranks 1, 2 and 3 in one hop after another."""
    matrix = ZOO["random"]
    rows = np.repeat(np.arange(200), 2)
    columns = (rows + 50 + np.tile([0, 1], 200)) % 200
    matrix = type(matrix).from_edges(rows, columns, (200, 200))
    sampler = make("sage", (2, 2, 2))
    ranks = on_threads(4, lambda comm: drawn(comm, sampler, matrix, [(0, [3])]))
    assert ranks[0][0] == epoch(sampler, LocalAdjacency(matrix, backends.make("reference")), [[3]], bulk=1)
    assert [waits for _, waits, _ in ranks] == [5, 5, 5, 4]  # the last rank is not asked


def test_what_was_promised_is_checked_with_the_next_number():
    def body(comm):
        with Apartness():
            reads = BulkReads(ApartCard(), HostTensorComm(comm))
            one, two = (ApartCard().put(np.array(numbers)) for numbers in ([4, 5], [7]))
            reads.check(one, [4, 5], "rows")
            reads.check(two, [6], "picks")
            with pytest.raises(PeerLost, match="7 picks were promised; 6 came"):
                reads.read(one)
            assert reads.read(one).tolist() == [4, 5]

    on_threads(1, body)


class UnderWay:
    """The work of a collective of NCCL: a stream can wait for it, before it is complete."""

    def __init__(self):
        self.complete, self.streams = False, 0

    def is_completed(self):
        return self.complete

    def wait(self):
        self.streams += 1

    def alltoall_base(self, *arguments):
        return self


def test_the_host_waits_for_messages_of_a_bulk_when_it_reads(monkeypatch):
    monkeypatch.setattr(device_comms, "group_of", lambda comm, backend: UnderWay())

    def body(comm):
        whole = GroupTensorComm(comm, "nccl")
        with pytest.raises(PeerLost, match=r"waited 0.2 s for alltoall topology 12 bytes for 12 by nccl"):
            whole.alltoall([torch.zeros(3)], "topology")
        later = whole.among(comm, later=True)
        later.alltoall([torch.zeros(3)], "topology")
        assert later._group.streams == 1
        for _ in range(2):
            with pytest.raises(PeerLost, match=r"waited 0.2 s for alltoall topology 12 bytes for 12 by nccl"):
                later.settle()
        later._group.complete = True
        later.settle()
        later._group.complete = False
        later.settle()  # nothing is under way

    on_threads(1, body, timeout=0.2)
