"""A heterogeneous graph keeps its promises, edges keep their order and their times, and what is wrong is named with its row."""

from dataclasses import replace

import numpy as np
import pytest
from zoo import ZOO

import bulksample as bs
from bulksample import DataError, UsageError
from bulksample.graph import Graph, Relation, VertexType
from bulksample.graph.times import as_times
from bulksample.graph.types import relation_from_edges

AUTHOR, PAPER = VertexType("author", 5), VertexType("paper", 9, times=np.arange(9) - 4)
rng = np.random.default_rng(1)
U, V, T = rng.integers(0, 5, 40), rng.integers(0, 9, 40), rng.integers(-(2**63), 2**63 - 1, 40)


def writes(**change):
    return relation_from_edges(AUTHOR, "writes", PAPER, U, V, **change)


def graph(*relations, types=(AUTHOR, PAPER)):
    return Graph.of(types, relations or (writes(),), "library")


def test_entries_are_the_edges_by_destination_source_and_place_in_the_list():
    weights, features = rng.random(40), rng.random((40, 3)).astype(np.float32)
    made = writes(weights=weights, times=T, features=features)
    expected = sorted((v, u, e) for e, (u, v) in enumerate(zip(U.tolist(), V.tolist(), strict=True)))
    rows = made.adjacency.row_of_entry()
    assert list(zip(rows.tolist(), made.adjacency.indices.tolist(), made.edge_ids.tolist(), strict=True)) == expected
    at = [e for _, _, e in expected]
    assert (made.times == T[at]).all()
    assert (made.features == features[at]).all()
    assert np.allclose(made.adjacency.values * made.weight_unit, weights[at], rtol=1e-9)
    assert len(set(zip(rows, made.adjacency.indices, strict=True))) < 40  # there are parallel edges, and none was merged
    assert graph(made).validate().relation("writes") is made


def test_sorted_edges_need_no_ids():
    order = np.lexsort((U, V))
    made = relation_from_edges(AUTHOR, "writes", PAPER, U[order], V[order])
    assert made.edge_ids is None
    assert (made.ids_of(np.array([3, 1])) == [3, 1]).all()
    assert (made.adjacency.indices == U[order]).all()


def test_types_share_one_numbering():
    whole = graph()
    assert (whole.offsets == [0, 5, 14]).all()
    assert whole.n == 14
    assert whole.place("paper") == 1
    assert whole.relation(("author", "writes", "paper")) is whole.relations[0]


def test_no_edges_and_no_vertices_are_legal():
    empty = VertexType("venue", 0)
    none = relation_from_edges(empty, "hosts", PAPER, [], [], times=[], weights=[])
    assert graph(none, types=(PAPER, empty)).validate().relations[0].edges == 0


def test_the_old_name_of_a_graph_warns_and_makes_one_with_times():
    one = bs.Graph(ZOO["weighted"], 0.5, extra={"year": np.arange(ZOO["weighted"].shape[0])})
    with pytest.warns(DeprecationWarning, match=r"use Graph\.of"):
        made = bs.HeteroGraph.from_homogeneous(one, one.extra["year"]).validate()
    with pytest.warns(DeprecationWarning, match=r"use Graph\.of\(types, relations\)"):
        again = bs.HeteroGraph(made.types, made.relations, made.name)
    assert isinstance(again, bs.HeteroGraph)
    assert isinstance(again, bs.Graph)
    assert not isinstance(one, bs.HeteroGraph)
    assert (made.n, len(made.relations)) == (one.n, 1)
    assert made.relations[0].adjacency is one.adjacency
    assert made.relations[0].weight_unit == 0.5
    assert (made.types[0].times == one.extra["year"]).all()


def test_times_are_int64_and_dates_become_nanoseconds():
    ends = [-(2**63), 2**63 - 1]
    assert as_times("t", ends).tolist() == ends
    assert as_times("t", np.array([3], np.uint8)).dtype == np.int64
    dates = np.array(["1970-01-02", "1969-12-31"], "datetime64[D]")
    assert as_times("t", dates).tolist() == [86400 * 10**9, -86400 * 10**9]


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (np.array([1.0, np.nan]), r"^births: got float64 of shape \(2,\); use int64 or datetime64"),
        (np.array(["2020-01-01", "NaT"], "datetime64[s]"), r"^births: row 1 is NaT"),
        (np.array(["2020-01-01", "9999-01-01"], "datetime64[D]"), r"^births: row 1 is 9999-01-01, no whole number of the unit"),
        (np.array([1, 2**63], np.uint64), r"^births: row 1 is 9223372036854775808"),
        (np.array([[1], [2]]), r"shape \(2, 1\)"),
        (np.array([True, False]), r"got bool"),
        ([1, 2, 3], r"got int64 of shape \(3,\); use int64 or datetime64 of shape \(2,\)"),
    ],
)
def test_other_times_are_refused(times, says):
    with pytest.raises(DataError, match=says):
        as_times("births", times, 2)


