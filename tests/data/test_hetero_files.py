"""Heterogeneous graphs from `.npz` files and from OGB sets in the layout of ogbn-mag, and synthetic ones."""

# ruff: noqa: E501 (a case is a line)

import numpy as np
import pytest
from hetero_samples import assert_same_hetero
from ogb_layouts import AUTHORED, CITES, COUNTS, YEARS, write_mag

import bulksample as bs
from bulksample import DataError, UsageError, backends, relation_from_edges
from bulksample.data import hetero, npz, ogb, ogb_types
from bulksample.data.edges import EdgeTally, add_reverses
from bulksample.data.ogb_sets import locate

# --- one .npz file --------------------------------------------------------------------------------------------

EDGES = np.array([[2, 0, 0, 0, 1], [0, 3, 3, 1, 3]])  # 0 -> 3 twice
ARRAYS = {
    "node_types": np.array(["paper", "author"]), "num_nodes": np.array([4, 3]),
    "edge_types": np.array([["author", "writes", "paper"], ["paper", "cites", "paper"]]),
    "paper/x": np.arange(8.0).reshape(4, 2), "paper/y": np.array([0, 2, -1, 1]), "paper/num_classes": np.array(4),
    "paper/train_mask": np.array([True, True, False, False]), "paper/time": np.array([5, -9, 7, 2**62]), "paper/venue": np.array(list("abca")),
    "author/writes/paper/edge_index": EDGES, "author/writes/paper/edge_weight": np.array([1.0, 2, 3, 4, 5]),
    "author/writes/paper/edge_attr": np.arange(5.0)[:, None], "author/writes/paper/time": np.array([50, 40, 30, 20, 10], np.int32),
    "paper/cites/paper/edge_index": np.zeros((2, 0), np.int64),
}  # fmt: skip


def written(path, **changes):
    arrays = {**ARRAYS, **{name.replace("__", "/"): array for name, array in changes.items()}}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def listed(relation):
    """Every edge with its weight, feature and time, in the order of the list that it came from."""
    matrix = relation.adjacency
    ids = relation.ids_of(np.arange(matrix.nnz))
    weights = matrix.entries() * relation.weight_unit
    rows = zip(ids, matrix.indices, matrix.row_of_entry(), weights.round(9), relation.features[:, 0], relation.times, strict=True)
    return [tuple(map(float, row[1:])) for row in sorted(rows)]


def test_an_npz_file_is_the_graph_that_it_lists(tmp_path):
    graph = npz.read(written(tmp_path / "mine.npz"))
    paper, author = graph.types
    assert (graph.name, paper.name, paper.count, paper.num_classes, author.name, author.count) == ("mine", "paper", 4, 4, "author", 3)
    np.testing.assert_array_equal(paper.features, ARRAYS["paper/x"])
    np.testing.assert_array_equal(paper.labels, ARRAYS["paper/y"])
    np.testing.assert_array_equal(paper.times, ARRAYS["paper/time"])
    assert (paper.extra["venue"].tolist(), list(paper.masks), author.extra, author.times) == (list("abca"), ["train"], {}, None)
    assert listed(graph.relation("writes")) == [(2, 0, 1, 0, 50), (0, 3, 2, 1, 40), (0, 3, 3, 2, 30), (0, 1, 4, 3, 20), (1, 3, 5, 4, 10)]
    assert graph.relation("cites").edges == 0


