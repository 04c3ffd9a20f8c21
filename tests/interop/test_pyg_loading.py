"""Bulks, epochs, order, threads and ranks; what is accepted, and what is refused in one line."""

import numpy as np
import pytest
import torch
from pyg_graphs import assert_exact, make_data, same
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader

from bulksample import DataError, UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.pyg import BulkSampler, FastGCNLoader, LaborLoader, LadiesLoader, LinkNeighborLoader, NeighborLoader

LOADERS = [NeighborLoader, LaborLoader, LadiesLoader, FastGCNLoader, LinkNeighborLoader]


@pytest.mark.parametrize("loader", LOADERS)
def test_neither_bulk_nor_back_end_nor_threads_change_a_batch(data, loader):
    options = {"batch_size": 23, "shuffle": True, "seed": 5}
    expected = list(loader(data, [6, 4], bulk_size=1, **options))
    for more in ({"bulk_size": 2}, {"bulk_size": 100}, {}, {"backend": "reference"}, {"num_workers": 3}, {"memory_budget": 1}):
        assert all(same(*pair) for pair in zip(loader(data, [6, 4], **options, **more), expected, strict=True))


def test_disjoint_batches_do_not_depend_on_the_bulk():
    options = {"batch_size": 23, "disjoint": True, "input_nodes": torch.arange(50)}
    expected = list(NeighborLoader(make_data(), [3, 3], bulk_size=1, **options))
    assert all(same(*pair) for pair in zip(NeighborLoader(make_data(), [3, 3], bulk_size=3, **options), expected, strict=True))


def test_epochs_differ_and_a_seed_repeats_them(data):
    loader, again = (NeighborLoader(data, [3, 3], batch_size=50, shuffle=True, seed=7) for _ in range(2))
    epochs = [list(loader) for _ in range(2)]
    assert all(same(*pair) for pair in zip(epochs[0], again, strict=True))
    assert not torch.equal(epochs[0][0].n_id, epochs[1][0].n_id)
    assert sorted(torch.cat([batch.input_id for batch in epochs[1]]).tolist()) == list(range(data.num_nodes))
    again.epoch = 1
    assert all(same(*pair) for pair in zip(epochs[1], again, strict=True))
    other = next(iter(NeighborLoader(data, [3, 3], batch_size=50, shuffle=True, seed=8)))
    assert not torch.equal(epochs[0][0].n_id, other.n_id)


def test_epochs_in_order_differ_in_their_neighbours():
    loader = NeighborLoader(make_data(), [2], batch_size=300)
    (first,), (second,) = loader, loader
    torch.testing.assert_close(first.n_id[:300], second.n_id[:300])
    assert not torch.equal(first.e_id, second.e_id)


def test_length_and_the_last_batch():
    data = make_data()
    assert [len(NeighborLoader(data, [2], batch_size=64, drop_last=drop)) for drop in (False, True)] == [5, 4]
    sizes = [batch.batch_size for batch in NeighborLoader(data, [2], batch_size=64, drop_last=True)]
    assert sizes == [64] * 4
    assert len(list(NeighborLoader(data, [2], batch_size=100, drop_last=True))) == 3
    assert list(NeighborLoader(data, [2], input_nodes=torch.empty(0, dtype=torch.long), batch_size=4)) == []


@pytest.mark.parametrize("nodes", [None, torch.arange(20), list(range(20)), torch.arange(300) < 20], ids=["all", "tensor", "list", "mask"])
def test_input_nodes(nodes):
    data = make_data()
    batch = next(iter(NeighborLoader(data, [2], input_nodes=nodes, batch_size=20)))
    assert_exact(batch, data, torch.arange(20))


def test_a_loader_can_be_called(data):
    loader = NeighborLoader(data, [3, 3], input_nodes=torch.arange(100, 110), batch_size=4)
    batch = loader(torch.tensor([2, 5]))
    assert_exact(batch, data, torch.tensor([102, 105]))
    assert_exact(loader([0]), data, torch.tensor([100]))
    twin = NeighborLoader(data, [3, 3], input_nodes=torch.arange(100, 110), batch_size=4)
    assert same(twin(torch.tensor([2, 5])), batch)


