"""ShaDow, GraphSAINT and Cluster-GCN for torch_geometric: subgraphs are exact, and their laws are those of enumeration and closed forms."""

import itertools

import numpy as np
import pytest
import torch
from pyg_graphs import make_data, same
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import ClusterLoader as TheirLoader
from torch_geometric.utils import subgraph

from bulksample import DataError, UsageError
from bulksample.interop.pyg import (
    ClusterData,
    ClusterLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    ShaDowKHopSampler,
)

SAINT = {
    "walks": lambda data, **options: GraphSAINTRandomWalkSampler(data, batch_size=8, walk_length=2, **options),
    "vertices": lambda data, **options: GraphSAINTNodeSampler(data, batch_size=20, **options),
    "edges": lambda data, **options: GraphSAINTEdgeSampler(data, batch_size=12, **options),
}
MADE = {
    "shadow": lambda data, **options: ShaDowKHopSampler(data, depth=2, num_neighbors=3, batch_size=16, shuffle=True, **options),
    **{f"saint {name}": lambda data, made=made, **options: made(data, num_steps=9, **options) for name, made in SAINT.items()},
    "clusters": lambda data, backend=None, **options: ClusterLoader(
        ClusterData(data, 12, keep_inter_cluster_edges=True), batch_size=2, shuffle=True, **options
    ),
}
SMALL = torch.tensor([[0, 0, 1, 1, 2, 3, 3, 4], [1, 2, 2, 3, 0, 0, 4, 3]])  # 5 has no edge


def named(data):
    data = data.clone()
    data.own_id, data.own_edge = torch.arange(data.num_nodes), torch.arange(data.num_edges)
    return data


def sorted_edges(edge_index, ids):
    order = np.lexsort((ids.numpy(), edge_index[1].numpy(), edge_index[0].numpy()))
    return edge_index[:, order], ids[order]


@pytest.mark.parametrize("replace", [False, True])
def test_shadow_keeps_every_edge_among_the_vertices_of_each_root(data, replace):
    data = named(data)
    roots = torch.tensor([7, 3, 3, 250 % data.num_nodes, data.num_nodes - 1])
    (batch,) = ShaDowKHopSampler(data, 2, 4, node_idx=roots, replace=replace, batch_size=5)
    assert batch.num_graphs == 5
    assert torch.equal(batch.own_id[batch.root_n_id], roots)
    assert torch.equal(batch.y, data.y[roots])
    torch.testing.assert_close(batch.x, data.x[batch.own_id])
    for i in range(5):
        own = slice(int(batch.ptr[i]), int(batch.ptr[i + 1]))
        kept = batch.own_id[own]
        assert torch.equal(kept, kept.unique())
        assert int(batch.ptr[i]) <= int(batch.root_n_id[i]) < int(batch.ptr[i + 1])
        expected, ids = subgraph(kept, data.edge_index, data.own_edge, relabel_nodes=True, num_nodes=data.num_nodes)
        mine = (batch.edge_index[0] >= own.start) & (batch.edge_index[0] < own.stop)
        expected, ids = sorted_edges(expected, ids)
        assert torch.equal(batch.edge_index[:, mine] - own.start, expected)
        assert torch.equal(batch.own_edge[mine], ids)
    assert batch.num_nodes == int(batch.ptr[-1])


def test_shadow_draws_by_the_law_of_enumeration():
    """One root, two hops of one draw: every set of vertices has the probability of its paths."""
    into = [SMALL[0][SMALL[1] == v].tolist() for v in range(6)]
    expected: dict[tuple[int, ...], float] = {}
    for first in into[0]:
        for second in into[first]:  # the draw of the first vertex; a vertex that is held is not expanded again
            held = tuple(sorted({0, first, second}))
            expected[held] = expected.get(held, 0) + 1 / len(into[0]) / len(into[first])
    data = named(Data(edge_index=SMALL, num_nodes=6))
    loader = ShaDowKHopSampler(data, 2, 1, node_idx=torch.zeros(4000, dtype=torch.long), batch_size=1000)
    found: dict[tuple[int, ...], int] = {}
    for batch in loader:
        for i in range(batch.num_graphs):
            held = tuple(batch.own_id[batch.ptr[i] : batch.ptr[i + 1]].tolist())
            found[held] = found.get(held, 0) + 1
    assert found.keys() == expected.keys()
    for held, probability in expected.items():
        assert abs(found[held] / 4000 - probability) < 4.5 * (probability * (1 - probability) / 4000) ** 0.5


