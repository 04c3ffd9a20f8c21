"""Drop-in loaders on graphs with types: `HeteroData`, typed stores, and the batches of torch_geometric to the letter."""

import json

import pytest

pytest.importorskip("torch_geometric", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

import torch
from pyg_graphs import make_data
from pyg_typed import COUNTS, EDGES, assert_rows_belong, reached, typed_data
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv
from torch_geometric.sampler.base import NumNeighbors
from torch_geometric.testing.feature_store import MyFeatureStore
from torch_geometric.testing.graph_store import MyGraphStore
from torch_geometric.utils import trim_to_layer

from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import UsageError
from bulksample.interop.pyg import HGTLoader, LinkNeighborLoader, NeighborLoader

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")


def equal(one, other):
    """True if two heterogeneous batches hold the same tensors."""
    left, right = one.to_dict(), other.to_dict()
    assert left.keys() == right.keys()
    for key, store in left.items():
        for name, value in store.items():
            there = right[key][name]
            assert torch.equal(value, there) if isinstance(value, torch.Tensor) else value == there, (key, name)
    return True


@pytest.mark.parametrize("disjoint", [False, True])
def test_all_neighbors_are_those_of_a_search(disjoint):
    data = typed_data()
    for batch in NeighborLoader(data, [-1, -1], ("paper", [3, 9, 27]), batch_size=3, disjoint=disjoint):
        assert_rows_belong(batch, data)
        assert batch["paper"].n_id[:3].tolist() == [3, 9, 27]
        for place, seed in enumerate([3, 9, 27]) if disjoint else [(None, None)]:
            seeds = [("paper", seed)] if disjoint else [("paper", v) for v in (3, 9, 27)]
            vertices, edges = reached(data, seeds, 2)
            for name, wanted in vertices.items():
                own = batch[name].batch == place if disjoint else slice(None)
                assert sorted(batch[name].n_id[own].tolist()) == sorted(wanted)
            for key, wanted in edges.items():
                own = batch[key[2]].batch[batch[key].edge_index[1]] == place if disjoint else slice(None)
                assert sorted(batch[key].e_id[own].tolist()) == sorted(wanted)


def test_fanouts_count_per_relation_and_hop():
    data = typed_data()
    fanouts = {key: [2, 1] for key in EDGES} | {WRITES: [1, 0]}
    (batch,) = NeighborLoader(data, fanouts, ("paper", None), batch_size=60)
    assert_rows_belong(batch, data)
    for key, hop_one in ((CITES, 2), (WRITES, 1)):
        degrees = torch.bincount(data[key].edge_index[1], minlength=60)
        assert batch[key].num_sampled_edges[0] == int(degrees.clamp(max=hop_one).sum())
    assert batch[WRITES].num_sampled_edges[1] == 0
    by_default = NeighborLoader(data, NumNeighbors({WRITES: [1, 0]}, default=[2, 1]), ("paper", None), batch_size=60)
    assert equal(batch, next(iter(by_default)))


def test_repeated_seeds_stand_where_they_were_asked_for():
    data = typed_data()
    (batch,) = NeighborLoader(data, [-1], ("paper", [7, 8, 7]), batch_size=3)
    assert batch["paper"].n_id[:3].tolist() == [7, 8, 7]
    assert batch["paper"].num_sampled_nodes[0] == 3
    into = torch.bincount(batch[CITES].edge_index[1], minlength=3)
    assert into[0] == into[2] == (data[CITES].edge_index[1] == 7).sum()
    assert_rows_belong(batch, data)


def test_one_type_draws_what_the_homogeneous_loader_draws():
    plain = make_data()
    data = HeteroData({"node": {"x": plain.x}, ("node", "to", "node"): {"edge_index": plain.edge_index}})
    options = {"batch_size": 32, "shuffle": True, "seed": 3}
    pairs = zip(NeighborLoader(plain, [4, 3], **options), NeighborLoader(data, [4, 3], "node", **options), strict=True)
    for one, other in pairs:
        assert torch.equal(one.n_id, other["node"].n_id)
        assert torch.equal(one.edge_index, other["node", "to", "node"].edge_index)
        assert torch.equal(one.e_id, other["node", "to", "node"].e_id)


@pytest.mark.parametrize("loader", [NeighborLoader, LinkNeighborLoader])
def test_bulks_threads_and_a_state_change_nothing(loader):
    data = typed_data()
    inputs = {"input_nodes": "paper"} if loader is NeighborLoader else {"edge_label_index": WRITES, "neg_sampling": "binary"}
    options = {"batch_size": 7, "shuffle": True, "seed": 5, **inputs}
    expected = list(loader(data, [3, 2], bulk_size=1, **options))
    for other in ({"bulk_size": 4}, {"num_workers": 2}, {"backend": "reference"}):
        assert all(equal(a, b) for a, b in zip(expected, loader(data, [3, 2], **other, **options), strict=True))
    first = loader(data, [3, 2], **options)
    for _, _batch in zip(range(3), first, strict=False):
        state = first.state_dict()
    again = loader(data, [3, 2], **options)
    again.load_state_dict(state)
    assert all(equal(a, b) for a, b in zip(expected[3:], again, strict=True))


HETERO = {
    "neighbors": lambda **options: NeighborLoader(typed_data(), [3, 2], input_nodes="paper", **options),
    "links": lambda **options: LinkNeighborLoader(typed_data(), [3, 2], edge_label_index=WRITES, neg_sampling="binary", **options),
    "hgt": lambda **options: HGTLoader(typed_data(), [3, 2], "paper", **options),
}


@pytest.mark.parametrize("kind", HETERO)
def test_a_state_in_mid_epoch_continues_with_other_workers_and_on_other_ranks(kind):
    def made(**options):
        return HETERO[kind](batch_size=7, shuffle=True, seed=5, **options)

    def stopped(comm=None):
        loader = made(**({} if comm is None else {"comm": comm}))
        for _, _batch in zip(range(2), loader, strict=False):
            state = loader.state_dict()
        return json.loads(json.dumps(state))

    def rest(comm):
        loader = made(comm=comm)
        loader.load_state_dict(stopped())
        return list(loader)

    expected = list(made())
    again = made(num_workers=2, bulk_size=1)
    again.load_state_dict(stopped())
    assert all(equal(a, b) for a, b in zip(expected[2:], again, strict=True))
    fewer = made(num_workers=1)
    fewer.load_state_dict(on_threads(2, stopped)[-1])  # two steps of two ranks
    assert all(equal(a, b) for a, b in zip(expected[4:], fewer, strict=True))
    for rank, left in enumerate(on_threads(3, rest)):
        dealt = expected[2 + rank :: 3]
        assert len(dealt) > 1
        assert all(equal(a, b) for a, b in zip(dealt, left, strict=False))
        assert len(left) == -(-(len(expected) - 2) // 3)


def test_weights_are_the_law_of_draws():
    data = typed_data()
    data[CITES].weight = (data[CITES].edge_index[0] < 30).float()
    (batch,) = NeighborLoader(data, [3], "paper", batch_size=60, weight_attr="weight")
    assert (batch["paper"].n_id[batch[CITES].edge_index[0]] < 30).all()
    assert len(batch[CITES].e_id)


def test_induced_subgraphs_hold_every_edge_among_their_vertices():
    data = typed_data()
    (batch,) = NeighborLoader(data, [2], ("paper", [1, 2, 3]), batch_size=3, subgraph_type="induced")
    held = {name: set(batch[name].n_id.tolist()) for name in data.node_types}
    for key in data.edge_types:
        source, destination = data[key].edge_index.tolist()
        wanted = [i for i in range(len(source)) if source[i] in held[key[0]] and destination[i] in held[key[2]]]
        assert sorted(batch[key].e_id.tolist()) == wanted
    bare = next(iter(NeighborLoader(data, [2], ("paper", [1, 2]), batch_size=2, subgraph_type="bidirectional")))
    assert "e_id" not in bare[CITES]


def test_a_pair_of_stores_gives_the_same_batches():
    data = typed_data()
    features, graph = MyFeatureStore(), MyGraphStore()
    for name, count in COUNTS.items():
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
        assert count == len(data[name].x)
    for key in EDGES:
        graph.put_edge_index(data[key].edge_index, edge_type=key, layout="coo", size=(COUNTS[key[0]], COUNTS[key[2]]))
    options = {"input_nodes": ("paper", torch.arange(20)), "batch_size": 6, "seed": 1}
    for one, other in zip(NeighborLoader(data, [3, 2], **options), NeighborLoader((features, graph), [3, 2], **options), strict=True):
        for name in COUNTS:
            assert torch.equal(one[name].n_id, other[name].n_id)
            assert torch.equal(one[name].x, other[name].x)
        assert torch.equal(one[CITES].edge_index, other[CITES].edge_index)


def test_trimmed_layers_give_the_seeds_the_same_output():
    data = typed_data()
    torch.manual_seed(1)
    layers = [HeteroConv({key: SAGEConv((4, 4), 4) for key in EDGES}) for _ in range(2)]
    (batch,) = NeighborLoader(data, [3, 2], ("paper", torch.arange(10)), batch_size=10)
    nodes = {name: batch[name].num_sampled_nodes for name in data.node_types}
    edges = {key: batch[key].num_sampled_edges for key in EDGES}
    whole, trimmed, index = batch.x_dict, batch.x_dict, batch.edge_index_dict
    cut = batch.edge_index_dict
    for place, layer in enumerate(layers):
        trimmed, cut, _ = trim_to_layer(place, nodes, edges, trimmed, cut)
        whole, trimmed = ({**x, **layer(x, e)} for x, e in ((whole, index), (trimmed, cut)))
    torch.testing.assert_close(whole["paper"][:10], trimmed["paper"][:10])


def test_layers_of_torch_geometric_take_a_batch():
    data = typed_data()
    (batch,) = NeighborLoader(data, [3, 2], ("paper", torch.arange(10)), batch_size=10)
    out = HGTConv(4, 8, data.metadata(), heads=2)(batch.x_dict, batch.edge_index_dict)
    assert out["paper"].shape == (batch["paper"].num_nodes, 8)
    assert torch.isfinite(out["paper"]).all()


REFUSED = [
    ({"input_nodes": None}, "name their type"),
    ({"input_nodes": "papers"}, "has no type 'papers'"),
    ({"input_nodes": ("paper", [99])}, "use 0 to 59"),
    ({"num_neighbors": {CITES: [2]}}, "Missing number of neighbors"),
    ({"num_neighbors": {("a", "b", "c"): [2]}}, "exist in the graph"),
    ({"num_neighbors": {key: [2] * (1 + (key == CITES)) for key in EDGES}}, "Number of hops"),
    ({"weight_attr": "none"}, "has no weight 'none'"),
    ({"time_attr": "time"}, "no vertices and no edges have it"),
    ({"grid": 1}, "leave out grid"),
    ({"input_time": torch.arange(60)}, "give time_attr too"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_refused_in_one_line(options, says):
    with pytest.raises(UsageError, match=says) as caught:
        NeighborLoader(typed_data(), **{"num_neighbors": [2], "input_nodes": "paper", "batch_size": 9} | options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [None, ("paper", "none", "venue"), (CITES, torch.tensor([[0], [60]])), 3])
def test_links_that_are_none_are_refused(given):
    with pytest.raises(UsageError, match="edge_label_index"):
        LinkNeighborLoader(typed_data(), [2], given, batch_size=2)
