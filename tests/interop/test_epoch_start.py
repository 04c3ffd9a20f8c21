"""An epoch of any loader begins at once: in the order of `Shuffle`, without an array of all seeds, and from the states of this version."""

import json
import tracemalloc

import numpy as np
import pytest
import torch
from pyg_graphs import make_data
from relations_zoo import library, one_relation
from zoo import random_matrix

import bulksample as bs
from bulksample import Graph, LocalAdjacency, Stream, UsageError, backends, samplers
from bulksample.distributed.comm.threads import SerialComm
from bulksample.graph.seed_list import SeedList
from bulksample.interop.pyg import NeighborLoader, ShaDowKHopSampler
from bulksample.loading.division import SeedGroups
from bulksample.loading.loader import BulkLoader
from bulksample.shuffle import Shuffle
from bulksample.training.link_batches import EdgeLoader, without_labels
from bulksample.views.plain_view import whole_view

MATRIX, DATA = random_matrix(1000, 600_000, 1), make_data()
SEED = 5


def ids(n, count):
    return np.random.default_rng(2).integers(0, n, count).astype(np.int32)


def bulks(count, **options):
    return BulkLoader(LocalAdjacency(MATRIX, backends.make()), samplers.make("sage", (2,)), ids(1000, count), seed=SEED, **options)


def groups(count, **options):
    return bulks(count, groups=SeedGroups(4, ids(1000, count)), **options)


def facade(count, **options):
    return bs.Loader(Graph(MATRIX, name="g"), fanouts=[2], seeds=ids(1000, count), seed=SEED, **options)


def relations(count, **options):
    graph = library()
    listed = SeedList.of(graph, ("paper", ids(60, count)))
    return BulkLoader(LocalAdjacency(graph, backends.make(), by_type=True), samplers.make("sage", (2,)), listed, seed=SEED, **options)


def types(count, **options):
    return bs.Loader(one_relation(MATRIX), fanouts=[2], seeds=("node", ids(1000, count)), seed=SEED, **options)


def edges(count, **options):
    graph = without_labels(Graph(MATRIX, name="g", features=np.zeros((1000, 1), np.float32)))
    return EdgeLoader(whole_view(graph, SerialComm(), backends.make(), "", "all"), samplers.make("sage", (2,)), seed=SEED, **options)


def neighbors(count, shuffle=True, **options):
    wanted = torch.from_numpy(ids(300, count).astype(np.int64))
    return NeighborLoader(DATA, [2], input_nodes=wanted, shuffle=shuffle, seed=SEED, **options)


def trees(count, shuffle=True, **options):
    wanted = torch.from_numpy(ids(300, count).astype(np.int64))
    return ShaDowKHopSampler(DATA, 2, 2, node_idx=wanted, shuffle=shuffle, seed=SEED, **options)


LOADERS = [bulks, groups, facade, relations, types, edges, neighbors, trees]


def examples(batch):
    """The positions or ids of the examples of a mini-batch, in their order."""
    if hasattr(batch, "minibatch") and hasattr(batch.minibatch, "rows"):
        return batch.minibatch.rows["node"].seeds
    return np.asarray(batch.input_id if hasattr(batch, "input_id") else batch.seeds)


@pytest.mark.parametrize("kind", [bulks, facade, types, neighbors])
def test_an_epoch_has_the_order_of_its_shuffle(kind):
    count = 3000
    made, own = kind(count, batch_size=100), ids(1000, count)
    for epoch in range(2):
        expected = Shuffle(Stream(SEED), count, epoch).at(np.arange(count))
        found = np.concatenate([examples(batch) for batch in made])
        assert found.tolist() == (expected if kind is neighbors else own[expected]).tolist()


def test_seeds_of_several_types_and_edges_share_one_order():
    listed = np.concatenate([examples_of(m) for m in relations(3000, batch_size=100)])
    assert listed.tolist() == Shuffle(Stream(SEED), 3000).at(np.arange(3000)).tolist()
    edge = np.flatnonzero(MATRIX.indices != MATRIX.row_of_entry())
    edge = edge[Shuffle(Stream(SEED), len(edge)).at(np.arange(50))]
    first = next(iter(edges(0, batch_size=50, prefetch=False)))
    assert first.seeds[:50].tolist() == MATRIX.indices[edge].tolist()


def examples_of(minibatch):
    (rows,) = (rows for rows in minibatch.rows.values() if len(rows.seeds))
    return rows.places