def test_shadow_keeps_the_form_of_compressed_rows():
    data = make_data()
    source, destination = data.edge_index
    order = torch.argsort(destination * 300 + source)
    rows = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(destination, minlength=300).cumsum(0)])
    values = torch.arange(1.0, data.num_edges + 1)[order]
    adj_t = torch.sparse_csr_tensor(rows, source[order], values, size=(300, 300))
    plain, whole = Data(edge_index=data.edge_index, x=data.x, weight=torch.arange(1.0, data.num_edges + 1)), Data(adj_t=adj_t, x=data.x)
    for ours, theirs in zip(*(ShaDowKHopSampler(graph, 2, 3, batch_size=50) for graph in (whole, plain)), strict=True):
        dense = torch.zeros(theirs.num_nodes, theirs.num_nodes)
        dense[theirs.edge_index[1], theirs.edge_index[0]] = theirs.weight
        assert torch.equal(ours.adj_t.to_dense(), dense)
        assert torch.equal(ours.x, theirs.x)
        assert "edge_index" not in ours


@pytest.mark.parametrize("made", SAINT.values(), ids=SAINT)
def test_saint_keeps_every_edge_among_its_vertices(data, made):
    data = named(data)
    loader = made(data, num_steps=3, sample_coverage=2)
    assert len(loader) == 3
    for batch in loader:
        assert torch.equal(batch.own_id, batch.own_id.unique())
        expected, ids = sorted_edges(*subgraph(batch.own_id, data.edge_index, data.own_edge, relabel_nodes=True, num_nodes=data.num_nodes))
        assert torch.equal(batch.edge_index, expected)
        assert torch.equal(batch.own_edge, ids)
        assert torch.equal(batch.node_norm, loader.node_norm[batch.own_id])
        assert torch.equal(batch.edge_norm, loader.edge_norm[batch.own_edge])
        assert batch.own_graph_value == "kept"


def walks(length):
    """Every walk from every vertex, with its probability."""
    after = [SMALL[1][SMALL[0] == v].tolist() or [v] for v in range(6)]
    paths = [((v,), 1 / 6) for v in range(6)]
    for _ in range(length):
        paths = [((*path, v), p / len(after[path[-1]])) for path, p in paths for v in after[path[-1]]]
    return [(frozenset(path), p) for path, p in paths]


def held_by_walks(b, length):
    """Every set of vertices that b walks hold, with its probability."""
    found: dict[frozenset[int], float] = {}
    for chosen in itertools.product(walks(length), repeat=b):
        held = frozenset().union(*(visited for visited, _ in chosen))
        found[held] = found.get(held, 0) + float(np.prod([p for _, p in chosen]))
    return found


def held_by_edges(b):
    """Every set of sources of b independent edges."""
    found: dict[frozenset[int], float] = {}
    for chosen in itertools.product(SMALL[0].tolist(), repeat=b):
        found[frozenset(chosen)] = found.get(frozenset(chosen), 0) + 8.0**-b
    return found


def held_by_weight(b):
    """Every set of ends of b distinct edges, drawn one after the other by weight."""
    leaving, into = (np.bincount(ends, minlength=6) for ends in SMALL.numpy())
    weight = 1 / leaving[SMALL[0]] + 1 / into[SMALL[1]]
    found: dict[frozenset[int], float] = {}
    for chosen in itertools.permutations(range(8), b):
        left, probability = weight.sum(), 1.0
        for edge in chosen:
            probability, left = probability * weight[edge] / left, left - weight[edge]
        held = frozenset(SMALL[:, list(chosen)].ravel().tolist())
        found[held] = found.get(held, 0) + probability
    return found


LAWS = {
    "walks": (lambda data, **options: GraphSAINTRandomWalkSampler(data, 2, 2, **options), held_by_walks(2, 2)),
    "vertices": (lambda data, **options: GraphSAINTNodeSampler(data, 2, **options), held_by_edges(2)),
    "edges": (lambda data, **options: GraphSAINTEdgeSampler(data, 2, **options), held_by_weight(2)),
}


@pytest.mark.parametrize(("made", "expected"), LAWS.values(), ids=LAWS)
def test_saint_draws_by_the_law_of_enumeration(made, expected):
    found: dict[frozenset[int], int] = {}
    for batch in made(named(Data(edge_index=SMALL, num_nodes=6)), num_steps=4000):
        held = frozenset(batch.own_id.tolist())
        found[held] = found.get(held, 0) + 1
    assert found.keys() <= expected.keys()
    for held, probability in expected.items():
        assert abs(found.get(held, 0) / 4000 - probability) < 4.5 * (probability * (1 - probability) / 4000) ** 0.5