CHOSEN = torch.arange(10) % 3 == 1
MASKS = [CHOSEN, CHOSEN.tolist(), CHOSEN.numpy(), [1, 4, 7], np.array([1, 4, 7], np.uint8)]


@pytest.mark.parametrize("mask", MASKS, ids=["tensor", "list", "numpy", "positions", "bytes"])
def test_a_loader_is_called_with_a_mask_as_with_its_positions(data, mask):
    nodes = NeighborLoader(data, [3, 3], input_nodes=torch.arange(100, 110), batch_size=4)
    links = LinkNeighborLoader(data, [3, 3], data.edge_index[:, 50:60], neg_sampling="binary", batch_size=4)
    assert nodes(mask).input_id.tolist() == links(mask).input_id.tolist() == [1, 4, 7]
    assert_exact(nodes(mask), data, torch.tensor([101, 104, 107]))
    batch = links(mask)
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :3]], data.edge_index[:, [51, 54, 57]])
    assert nodes([]).input_id.tolist() == []


@pytest.mark.parametrize(("index", "told"), [
    (CHOSEN[1:], r"a mask of shape \(9,\); use one of shape \(10,\)"), (CHOSEN[None], r"a mask of shape \(1, 10\)"),
    ([1.5], r"array\(\[1.5\]\) for a mini-batch; use a list of whole numbers from 0 to 9"), (1, "for a mini-batch; use a list"),
    (None, "for a mini-batch; use a list"), (slice(3), "for a mini-batch; use a list"), ([1j], "for a mini-batch; use a list"),
    ([[1]], "for a mini-batch"), ([0, -1], "the position -1, and there are 10 examples; use 0 to 9"), ([10], "the position 10, and"),
])  # fmt: skip
def test_what_names_no_examples_is_refused_in_a_call(index, told):
    data = make_data()
    for loader in (NeighborLoader(data, [3], torch.arange(10)), LinkNeighborLoader(data, [3], data.edge_index[:, :10])):
        with pytest.raises(UsageError, match=rf"^loader\(index\) got {told}" if told[0] == "t" else told):
            loader(index)


def test_transforms_see_what_they_should():
    data = make_data()
    seen = []

    def on_output(out):
        seen.append(out)
        return out

    def on_batch(batch):
        batch.mark = batch.edge_weight.sum()
        return batch

    batches = list(LadiesLoader(data, [20], batch_size=100, transform=on_batch, transform_sampler_output=on_output))
    assert len(seen) == len(batches) == 3
    assert all(batch.mark == batch.edge_weight.sum() for batch in batches)


def test_a_sampler_of_the_user_decides_the_order():
    data = make_data()
    batches = list(NeighborLoader(data, [2], batch_size=3, sampler=torch.utils.data.SubsetRandomSampler([4, 4, 4, 4, 4])))
    assert [batch.input_id.tolist() for batch in batches] == [[4, 4, 4], [4, 4]]
    lists = [[1, 2], [3], [4, 5, 6]]
    loader = NeighborLoader(data, [2], batch_sampler=lists)
    assert [batch.input_id.tolist() for batch in loader] == lists
    assert len(loader) == 3


def test_leaving_an_epoch_early():
    loader = NeighborLoader(make_data(), [3, 3], batch_size=10, shuffle=True, num_workers=2, persistent_workers=True)
    first = next(iter(loader))
    loader.epoch = 0
    assert same(first, next(iter(loader)))