def test_reverse_relations_have_the_same_edges_turned_around(tmp_path):
    graph = npz.read(written(tmp_path / "mine.npz"))
    both = add_reverses(graph).validate()
    assert [relation.key for relation in both.relations] == [
        ("author", "writes", "paper"), ("paper", "rev_writes", "author"), ("paper", "cites", "paper"), ("paper", "rev_cites", "paper"),
    ]  # fmt: skip
    assert listed(both.relation("rev_writes")) == [(v, u, *rest) for u, v, *rest in listed(both.relation("writes"))]
    writes = both.relation("writes")
    again = relation_from_edges(
        graph.type("paper"), "rev_writes", graph.type("author"), EDGES[1], EDGES[0], weights=[1.0, 2, 3, 4, 5], times=[50, 40, 30, 20, 10],
        features=writes.features[np.argsort(writes.ids_of(np.arange(5)))],
    )  # fmt: skip
    for name in ("edge_ids", "times", "features"):
        np.testing.assert_array_equal(getattr(both.relation("rev_writes"), name), getattr(again, name))
    np.testing.assert_array_equal(both.relation("rev_writes").adjacency.values, again.adjacency.values)
    assert len(add_reverses(both).relations) == 6, "a reverse has its own reverse, unless its key is there"


DAMAGED = {
    "no types": ({"node_types": None}, "bad.npz: has no node_types"),
    "no counts": ({"num_nodes": None}, "has no num_nodes"),
    "counts of floats": ({"num_nodes": np.array([4.0, 3.0])}, "num_nodes: got float64"),
    "a count less": ({"num_nodes": np.array([4])}, r"num_nodes: got \[4\] for the types"),
    "a negative count": ({"num_nodes": np.array([4, -1])}, "num_nodes"),
    "numbers as types": ({"node_types": np.array([1, 2])}, "node_types: got int64"),
    "two names of a relation": ({"edge_types": np.array([["author", "paper"]])}, r"edge_types: got shape \(1, 2\)"),
    "an unknown type": ({"edge_types": np.array([["authors", "writes", "paper"]])}, r"\(authors, writes, paper\): there is no type 'authors'; did you mean 'author'"),
    "a slash in a name": ({"node_types": np.array(["a/b", "author"])}, "the name 'a/b' cannot be part"),
    "an array of no part": ({"papers__x": np.zeros((4, 1))}, "papers/x: belongs to no type or relation"),
    "an unknown array of edges": ({"paper__cites__paper__weight": np.zeros(0)}, "paper/cites/paper/weight: belongs to no"),
    "an array of the file": ({"x": np.zeros(4)}, "x: belongs to no"),
    "no edges": ({"paper__cites__paper__edge_index": None}, "paper/cites/paper/edge_index: is missing"),
    "edges by rows": ({"author__writes__paper__edge_index": EDGES.T}, r"edge_index: got int64 of shape \(5, 2\)"),
    "edges of floats": ({"author__writes__paper__edge_index": EDGES + 0.5}, "edge_index: got float64"),
    "a source beyond": ({"author__writes__paper__edge_index": EDGES + 1}, r"relation author:writes:paper: sources: row 0 names vertex 3"),
    "short weights": ({"author__writes__paper__edge_weight": np.ones(4)}, "weights: got float64 of shape"),
    "float times": ({"paper__time": np.zeros(4)}, "times of type 'paper': got float64"),
    "short times": ({"paper__time": np.zeros(3, int)}, "times of type 'paper'"),
    "short features": ({"paper__x": np.zeros((3, 2))}, "type 'paper': features must have 4 rows"),
    "a short column": ({"paper__venue": np.array(["a"])}, "type 'paper': venue must have 4 rows"),
    "a class too high": ({"paper__num_classes": np.array(2)}, "type 'paper': num_classes"),
    "objects": ({"paper__venue": np.array([None] * 4)}, "venue: holds '|O'"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_wrong_npz_files_are_refused_by_array(tmp_path, case):
    changes, names = DAMAGED[case]
    with pytest.raises(DataError, match=names):
        npz.read(written(tmp_path / "bad.npz", **changes))


# --- the layout of ogbn-mag -----------------------------------------------------------------------------------


def test_a_set_in_the_layout_of_ogbn_mag_is_read_as_ogb_reads_it(tmp_path):
    tally = EdgeTally()
    graph = ogb_types.read(write_mag(tmp_path / "ogbn_mag"), tally=tally)
    assert [(kind.name, kind.count) for kind in graph.types] == [("author", 3), ("institution", 2), ("paper", 4)]
    assert [relation.key for relation in graph.relations] == [("author", "writes", "paper"), ("paper", "cites", "paper")]
    paper = graph.type("paper")
    np.testing.assert_array_equal(paper.features, np.array([[0.5, -1.25], [1, 2], [3e-7, 4], [5, 6]], np.float32))
    np.testing.assert_array_equal(paper.labels, [3, 0, 1, 3])
    np.testing.assert_array_equal(paper.times, YEARS)
    np.testing.assert_array_equal(paper.extra["node_year"], YEARS)
    assert {split: np.flatnonzero(mask).tolist() for split, mask in paper.masks.items()} == {"train": [0, 2], "val": [1], "test": [3]}
    assert (graph.name, paper.num_classes, graph.type("author").features, graph.type("author").times) == ("ogbn-mag", 4, None, None)
    for name, edges in (("writes", AUTHORED), ("cites", CITES)):
        dense = np.zeros(graph.relation(name).adjacency.shape, int)
        np.add.at(dense, (edges[1], edges[0]), 1)
        np.testing.assert_array_equal(graph.relation(name).adjacency.to_scipy().toarray(), dense)
    assert tally.edges_read == 7
    assert tally.ignored == "author.writes.paper/edge_reltype.csv.gz, paper.cites.paper/edge_reltype.csv.gz"
    assert ogb_types.read(tmp_path / "ogbn_mag", features=False).type("paper").features is None


def test_ogbn_mag_is_found_by_its_name_and_the_reader_of_one_type_refuses_it(tmp_path):
    write_mag(tmp_path / "ogbn_mag")
    assert locate("ogbn-mag", tmp_path, download=False) == tmp_path / "ogbn_mag"
    assert ogb.is_heterogeneous(tmp_path / "ogbn_mag")
    with pytest.raises(DataError, match="holds several vertex types"):
        ogb.read(tmp_path / "ogbn_mag", undirected=False)


def test_edge_features_belong_to_their_edges(tmp_path):
    feat = {"raw/relations/author___writes___paper/edge-feat": [[1], [2], [3], [4]]}
    writes = ogb_types.read(write_mag(tmp_path / "mag", **feat)).relation("writes")
    ids = writes.ids_of(np.arange(4))
    np.testing.assert_array_equal(writes.features[:, 0], ids + 1)
    np.testing.assert_array_equal(np.stack([writes.adjacency.indices, writes.adjacency.row_of_entry()]), AUTHORED[:, ids])


MAGS = {
    "no counts": ({"raw/num-node-dict": None}, r"num-node-dict\.csv\.gz: cannot be read"),
    "counts of two graphs": ({"raw/num-node-dict": [list(COUNTS), [1, 1, 1], [2, 2, 2]]}, r"num-node-dict\.csv\.gz: has 3 lines"),
    "a count that is none": ({"raw/num-node-dict": [list(COUNTS), [4, -3, 2]]}, r"num-node-dict\.csv\.gz: type 'author' has '-3' vertices"),
    "no relations": ({"raw/triplet-type-list": None}, r"triplet-type-list\.csv\.gz: cannot be read"),
    "a relation of two words": ({"raw/triplet-type-list": [["a", "b"]]}, r"triplet-type-list\.csv\.gz: line 1: 'a,b' is no source"),
    "a relation as a path": ({"raw/triplet-type-list": [["author", "../x", "paper"]]}, "line 1: .* is no source"),
    "a relation of an unknown type": ({"raw/triplet-type-list": [["author", "in", "team"]]}, "author,in,team: there is no type 'team'"),
    "no edges": ({"raw/relations/paper___cites___paper/edge": None}, r"relations/paper___cites___paper: edge\.csv\.gz"),
    "another number of edges": ({"raw/relations/paper___cites___paper/num-edge-list": [5]}, r"edge\.csv\.gz: has 3 edges; num-edge-list\.csv\.gz says 5"),
    "an edge beyond": ({"raw/relations/paper___cites___paper/edge": [[0, 1], [4, 1], [1, 1]]}, r"relation paper:cites:paper: sources: row 1 names vertex 4"),
    "years that are none": ({"raw/node-feat/paper/node_year": [2010.5, 1, 2, 3]}, r"node-feat/paper: node_year\.csv\.gz: use one whole number"),
    "years of others": ({"raw/node-feat/paper/node_year": [2010, 2011]}, r"node-feat/paper: node_year\.csv\.gz: has 2 rows"),
    "labels that are not there": ({"raw/node-label/paper/node-label": None}, r"node-label/paper: node-label\.csv\.gz"),
    "labels of an unknown type": ({"raw/nodetype-has-label": [["team"], [True]]}, r"nodetype-has-label\.csv\.gz: use a line of types"),
    "labels that are neither": ({"raw/nodetype-has-label": [list(COUNTS), [1, 0, 0]]}, r"nodetype-has-label\.csv\.gz"),
    "a split beyond": ({"split/time/paper/valid": [4]}, r"split/time: paper/valid\.csv\.gz: entry 0 is 4"),
    "splits that overlap": ({"split/time/paper/valid": [0]}, "type 'paper': val mask: row 0 is in another split"),
}  # fmt: skip


@pytest.mark.parametrize("case", MAGS)
def test_damaged_sets_are_refused_by_file(tmp_path, case):
    changes, names = MAGS[case]
    with pytest.raises(DataError, match=names):
        ogb_types.read(write_mag(tmp_path / "mag", **changes))


def test_several_schemes_of_splits_need_a_name(tmp_path):
    root = write_mag(tmp_path / "mag", **{"split/other/nodetype-has-split": [list(COUNTS), [False] * 3]})
    with pytest.raises(UsageError, match="several split schemes; use scheme='other' or scheme='time'"):
        ogb_types.read(root)
    assert ogb_types.read(root, scheme="other").type("paper").masks == {}
    assert list(ogb_types.read(root, scheme="time").type("paper").masks) == ["train", "val", "test"]


# --- synthetic ------------------------------------------------------------------------------------------------

TYPES = {"item": 400, "user": 100}
RELATIONS = (("user", "buys", "item", 3000), ("item", "like", "item", 500))


def make(**options):
    return hetero.hetero(TYPES, RELATIONS, **{"features": 3, "classes": 4, "times": 50, "edge_times": 20, "seed": 5, **options})


def test_a_synthetic_graph_has_the_sizes_asked_for():
    graph = make()
    assert [(kind.name, kind.count, kind.num_features) for kind in graph.types] == [("item", 400, 3), ("user", 100, 3)]
    assert [relation.key for relation in graph.relations] == [tuple(one[:3]) for one in RELATIONS]
    assert [relation.edges for relation in make(parallel=True).relations] == [one[3] for one in RELATIONS]
    item, user = graph.types
    assert (item.num_classes, user.labels, sorted(item.masks)) == (4, None, ["test", "train", "val"])
    assert np.bincount(item.labels, minlength=4).min() > 60
    assert 0.5 < item.masks["train"].mean() < 0.7
    assert all(kind.times.min() >= 0 and kind.times.max() < 50 for kind in graph.types)
    assert all(relation.times.min() >= 0 and relation.times.max() < 20 for relation in graph.relations)
    columns = item.labels % 3
    np.testing.assert_array_equal(item.features[np.arange(400), columns] >= 1, True)
    assert (user.features < 1).all()
    plain = make(features=0, classes=0, times=0, edge_times=0)
    assert plain.types[0].features is plain.types[0].labels is plain.types[0].times is plain.relations[0].times is None


@pytest.mark.parametrize("power", [1, 2, 3])
def test_sources_follow_the_power_law_and_destinations_are_uniform(power):
    relation = hetero.hetero({"a": 10, "b": 10}, [("a", "r", "b", 40_000)], power=power, seed=1, parallel=True).relations[0]
    found = np.bincount(relation.adjacency.indices, minlength=10) / 40_000
    expected = np.diff((np.arange(11) / 10) ** (1 / power))  # floor(10 u^power) = k
    np.testing.assert_allclose(found, expected, atol=4 * 0.5 / 200)
    np.testing.assert_allclose(relation.adjacency.degrees / 40_000, 0.1, atol=4 * 0.3 / 200)


def test_the_first_of_edges_that_repeat_stays():
    for whole, relation in zip(make(parallel=True).relations, make().relations, strict=True):
        first, a = {}, whole.adjacency
        listed = sorted(zip(whole.edge_ids, a.row_of_entry(), a.indices, whole.times, strict=True))
        for _, row, column, time in listed:
            first.setdefault((int(row), int(column)), int(time))
        kept = relation.adjacency
        assert (
            dict(zip(zip(kept.row_of_entry().tolist(), kept.indices.tolist(), strict=True), relation.times.tolist(), strict=True)) == first
        )
        assert kept.nnz == len(first)
    assert relation.edges <= whole.edges == 500
    assert make().relations[0].edges < 3000


def test_labor_takes_a_synthetic_graph():
    with pytest.raises(UsageError, match="has parallel edges"):
        bs.Loader(make(parallel=True), "labor", [3], seeds="item", batch_size=8)
    assert len(list(bs.Loader(make(), "labor", [3], seeds="item", batch_size=400))) == 1


def test_an_appended_part_leaves_the_others_and_back_ends_agree():
    graph, native = make(), make(backend=backends.make("auto"))
    assert_same_hetero(native, graph)
    more = hetero.hetero(
        {**TYPES, "shop": 7}, (*RELATIONS, ("shop", "sells", "item", 9)), features=3, classes=4, times=50, edge_times=20, seed=5
    )
    assert_same_hetero(bs.Graph.of(more.types[:2], more.relations[:2], graph.name), graph)
    assert not np.array_equal(make(seed=6).relations[0].adjacency.indices, graph.relations[0].adjacency.indices)


def test_a_graph_of_papers_keeps_its_proportions():
    types, relations = hetero.papers(0.01)
    assert (types["paper"], types["institute"]) == (10_000, 200)
    assert sum(one.edges for one in relations) == 292_000


MISTAKEN = {
    "no types": (lambda: hetero.hetero({}, []), "types: got"),
    "an empty type": (lambda: hetero.hetero({"a": 0}, []), "types: got"),
    "an unknown type": (lambda: hetero.hetero({"a": 1}, [("a", "r", "b", 1)]), "relation a:r:b: there is no type 'b'; use a"),
    "negative edges": (lambda: hetero.hetero({"a": 1}, [("a", "r", "a", -1)]), "relation a:r:a: got -1 edges"),
    "no power": (lambda: make(power=0), "power: got 0; use 1 to 16"),
    "negative times": (lambda: make(times=-1), "times: got -1"),
    "no scale": (lambda: hetero.papers(0), "scale: got 0"),
    "a type of no number": (lambda: hetero.parse_types(["a"]), "type 'a': use NAME:COUNT"),
    "a type twice": (lambda: hetero.parse_types(["a:1", "a:2"]), "type 'a:2'"),
    "a relation of three": (lambda: hetero.parse_relations(["a:r:b"]), "relation 'a:r:b': use SOURCE:NAME:DESTINATION:EDGES"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKEN)
def test_wrong_sizes_are_refused(case):
    call, names = MISTAKEN[case]
    with pytest.raises(UsageError, match=names):
        call()