@pytest.mark.parametrize(("made", "expected"), LAWS.values(), ids=LAWS)
def test_saint_coefficients_are_those_of_enumeration(made, expected):
    """1 / (n p_v), and p_v / p_uv with v the vertex that aggregates; the weighted sums are then unbiased."""
    loader = made(named(Data(edge_index=SMALL, num_nodes=6)), sample_coverage=3000)
    p = np.array([sum(q for held, q in expected.items() if v in held) for v in range(6)])
    both = np.array([sum(q for held, q in expected.items() if u in held and v in held) for u, v in SMALL.T.tolist()])
    reached = p > 0
    np.testing.assert_allclose(loader.node_norm.numpy()[reached], 1 / (6 * p[reached]), rtol=0.06)
    np.testing.assert_allclose(loader.edge_norm.numpy(), (p[SMALL[1]] / both), rtol=0.09)
    loss, row = np.arange(1.0, 7.0) * reached, np.zeros(6)
    np.testing.assert_allclose(
        sum(q * (loader.node_norm.numpy() * loss)[list(held)].sum() for held, q in expected.items()), loss.mean(), rtol=0.05
    )
    for held, q in expected.items():  # aggregate x = 1 .. 6 in each subgraph; the mean over those that hold v is the whole sum
        for e, (u, v) in enumerate(SMALL.T.tolist()):
            row[v] += q / p[v] * float(loader.edge_norm[e]) * (u + 1) * (u in held and v in held) if p[v] else 0
    whole = np.bincount(SMALL[1], weights=SMALL[0] + 1.0, minlength=6)
    np.testing.assert_allclose(row, whole, rtol=0.06)


def test_saint_coefficients_are_kept_for_the_same_loader_alone(tmp_path):
    data = make_data(60, 300)
    options = {"sample_coverage": 3, "save_dir": str(tmp_path)}
    first = SAINT["walks"](data, **options)
    first.node_norm  # noqa: B018  # counts and writes
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    assert torch.equal(SAINT["walks"](data, **options).edge_norm, first.edge_norm)
    assert file.read_bytes() == before
    assert not torch.equal(SAINT["walks"](data, seed=1, **options).edge_norm, first.edge_norm)  # another loader counts anew
    file.write_bytes(before[:100])
    assert torch.equal(SAINT["walks"](data, **options).edge_norm, first.edge_norm)