def test_what_fails_while_sampling_ahead_is_raised():
    def fail(batch):
        raise ZeroDivisionError("in a transform")

    for workers in (0, 2):
        with pytest.raises(ZeroDivisionError, match="in a transform"):
            list(NeighborLoader(make_data(), [2], batch_size=100, transform=fail, num_workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_for_torch_geometrics_own_loader(data, workers):
    loader = NodeLoader(data, BulkSampler(data, [3, 3]), input_nodes=data.train_mask, batch_size=16, num_workers=workers)
    seeds = data.train_mask.nonzero().view(-1)
    for part, batch in zip(seeds.split(16), loader, strict=True):
        assert_exact(batch, data, part)


def test_worker_processes_draw_anew_in_every_epoch():
    data = make_data()
    loader = NodeLoader(data, BulkSampler(data, [2]), batch_size=300, num_workers=1)
    (first,), (second,) = loader, loader
    assert not torch.equal(first.e_id, second.e_id)


@pytest.mark.parametrize("workers", [0, 3])
def test_batches_that_are_kept_share_no_memory(workers):
    """Neither when one is changed, nor with features that the user exchanges, that are of several types, or that need gradients."""
    data = make_data()
    data.half, data.leaf = data.x.half(), data.x.clone().requires_grad_()
    loader = NeighborLoader(data, [3, 3], batch_size=20, num_workers=workers)
    for change in (0, 1000):
        data.x = data.x + change
        kept = []
        for i, batch in enumerate(loader):
            batch.x += i
            kept.append(batch)
        for i, batch in enumerate(kept):
            torch.testing.assert_close(batch.x, data.x[batch.n_id] + i)
            torch.testing.assert_close(batch.half, data.half[batch.n_id])
            assert batch.leaf.requires_grad
        assert list(kept[0].to_dict())[:2] == list(data.to_dict())[:2]  # `keys` comes in the order of a set


def test_compressed_rows_of_torch():
    data = make_data()
    source, destination = data.edge_index
    values = torch.arange(1.0, data.num_edges + 1)
    order = torch.argsort(destination * 300 + source)
    rows = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(destination, minlength=300).cumsum(0)])
    whole = Data(x=data.x, adj_t=torch.sparse_csr_tensor(rows, source[order], values[order], size=(300, 300), check_invariants=True))
    for batch, plain in zip(NeighborLoader(whole, [3, 2], batch_size=40), NeighborLoader(data, [3, 2], batch_size=40), strict=True):
        torch.testing.assert_close(batch.n_id, plain.n_id)
        assert "edge_index" not in batch
        dense = torch.zeros(batch.num_nodes, batch.num_nodes)
        dense[plain.edge_index[1], plain.edge_index[0]] = values[plain.e_id]
        torch.testing.assert_close(batch.adj_t.to_dense(), dense)


def test_compressed_rows_of_torch_sparse():
    torch_sparse = pytest.importorskip("torch_sparse", reason="torch_sparse is not installed")
    data = make_data()
    values = torch.arange(1.0, data.num_edges + 1)
    adj_t = torch_sparse.SparseTensor.from_edge_index(data.edge_index.flip(0), values, (300, 300))
    whole = adj_t.to_dense()
    for batch in NeighborLoader(Data(x=data.x, adj_t=adj_t), [3, 2], batch_size=40):
        row, column, value = batch.adj_t.coo()
        torch.testing.assert_close(value, whole[batch.n_id[row], batch.n_id[column]])
        torch.testing.assert_close(value, adj_t.storage.value()[batch.e_id].sort().values[value.argsort().argsort()])


def test_a_sampler_of_unknown_length():
    def lists():
        yield from ([1, 2], [3], [4, 5, 6])

    class Unknown:
        def __iter__(self):
            return lists()

    assert [batch.input_id.tolist() for batch in NeighborLoader(make_data(), [2], batch_sampler=Unknown())] == list(lists())


