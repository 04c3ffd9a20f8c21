"""The state of the drop-in loaders: in the middle of an epoch, with other workers and bulks, and on another number of ranks.

Batches are compared attribute by attribute with those of one uninterrupted rank.
"""

import json

import pytest
import torch
from pyg_graphs import make_data, same
from torch.utils.data import RandomSampler

from bulksample import UsageError
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.interop.pyg import (
    ClusterData,
    ClusterLoader,
    FastGCNLoader,
    GraphSAINTRandomWalkSampler,
    LaborLoader,
    LadiesLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)

DATA = make_data()
PARTS = ClusterData(DATA, 20)
MADE = {
    "neighbors": lambda **options: NeighborLoader(DATA, [3, 2], batch_size=32, shuffle=True, **options),
    "in order": lambda **options: NeighborLoader(DATA, [3, 2], batch_size=32, input_nodes=DATA.train_mask, **options),
    "labor": lambda **options: LaborLoader(DATA, [3, 2], batch_size=32, shuffle=True, **options),
    "ladies": lambda **options: LadiesLoader(DATA, [9, 9], batch_size=32, shuffle=True, **options),
    "fastgcn": lambda **options: FastGCNLoader(DATA, [30, 30], batch_size=32, shuffle=True, **options),
    "shadow": lambda **options: ShaDowKHopSampler(DATA, 2, 2, batch_size=32, shuffle=True, **options),
    "saint": lambda **options: GraphSAINTRandomWalkSampler(DATA, 20, 2, num_steps=10, sample_coverage=1, **options),
    "clusters": lambda backend="", **options: ClusterLoader(PARTS, batch_size=2, shuffle=True, **options),
    "links": lambda **options: LinkNeighborLoader(DATA, [2], batch_size=300, shuffle=True, neg_sampling="binary", **options),
}


@pytest.fixture(params=MADE)
def made(request):
    return MADE[request.param]


def first(loader, steps):
    """Take some steps of an epoch and leave it; return the state."""
    for _ in zip(range(steps), loader if steps else (), strict=False):
        pass
    return json.loads(json.dumps(loader.state_dict()))


def equal(ours, theirs):
    return all(same(*pair) for pair in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("stop", [0, 3])
def test_a_state_continues_with_other_workers_bulks_and_back_ends(made, stop):
    whole = made()
    epoch, following = list(whole), list(whole)
    again = made(num_workers=2, bulk_size=2, backend="reference")
    again.load_state_dict(first(made(bulk_size=3), stop))
    assert again.epoch == 0
    third = made()
    third.load_state_dict(first(again, 1))  # stopped once more
    assert equal(third, epoch[stop + 1 :] or following)
    again.load_state_dict(first(made(bulk_size=3), stop))
    assert equal(again, epoch[stop:])
    assert equal(again, following)
    assert again.epoch == 2


@pytest.mark.parametrize(("before", "steps", "after"), [(1, 3, 2), (3, 1, 2)])
def test_a_state_continues_on_another_number_of_ranks(made, before, steps, after):
    alone = made()
    whole, following = list(alone), list(alone)
    state = on_threads(before, lambda comm: first(made(comm=comm), steps))[-1]

    def rest(comm):
        loader = made(comm=comm)
        loader.load_state_dict(state)
        return list(loader), list(loader)

    used = before * steps
    for rank, (left, later) in enumerate(on_threads(after, rest)):
        dealt = -(-(len(whole) - used) // after)
        assert equal(left, [whole[(used + rank + t * after) % len(whole)] for t in range(dealt)])
        assert equal(later[:2], [following[rank], following[rank + after]])


def test_the_end_of_an_epoch_is_a_position_too():
    loader, again = MADE["neighbors"](), MADE["neighbors"]()
    list(loader)
    again.load_state_dict(loader.state_dict())
    assert equal(again, loader)
    again.load_state_dict(loader.state_dict())
    again.epoch = 0
    assert equal(again, MADE["neighbors"]())


def test_a_state_after_the_last_batch_begins_the_next_epoch(made):
    """Lightning takes no more batches than the loader has, so its checkpoints at the end of an epoch hold this state."""
    whole, again = made(), made()
    list(whole)
    again.load_state_dict(first(made(), len(again)))
    assert again.epoch == 1
    assert equal(again, whole)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "random_seed"), ({"batch_size": 31}, "batch_size"),
        ({"input_nodes": range(300)}, "other examples"), ({"shuffle": False}, "shuffle"),
        ({"num_neighbors": [3, 3]}, "sampler"), ({"replace": True}, "sampler"), ({"subgraph_type": "induced"}, "sampler"),
        ({"data": make_data(seed=2)}, "graph"),
    ],
)  # fmt: skip
def test_a_state_of_another_loader_is_refused(change, named):
    options = {"data": DATA, "num_neighbors": [3, 2], "batch_size": 32, "input_nodes": range(299), "shuffle": True}
    with pytest.raises(UsageError, match=f"does not fit: ({named} was|it was saved with (another )?{named};)"):
        NeighborLoader(**options | change).load_state_dict(NeighborLoader(**options).state_dict())
    with pytest.raises(UsageError, match="does not fit: loader was"):
        NeighborLoader(**options).load_state_dict(MADE["labor"]().state_dict())


