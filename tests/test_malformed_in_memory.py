"""A graph that was put together by hand is checked, once, before kernels read it: they would read out of bounds."""

from dataclasses import replace

import numpy as np
import pytest

import bulksample as bs
from bulksample import backends
from bulksample.local_adjacency import LocalAdjacency
from bulksample.sparse import CSR

SOUND = (np.array([0, 2, 3, 3]), np.array([1, 2, 0], np.int32))
MALFORMED = {
    "names column 1000000": (SOUND[0], np.array([1, 10**6, 0], np.int32)),
    "names column -1": (SOUND[0], np.array([-1, 2, 0], np.int32)),
    "row pointers must not fall: row 1": (np.array([0, 3, 1, 3]), SOUND[1]),
    "row 0 does not ascend": (SOUND[0], np.array([2, 1, 0], np.int32)),
}


def matrix(indptr, indices, values=None):
    return CSR(indptr.astype(np.int64), indices, values, (3, 3))


def typed(adjacency, **columns):
    """A graph of papers that cite each other."""
    relation = {name: columns.pop(name) for name in ("edge_ids",) if name in columns}
    edge_times = columns.pop("edge_times", None)
    kind = bs.VertexType("paper", 3, **columns)
    return bs.Graph.of((kind,), (bs.Relation("paper", "cites", "paper", adjacency, times=edge_times, **relation),))


@pytest.fixture(params=["reference", "native"])
def backend(request):
    if reason := backends.why_not(request.param):
        pytest.skip(reason)
    return request.param


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_adjacency_is_refused_wherever_it_enters(fault, backend):
    adjacency = matrix(*MALFORMED[fault])
    with pytest.raises(bs.DataError, match=fault):
        bs.Loader(bs.Graph(adjacency), fanouts=[2], backend=backend)
    with pytest.raises(bs.DataError, match=fault):
        bs.LocalAdjacency(adjacency, backends.make(backend))
    with pytest.raises(bs.DataError, match=rf"relation paper:cites:paper: .*{fault}"):
        bs.Loader(typed(adjacency), fanouts=[2], seeds="paper", backend=backend)


def test_negative_weights_are_refused():
    adjacency = matrix(*SOUND, np.array([1, -5, 2]))
    with pytest.raises(bs.DataError, match="row 0 holds -5"):
        bs.Loader(bs.Graph(adjacency), fanouts=[2], weighted=True)
    with pytest.raises(bs.DataError, match="row 0 holds -5"):
        bs.Loader(typed(adjacency), fanouts=[2], seeds="paper", weighted=True)


def test_features_without_a_row_for_each_vertex_are_refused():
    adjacency, x = matrix(*SOUND), np.zeros((2, 4), np.float32)
    with pytest.raises(bs.DataError, match="features must have 3 rows; got shape"):
        bs.Loader(bs.Graph(adjacency, features=x))
    with pytest.raises(bs.DataError, match="features must have 3 rows; got shape"):
        bs.Loader(typed(adjacency, features=x), seeds="paper")


def test_training_checks_the_graph_too():
    y, mask = np.array([0, 1, 0]), {"train": np.ones(3, bool)}
    sound = bs.Graph(matrix(*SOUND), features=np.zeros((3, 4), np.float32), labels=y, num_classes=2, masks=mask)
    for fault, graph in {
        "names column 1000000": replace(sound, adjacency=matrix(*MALFORMED["names column 1000000"])),
        "features must have 3 rows": replace(sound, features=np.zeros((2, 4), np.float32)),
        "labels must have 3 rows": replace(sound, labels=y[:2]),
        "train mask must have 3 rows": replace(sound, masks={"train": np.ones(2, bool)}),
    }.items():
        with pytest.raises(bs.DataError, match=fault):
            bs.train(graph, fanouts=[2], epochs=1, threads=1)


