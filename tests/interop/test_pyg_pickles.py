"""Pickles and copies of the drop-in loaders for torch_geometric: they go on where their state stands, and carry no threads or back ends."""

import copy
import multiprocessing
import pickle

import pytest
import torch
from pyg_graphs import make_data, same
from pyg_typed import typed_data
from torch_geometric.loader import NodeLoader
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.distributed.comm.threads import SerialComm
from bulksample.interop.pyg import (
    BulkSampler,
    ClusterData,
    ClusterLoader,
    FastGCNLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)

DATA = make_data()
TYPED = typed_data()
MADE = {
    "neighbors": lambda **options: NeighborLoader(DATA, [3, 2], batch_size=32, shuffle=True, **options),
    "workers": lambda **options: NeighborLoader(DATA, [3, 2], batch_size=32, num_workers=2, filter_per_worker=True, **options),
    "fastgcn": lambda **options: FastGCNLoader(DATA, [30, 30], batch_size=32, shuffle=True, **options),
    "shadow": lambda **options: ShaDowKHopSampler(DATA, 2, 2, batch_size=32, shuffle=True, **options),
    "saint": lambda **options: GraphSAINTRandomWalkSampler(DATA, 20, 2, num_steps=10, sample_coverage=1, **options),
    "saint edges": lambda **options: GraphSAINTEdgeSampler(DATA, 20, num_steps=10, **options),
    "clusters": lambda **options: ClusterLoader(ClusterData(DATA, 20), batch_size=2, shuffle=True, **options),
    "links": lambda **options: LinkNeighborLoader(DATA, [2], batch_size=300, shuffle=True, neg_sampling="binary", **options),
}
HETERO = {
    "typed": lambda **options: NeighborLoader(TYPED, [3, 2], input_nodes="paper", batch_size=8, shuffle=True, **options),
    "hgt": lambda **options: HGTLoader(TYPED, [8, 8], "paper", batch_size=8, shuffle=True, **options),
}


@pytest.mark.parametrize("how", [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("taken", [0, 2])
@pytest.mark.parametrize("kind", [*MADE, *HETERO])
def test_a_copied_loader_goes_on_where_its_state_stands(kind, taken, how):
    made = {**MADE, **HETERO}[kind]
    expected = [how(batch) for batch in made()]  # batches can be copied too
    loader = made()
    batches = iter(loader)
    begun = [next(batches) for _ in range(taken)]
    copied = how(loader)
    assert copied.state_dict() == loader.state_dict()
    for found in ([*begun, *copied], [*begun, *batches]):
        assert len(found) == len(expected) > 3
        assert all(_same(*pair) for pair in zip(found, expected, strict=True))


def _same(one, other):
    if not hasattr(one, "edge_types"):
        return same(one, other)
    for mine, theirs in zip(one.stores, other.stores, strict=True):
        assert list(mine) == list(theirs)
        for key in mine:
            torch.testing.assert_close(mine[key], theirs[key], rtol=0, atol=0)
    return True


def test_a_loader_of_several_ranks_says_why_it_stays():
    loader = NeighborLoader(DATA, [2], batch_size=32, comm=SerialComm())
    for act in (pickle.dumps, copy.deepcopy):
        with pytest.raises(
            UsageError, match="it connects this process with other ranks; make the graph or the loader that uses it on every"
        ):
            act(loader)
    assert len(list(loader)) == len(loader)


class Epochs(torch.utils.data.IterableDataset):
    """The drop-in loaders in a worker process of torch."""

    def __init__(self):
        self.loaders = [MADE[kind]() for kind in ("neighbors", "links", "saint")]

    def __iter__(self):
        for loader in self.loaders:
            yield from loader


@pytest.mark.parametrize("context", multiprocessing.get_all_start_methods())
def test_loaders_work_in_a_worker_of_torch(context):
    expected = list(Epochs())
    found = list(torch.utils.data.DataLoader(Epochs(), batch_size=None, num_workers=1, multiprocessing_context=context, timeout=PATIENCE))
    assert len(found) == len(expected)
    assert all(same(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("context", multiprocessing.get_all_start_methods())
def test_the_sampler_alone_works_in_a_worker_of_torch_geometric(context):
    loader = NodeLoader(DATA, BulkSampler(DATA, [3, 2]), batch_size=64, num_workers=1, multiprocessing_context=context, timeout=PATIENCE)
    assert sum(batch.batch_size for batch in loader) == DATA.num_nodes