def test_groups_of_many_seeds_are_shuffled_each_by_itself():
    count = 6000
    own, made = ids(1000, count), groups(count, batch_size=100)
    near = np.argsort(own, kind="stable")
    orders = [near[g * 1500 : (g + 1) * 1500][Shuffle(Stream(SEED), 1500, 0, g).at(np.arange(1500))] for g in range(4)]
    for m in made:
        t, g = divmod(m.id, 4)
        assert m.seeds.tolist() == own[orders[g][t * 100 : (t + 1) * 100]].tolist()


def peak_of_two_epochs(made):
    """The most bytes in use while the first mini-batches of two epochs are made."""
    for _ in zip(range(2), made, strict=False):
        pass  # what is kept for the whole run
    tracemalloc.start()
    try:
        for _ in range(2):
            for _ in zip(range(2), made, strict=False):
                pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", LOADERS)
def test_an_epoch_begins_without_an_array_of_all_seeds(kind, shuffle):
    """Less than four bytes a seed; an order took eight, and 24 while it was sorted."""
    count = 500_000
    made = kind(count, batch_size=4, shuffle=shuffle, bulk_size=2)
    assert peak_of_two_epochs(made) < 4 * min(count, MATRIX.nnz)


def test_millions_of_seeds_of_a_mapped_file_are_neither_copied_nor_ordered(tmp_path):
    count, path = 20_000_000, tmp_path / "seeds.npy"
    np.lib.format.open_memmap(path, "w+", np.int32, (count,)).flush()
    adjacency, drawn = LocalAdjacency(MATRIX, backends.make()), samplers.make("sage", (2,))
    tracemalloc.start()
    try:
        made = BulkLoader(adjacency, drawn, np.load(path, mmap_mode="r"), batch_size=1024, memory_budget=2**20)
        assert peak_of_two_epochs_of(made) < 2**22
    finally:
        tracemalloc.stop()


def peak_of_two_epochs_of(made):
    for _ in range(2):
        for _ in zip(range(2), made, strict=False):
            pass
    return tracemalloc.get_traced_memory()[1]


def test_seeds_that_somebody_can_write_are_copied():
    whole = np.arange(50, dtype=np.int32)
    view = whole[10:40].view()
    view.flags.writeable = False
    made = bulks_of(view), bulks_of(whole[10:40]), bulks_of(np.frombuffer(whole.tobytes(), np.int32)[10:40])
    expected = [m.digest() for m in made[2]]
    whole[:] = 0
    assert [[m.digest() for m in one] for one in made[:2]] == [expected] * 2


def bulks_of(seeds):
    return BulkLoader(LocalAdjacency(MATRIX, backends.make()), samplers.make("sage", (2,)), seeds, batch_size=8, seed=SEED)


# ---- states


def left_after(made, steps):
    """The state of a loader after some steps, and the same as earlier versions wrote it."""
    for _ in zip(range(steps), made, strict=False):
        pass
    state = json.loads(json.dumps(made.state_dict()))
    assert state["version"] == 2
    return state, {key: value for key, value in state.items() if key != "version"}


@pytest.mark.parametrize("kind", LOADERS)
def test_an_old_state_from_the_middle_of_a_shuffled_epoch_is_refused(kind):
    def made(**options):
        return kind(2000, batch_size=250, bulk_size=2, **options)

    state, old = left_after(made(), 3)
    made().load_state_dict(state)
    with pytest.raises(UsageError, match=r"saved in the middle of an epoch by an earlier version of bulksample, which shuffled seeds in"):
        made().load_state_dict(old)
    with pytest.raises(UsageError, match="shuffled seeds in"):  # of other ranks, which begin a new share in the middle
        made().load_state_dict({**old, "first": 4, "step": 0})
    with pytest.raises(UsageError, match="is of version 3; this version of bulksample reads 1 to 2"):
        made().load_state_dict({**state, "version": 3})


@pytest.mark.parametrize("kind", LOADERS)
def test_an_old_state_without_an_order_in_it_goes_on(kind):
    def made(**options):
        return kind(2000, batch_size=250, bulk_size=2, **options)

    begun, ended, unshuffled = made(), made(), made(shuffle=False)
    begun.load_state_dict({**left_after(made(), 0)[1], "epoch": 3})
    assert begun.epoch == 3
    steps = getattr(ended, "steps", None) or len(ended)
    ended.load_state_dict({**left_after(made(), 0)[1], "epoch": 3, "step": steps})
    unshuffled.load_state_dict(left_after(made(shuffle=False), 3)[1])
    assert unshuffled.state_dict()["step"] == 3