def test_a_graph_without_edges():
    batch = next(iter(NeighborLoader(Data(x=torch.randn(5, 2)), [3], batch_size=5)))
    assert batch.num_nodes == 5


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_take_minibatches_in_turn(ranks):
    data, options = make_data(), {"batch_size": 31, "shuffle": True, "seed": 2}
    alone = list(NeighborLoader(data, [4, 3], **options))
    dealt = on_threads(ranks, lambda comm: list(NeighborLoader(data, [4, 3], comm=comm, **options)))
    steps = -(-len(alone) // ranks)
    for rank, batches in enumerate(dealt):
        assert len(batches) == steps
        assert all(same(batch, alone[(t * ranks + rank) % len(alone)]) for t, batch in enumerate(batches))
    short = on_threads(ranks, lambda comm: len(list(NeighborLoader(data, [4, 3], comm=comm, drop_last=True, **options))))
    assert short == [(300 // 31) // ranks] * ranks


@pytest.mark.parametrize("loader", [NeighborLoader, LaborLoader, LadiesLoader, FastGCNLoader])
def test_a_grid_does_not_change_a_batch(loader):
    data, options = make_data(), {"batch_size": 31, "shuffle": True}
    alone = list(loader(data, [8, 5], **options))
    dealt = on_threads(4, lambda comm: list(loader(data, [8, 5], comm=comm, grid=2, **options)))
    for rank, batches in enumerate(dealt):
        assert all(same(batch, alone[(t * 4 + rank) % len(alone)]) for t, batch in enumerate(batches))


REFUSED = [
    ({"time_attr": "none"}, "no vertices and no edges have it"),
    ({"input_time": torch.arange(300)}, "time_attr"),
    ({"time_attr": "y", "input_time": torch.arange(9)}, "input_time: got 9 for 300 input nodes"),
    ({"num_neighbors": {("a", "to", "b"): [3]}}, "by edge type"),
    ({"weight_attr": "none"}, "has no weight 'none'"),
    ({"weight_attr": "y"}, "one number for each of the"),
    ({"bulk_size": 0}, "bulk_size must be"),
    ({"worker_init_fn": print}, "no worker processes"),
    ({"generator": torch.Generator()}, "`seed`"),
    ({"batch_size": None}, "batch_size was None"),
    ({"grid": 1}, "without ranks"),
    ({"neighbor_sampler": object()}, "BulkSampler"),
    ({"num_neighbors": [-2]}, "fanout must be"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_refused_in_one_line(options, says):
    with pytest.raises(UsageError, match=says) as caught:
        NeighborLoader(make_data(), **{"num_neighbors": [3], "batch_size": 10} | options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("loader", [LaborLoader, LadiesLoader, FastGCNLoader])
def test_types_and_times_need_the_loaders_that_draw_edges(loader):
    for graph, words in (
        (HeteroData(), "heterogeneous and temporal graphs are not supported"),
        ((make_data(), None), "got a tuple of Data"),
    ):
        with pytest.raises(UsageError, match=words):
            loader(graph, [3], batch_size=2)
    with pytest.raises(UsageError, match="time_attr"):
        loader(make_data(), [3], time_attr="y")


@pytest.mark.parametrize("loader", [NeighborLoader, LinkNeighborLoader])
def test_a_thing_that_is_no_graph_is_refused(loader):
    with pytest.raises(UsageError, match="use a Data or a HeteroData of torch_geometric"):
        loader((make_data(), None), [3], batch_size=2)


def test_samplers_whose_batches_are_no_trees_are_refused():
    with pytest.raises(UsageError, match="must be one of sage, labor"):
        BulkSampler(make_data(), [3], sampler="shadow")
    with pytest.raises(UsageError, match="replace is an option"):
        BulkSampler(make_data(), [3], sampler="labor", replace=True)


def test_parallel_edges_on_a_grid_are_refused():
    with pytest.raises(UsageError, match="coalesced"):
        on_threads(2, lambda comm: NeighborLoader(make_data(50, 2000, simple=False), [3], comm=comm, grid=1, batch_size=3))


def test_bad_edges_and_weights_are_named():
    data = make_data()
    data.edge_index = data.edge_index.clone()
    data.edge_index[0, 17] = 300
    with pytest.raises(DataError, match="edge 17 names source 300"):
        NeighborLoader(data, [3])
    data = make_data()
    data.weight[5] = np.nan
    with pytest.raises(DataError, match="weight 5 is nan"):
        NeighborLoader(data, [3], weight_attr="weight")
