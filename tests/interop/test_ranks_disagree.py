"""Ranks that share the mini-batches of a drop-in loader compare their options, and where they begin; ranks that do not are told so."""

import json
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from launch import run_ranks
from pyg_graphs import make_data
from pyg_typed import typed_data
from torch.distributed import HashStore
from torch.utils.data import DistributedSampler

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop import equal_draws
from bulksample.interop.dgl import DataLoader, NeighborSampler
from bulksample.interop.pyg import (
    ClusterData,
    ClusterLoader,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    LadiesLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)

DATA, OTHER = make_data(), make_data(seed=2)
TYPED = typed_data()
PARTS, OTHER_PARTS = ClusterData(DATA, 8), ClusterData(DATA, 8, seed=5)


@pytest.fixture(autouse=True)
def dgl(monkeypatch):
    """DGL need not be there: nothing of it is called before the first blocks are made."""
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace())


def neighbors(data=DATA, num_neighbors=(4, 3), **options):
    return NeighborLoader(data, list(num_neighbors), **{"batch_size": 32, "shuffle": True, "seed": 1, **options})


def links(**options):
    return LinkNeighborLoader(DATA, [3], **{"batch_size": 64, "neg_sampling": "binary", "seed": 1, **options})


def dgl_graph(data):
    """Return the part of a DGLGraph that its loader reads when it is made."""
    return SimpleNamespace(
        is_homogeneous=True, ndata={}, edata={}, edges=lambda order: tuple(data.edge_index), num_nodes=lambda: data.num_nodes
    )


def blocks(data=DATA, fanouts=(3,), indices=None, **options):
    seeds = torch.arange(200) if indices is None else indices
    return DataLoader(dgl_graph(data), seeds, NeighborSampler(list(fanouts)), **{"batch_size": 32, "seed": 1, **options})


MADE = [
    (neighbors, {"seed": 2}, "seed: 1 on rank 0, 2 on rank 1"),
    (neighbors, {"drop_last": True}, "drop_last: False on rank 0, True on rank 1"),
    (neighbors, {"shuffle": False}, "shuffle: True on rank 0, False on rank 1"),
    (neighbors, {"batch_size": 31}, "batch_size: 32 on rank 0, 31 on rank 1"),
    (neighbors, {"num_neighbors": (4, 2)}, r"num_neighbors: \[4, 3\] on rank 0, \[4, 2\] on rank 1"),
    (neighbors, {"replace": True}, "replace: False on rank 0, True on rank 1"),
    (neighbors, {"subgraph_type": "induced"}, "subgraph_type: 'directional' on rank 0, 'induced' on rank 1"),
    (neighbors, {"input_nodes": torch.arange(99)}, "the examples of the loader and their times: another on rank 1"),
    (neighbors, {"data": OTHER}, "graph: another on rank 1"),
    (neighbors, {"grid": 1}, "grid: None on rank 0, 1 on rank 1"),
    (neighbors, {"sampler": range(300), "shuffle": False}, "shuffle: True on rank 0"),
    (lambda **own: neighbors(grid=1, **own), {"bulk_size": 3}, "bulk_size: 'auto' on rank 0, 3 on rank 1"),
    (lambda **own: LadiesLoader(DATA, [30], batch_size=32, **own), {"debias": False}, "debias: True on rank 0, False on rank 1"),
    (links, {"neg_sampling": "triplet"}, "neg_sampling: 'binary, 1 of each' on rank 0, 'triplet, 1 of each' on rank 1"),
    (links, {"exclude_targets": "self"}, "exclude_targets: 'none' on rank 0, 'self' on rank 1"),
    (lambda **own: NeighborLoader(TYPED, input_nodes="paper", **{"num_neighbors": [3], **own}), {"num_neighbors": [2]}, "num_neighbors: "),
    (lambda **own: HGTLoader(TYPED, input_nodes="paper", **{"num_samples": [9], **own}), {"num_samples": [8]}, "num_samples: "),
    (lambda parts=PARTS, **own: ClusterLoader(parts, batch_size=2, **own), {"shuffle": True}, "shuffle: False on rank 0"),
    (lambda parts=PARTS, **own: ClusterLoader(parts, batch_size=2, **own), {"parts": OTHER_PARTS}, "the examples of the loader"),
    (lambda **own: ShaDowKHopSampler(DATA, 2, **{"num_neighbors": 3, **own}), {"num_neighbors": 2}, r"num_neighbors: \[3, 3\] on rank 0"),
    (lambda **own: GraphSAINTRandomWalkSampler(DATA, 9, **{"walk_length": 3, **own}), {"walk_length": 2}, "walk_length: 3 on rank 0"),
    (blocks, {"seed": 2}, "seed: 1 on rank 0, 2 on rank 1"),
    (blocks, {"drop_last": True}, "drop_last: False on rank 0, True on rank 1"),
    (blocks, {"fanouts": (2,)}, "fanouts: "),
    (blocks, {"indices": torch.arange(199)}, "indices: another on rank 1"),
    (blocks, {"data": OTHER}, "graph: another on rank 1"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "odd", "said"), MADE, ids=[f"{number}-{next(iter(one[1]))}" for number, one in enumerate(MADE)])
