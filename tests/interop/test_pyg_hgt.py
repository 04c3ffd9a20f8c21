"""The drop-in for `HGTLoader`: torch_geometric's batches, every edge among their vertices, and the same bits however it is run."""

import json

import pytest

pytest.importorskip("torch_geometric", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

import torch
from pyg_graphs import make_data
from pyg_typed import COUNTS, EDGES, reached, typed_data
from torch_geometric.nn import HGTConv
from torch_geometric.testing.feature_store import MyFeatureStore
from torch_geometric.testing.graph_store import MyGraphStore

from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import UsageError
from bulksample.interop.pyg import HGTLoader, HGTSampler, LinkNeighborLoader

CITES = ("paper", "cites", "paper")
COUNT = {"paper": [4, 3], "author": [5, 0], "venue": [1, 1], "alone": [2, 2]}
OPTIONS = {"batch_size": 7, "shuffle": True, "seed": 5}


def equal(one, other):
    """True if two heterogeneous batches hold the same tensors."""
    left, right = one.to_dict(), other.to_dict()
    assert left.keys() == right.keys()
    for key, store in left.items():
        assert store.keys() == right[key].keys()
        for name, value in store.items():
            there = right[key][name]
            assert torch.equal(value, there) if isinstance(value, torch.Tensor) else value == there, (key, name)
    return True


@pytest.mark.parametrize("counts", [COUNT, [3, 2]])
def test_batches_have_the_attributes_of_torch_geometric(counts):
    data = typed_data()
    for batch in HGTLoader(data, counts, ("paper", [3, 9, 27, 3]), batch_size=4):
        assert batch.node_types == data.node_types
        assert batch.edge_types == data.edge_types
        assert batch["paper"].n_id[:4].tolist() == [3, 9, 27, 3]
        assert batch["paper"].input_id.tolist() == [0, 1, 2, 3]
        for name in data.node_types:
            store, given = batch[name], counts[name] if isinstance(counts, dict) else counts
            assert set(store.keys()) == {"x", "column", "n_id", *(["input_id", "batch_size"] if name == "paper" else [])}
            for column in ("x", "column"):
                assert torch.equal(store[column], data[name][column][store.n_id])
            drawn = store.n_id[4:] if name == "paper" else store.n_id
            assert len(set(drawn.tolist())) == len(drawn) <= sum(given)
        for key in data.edge_types:
            store = batch[key]
            assert set(store.keys()) == {"edge_index", "edge_attr", "weight", "e_id"}
            assert torch.equal(store.edge_attr, data[key].edge_attr[store.e_id])
            ends = torch.stack([batch[key[0]].n_id[store.edge_index[0]], batch[key[2]].n_id[store.edge_index[1]]])
            assert torch.equal(ends, data[key].edge_index[:, store.e_id])
            held = [set(batch[end].n_id.tolist()) for end in (key[0], key[2])]
            wanted = [i for i, (u, v) in enumerate(data[key].edge_index.T.tolist()) if u in held[0] and v in held[1]]
            assert sorted(set(store.e_id.tolist())) == wanted
        into = torch.bincount(batch[CITES].edge_index[1], minlength=4)  # a repeated seed has its edges in both places
        assert into[0] == into[3]


def test_all_vertices_are_those_of_a_search():
    data = typed_data()
    (batch,) = HGTLoader(data, [-1, -1], ("venue", [2]), batch_size=1)
    vertices, _ = reached(data, [("venue", 2)], 2)
    assert sum(map(len, vertices.values())) > 20
    for name, wanted in vertices.items():
        assert sorted(batch[name].n_id.tolist()) == sorted(wanted)


def test_bulks_threads_ranks_and_a_state_change_nothing():
    data = typed_data()
    whole = HGTLoader(data, COUNT, "paper", bulk_size=1, **OPTIONS)
    expected, following = list(whole), list(whole)
    assert not torch.equal(expected[0]["paper"].n_id, following[0]["paper"].n_id)
    for other in ({"bulk_size": 4}, {"num_workers": 2}, {"backend": "reference"}):
        assert all(equal(a, b) for a, b in zip(expected, HGTLoader(data, COUNT, "paper", **other, **OPTIONS), strict=True))
    first = HGTLoader(data, COUNT, "paper", **OPTIONS)
    for _, _batch in zip(range(3), first, strict=False):
        state = json.loads(json.dumps(first.state_dict()))
    again = HGTLoader(data, COUNT, "paper", bulk_size=2, **OPTIONS)
    again.load_state_dict(state)
    assert all(equal(a, b) for a, b in zip(expected[3:], again, strict=True))
    with pytest.raises(UsageError, match="sampler"):
        HGTLoader(data, [2, 2], "paper", **OPTIONS).load_state_dict(state)
    for rank, found in enumerate(on_threads(2, lambda comm: list(HGTLoader(data, COUNT, "paper", comm=comm, **OPTIONS)))):
        assert all(equal(a, b) for a, b in zip(expected[rank::2], found, strict=False))
    other = HGTLoader(data, COUNT, "paper", **(OPTIONS | {"seed": 6}))
    assert not torch.equal(next(iter(other))["paper"].n_id, expected[0]["paper"].n_id)


def test_a_pair_of_stores_gives_the_same_batches():
    data = typed_data()
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in COUNTS:
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
    for key in EDGES:
        graph.put_edge_index(data[key].edge_index, edge_type=key, layout="coo", size=(COUNTS[key[0]], COUNTS[key[2]]))
    inputs = "paper", torch.arange(20)
    for one, other in zip(*(HGTLoader(held, [3, 2], inputs, batch_size=6) for held in (data, (features, graph))), strict=True):
        for name in COUNTS:
            assert torch.equal(one[name].n_id, other[name].n_id)
            assert torch.equal(one[name].x, other[name].x)
        assert torch.equal(one[CITES].edge_index, other[CITES].edge_index)


def test_transforms_and_layers_of_torch_geometric_take_a_batch():
    data, torn = typed_data(), []
    loader = HGTLoader(data, [3, 2], ("paper", torch.arange(10)), transform=lambda batch: torn.append(1) or batch, batch_size=10)
    (batch,) = loader
    out = HGTConv(4, 8, data.metadata(), heads=2)(batch.x_dict, batch.edge_index_dict)
    assert out["paper"].shape == (batch["paper"].num_nodes, 8)
    assert torch.isfinite(out["paper"]).all()
    assert torn == [1]
    assert str(loader) == "HGTLoader()"
    alone = loader(torch.tensor([4]))
    assert alone["paper"].n_id[0] == 4


def test_what_does_not_fit_is_refused():
    data = typed_data()
    with pytest.raises(UsageError, match="use a HeteroData"):
        HGTLoader(make_data(), [3], None)
    with pytest.raises(UsageError, match="name every type: paper, author, venue, alone"):
        HGTLoader(data, {"paper": [3]}, "paper")
    with pytest.raises(UsageError, match="as many for each type"):
        HGTLoader(data, COUNT | {"venue": [1]}, "paper")
    with pytest.raises(UsageError, match="name their type"):
        HGTLoader(data, [3], None)
    with pytest.raises(UsageError, match="begins at vertices"):
        next(iter(LinkNeighborLoader(data, [3], edge_label_index=CITES, neighbor_sampler=HGTSampler(data, [3]))))
