"""Drop-in loaders in time: nothing later than its seed, by the times of vertices or of edges, for nodes and for links."""

import pytest

pytest.importorskip("torch_geometric", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

import numpy as np
import torch
from pyg_graphs import make_data
from pyg_typed import EDGES, assert_rows_belong, reached, typed_data
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import DataError, UsageError
from bulksample.graph import NODE
from bulksample.interop.pyg import BulkSampler, LinkNeighborLoader, NeighborLoader
from bulksample.interop.pyg.seed_sampler import starts_of

WRITES = ("author", "writes", "paper")


@pytest.mark.parametrize("times", ["vertices", "edges"])
def test_all_neighbors_are_those_of_a_search_in_time(times):
    data, seeds, bounds = typed_data(times=times), [3, 9, 27, 9], [5, 19, 0, 7]
    loader = NeighborLoader(data, [-1, -1], ("paper", seeds), input_time=torch.tensor(bounds), time_attr="time", batch_size=2, bulk_size=2)
    for number, batch in enumerate(loader):
        assert_rows_belong(batch, data)
        assert batch["paper"].seed_time.tolist() == bounds[2 * number : 2 * number + 2]
        for tree in range(2):
            vertices, edges = reached(data, [("paper", seeds[2 * number + tree])], 2, bounds[2 * number + tree])
            for name, wanted in vertices.items():
                assert sorted(batch[name].n_id[batch[name].batch == tree].tolist()) == sorted(wanted)
            for key, wanted in edges.items():
                own = batch[key[2]].batch[batch[key].edge_index[1]] == tree
                assert sorted(batch[key].e_id[own].tolist()) == sorted(wanted)


def drawn_times(data, out):
    """The times of the edges of a `HeteroSamplerOutput`, or of their sources, with the tree of each; edges without a time are left out."""
    found = []
    for key, edges in out.edge.items():
        sources, trees = out.node[key[0]][out.row[key]], out.batch[key[0]][out.row[key]]
        store, places = (data[key], edges) if "time" in data[key] else (data[key[0]], sources)
        found += zip(trees.tolist(), store.time[places].tolist(), strict=True) if "time" in store else []
    return found


@pytest.mark.parametrize("times", ["vertices", "edges"])
def test_windows_of_seeds_of_several_types_begin_at_their_starts(times):
    """Every draw lies in the window of its tree, and a window from the start of time has all neighbors of a search."""
    data, ends, starts = typed_data(times=times), {"paper": [15, 12], "author": [9]}, {"paper": [8, 13 - 9], "author": None}
    sampler, least = BulkSampler(data, [-1, -1], time_attr="time"), -(2**63)
    seeds = {"paper": np.array([3, 9]), "author": np.array([4])}

    def stamps(of):
        return {name: None if values is None else np.array(values) for name, values in of.items()}

    (out,) = sampler.sample_seeds([seeds], [0], 0, [stamps(ends)], [stamps(starts)])
    bounds = [(8, 15), (4, 12), (least, 9)]
    found = drawn_times(data, out)
    assert {tree for tree, _ in found} == {0, 1, 2}
    assert all(bounds[tree][0] <= time <= bounds[tree][1] for tree, time in found)
    _, edges = reached(data, [("author", 4)], 2, 9)
    for key, wanted in edges.items():
        assert sorted(out.edge[key][out.batch[key[2]][out.col[key]] == 2].tolist()) == sorted(wanted)


def test_a_time_window_is_the_start_so_much_before_each_seed():
    data = make_data()
    data.time = torch.from_numpy(np.random.default_rng(3).integers(0, 50, 300))
    seeds, epoch = {NODE: np.arange(40)}, 3
    ends = data.time[:40].numpy()
    (one,) = BulkSampler(data, [4, 3], time_attr="time", time_window=20).sample_seeds([seeds], [5], epoch, [{NODE: ends}])
    (other,) = BulkSampler(data, [4, 3], time_attr="time").sample_seeds([seeds], [5], epoch, [{NODE: ends}], [{NODE: ends - 20}])
    (whole,) = BulkSampler(data, [4, 3], time_attr="time").sample_seeds([seeds], [5], epoch, [{NODE: ends}])
    assert torch.equal(one.edge, other.edge)
    assert not torch.equal(one.edge, whole.edge)
    assert starts_of("input_start", ends - 20, ends).tolist() == (ends - 20).tolist()
    with pytest.raises(UsageError, match="input_start: entry 0 is 5, and its time is 3; give no start later than its time"):
        starts_of("input_start", [5], np.array([3]))
    with pytest.raises(UsageError, match="time_window was given without times of the graph; give time_attr too"):
        BulkSampler(data, [4], time_window=3)
    with pytest.raises(UsageError, match="got a window, and starts of the seeds besides"):
        BulkSampler(data, [4], time_attr="time", time_window=3).sample_seeds([seeds], [0], 0, [{NODE: ends}], [{NODE: ends}])


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_draws_of_a_graph_without_types_are_not_later_than_their_seeds(strategy):
    data = make_data()
    data.time = torch.from_numpy(np.random.default_rng(3).integers(0, 50, 300))
    for batch in NeighborLoader(data, [4, 3], time_attr="time", temporal_strategy=strategy, batch_size=50):
        seed_of = data.time[batch.n_id[: batch.batch_size]]
        later = data.time[batch.n_id[batch.edge_index[0]]] > seed_of[batch.batch[batch.edge_index[0]]]
        assert not later.any()
        torch.testing.assert_close(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        if strategy == "last":
            for seed in range(batch.batch_size):
                v = int(batch.n_id[seed])
                times = data.time[data.edge_index[0, data.edge_index[1] == v]]
                wanted = times[times <= data.time[v]].sort(descending=True).values[:4]
                own = batch.edge_index[0, batch.edge_index[1] == seed]
                assert data.time[batch.n_id[own]].sort(descending=True).values.tolist() == wanted.tolist()


def test_constant_times_draw_what_trees_without_times_draw():
    data = make_data()
    data.time = torch.zeros(300, dtype=torch.long)
    typed = NeighborLoader(data, [4, 3], time_attr="time", batch_size=40, shuffle=True, seed=2)
    for batch in typed:
        assert (torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)[: batch.batch_size] <= 4).all()
    whole = NeighborLoader(data, [-1], time_attr="time", batch_size=300)
    assert sorted(next(iter(whole)).e_id.tolist()) == list(range(data.num_edges))


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("weighted", [False, True])
def test_negatives_exist_at_the_time_of_their_link(mode, weighted):
    data = typed_data(times="vertices")
    weight = (torch.arange(60) % 3 > 0).float()
    law = NegativeSampling(mode, amount=2, dst_weight=weight if weighted else None)
    times = torch.full((EDGES[WRITES],), 12)
    loader = LinkNeighborLoader(
        data, [3, 2], WRITES, edge_label_time=times, time_attr="time", neg_sampling=law, batch_size=20, shuffle=True
    )
    drawn = []
    for batch in loader:
        assert_rows_belong(batch, data)
        paper = batch["paper"]
        if mode == "binary":
            places = batch[WRITES].edge_label_index[1, batch[WRITES].edge_label == 0]
            links = batch[WRITES].edge_label_index
            assert torch.equal(batch["author"].batch[links[0]], paper.batch[links[1]])
        else:
            places = paper.dst_neg_index.flatten()
            assert torch.equal(paper.batch[paper.dst_pos_index], torch.arange(len(paper.dst_pos_index)))
        negatives = paper.n_id[places]
        assert (data["paper"].time[negatives] <= 12).all()
        drawn.append(negatives)
        for key in EDGES:
            if "time" in data[key[0]]:
                assert (data[key[0]].time[batch[key[0]].n_id[batch[key].edge_index[0]]] <= 12).all()
    every = torch.cat(drawn)
    fit = (data["paper"].time <= 12) & ((weight > 0) | torch.tensor(not weighted))
    counts = torch.bincount(every, minlength=60)
    assert (counts[~fit] == 0).all()
    expected = len(every) / int(fit.sum())
    assert (((counts[fit] - expected) ** 2) / expected).sum() < 2 * int(fit.sum())  # chi-square, far in its tail


def test_both_ends_of_a_link_have_its_number_beside_half_as_many_negatives():
    data, cites = typed_data(), ("paper", "cites", "paper")
    for batch in LinkNeighborLoader(data, [2], cites, disjoint=True, neg_sampling=NegativeSampling("binary", 0.5), batch_size=7):
        sources, destinations = batch["paper"].batch[batch[cites].edge_label_index]
        links = int((batch[cites].edge_label > 0).sum())
        assert torch.equal(sources, torch.arange(len(sources)) % links)
        assert torch.equal(sources, destinations)


def test_a_link_before_all_vertices_has_no_negatives():
    data = typed_data(times="vertices")
    late = torch.full((EDGES[WRITES],), -1)
    with pytest.raises(DataError, match="no vertex exists at time -1"):
        LinkNeighborLoader(data, [2], WRITES, edge_label_time=late, time_attr="time", neg_sampling="binary", batch_size=9)


@pytest.mark.parametrize(
    ("weight", "error", "says"),
    [
        ([0, 0, 1, 1], DataError, "have the weight 0"),  # those that exist; the others are later
        ([0, 0, 0, 0], DataError, "have the weight 0"),
        ([1, -2, 1, 1], UsageError, "is -2.0; use finite numbers"),
        ([1, np.nan, 1, 1], UsageError, "is nan; use finite numbers"),
    ],
)
def test_weights_of_negatives_of_which_none_can_be_drawn(weight, error, says):
    law = NegativeSampling("binary", dst_weight=torch.tensor(weight, dtype=torch.float64))
    data = HeteroData({"author": {"num_nodes": 2}, "paper": {"num_nodes": 4, "time": torch.tensor([0, 1, 5, 6])}})
    data[WRITES].edge_index = torch.tensor([[0, 1], [0, 1]])
    with pytest.raises(error, match=says):
        LinkNeighborLoader(data, [2], WRITES, edge_label_time=torch.full((2,), 2), time_attr="time", neg_sampling=law, batch_size=2)


def test_links_of_a_graph_without_types_in_time():
    data = make_data()
    data.time = torch.arange(data.num_edges) % 30
    loader = LinkNeighborLoader(
        data, [3], data.edge_index[:, :50], edge_label_time=torch.full((50,), 11), time_attr="time", neg_sampling="binary", batch_size=10
    )
    for batch in loader:
        assert (data.time[batch.e_id] <= 11).all()
        assert len(batch.e_id)
        assert torch.equal(batch.batch[batch.edge_label_index[0]], batch.batch[batch.edge_label_index[1]])


def test_refused_in_time():
    data = typed_data(times="edges")
    with pytest.raises(UsageError, match="give input_time"):
        next(iter(NeighborLoader(data, [2], "paper", time_attr="time", batch_size=3)))
    with pytest.raises(UsageError, match="'edge_label_time' is not set"):
        LinkNeighborLoader(data, [2], WRITES, time_attr="time", batch_size=3)
    with pytest.raises(UsageError, match="later than its seeds"):
        NeighborLoader(data, [2], "paper", time_attr="time", subgraph_type="induced", batch_size=3)
    for count in (5, 300):
        with pytest.raises(UsageError, match=f"edge_label_time: got {count} times for 200 links; use one for each"):
            LinkNeighborLoader(data, [2], WRITES, edge_label_time=torch.zeros(count, dtype=torch.long), time_attr="time", batch_size=3)
    with pytest.raises(UsageError, match="fanouts must be a list of whole numbers"):
        NeighborLoader(data, [2.7], "paper", batch_size=3)
    data["paper"].time = torch.arange(60)
    with pytest.raises(UsageError, match="both vertices and edges"):
        NeighborLoader(data, [2], "paper", time_attr="time", batch_size=3)
    plain = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0], [1]]), time=torch.tensor([0.5, 1.0, 2.0]))
    with pytest.raises(DataError, match="float32"):
        NeighborLoader(plain, [2], time_attr="time", batch_size=3)


def test_ranks_with_other_times_or_seeds_are_refused():
    data, own = typed_data(times="vertices"), {"time_attr": "time", "batch_size": 1, "backend": "reference"}

    def make(comm, seeds=(3, 9), times=(5, 19)):
        NeighborLoader(data, [2], ("paper", list(seeds)), input_time=torch.tensor(times), comm=comm, **own)

    for other in ({"times": (5, 20)}, {"seeds": (3, 8)}):
        with pytest.raises(UsageError, match="do not agree on the examples of the loader and their times: another on rank 1 than on"):
            on_threads(2, lambda comm, other=other: make(comm, **(other if comm.rank else {})))
    on_threads(2, make)