def changed(**change):
    return graph(replace(writes(times=T), **change))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda: graph(types=(AUTHOR, PAPER, AUTHOR)), r"two types 'author'"),
        (lambda: graph(writes(), writes()), "two relations 'author:writes:paper'"),
        (lambda: graph(types=(AUTHOR, replace(PAPER, name="a:b"))), "type 'a:b': .* use a name without a colon"),
        (lambda: graph(types=(AUTHOR,)), r"^relation author:writes:paper: there is no type 'paper'; use author$"),
        (lambda: graph(types=(AUTHOR, replace(PAPER, count=8, times=None))), r"must have shape \(8, 5\).* it has \(9, 5\)"),
        (lambda: graph(types=(AUTHOR, replace(PAPER, times=np.arange(8)))), r"^type 'paper': times must be int64 of shape \(9,\)"),
        (lambda: graph(types=(AUTHOR, replace(PAPER, times=np.arange(9.0)))), r"^type 'paper': times must be int64"),
        (lambda: graph(types=(replace(AUTHOR, features=np.full((5, 1), np.inf, np.float32)), PAPER)), r"^type 'author': features: row 0"),
        (lambda: graph(types=(VertexType("a", 2**31 - 2), VertexType("b", 2))), r"2147483648 vertices of 2 types do not fit int32"),
        (lambda: changed(times=T[1:]), r"^relation author:writes:paper: times must be int64 of shape \(40,\)"),
        (lambda: changed(edge_ids=T[1:]), r"edge_ids must be int64 of shape \(40,\)"),
        (lambda: changed(features=np.ones((3, 1), np.float32)), r"edge features must have 40 rows"),
        (lambda: changed(weight_unit=0.0, adjacency=writes(weights=np.ones(40)).adjacency), r"weight_unit must be finite and positive"),
        (lambda: changed(adjacency=falling()), r"^relation author:writes:paper: adjacency: row 0 does not ascend"),
    ],
)
def test_what_is_broken_is_named(broken, says):
    with pytest.raises(DataError, match=says):
        broken().validate()


def falling():
    matrix = writes().adjacency
    indices = matrix.indices.copy()
    indices[:2] = [4, 1]
    return bs.CSR(matrix.indptr, indices, None, matrix.shape)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sources": [0, 5], "destinations": [0, 0]}, r"sources: row 1 names vertex 5 of type 'author'; it has 5 vertices: use 0 to 4"),
        ({"sources": [0, 0], "destinations": [0, -1]}, r"destinations: row 1 names vertex -1 of type 'paper'"),
        ({"sources": [0.0], "destinations": [0]}, r"sources: got float64"),
        ({"sources": [0], "destinations": [0, 1]}, r"got 1 sources and 2 destinations"),
        ({"sources": [0], "destinations": [0], "weights": [-1.0]}, r"^relation author:writes:paper: weight 0 is -1.0"),
        ({"sources": [0], "destinations": [0], "weights": [1.0, 2.0]}, r"weights: got float64 of shape \(2,\); use one number"),
        ({"sources": [0], "destinations": [0], "times": [1, 2]}, r"^times of relation author:writes:paper: got int64"),
        ({"sources": [0], "destinations": [0], "features": np.ones((2, 1), np.float32)}, r"got 2 rows of features"),
    ],
)
def test_bad_edges_are_named(change, says):
    with pytest.raises(DataError, match=says):
        relation_from_edges(AUTHOR, "writes", PAPER, **change)


def test_unknown_names_are_refused():
    cites = Relation("paper", "writes", "author", bs.CSR(np.zeros(6, np.int64), np.empty(0, np.int32), None, (5, 9)))
    both = graph(writes(), cites)
    with pytest.raises(UsageError, match=r"has no type 'venue'; use author, paper"):
        both.place("venue")
    with pytest.raises(UsageError, match=r"has 2 relation\(s\) 'writes'; use one of author:writes:paper, paper:writes"):
        both.relation("writes")
    assert [both.ordinal(key) for key in ("author:writes:paper", ["paper", "writes", "author"])] == [0, 1]
    with pytest.raises(UsageError, match=r"has no relation\(s\) 'cites'"):
        both.relation("cites")


def test_columns_of_one_type_are_no_attributes_of_several():
    several = graph(relation_from_edges(PAPER, "cites", PAPER, [0], [1]), relation_from_edges(PAPER, "likes", PAPER, [0], [1]))
    assert not hasattr(several, "adjacency")
    with pytest.raises(UsageError, match=r"has 2 relations \(paper:cites:paper, paper:likes:paper\); use graph\.relation"):
        several.edge_features  # noqa: B018
    with pytest.raises(UsageError, match="got adjacency for a graph of 2"):
        several.replace(adjacency=ZOO["star"])
    assert isinstance(several.replace(types=list(several.types)).types, tuple)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_an_adjacency_that_is_not_square_is_refused_before_it_is_drawn_from(backend):
    """The kernels would read rows of columns that are none."""
    matrix = bs.CSR(np.array([0, 1, 2]), np.array([0, 2], np.int32), None, (2, 3))
    with pytest.raises(DataError, match=r"the adjacency must be square; its shape is \(2, 3\)"):
        bs.Loader(bs.Graph(matrix), backend=backend)
    adjacency, seeds = bs.LocalAdjacency(matrix, bs.backends.make(backend)), bs.Selection.of([[0, 1]], 2)
    for name in ("sage", "ladies"):
        with pytest.raises(DataError, match="must be square"):
            bs.samplers.make(name, (2, 2)).sample_bulk(adjacency, seeds, bs.Stream(0))