@pytest.mark.parametrize("made", SAINT.values(), ids=SAINT)
def test_saint_tells_the_order_of_edges_apart(made, tmp_path):
    data = make_data(60, 300)
    moved, order = data.clone(), torch.arange(data.num_edges).flip(0)
    moved.edge_index, moved.edge_attr, moved.weight = data.edge_index[:, order], data.edge_attr[order], data.weight[order]
    options = {"num_steps": 4, "sample_coverage": 3, "save_dir": str(tmp_path)}
    before, after = made(data, **options), made(moved, **options)
    before.edge_norm  # noqa: B018  # counts and writes
    assert torch.equal(after.edge_norm, made(moved, num_steps=4, sample_coverage=3).edge_norm)
    with pytest.raises(UsageError, match="does not fit: order_of_edges was"):
        after.load_state_dict(before.state_dict())


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("keep", [False, True])
def test_clusters_without_edges_are_batches_too(batch_size, keep):
    """torch_geometric's own loader fails on them: citeseer has 48 isolated vertices."""
    data = named(Data(x=torch.arange(20.0).view(10, 2), edge_index=torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]]), edge_attr=torch.ones(4, 3)))
    parts = ClusterData(data, num_parts=5, keep_inter_cluster_edges=keep)
    batches = list(ClusterLoader(parts, batch_size=batch_size))
    assert len(batches) == -(-5 // batch_size)
    assert sorted(torch.cat([batch.own_id for batch in batches]).tolist()) == list(range(10))
    assert min(batch.num_edges for batch in batches) == 0
    for batch in batches:
        assert torch.equal(batch.x, data.x[batch.own_id])
        assert torch.equal(batch.own_id[batch.edge_index], data.edge_index[:, batch.own_edge])
        assert batch.edge_index.dtype == torch.int64
        assert batch.edge_attr.shape == (batch.num_edges, 3)


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
def test_clusters_are_batches_of_whole_parts(tmp_path, sparse_format):
    data = named(make_data())
    parts = ClusterData(data, 10, save_dir=str(tmp_path), sparse_format=sparse_format)
    again = ClusterData(data, 10, save_dir=str(tmp_path), sparse_format=sparse_format)
    assert torch.equal(parts.partition.node_perm, again.partition.node_perm)
    seen = []
    for batch in ClusterLoader(parts, batch_size=3, shuffle=True):
        seen += batch.own_id.tolist()
        assert torch.equal(batch.own_id[batch.edge_index], data.edge_index[:, batch.own_edge])
        _, ids = subgraph(batch.own_id, data.edge_index, data.own_edge, num_nodes=300)
        assert torch.equal(batch.own_edge.sort().values, ids)
    assert sorted(seen) == list(range(300))
    assert all(same(*pair) for pair in zip(ClusterLoader(parts, batch_size=3), TheirLoader(parts, batch_size=3), strict=True))
    for other, options in ((make_data(200), {}), (make_data(seed=2), {}), (data, {"seed": 1})):
        with pytest.raises(DataError, match=r"metis\.npz holds 10 parts of 300 vertices, seed 0, graph .*; asked for 10 parts"):
            ClusterData(other, 10, save_dir=str(tmp_path), **options)


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_neither_bulk_nor_back_end_nor_threads_change_a_batch(data, made):
    expected = list(made(data, seed=3, bulk_size=1))
    for more in ({"bulk_size": 4}, {}, {"backend": "reference"}, {"num_workers": 2}):
        assert all(same(*pair) for pair in zip(made(data, seed=3, **more), expected, strict=True))
    assert not all(torch.equal(one.x[:5], other.x[:5]) for one, other in zip(made(data, seed=4), expected, strict=False))


REFUSED = [
    (lambda data: ShaDowKHopSampler(data, 0, 3), "depth must be a whole number of at least 1; got 0"),
    (lambda data: ShaDowKHopSampler(data, 1, 0), "num_neighbors must be a whole number of at least 1; got 0"),
    (lambda data: ShaDowKHopSampler(data, 1, 3, node_idx=[300]), "input_nodes"),
    (lambda data: ShaDowKHopSampler((data, data), 1, 3), "pair of stores"),
    (lambda data: GraphSAINTRandomWalkSampler(data, 0, 2), "batch_size must be a whole number of at least 1; got 0"),
    (lambda data: GraphSAINTRandomWalkSampler(data, 3, -1), "walk_length must be a whole number in 0 .. 255; got -1"),
    (lambda data: GraphSAINTNodeSampler(data, True), "batch_size must be a whole number of at least 1; got True"),
    (lambda data: GraphSAINTNodeSampler(Data(edge_index=SMALL[:, :0], num_nodes=4), 3), "draws edges, and the graph has none"),
    (lambda data: GraphSAINTEdgeSampler(Data(edge_index=SMALL[:, :0], num_nodes=4), 3), "draws edges, and the graph has none"),
    (lambda data: GraphSAINTNodeSampler(Data(num_nodes=4), 3), "needs a Data with an edge_index"),
    (lambda data: GraphSAINTNodeSampler(Data(edge_index=SMALL, node_norm=1), 3), "an attribute 'node_norm' already"),
    (lambda data: GraphSAINTNodeSampler(data, 3).node_norm, "sample_coverage is 0"),
    (lambda data: ClusterData(Data(num_nodes=4), 2), "needs a Data with an edge_index"),
    (lambda data: ClusterData(data, 2, sparse_format="coo"), "must be 'csr' or 'csc'; got 'coo'"),
    (
        lambda data: ClusterLoader(data, batch_size=2),
        r"takes a graph in parts; got a Data: use ClusterLoader\(ClusterData",
    ),
    (lambda data: ClusterLoader(ClusterData(data, 2), generator=torch.Generator()), "`seed`"),
    (lambda data: ShaDowKHopSampler(HeteroData(), 1, 3), "heterogeneous"),
]


def test_numbers_of_numpy_are_numbers(data):
    counted = GraphSAINTNodeSampler(data, np.int64(3), num_steps=np.int32(2)), GraphSAINTNodeSampler(data, 3, num_steps=2)
    assert counted[0].state_dict() == counted[1].state_dict()
    assert all(same(*pair) for pair in zip(*counted, strict=True))


@pytest.mark.parametrize(("call", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_refused_in_one_line(call, says):
    with pytest.raises(UsageError, match=says) as caught:
        call(make_data())
    assert "\n" not in str(caught.value)
