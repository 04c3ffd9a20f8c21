"""The loader of heterogeneous graphs: one permutation over the seeds of all types, the same batches however it is run, and their rows."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from relations_zoo import edges_of, library
from zoo import ZOO

import bulksample as bs
from bulksample import UsageError, samplers
from bulksample.local_adjacency import LocalAdjacency, union_of

SEEDS = {"paper": np.arange(40), "venue": [1, 6, 1]}
TIMES = {"paper": np.arange(40) + 5, "venue": [40, 10, 30]}


def labelled(times=None):
    graph = library(times)
    paper = replace(
        graph.types[0], features=np.random.default_rng(0).random((60, 3)).astype(np.float32), labels=np.arange(60) % 4, num_classes=4,
        masks={"train": np.arange(60) < 40},
    )  # fmt: skip
    cites = replace(graph.relations[0], features=np.arange(graph.relations[0].edges, dtype=np.float32)[:, None])
    return replace(graph, types=(paper, *graph.types[1:]), relations=(cites, *graph.relations[1:]))


def loader(graph=None, **change):
    options = {"fanouts": [3, 2], "batch_size": 8, "seeds": SEEDS, "times": TIMES, "seed": 3, "out": "numpy", **change}
    return bs.Loader(labelled("vertices") if graph is None else graph, **options)


def digests(batches):
    return [batch.digest() for batch in batches]


def test_every_seed_comes_once_an_epoch_with_its_time_and_its_place():
    made = loader()
    assert len(made) == 6
    for _ in range(2):
        found = {"paper": [], "venue": []}
        for batch in made:
            assert sum(len(part.seeds) for part in batch.minibatch.rows.values()) <= 8
            for name, part in batch.minibatch.rows.items():
                if len(part.seeds):
                    found[name] += list(zip(part.places.tolist(), part.seeds.tolist(), part.seed_times.tolist(), strict=True))
                    assert (part.vertices[part.seed_rows] == part.seeds).all()
        for name, given in SEEDS.items():
            assert sorted(found[name]) == list(
                zip(range(len(given)), np.asarray(given).tolist(), np.asarray(TIMES[name]).tolist(), strict=True)
            )
    assert made.epoch == 2


@pytest.mark.parametrize(
    "change", [{"bulk_size": 1}, {"bulk_size": 4, "prefetch": False}, {"backend": "reference"}, {"threads": 2}, {"memory_budget": 1}]
)
def test_batches_do_not_depend_on_how_they_are_sampled(change):
    assert digests(loader(**change)) == digests(loader())


def test_ranks_share_an_epoch_and_a_state_resumes_it_on_any_number_of_them():
    whole = digests(loader())
    parts = [digests(loader(rank=r, ranks=2)) for r in range(2)]
    assert [digest for pair in zip(*parts, strict=True) for digest in pair] == whole
    begun = loader(rank=0, ranks=2)
    for _, _ in zip(range(2), begun, strict=False):
        pass
    resumed = loader()
    resumed.load_state_dict(begun.state_dict())
    assert digests(resumed) == whole[4:]


def test_a_state_after_the_last_batch_begins_the_next_epoch():
    whole, first, again = loader(), loader(), loader()
    following = [digests(whole), digests(whole)][1]
    for _ in zip(range(len(first)), first, strict=False):
        pass
    again.load_state_dict(first.state_dict())
    assert again.epoch == 1
    assert digests(again) == following


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": {"paper": np.arange(1, 41), "venue": [1, 6, 1]}},
        {"times": {"paper": np.arange(40), "venue": [4, 1, 3]}},
        {"time": bs.TimeRule(strict=True)},
        {"fanouts": {"default": [3, 2], "cites": [1, 1]}},
        {"seed": 4},
        {"graph": replace(labelled("vertices"), relations=labelled("vertices").relations[:-1])},
    ],
)
def test_a_state_of_other_batches_is_refused(change):
    with pytest.raises(UsageError, match="the loader's state does not fit"):
        loader(**change).load_state_dict(loader().state_dict())


def test_a_batch_holds_rows_edges_and_ids():
    graph = labelled("vertices")
    known = {r.key: edges_of(graph, r) for r in graph.relations}
    for batch in loader(graph, frontier="new"):
        papers = batch.minibatch.rows["paper"]
        assert list(batch.x_dict) == ["paper"]
        assert np.array_equal(batch.x_dict["paper"], graph.types[0].features[papers.vertices])
        assert len(papers.seeds) == 0 or np.array_equal(batch.y_dict["paper"], papers.seeds % 4)
        for relation in graph.relations:
            (u, v), ids = batch.edge_index_dict[relation.key], batch.e_id_dict[relation.key]
            into, outof = batch.minibatch.rows[relation.destination].vertices, batch.minibatch.rows[relation.source].vertices
            for row, column, e in zip(v.tolist(), u.tolist(), ids.tolist(), strict=True):
                entry = e if relation.edge_ids is None else int(np.flatnonzero(relation.edge_ids == e)[0])
                assert (entry, outof[column]) in [(a, b) for a, b, _ in known[relation.key][into[row]]]
        cites = batch.minibatch.entries[0]["paper", "cites", "paper"]
        assert batch.edge_attr_dict["paper", "cites", "paper"][:, 0].tolist() == cites.tolist()


def test_fanouts_by_relation_have_a_default_or_name_every_relation():
    graph = labelled()
    batch = next(iter(loader(graph, times=None, fanouts={"default": [0, 0], "cites": [-1, 1]}, bulk_size=1)))
    assert {key for key, edges in batch.edge_index_dict.items() if edges.size} <= {("paper", "cites", "paper")}
    with pytest.raises(UsageError, match="fanouts name no relation author:writes:paper"):
        loader(graph, times=None, fanouts={"cites": [1, 1]})
    with pytest.raises(UsageError, match="'hosts'"):
        loader(graph, times=None, fanouts={"default": [1, 1], "hosts": [1, 1]})


def test_the_loader_of_one_relation_draws_what_the_homogeneous_loader_draws():
    a = ZOO["random"]
    expected = [batch.minibatch.digest() for batch in bs.Loader(bs.Graph(a), fanouts=[4, 3], batch_size=16, seeds="all", seed=9)]
    named = samplers.Sage((4, 3), entries=True)  # else one relation draws by the plain path
    made = bs.Loader(bs.Graph(a), named, batch_size=16, seeds=("node", "all"), seed=9, as_dicts=True)
    assert [replace(batch.minibatch, by_type=False).digest() for batch in made] == expected


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bs.Loader(library()), r"seeds: got None; name their type"),
        (lambda: loader(out="jax"), r"out: got 'jax'; use torch, numpy"),
        (lambda: loader(edge_ids=True), r"edge_ids is for a plain graph that ranks share"),
        (lambda: loader(bs.Graph(ZOO["random"])), r"got times, seeds for the plain graph 'graph', which are for .*; use as_dicts=True"),
        (lambda: loader(sampler="ladies"), r"sampler 'ladies' draws from all relations together"),
        (lambda: loader(sampler="saint", times=None), r"sampler 'saint' works on one relation"),
        (lambda: loader(sampler=samplers.make("sage", (2,))), r"got a sampler object, and fanouts"),
        (lambda: loader(times=None, time=bs.TimeRule()), r"the seeds have no times"),
        (lambda: loader(seeds={"paper": []}, times=None), "seeds choose none of the .* vertices of graph"),
        (lambda: loader(seeds={"paper": [1]}, times=None, drop_last=True), r"drop_last leaves no mini-batch: 1 seeds fill 0 of "),
        (lambda: loader(times=None, fanouts=[2, 0]), r"fanouts: got 2,0; a hop of 0 draws no neighbor: use 1 or more, or -1 for all"),
        (lambda: loader(times=None, fanouts={"default": [0, 0], "cites": [-1, 0]}), r"fanouts: got -1,0; a hop of 0 draws no neighbor"),
        (lambda: loader(replaced=True), r"sampler 'sage' has no option 'replaced'"),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises(UsageError, match=says):
        call()


def test_the_union_of_relations_adds_the_weights_of_parallel_edges():
    for weighted in (False, True):
        graph = library(weighted=weighted)
        matrix = union_of(graph).validate()
        expected = np.zeros((graph.n, graph.n))
        for relation in graph.relations:
            rows, columns = (graph.offsets[graph.place(end)] for end in (relation.destination, relation.source))
            weights = relation.adjacency.entries() * relation.weight_unit
            np.add.at(expected, (rows + relation.adjacency.row_of_entry(), columns + relation.adjacency.indices), weights)
        dense = matrix.to_scipy().toarray()
        assert np.allclose(dense * (expected.max() / dense.max()), expected, rtol=1e-9)


def test_fingerprints_tell_graphs_apart():
    made = [library(), library(seed=2), replace(library(), relations=library().relations[:-1])]
    prints = [LocalAdjacency(graph, bs.backends.make("reference"), by_type=True).fingerprint for graph in made]
    assert len(set(prints)) == 3
    assert hashlib.sha256().hexdigest() not in prints


def test_dates_of_seeds_need_the_unit_of_the_graph():
    """Counted in nanoseconds, beside a graph in seconds, every date would be later than all of the graph."""
    days = np.array(["2009-01-01", "2020-01-01", "2010-01-01"], "datetime64[D]")
    tables = {"drivers": {"id": np.arange(2)}, "results": {"driver": [0, 0, 1], "date": days}}
    schema = {"drivers": {"primary_key": "id"}, "results": {"foreign_keys": {"driver": "drivers"}, "time": "date"}}
    options = {"sampler": "full", "fanouts": [-1], "seeds": ("drivers", [0]), "times": np.array(["2010-06-01"], "datetime64[D]")}
    graph = bs.from_tables(tables, schema)
    with pytest.raises(UsageError, match="times: got dates; give time_unit"):
        bs.Loader(graph, **options)
    with pytest.raises(UsageError, match="time_unit: got 'seconds'; use D"):
        bs.Loader(graph, time_unit="seconds", **options)
    (batch,) = bs.Loader(graph, time_unit="s", **options)
    assert batch.minibatch.rows["results"].vertices.tolist() == [0]


def test_a_sampler_brings_its_rule_of_time():
    rule, base = bs.TimeRule(strategy="last"), samplers.make("sage", (3, 2))
    assert digests(loader(sampler=replace(base, time=rule), fanouts=None)) == digests(loader(time=rule))
    with pytest.warns(DeprecationWarning, match=r"RelationSampler\(.*\) goes with version 0\.3"):
        assert bs.RelationSampler(base, time=rule) == replace(base, time=rule)
    with pytest.raises(UsageError, match="got a sampler object with options of its own, and disjoint besides"):
        loader(sampler=replace(base, time=rule), fanouts=None, disjoint=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fanouts": {"cites": 5, "default": (3,)}}, "fanouts must be a list of whole numbers"),
        ({"fanouts": {"cites": (2.5,), "default": (3,)}}, "fanouts must be a list of whole numbers"),
        ({"fanouts": {5: (2,), "default": (3,)}}, r"has no relation\(s\) 5"),
        ({"time": "last"}, "time: got 'last'; use a TimeRule"),
        ({"shuffle": 1}, "shuffle must be true or false; got 1"),
        ({"drop_last": "no"}, "drop_last must be true or false; got 'no'"),
        ({"disjoint": "no"}, "disjoint must be true or false; got 'no'"),
        ({"times": {**TIMES, "venue": np.ma.array([1, 2, 3], mask=[0, 1, 0])}}, "'venue': row 1 is masked"),
    ],
)
def test_options_of_the_wrong_type_are_named(change, says):
    with pytest.raises((UsageError, bs.DataError), match=says):
        loader(**change)


def test_windows_that_end_before_they_begin_are_refused():
    """A window of one moment is a window: the start of a seed is its time."""
    fine = {name: np.array(times) for name, times in TIMES.items()}
    assert digests(loader(starts=fine))
    late = {name: times.copy() for name, times in fine.items()}
    late["venue"][1:] += 1
    said = r"^starts: the window of seed 1 of type 'venue' \(vertex \d\) begins at 11 and ends at 10, in the unit of the graph; give"
    with pytest.raises(UsageError, match=said):
        loader(starts=late)
    late["paper"][[3, 7]] = 99
    with pytest.raises(UsageError, match=rf"seed 3 of type 'paper' \(vertex {SEEDS['paper'][3]}\) begins at 99 and ends at 8, in the unit"):
        loader(starts=late)


@pytest.mark.parametrize("kind", ["vertices", "edges"])
def test_a_state_of_other_times_is_refused(kind):
    graph = library(kind)
    made = loader(graph)
    next(iter(made))
    state = made.state_dict()
    loader(library(kind)).load_state_dict(state)
    changed = [
        replace(graph, types=tuple(t if t.times is None else replace(t, times=t.times + 1) for t in graph.types)),
        replace(graph, relations=tuple(r if r.times is None else replace(r, times=r.times + 1) for r in graph.relations)),
    ]
    with pytest.raises(UsageError, match="graph"):
        loader(changed[kind == "edges"]).load_state_dict(state)
