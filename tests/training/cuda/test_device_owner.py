"""Sampling of block rows on devices gives the mini-batches of one process on any grid, and sends the bytes of CPU ranks."""

import numpy as np
import pytest
from battery import SETTINGS, make, needs_weights
from emulation.card import emulated_card
from emulation.host import compiler
from grids import distributed, epoch, seeds_of
from zoo import ZOO

from bulksample import CSR, LocalAdjacency, PeerLost, Selection, Stream, backends, samplers
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix import partition
from bulksample.distributed.matrix.layout import Layout
from bulksample.training.cuda.device_comms import GroupTensorComm
from bulksample.training.cuda.device_owner import DeviceOwnerAdjacency
from bulksample.training.tensor_comm import HostTensorComm

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
GRIDS = [(4, 2), (3, 1)]
MORE = [(1, 1), (2, 1), (4, 1), (4, 4), (6, 2), (8, 2)]
QUICK_SETTINGS = ("sage", "labor", "ladies")
SETTING = [pytest.param(name, marks=[] if name in QUICK_SETTINGS else pytest.mark.long) for name in SETTINGS]


def on_devices(comm, c, matrix, how, layout=None):
    card = emulated_card()
    adjacency = distributed(comm, c, "owner", matrix, layout, card.engine)
    column = adjacency.grid.column_comm
    return DeviceOwnerAdjacency(adjacency, card, HostTensorComm(column) if how == "host" else GroupTensorComm(column, how))


def sent_since(comm, before):
    return {kind: np.subtract(comm.tally[kind], before[kind]).tolist() for kind in before}


def drawn_both_ways(comm, c, matrix, how, layout, sampler, lists, bulk):
    """Return mini-batches and sent bytes of block rows on devices, and of block rows on hosts."""
    found = []
    for there in (on_devices(comm, c, matrix, how, layout), distributed(comm, c, "owner", matrix, layout, backends.make("reference"))):
        before = dict(comm.tally)
        found.append((epoch(sampler, there, lists, comm.rank, comm.size, bulk), sent_since(comm, before)))
    return found


@pytest.mark.parametrize("grids", [pytest.param(GRIDS, id="some grids"), pytest.param(MORE, id="more grids", marks=pytest.mark.long)])
@pytest.mark.parametrize("setting", SETTING)
def test_mini_batches_on_devices_do_not_depend_on_the_grid(setting, grids):
    for name in ("weighted", "single", "random"):
        matrix = ZOO[name]
        if needs_weights(setting) and matrix.values is None:
            continue
        lists = seeds_of(matrix.shape[0])
        for frontier in ("all", "new") if setting == "sage" else ("all",):
            sampler = make(setting, frontier=frontier)
            alone = dict(epoch(sampler, LocalAdjacency(matrix, backends.make("reference")), lists))
            for turn, (p, c) in enumerate(grids if name == "weighted" else grids[:1]):
                layout = Layout.of(partition.random(matrix.shape[0], p // c, seed=p)) if turn % 2 else None
                how = "host" if turn % 3 == 2 else "gloo"

                def rank(comm, c=c, matrix=matrix, how=how, layout=layout, sampler=sampler, lists=lists):
                    return drawn_both_ways(comm, c, matrix, how, layout, sampler, lists, bulk=1 + comm.size % 3)

                both = on_threads(p, rank)
                spread = dict(pair for (there, _), _ in both for pair in there)
                assert spread == alone, f"{name}, p = {p}, c = {c}: minibatches {[i for i in alone if spread.get(i) != alone[i]]}"
                for (_, sent), (_, on_host) in both:
                    assert sent == on_host


@pytest.mark.parametrize("setting", ["sage", "sage weighted replace", pytest.param("sage weighted", marks=pytest.mark.long)])
def test_answers_that_are_not_padded(setting):
    """Rows draw 40 picks, all, and 300: counts take one byte, then more, and are those of edges or of weights above zero."""
    matrix, sampler, lists = ZOO["weighted"], make(setting, fanouts=(40, -1, 300) if "replace" not in setting else (40, 300)), seeds_of(200)
    alone = dict(epoch(sampler, LocalAdjacency(matrix, backends.make("reference")), lists[:4]))
    both = on_threads(3, lambda comm: drawn_both_ways(comm, 1, matrix, "gloo", None, sampler, lists[:4], bulk=2))
    assert dict(pair for (there, _), _ in both for pair in there) == alone
    for (_, sent), (_, on_host) in both:
        assert sent == on_host


def test_empty_blocks_and_ranks_without_minibatches_are_legal():
    matrix, lists, sampler = ZOO["random"], seeds_of(200), make("sage", frontier="new")
    alone = dict(epoch(sampler, LocalAdjacency(matrix, backends.make("reference")), lists))
    for bounds in ([0, 0, 150, 150, 200], [0, 200, 200, 200, 200]):

        def rank(comm, bounds=bounds):
            there = on_devices(comm, 1, matrix, "gloo", Layout(np.array(bounds)))
            drawn = []
            for call in range(2):
                own = lists if (comm.rank, call) == (2, 0) else []
                drawn += epoch(sampler, there, own, bulk=10) if own else [(m.id, m.digest()) for m in nothing(sampler, there)]
            return drawn

        assert dict(on_threads(4, rank)[2]) == alone


def nothing(sampler, adjacency):
    """Sample on a rank without mini-batches."""
    return sampler.sample_bulk(adjacency, Selection.of([], adjacency.n), Stream(3), epoch=1)


@pytest.mark.parametrize("setting", ["sage", "ladies", "fastgcn"])
def test_mini_batches_are_tensors(setting):
    def rank(comm):
        there = on_devices(comm, 1, ZOO["weighted"], "gloo")
        (minibatch,) = make(setting).sample_bulk(there, Selection.of([[1, 2, 3]], 200), Stream(3))
        return [type(array).__name__ for array in (minibatch.vertices, minibatch.blocks[0].indptr, minibatch.blocks[0].indices)]

    assert on_threads(2, rank) == [["Tensor"] * 3] * 2


def test_weights_whose_sums_could_exceed_int64_are_refused():
    """Four edges of 2**61 lead to vertex 1, so a sum over their rows would be 2**63."""
    rows, columns = np.array([0, 1, 2, 3, 4]), np.array([1, 1, 1, 1, 0])
    matrix = CSR.from_edges(rows, columns, (5, 5)).with_values(np.array([2**61] * 4 + [1]))

    def rank(comm):
        there, sampler = on_devices(comm, 1, matrix, "gloo"), samplers.make("ladies", (2,), importance="squared_sum")
        return sampler.sample_bulk(there, Selection.of([[0, 1, 2, 3]], 5), Stream(3))

    with pytest.raises(OverflowError, match=r"sums to 9\.22e\+18, beyond int64; use weights of a coarser fixed point"):
        on_threads(2, rank)


def test_a_wrong_number_of_picks_is_an_error():
    class Short(GroupTensorComm):
        def start_alltoall(self, parts, kind, incoming=None):
            if self.turn == 3:  # of a hop: the frontier, the smallest keys, rows and columns to extract, their edges
                parts = [part[:-1] if len(part) else part for part in parts]
            self.turn += 1
            return super().start_alltoall(parts, kind, incoming)

    def rank(comm):
        there = on_devices(comm, 1, ZOO["weighted"], "gloo")
        there.messages.over = Short(there.grid.column_comm, "gloo")
        there.messages.over.turn = 0
        epoch(make("ladies", fanouts=(9,)), there, [[1, 2, 150]] * 2, comm.rank, 2)

    with pytest.raises(PeerLost, match=r"picks were promised"):
        on_threads(2, rank)