def test_ranks_with_other_options_are_refused_together(make, odd, said):
    def body(comm):
        with pytest.raises(UsageError, match=f"^the ranks do not agree on {said}") as raised:
            make(comm=comm, **(odd if comm.rank else {}))
        return str(raised.value)

    assert len(set(on_threads(2, body))) == 1


def test_what_does_not_change_minibatches_may_differ():
    def body(comm):
        return len(list(neighbors(comm=comm, backend=["reference", "native"][comm.rank], bulk_size=1 + comm.rank, num_workers=comm.rank)))

    assert len(set(on_threads(2, body))) == 1


def loads_on_one_rank(loader, rank):
    state = loader.state_dict()
    if rank:
        loader.load_state_dict({**state, "epoch": 3})


def sets_an_epoch_on_one_rank(loader, rank):
    loader.epoch = 3 * rank


@pytest.mark.parametrize("make", [neighbors, links, blocks])
@pytest.mark.parametrize("part", [loads_on_one_rank, sets_an_epoch_on_one_rank])
def test_ranks_that_begin_at_other_positions_are_refused_together(make, part):
    said = "the epoch that they begin: 0 on rank 0, 3 on rank 1"

    def body(comm):
        loader = make(comm=comm)
        part(loader, comm.rank)
        with pytest.raises(UsageError, match=f"^the ranks do not agree on {said}; load the same"):
            next(iter(loader))

    on_threads(2, body)


DISAGREES = """
import torch
from torch_geometric.data import Data
import bulksample as bs
from bulksample.interop.pyg import NeighborLoader

world = bs.init({init})
torch.manual_seed(0)
data = Data(x=torch.randn(600, 8), edge_index=torch.randint(600, (2, 3000)))
list(NeighborLoader(data, [4], batch_size=64, comm=world, seed=world.rank))
"""


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "init", "said"), [
    ("mpirun", "", "the ranks do not agree on seed: 0 on rank 0, 1 on rank 1"),
    ("torchrun", "", "the ranks do not agree on seed: 0 on rank 0, 1 on rank 1"),
    ("mpirun", "process_group='gloo' if __import__('os').environ['PMI_RANK'] == '1' else None",
     "the ranks do not agree on process_group: None on rank 0, 'gloo' on rank 1"),
])  # fmt: skip
def test_processes_that_disagree_end_together(launcher, init, said):
    ended = run_ranks(2, DISAGREES.format(init=init), launcher=launcher)
    assert ended.code == 1, ended
    assert said in ended.err, ended