MALFORMED_COLUMNS = {
    "features must have 3 rows; got shape": {"features": np.zeros((2, 4), np.float32)},
    "features must be float32 or float16": {"features": np.zeros((3, 4))},
    "features: row 1 is not finite": {"features": np.array([[1.0], [np.inf], [1.0]], np.float32)},
    "labels must have 3 rows": {"labels": np.array([0, 1])},
    "labels: row 1 holds 9; classes run from 0 to 1": {"labels": np.array([0, 9, 0])},
    "train mask must be bool of shape": {"masks": {"train": np.array([1, 1, 0])}},
    "val mask: row 0 is in another split too": {"masks": {"train": np.array([True, True, False]), "val": np.array([True, False, False])}},
    "year must have 3 rows": {"extra": {"year": np.zeros(2)}},
    "labels: got a list; use an array of numpy": {"labels": [0, 1, 0]},
    "train mask: got a tuple; use an array of numpy": {"masks": {"train": (True, True, True)}},
}


@pytest.mark.parametrize("model", ["sage", "hetero-sage"])
@pytest.mark.parametrize("fault", MALFORMED_COLUMNS)
def test_training_checks_every_column(fault, model):
    columns = {"features": np.zeros((3, 4), np.float32), "labels": np.array([0, 1, 0]), "masks": {"train": np.ones(3, bool)}}
    columns |= {"num_classes": 2, **MALFORMED_COLUMNS[fault]}
    graph = bs.Graph(matrix(*SOUND), **columns) if model == "sage" else typed(matrix(*SOUND), **columns)
    with pytest.raises(bs.DataError, match=fault):
        bs.train(graph, model=model, fanouts=[2], epochs=1, threads=1)


def test_training_refuses_a_relation_given_twice():
    graph = typed(matrix(*SOUND), labels=np.array([0, 1, 0]), num_classes=2, masks={"train": np.ones(3, bool)})
    with pytest.raises(bs.DataError, match="has two relations"):
        bs.train(replace(graph, relations=graph.relations * 2), model="hetero-sage", fanouts=[2], epochs=1, threads=1)


def test_features_of_a_store_are_not_read_once_more(tmp_path, monkeypatch):
    table = {"features": np.zeros((3, 4), np.float32), "labels": np.array([0, 1, 0]), "masks": {"train": np.ones(3, bool)}}
    bs.Graph(matrix(*SOUND), **table, num_classes=2).save(tmp_path / "graph")
    graph = bs.load(tmp_path / "graph")
    monkeypatch.setattr("bulksample.graph.vertex_table.pieces", lambda *rows: pytest.fail("features were read"))
    graph.check_columns(mapped=False)
    with pytest.raises(pytest.fail.Exception, match="features were read"):
        graph.check_columns()


@pytest.mark.parametrize(
    "columns",
    [
        {"times": np.array([0.0, 1.0, np.nan])},
        {"times": np.array(["2020", "NaT", "2021"], "datetime64[s]")},
        {"times": np.array([1, 2])},
        {"edge_times": np.array([1.0, 2.0, 3.0])},
        {"edge_times": np.array([1, 2])},
        {"edge_ids": np.array([0, 1])},
    ],
    ids=str,
)
def test_times_and_ids_of_another_kind_are_refused(columns):
    with pytest.raises(bs.DataError, match=r"(times|edge_ids) must be int64 of shape \(3,\)"):
        bs.Loader(typed(matrix(*SOUND), **columns), fanouts=[2], seeds="paper")


def test_an_adjacency_is_read_once(monkeypatch):
    read = []
    validate = CSR.validate
    monkeypatch.setattr(CSR, "validate", lambda self, *options: read.append(self) or validate(self, *options))
    graph = bs.Graph(matrix(*SOUND)).validate()
    for _ in range(3):
        bs.Loader(graph, fanouts=[2])
    assert read == [graph.adjacency]
    parallel = typed(matrix(SOUND[0], np.array([1, 1, 0], np.int32)))
    for _ in range(2):
        LocalAdjacency(parallel, backends.make("reference"), by_type=True)
    assert len(read) == 2
    with pytest.raises(bs.DataError, match="repeats"):  # columns may repeat in a relation alone
        bs.LocalAdjacency(parallel.relations[0].adjacency, backends.make("reference"))
