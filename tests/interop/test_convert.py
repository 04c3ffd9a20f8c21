"""Graphs of other libraries become graphs of this package, with everything that they carry."""

from types import SimpleNamespace

import numpy as np
import pytest

import bulksample as bs

torch = pytest.importorskip("torch", reason="torch is missing: pip install 'bulksample[pyg]'")
pyg = pytest.importorskip("torch_geometric.data", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

EDGES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
COLUMNS = {
    "x": torch.arange(8.0).view(4, 2),
    "y": torch.tensor([0, 1, 1, 0]),
    "train_mask": torch.tensor([True, True, False, False]),
    "val_mask": torch.tensor([False, False, True, False]),
    "test_mask": torch.tensor([False, False, False, True]),
}


def real(graph):
    """A as a dense matrix of real weights."""
    return graph.adjacency.to_scipy().toarray() * (1 if graph.adjacency.values is None else graph.weight_unit)


def expected(weights=(1, 1, 1, 1)):
    dense = np.zeros((4, 4))
    np.add.at(dense, (EDGES[1].numpy(), EDGES[0].numpy()), weights)
    return dense


def assert_columns(graph):
    np.testing.assert_array_equal(graph.features, COLUMNS["x"])
    np.testing.assert_array_equal(graph.labels, COLUMNS["y"])
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(graph.masks[split], COLUMNS[f"{split}_mask"])


def test_a_data_object_keeps_its_columns_and_the_direction_of_its_edges():
    graph = bs.from_pyg(pyg.Data(edge_index=EDGES, **COLUMNS))
    np.testing.assert_array_equal(real(graph), expected())
    assert graph.adjacency.values is None
    assert_columns(graph)


def test_a_layer_of_torch_geometric_aggregates_the_rows_of_the_adjacency():
    nn = pytest.importorskip("torch_geometric.nn")
    data = pyg.Data(edge_index=EDGES, **COLUMNS)
    summed = nn.SimpleConv(aggr="sum")(data.x, data.edge_index)
    np.testing.assert_allclose(summed, real(bs.from_pyg(data)) @ data.x.numpy())


def test_edges_alone_are_enough():
    graph = bs.from_pyg(pyg.Data(edge_index=EDGES, num_nodes=6))
    assert (graph.n, graph.features, graph.labels, graph.masks) == (6, None, None, {})


@pytest.mark.parametrize("key", ["edge_weight", "edge_attr"])
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_weights_are_found(key, shape):
    data = pyg.Data(edge_index=EDGES, num_nodes=4, **{key: torch.arange(1.0, 5).view(shape)})
    np.testing.assert_allclose(real(bs.from_pyg(data)), expected([1, 2, 3, 4]), rtol=1e-9)
    assert bs.from_pyg(data, weight_attr=None).adjacency.values is None


def test_weights_are_chosen():
    data = pyg.Data(edge_index=EDGES, num_nodes=4, edge_attr=torch.ones(4, 3), cost=torch.arange(1.0, 5))
    assert bs.from_pyg(data).adjacency.values is None
    np.testing.assert_allclose(real(bs.from_pyg(data, weight_attr="cost")), expected([1, 2, 3, 4]), rtol=1e-9)
    with pytest.raises(bs.UsageError, match="no edge weights 'price'; use cost, edge_attr, edge_index, num_nodes"):
        bs.from_pyg(data, weight_attr="price")


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("weighted", [False, True])
def test_a_transposed_adjacency_is_read(weighted):
    values = torch.arange(1.0, 5) if weighted else torch.ones(4)
    adj_t = torch.sparse_coo_tensor(EDGES.flip(0), values, (4, 4)).to_sparse_csr()
    graph = bs.from_pyg(pyg.Data(adj_t=adj_t, num_nodes=4))
    np.testing.assert_allclose(real(graph), expected(values), rtol=1e-9)
    assert (graph.adjacency.values is not None) == weighted


def test_parallel_edges_become_one():
    data = pyg.Data(edge_index=EDGES.repeat(1, 2), num_nodes=4, edge_weight=torch.arange(8.0))
    np.testing.assert_allclose(real(bs.from_pyg(data)), expected([4, 6, 8, 10]), rtol=1e-9)
    np.testing.assert_array_equal(real(bs.from_pyg(data, weight_attr=None)), expected())


def test_labels_of_several_columns():
    labels = torch.tensor([[1.0, 0], [0, 1], [float("nan"), 1], [0, 0]])
    graph = bs.from_pyg(pyg.Data(edge_index=EDGES, num_nodes=4, y=labels))
    assert (graph.target, graph.num_classes) == ("multilabel", 2)
    assert graph.labels.tolist() == [[1, 0], [0, 1], [-1, 1], [0, 0]]
    assert bs.from_pyg(pyg.Data(edge_index=EDGES, num_nodes=4, y=labels), target="regression").target == "regression"
    assert bs.from_pyg(pyg.Data(edge_index=EDGES, num_nodes=4, y=torch.tensor([[2], [0], [1], [1]]))).labels.tolist() == [2, 0, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_mask": torch.ones(4, 10, dtype=torch.bool)}, r"train_mask: holds 10 splits"),
        ({"y": torch.zeros(4)}, "y: got float32 of whole numbers, which may be classes or numbers"),
        ({"y": torch.zeros(1, dtype=torch.long)}, "labels must be int64 of shape"),
        ({"edge_index": EDGES + 2}, "vertices run from 0 to 3"),
        ({"edge_index": EDGES - 1}, "names source -1"),
        ({"edge_index": EDGES.float() + 0.5}, r"edge_index: got float32 of shape \(2, 4\); use integers of shape \(2, m\)"),
        ({"edge_index": EDGES.t()}, r"edge_index: got int64 of shape \(4, 2\)"),
        ({"edge_weight": torch.ones(3)}, r"weights: got shape \(3,\); use one number for each of the 4 edges"),
    ],
)
def test_bad_columns_are_refused(change, message):
    with pytest.raises(bs.DataError, match=message):
        bs.from_pyg(pyg.Data(**{"edge_index": EDGES, **COLUMNS, **change}))


def test_other_kinds_of_graphs_are_refused():
    with pytest.raises(bs.UsageError, match="use a DGLGraph"):
        bs.from_dgl(pyg.Data(edge_index=EDGES))


def dgl_graph(**changes):
    """An object with the attributes of a DGLGraph that are read; DGL itself is checked by `dgl_checks`."""
    columns = {"feat" if key == "x" else "label" if key == "y" else key: value for key, value in COLUMNS.items()}
    given = {
        "is_homogeneous": True, "edges": lambda order: tuple(EDGES) if order == "eid" else None, "num_nodes": lambda: 4,
        "ndata": columns, "edata": {"_ID": torch.arange(4)}, **changes,
    }  # fmt: skip
    return SimpleNamespace(**given)


def test_a_graph_of_dgl_keeps_its_columns_and_its_weights():
    graph = bs.from_dgl(dgl_graph())
    np.testing.assert_array_equal(real(graph), expected())
    assert_columns(graph)
    weighted = dgl_graph(edata={"w": torch.arange(1.0, 5), "cost": torch.ones(4, 1)})
    np.testing.assert_allclose(real(bs.from_dgl(weighted)), expected([1, 2, 3, 4]), rtol=1e-9)
    np.testing.assert_allclose(real(bs.from_dgl(weighted, weight_attr="cost")), expected(), rtol=1e-9)
    with pytest.raises(bs.UsageError, match="no edge weights 'q'; use cost, w"):
        bs.from_dgl(weighted, weight_attr="q")
    assert bs.from_dgl(dgl_graph(), x="h", y="c", name="d").features is None