BY_HAND = """
import json, warnings
import torch, torch.distributed
from torch.utils.data import DistributedSampler as OfTorch
from torch_geometric.data import Data
import bulksample as bs
from bulksample.interop.pyg import NeighborLoader

{begin}
torch.manual_seed({seed})
data = Data(edge_index=torch.randint(400, (2, 20000)), num_nodes=400)
ids = torch.arange(400).split(200)[rank]
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    {loader}
    for _ in range(2):
        batches = list(loader)
        torch.distributed.is_initialized() and torch.distributed.barrier()  # as training does in every step
line = json.dumps({{"rank": rank, "told": [str(one.message) for one in told if "got neither comm" in str(one.message)]}})
print("\\n" + line + "\\n", end="", flush=True)
"""
OF_TORCH = "torch.distributed.init_process_group('gloo'); rank = torch.distributed.get_rank()"


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "begin", "loader", "seed", "told"), [
    ("torchrun", OF_TORCH, "loader = NeighborLoader(data, [5], input_nodes=ids, batch_size=20)", "3", "torch's seed 3, as rank "),
    ("torchrun", OF_TORCH, "loader = NeighborLoader(data, [5], input_nodes=ids, batch_size=20)", "rank", ""),
    ("mpirun", "rank = bs.init().rank", "loader = NeighborLoader(data, [5], input_nodes=ids, batch_size=20)", "4", "torch has the seed 4"),
    ("torchrun", OF_TORCH, "loader = NeighborLoader(data, [5], input_nodes=ids, batch_size=20, seed=rank)", "0", ""),
    ("torchrun", OF_TORCH, "loader = NeighborLoader(data, [5], batch_size=20, sampler=OfTorch(range(400)))", "0", ""),
    ("mpirun", "rank = bs.init().rank", "loader = NeighborLoader(data, [5], batch_size=20, comm=bs.init())", "0", ""),
])  # fmt: skip
def test_ranks_that_divide_examples_by_hand_are_told_once_of_equal_draws(launcher, begin, loader, seed, told):
    ended = run_ranks(2, BY_HAND.format(begin=begin, loader=loader, seed=seed), launcher=launcher)
    assert ended.code == 0, ended
    lines = sorted((json.loads(line) for line in ended.out.splitlines() if line.startswith('{"rank"')), key=lambda line: line["rank"])
    assert [len(line["told"]) for line in lines] == [int(bool(told))] * 2, ended
    for line in lines if told else []:
        assert f"NeighborLoader: rank {line['rank']} of 2 got neither comm nor seed" in line["told"][0]
        assert told in line["told"][0]


@pytest.mark.parametrize(("seed", "told"), [(0, "it draws with torch's seed 0, as rank 0 does"), (3, "")])
def test_a_rank_that_has_set_no_seed_of_torch_is_heard_by_the_others(monkeypatch, seed, told):
    """Rank 0 has set none and draws with 0; rank 1 learns of it as soon as both have begun."""
    met = HashStore()
    monkeypatch.setattr(equal_draws, "_SETTLED", set())
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: met)

    def heard(rank, seeded, seed):
        monkeypatch.setattr(equal_draws, "rank_of_torch", lambda: (rank, 2))
        monkeypatch.setattr(equal_draws, "torch_is_seeded", lambda: seeded)
        monkeypatch.setattr(equal_draws, "_SETTLED", set())
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            equal_draws.warn_of_equal_draws("Some", seed)
        return [str(one.message) for one in found], "Some" in equal_draws._SETTLED

    assert heard(1, True, seed) == ([], False)
    (said,), settled = heard(0, False, 0)
    assert settled
    assert "rank 0 of 2 got neither comm nor seed, so it draws with seed 0, as all ranks do for which nobody has set torch's seed" in said
    messages, settled = heard(1, True, seed)
    assert settled
    assert len(messages) == bool(told)
    assert all(told in message for message in messages)