def test_a_state_of_other_negatives_is_refused():
    one, other = (LinkNeighborLoader(DATA, [2], batch_size=9, neg_sampling_ratio=ratio) for ratio in (1.0, 2.0))
    with pytest.raises(UsageError, match="does not fit: negatives was"):
        other.load_state_dict(one.state_dict())


class Ordered:
    """A user's sampler whose order depends on its seed alone."""

    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        return iter(torch.randperm(200, generator=torch.Generator().manual_seed(self.seed)).split(20))


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_order_of_a_users_sampler_is_run_through_again(ranks):
    whole = list(NeighborLoader(DATA, [3], batch_sampler=list(Ordered(1))))

    def left(comm, seed=1):
        before, after = (NeighborLoader(DATA, [3], batch_sampler=list(Ordered(s)), comm=comm, bulk_size=3) for s in (1, seed))
        after.load_state_dict(first(before, 3))
        return list(after)

    for rank, found in enumerate(on_threads(ranks, left)):
        assert equal(found, whole[3 * ranks + rank :: ranks][: len(found)])
        assert len(found) == -(-(10 - 3 * ranks) // ranks)
    with pytest.raises(UsageError, match="the order of your sampler is not the one of the loader's state"):
        on_threads(ranks, lambda comm: left(comm, seed=2))


def test_a_sampler_of_unknown_length_has_a_state_too():
    state = first(NeighborLoader(DATA, [3], batch_sampler=Ordered(1)), 4)
    again = NeighborLoader(DATA, [3], batch_sampler=Ordered(1))
    again.load_state_dict(state)
    assert equal(again, list(NeighborLoader(DATA, [3], batch_sampler=Ordered(1)))[4:])
    short = NeighborLoader(DATA, [3], batch_sampler=Ordered(1))
    short.load_state_dict(state | {"step": 40})
    with pytest.raises(UsageError, match="order of your sampler"):
        list(short)


def test_measuring_takes_nothing_from_a_users_sampler():
    def chosen(**options):
        return [batch.input_id.tolist() for batch in NeighborLoader(DATA, [3], **options)]

    lists = [[0, 1], [2, 3], [4, 5]]
    assert chosen(batch_sampler=iter(lists)) == lists
    one, auto = (RandomSampler(range(300), generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert chosen(sampler=auto, batch_size=32) == chosen(sampler=one, batch_size=32, bulk_size=1)
    assert chosen(sampler=iter([5, 6, 7]), batch_size=2) == [[5, 6], [7]]


def test_ranks_refuse_orders_that_differ_and_samplers_without_a_length():
    def drawn(comm):
        order = RandomSampler(range(300), generator=torch.Generator().manual_seed(comm.rank))
        return next(iter(NeighborLoader(DATA, [3], sampler=order, batch_size=32, comm=comm)))

    with pytest.raises(UsageError, match="the ranks do not agree on the order of your sampler: another on rank 1 than on rank 0"):
        on_threads(2, drawn)
    for options in ({"batch_sampler": Ordered(1)}, {"sampler": iter(range(9)), "batch_size": 2}):
        with pytest.raises(UsageError, match="sampler has no length, so ranks cannot share"):
            NeighborLoader(DATA, [3], comm=SerialComm(), **options)
