"""Heterogeneous graphs of torch_geometric and DGL become `Graph`s with everything that they carry."""

# ruff: noqa: E501 (a case is a line)

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import bulksample as bs
from bulksample import DataError, UsageError

torch = pytest.importorskip("torch", reason="torch is missing: pip install 'bulksample[pyg]'")
pyg = pytest.importorskip("torch_geometric.data", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

X = torch.arange(8.0).view(4, 2)
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
EDGES = torch.tensor([[2, 0, 0, 0, 1], [0, 3, 3, 1, 3]])  # 0 -> 3 twice


def hetero():
    data = pyg.HeteroData()
    data["paper"].x = X
    data["paper"].y = torch.tensor([0, 2, -1, 1])
    data["paper"].train_mask = torch.tensor([True, True, False, False])
    data["paper"].time = torch.tensor([5, -(2**62), 7, 2**62])
    data["author"].num_nodes = 3
    data[WRITES].edge_index = EDGES
    data[WRITES].time = torch.tensor([50, 40, 30, 20, 10])
    data[WRITES].edge_attr = torch.arange(10.0).view(5, 2)
    data[CITES].edge_index = torch.tensor([[0, 1], [1, 0]])
    data[CITES].edge_weight = torch.tensor([0.5, 2.0])
    return data


def listed(relation, column=None):
    """The edges as (source, destination, value of a column), in the order of the user's list."""
    matrix = relation.adjacency
    ids = relation.ids_of(np.arange(matrix.nnz))
    parts = [matrix.indices[:], matrix.row_of_entry(), *([] if column is None else [column])]
    return [tuple(np.asarray(part)[entry].tolist() for part in parts) for entry in np.argsort(ids)]


def assert_converted(graph):
    assert [(kind.name, kind.count) for kind in graph.types] == [("paper", 4), ("author", 3)]
    paper = graph.type("paper")
    np.testing.assert_array_equal(paper.features, X)
    np.testing.assert_array_equal(paper.labels, [0, 2, -1, 1])
    np.testing.assert_array_equal(paper.times, [5, -(2**62), 7, 2**62])
    assert (paper.num_classes, np.flatnonzero(paper.masks["train"]).tolist()) == (3, [0, 1])
    author = graph.type("author")
    assert (author.features, author.labels, author.times, author.masks) == (None, None, None, {})
    writes, cites = graph.relation(WRITES), graph.relation(CITES)
    assert listed(writes, writes.times) == [(2, 0, 50), (0, 3, 40), (0, 3, 30), (0, 1, 20), (1, 3, 10)]
    assert [row for *_, row in listed(writes, writes.features)] == np.arange(10.0).reshape(5, 2).tolist()
    assert writes.adjacency.values is None
    weights = cites.adjacency.values * cites.weight_unit
    assert listed(cites, weights) == [(0, 1, 0.5), (1, 0, 2.0)]
    assert cites.times is None


def test_hetero_data_keeps_its_columns_times_and_parallel_edges():
    graph = bs.from_pyg(hetero(), name="mine")
    assert graph.name == "mine"
    assert_converted(graph)


def test_a_layer_of_torch_geometric_aggregates_the_rows_of_each_relation():
    nn = pytest.importorskip("torch_geometric.nn")
    data = hetero()
    data["author"].x = torch.eye(3)
    summed = nn.SimpleConv(aggr="sum")((data["author"].x, data["paper"].x), data[WRITES].edge_index)
    np.testing.assert_array_equal(bs.from_pyg(data).relation(WRITES).adjacency.to_scipy().toarray(), summed)


def test_weights_are_named_or_left_out():
    data = hetero()
    data[WRITES].w = torch.tensor([1.0, 2, 3, 4, 5])
    graph = bs.from_pyg(data, weight_attr="w")
    writes = graph.relation(WRITES)
    weights = [weight for *_, weight in listed(writes, writes.adjacency.values * writes.weight_unit)]
    np.testing.assert_allclose(weights, [1, 2, 3, 4, 5], rtol=1e-9)
    assert graph.relation(CITES).adjacency.values is None
    assert bs.from_pyg(data, weight_attr=None).relation(CITES).adjacency.values is None
    with pytest.raises(UsageError, match="no relation has edge weights 'v'; use edge_attr, edge_index, edge_weight"):
        bs.from_pyg(data, weight_attr="v")


def test_an_edge_attr_of_one_number_is_the_weight_as_in_a_homogeneous_graph():
    data = hetero()
    data[WRITES].edge_attr = torch.tensor([1.0, 2, 3, 4, 5])
    writes = bs.from_pyg(data).relation(WRITES)
    assert (writes.features, writes.adjacency.values is None) == (None, False)


def test_times_are_those_of_the_attribute_named():
    data = hetero()
    data["paper"].year = torch.tensor([1, 2, 3, 4])
    graph = bs.from_pyg(data, time_attr="year")
    np.testing.assert_array_equal(graph.type("paper").times, [1, 2, 3, 4])
    assert graph.relation(WRITES).times is None
    assert bs.from_pyg(data, time_attr=None).type("paper").times is None


def test_edges_may_be_an_adj_t_and_count_the_vertices():
    data = pyg.HeteroData()
    data["b"].x = torch.zeros(2, 1)
    data["a", "r", "b"].edge_index = torch.tensor([[4, 0], [0, 1]])
    with warnings.catch_warnings(action="ignore"):  # torch_geometric warns that it infers the number
        assert bs.from_pyg(data).type("a").count == 5
    data = pyg.HeteroData()
    data["b"].num_nodes = 2
    data["b", "r", "b"].adj_t = torch.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 1.0])
    relation = bs.from_pyg(data).relation("r")
    np.testing.assert_allclose(relation.adjacency.to_scipy().toarray() * relation.weight_unit, [[0, 3], [1, 0]])