def divided(rank, ranks=2, seed=1, epoch=0, **options):
    """Return a loader of the examples that a `DistributedSampler` gives one of several ranks."""
    order = DistributedSampler(range(300), ranks, rank, seed=seed)
    order.set_epoch(epoch)
    return NeighborLoader(DATA, [4, 3], **{"batch_size": 32, "sampler": order, **options})


def named(batches):
    return [torch.cat([batch.n_id, batch.e_id]).tolist() for batch in batches]


def test_ranks_of_a_distributed_sampler_draw_as_ranks_of_a_comm_do():
    """Mini-batch t of rank r is number t p + r: the draws of two ranks differ, and equal those of one loader over both orders."""
    orders = [list(divided(rank).batch_sampler) for rank in range(2)]
    whole = named(NeighborLoader(DATA, [4, 3], batch_sampler=[index for both in zip(*orders, strict=True) for index in both]))
    assert [named(divided(rank)) for rank in range(2)] == [whole[0::2], whole[1::2]]


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_state_of_one_rank_of_a_distributed_sampler_fits_all(drop_last):
    """Lightning saves the state of rank 0, and gives it to every rank."""
    shape = {"batch_size": 16, "drop_last": drop_last}
    loader = divided(0, 3, **shape)
    whole = [named(divided(rank, 3, **shape)) for rank in range(3)]
    for _ in zip(range(2), loader, strict=False):
        pass
    state = json.loads(json.dumps(loader.state_dict()))
    for rank in range(3):
        again = divided(rank, 3, **shape)
        again.load_state_dict(state)
        assert again.state_dict() == state  # also passed on before the first mini-batch
        again.load_state_dict(again.state_dict())
        assert named(again) == whole[rank][2:]
        again.load_state_dict(state)
        for _ in zip(range(1), again, strict=False):
            pass
        own = again.state_dict()
        assert own["order_of"] == [rank, 3]
        last = divided((rank + 1) % 3, 3, **shape)
        last.load_state_dict(own)
        assert named(last) == whole[(rank + 1) % 3][3:]


class Reversed(DistributedSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))


def test_a_state_of_another_rank_is_refused_where_its_order_cannot_be_derived():
    def state(loader):
        next(iter(loader))
        return loader.state_dict()

    def refused(loader, saved, said):
        loader.load_state_dict(saved)
        with pytest.raises(UsageError, match=said):
            list(loader)

    refused(divided(1), state(divided(0, seed=2)), "the order of your sampler is not the one of the loader's state")
    refused(divided(1), state(divided(0, epoch=4)), "the order of your sampler is not the one of the loader's state")
    refused(divided(1, 3), state(divided(0)), r"saved on \[rank, ranks\] \[0, 2\] of a DistributedSampler; got rank 1 of 3 ranks")
    backwards = [neighbors(shuffle=False, sampler=Reversed(range(300), 2, rank)) for rank in range(2)]
    refused(
        backwards[1], state(backwards[0]), "cannot be derived on rank 1 from a Reversed in a BatchSampler; save and load a state on each"
    )
    lists = [neighbors(shuffle=False, sampler=np.random.default_rng(rank).permutation(300).tolist()) for rank in range(2)]
    refused(lists[1], state(lists[0]), "Ranks with samplers of their own save and load a state each")


def test_a_comm_and_a_distributed_sampler_both_divide_the_minibatches():
    def body(comm):
        with pytest.raises(
            UsageError, match="comm divides the mini-batches among ranks, and so does your DistributedSampler; leave out one"
        ):
            divided(comm.rank, comm=comm)

    on_threads(2, body)


@pytest.mark.parametrize("make", [neighbors, links, blocks])
def test_ranks_give_a_seed_all_or_none(make):
    """Else a state with another seed would be refused on some of them alone, and the others would wait."""
    with pytest.raises(UsageError, match="a seed of yours: True on rank 0, False on rank 1"):
        on_threads(2, lambda comm: make(comm=comm, seed=0 if comm.rank == 0 else None))
    on_threads(2, lambda comm: make(comm=comm, seed=None))