DAMAGED = {
    "float times": (lambda d: d["paper"].update({"time": torch.zeros(4)}), r"times of type 'paper': got float32"),
    "short times": (lambda d: d[WRITES].update({"time": torch.zeros(4, dtype=torch.long)}), r"times of relation author:writes:paper: got int64 of shape \(4,\)"),
    "a source beyond its type": (lambda d: d[WRITES].update({"edge_index": torch.tensor([[3], [0]])}), r"relation author:writes:paper: sources: row 0 names vertex 3 of type 'author'"),
    "an edge_index of floats": (lambda d: d[CITES].update({"edge_index": torch.zeros(2, 3)}), "edge_index: got float32"),
    "a negative weight": (lambda d: d[CITES].update({"edge_weight": torch.tensor([1.0, -1])}), r"relation paper:cites:paper: weight 1 is -1"),
    "labels that are none": (lambda d: d["paper"].update({"y": torch.tensor([0, -2, 0, 0])}), r"type 'paper': y: row 1 holds -2"),
    "features of another graph": (lambda d: d["paper"].update({"x": torch.zeros(3, 2)}), r"type 'paper': (features must have 4 rows|x)"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_wrong_columns_are_refused_by_type_or_relation(case):
    change, names = DAMAGED[case]
    data = hetero()
    data["paper"].num_nodes = 4
    change(data)
    with pytest.raises(DataError, match=names):
        bs.from_pyg(data)


def test_a_heterograph_of_dgl(monkeypatch):
    """A stand-in with the methods that DGL 2.1 documents; `tests/interop/dgl_checks.py` runs where DGL is."""

    class Edges:
        ends = {WRITES: tuple(EDGES), CITES: (torch.tensor([0, 1]), torch.tensor([1, 0]))}  # noqa: RUF012
        data = {  # noqa: RUF012
            WRITES: {"time": torch.tensor([50, 40, 30, 20, 10]), "feat": torch.arange(10.0).view(5, 2)},
            CITES: {"weight": torch.tensor([0.5, 2.0])},
        }

        def __call__(self, etype, order):
            assert order == "eid"
            return self.ends[etype]

        def __getitem__(self, etype):
            return SimpleNamespace(data=self.data[etype])

    paper = {"feat": X, "label": torch.tensor([0, 2, -1, 1]), "train_mask": torch.tensor([True, True, False, False])}
    paper["time"] = torch.tensor([5, -(2**62), 7, 2**62])
    graph = SimpleNamespace(
        is_homogeneous=False, ntypes=["paper", "author"], canonical_etypes=[WRITES, CITES], edges=Edges(),
        num_nodes={"paper": 4, "author": 3}.__getitem__,
        nodes={"paper": SimpleNamespace(data=paper), "author": SimpleNamespace(data={})},
    )  # fmt: skip
    assert_converted(bs.from_dgl(graph))


def test_a_converted_graph_is_stored(tmp_path):
    bs.from_pyg(hetero()).save(tmp_path / "g")
    assert_converted(bs.load(tmp_path / "g"))
