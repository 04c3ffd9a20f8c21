"""Draws in windows of time: nothing later than its seed, exact laws, ties, extremes, and the static draws where time is constant."""

from dataclasses import replace

import numpy as np
import pytest
from relations_zoo import drawn_edges, edges_of, library, one_relation
from scipy.stats import chisquare
from zoo import ZOO

from bulksample import Stream, UsageError, backends, samplers
from bulksample.backends.relational import TimedRows
from bulksample.graph import Graph, VertexType
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges
from bulksample.local_adjacency import LocalAdjacency
from bulksample.samplers.time_rule import TimeRule, before

LEAST, MOST = -(2**63), 2**63 - 1
PAPERS = np.array([3, 0, 3, 59, 17, 20, 4, 8, 1, 2])
TIMES = np.array([25, 0, 49, 13, 13, -1, 60, 30, 44, 7])
LAWS = {
    "sage": {}, "full": {}, "labor": {}, "last": {"strategy": "last"},
    "replace": {"replace": True}, "weighted": {"weighted": True}, "weighted, replace": {"weighted": True, "replace": True},
}  # fmt: skip


def made(name, fanouts=(4, 3), frontier="all", disjoint=None, entries=True, **rule):
    options = dict(LAWS[name])
    rule = {**({"strategy": options.pop("strategy")} if "strategy" in options else {}), **rule}
    base = samplers.make(name if name in ("full", "labor") else "sage", fanouts, frontier=frontier, **options)
    return replace(base, time=TimeRule(**rule), disjoint=disjoint, stride=len(PAPERS), entries=entries)


def sample(graph, sampler, seeds=PAPERS, times=TIMES, starts=None, engine="reference", bulk=2, epoch=1):
    listed = SeedList.of(graph, {graph.types[0].name: seeds}, times, starts)
    chosen = listed.select([np.arange(len(listed))] * bulk, np.arange(bulk) * 3)
    return sampler.sample_bulk(LocalAdjacency(graph, backends.make(engine), by_type=True), chosen, Stream(5), epoch)


RULES = {
    "plain": {}, "strict": {"strict": True}, "window": {"window": 12}, "strict window": {"window": 12, "strict": True},
    "instant": {"window": 0},
}  # fmt: skip


@pytest.mark.parametrize("times", ["vertices", "edges"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", LAWS)
def test_a_row_draws_what_its_window_allows(name, rule, times):
    """Each row takes min(s, eligible) distinct edges of its window, all where few are eligible, the newest for ``last``."""
    graph = library(times, weighted="weighted" in name, parallel=name != "labor")
    known = {r.key: edges_of(graph, r) for r in graph.relations}
    weight = {r.key: r.adjacency.entries() for r in graph.relations}
    seen = 0
    for minibatch in sample(graph, made(name, **RULES[rule])):
        for layer, s in ((1, 4), (0, 3)):
            for key, rows in known.items():
                drawn = {}
                for tree, v, u, e in drawn_edges(minibatch, layer, key):
                    drawn.setdefault((tree, v), []).append((e, u))
                block, into = minibatch.blocks[layer][key], minibatch.rows[key[2]]
                for tree, v in zip(into.trees[: block.num_destinations].tolist(), into.vertices.tolist(), strict=False):
                    end = TIMES[tree] - (1 if "strict" in rule else 0)
                    start = TIMES[tree] - RULES[rule].get("window", 10**6)
                    fits = [(t, e, u) for e, u, t in rows.get(v, []) if t is None or start <= t <= end]
                    if name in ("weighted", "weighted, replace"):
                        fits = [edge for edge in fits if weight[key][edge[1]] > 0]
                    picks = drawn.get((tree, v), [])
                    allowed = [(e, u) for _, e, u in fits]
                    assert set(picks) <= set(allowed)
                    if "replace" in name:
                        assert len(picks) == (s if fits else 0)
                        assert picks == sorted(picks)
                        continue
                    assert len(set(picks)) == len(picks)
                    if name == "last" and fits and fits[0][0] is not None:
                        newest = sorted(fits, key=lambda edge: edge[:2])[-s:]
                        assert picks == sorted((e, u) for _, e, u in newest)
                    elif name == "full" or len(fits) <= s:
                        assert picks == sorted(allowed)
                    else:
                        assert len(picks) == s
                    seen += len(picks)
        assert (minibatch.latest <= TIMES - ("strict" in rule)).all()
    assert seen > 100 or "replace" in name


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("name", [name for name in LAWS if name != "last"])
@pytest.mark.parametrize("matrix", ["random", "weighted"])
def test_constant_times_draw_what_the_static_graph_draws(matrix, name, frontier):
    a = ZOO[matrix]
    if "weighted" in name and a.values is None:
        a = ZOO["weighted"]
    timed = made(name, frontier=frontier)
    for stamp in (LEAST, 0, MOST):
        constant = one_relation(a, np.full(a.shape[0], stamp))
        static = sample(one_relation(a), replace(timed, time=None, disjoint=True), times=None)
        drawn = sample(constant, timed, times=np.full(len(PAPERS), stamp))
        for x, y in zip(drawn, static, strict=True):
            assert replace(x, by_type=False).digest() == replace(y, by_type=False).digest()


def test_static_relations_beside_timed_ones_are_untouched():
    static, timed = library(), library("edges")
    for x, y in zip(
        sample(static, replace(made("sage", (4,)), time=None, disjoint=True), times=None), sample(timed, made("sage", (4,))), strict=True
    ):
        for key in (("author", "writes", "paper"), ("venue", "hosts", "paper")):
            assert drawn_edges(x, 0, key) == drawn_edges(y, 0, key)


def rows_of(times, rows, **rule):
    """`rows` vertices with the same edges, from one source of each time, asked about at one time; how often each edge is drawn."""
    kinds = VertexType("a", rows), VertexType("b", len(times), times=np.asarray(times))
    ends, into = np.tile(np.arange(len(times)), rows), np.repeat(np.arange(rows), len(times))
    graph = Graph.of(kinds, (relation_from_edges(kinds[1], "x", kinds[0], ends, into),))
    at = rule.pop("at")
    sampler = replace(made("sage", (2,), disjoint=False, **rule), stride=rows)
    drawn = sample(graph, sampler, np.arange(rows), np.full(rows, at), engine="native", bulk=1)[0]
    return drawn.entries[0]["b", "x", "a"].reshape(rows, -1) % len(times)


@pytest.mark.parametrize(
    ("at", "rule", "eligible"),
    [
        (5, {}, [0, 1, 3, 4, 5]),
        (5, {"strict": True}, [0, 1, 4]),
        (5, {"window": 2}, [1, 3, 4, 5]),
        (9, {"window": 4}, [2, 3, 5, 6]),
    ],
)
def test_all_subsets_of_a_window_are_equally_likely(at, rule, eligible):
    """With ties in time, by counts of all pairs."""
    drawn = rows_of([-7, 4, 9, 5, 3, 5, 6], 4000, at=at, **rule)
    pairs, counts = np.unique(drawn, axis=0, return_counts=True)
    expected = [(a, b) for i, a in enumerate(eligible) for b in eligible[i + 1 :]]
    assert sorted(map(tuple, pairs.tolist())) == sorted(expected)
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    ("times", "at", "rule", "drawn"),
    [
        ([LEAST, MOST, 0], LEAST, {}, [0]),
        ([LEAST, MOST, 0], MOST, {"strict": True}, [0, 2]),
        ([LEAST, MOST], MOST, {}, [0, 1]),
        ([LEAST, LEAST + 1], LEAST, {"strict": True}, []),
        ([LEAST, 0], LEAST + 5, {"window": 10}, [0]),  # the window begins before all times
        ([LEAST, 0], 0, {"window": 2**63}, [0, 1]),
        ([LEAST, 0], 0, {"window": 2**63 - 1}, [1]),
        ([2**53 + 1, 2**53 + 2], 2**53 + 1, {}, [0]),  # float64 would not tell these apart
        ([10**18 + 1, 10**18], 10**18, {}, [1]),
    ],
)
def test_times_are_compared_as_integers_of_64_bits(times, at, rule, drawn):
    assert rows_of(times, 1, at=at, **rule).tolist() == [drawn]


def test_starts_of_windows_reach_back_without_overflow():
    ends = np.array([LEAST, LEAST + 3, 0, MOST])
    assert before(ends, 4).tolist() == [LEAST, LEAST, -4, MOST - 4]
    assert before(ends, 2**70).tolist() == [LEAST] * 4
    assert before(ends, MOST).tolist() == [LEAST, LEAST, -MOST, 0]


def test_rows_are_ordered_by_time_then_by_place():
    a, times = ZOO["random"], np.random.default_rng(3).integers(0, 5, ZOO["random"].nnz)
    timed = TimedRows.of(a, times)
    for v in range(a.shape[0]):
        row = slice(a.indptr[v], a.indptr[v + 1])
        expected = sorted(range(row.stop - row.start), key=lambda p: (times[row][p], p))
        assert timed.positions[row].tolist() == expected
        assert timed.times[row].tolist() == times[row][expected].tolist()
        assert timed.entries.view(np.int32)[row, 3].tolist() == a.indices[row][expected].tolist()


@pytest.mark.parametrize("times", ["vertices", "edges"])
def test_each_seed_may_have_a_start_of_its_own(times):
    graph, starts = library(times), np.array([20, 0, 0, 13, 0, -5, 59, 30, 1, 7])
    for minibatch in sample(graph, made("full", (1, 1)), starts=starts):
        for layer in (0, 1):
            for relation in graph.relations:
                known = edges_of(graph, relation)
                for tree, v, _, e in drawn_edges(minibatch, layer, relation.key):
                    time = next(t for entry, _, t in known[v] if entry == e)
                    assert time is None or starts[tree] <= time <= TIMES[tree]


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("name", ["sage", "full", "last", "weighted", "replace"])
@pytest.mark.parametrize("times", ["vertices", "edges"])
def test_a_moving_window_ends_at_the_time_of_the_walk(times, name, frontier):
    graph = library(times, weighted=name == "weighted")
    known = {r.key: {e: (v, u, t) for v, row in edges_of(graph, r).items() for e, u, t in row} for r in graph.relations}
    met_twice = 0
    for minibatch in sample(graph, made(name, fanouts=(3, 3, 2), frontier=frontier, moving=True, window=40)):
        bound = {
            t: {row: TIMES[tree] for row, tree in zip(part.seed_rows.tolist(), part.seed_trees.tolist(), strict=True)}
            for t, part in minibatch.rows.items()
        }
        for layer in (2, 1, 0):
            before = {t: dict(rows) for t, rows in bound.items()}
            for key, block in minibatch.blocks[layer].items():
                rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
                for row, column, e in zip(rows.tolist(), block.indices.tolist(), minibatch.entries[layer][key].tolist(), strict=True):
                    tree, time = minibatch.rows[key[2]].trees[row], known[key][e][2]
                    end = before[key[2]][row]
                    assert time is None or TIMES[tree] - 40 <= time <= end
                    assert bound[key[0]].setdefault(column, end if time is None else time) == (end if time is None else time)
        for t, part in minibatch.rows.items():
            assert len(bound[t]) == len(part.vertices)
            pairs = list(zip(part.trees.tolist(), part.vertices.tolist(), strict=True))
            assert len({(*pair, bound[t][i]) for i, pair in enumerate(pairs)}) == len(pairs)  # a vertex for each time, no more
            met_twice += len(pairs) - len(set(pairs))
    assert met_twice or name == "last"


def test_a_vertex_that_a_tree_meets_at_two_times_draws_twice():
    """Vertex 0 takes both edges from 1, at times 10 and 20; each time, 1 draws one of eight neighbors of time 0."""
    node = VertexType("node", 10)
    ends = [1, 1, *range(2, 10)], [0, 0, *[1] * 8], [10, 20, *[0] * 8]
    graph = Graph.of((node,), (relation_from_edges(node, "to", node, *ends[:2], times=ends[2]),))
    drawn = sample(graph, made("sage", (2, 1), frontier="new", moving=True), [0] * 10, [30] * 10, bulk=20)
    pairs = np.concatenate([m.entries[0]["node", "to", "node"][20:].reshape(10, 2) for m in drawn])
    assert 5 < (pairs[:, 0] == pairs[:, 1]).sum() < 60  # 25 of 200 are expected


@pytest.mark.parametrize("name", ["sage", "replace"])
def test_positions_of_a_window_are_those_of_a_static_row_of_its_length(name):
    """Draws in hi - lo, plus lo, through the order of time: the row of a static graph that has as many neighbors."""
    rng = np.random.default_rng(4)
    times = rng.integers(0, 9, 40)
    star = VertexType("node", 41, times=np.append(0, times))
    graph = Graph.of((star,), (relation_from_edges(star, "to", star, np.arange(1, 41), np.zeros(40, int)),))
    order = np.argsort(times, kind="stable")
    low, high = np.searchsorted(times[order], [3, 7])
    plain = VertexType("node", 41)
    shorter = Graph.of((plain,), (relation_from_edges(plain, "to", plain, np.arange(1, high - low + 1), np.zeros(high - low, int)),))
    timed = sample(graph, made(name, (6,), window=3), [0] * 10, [6] * 10)
    static = sample(shorter, replace(made(name, (6,)), time=None, disjoint=True), [0] * 10, None)
    for x, y in zip(timed, static, strict=True):
        a, b = (m.entries[0]["node", "to", "node"].reshape(10, 6) for m in (x, y))
        assert (a == np.sort(order[low + b], axis=1)).all()


@pytest.mark.parametrize("name", LAWS)
def test_a_tree_depends_on_its_name_and_its_time_alone(name):
    graph, sampler = library("vertices", weighted="weighted" in name, parallel=name != "labor"), made(name)
    others = sample(graph, sampler, times=np.where(np.arange(10) == 4, TIMES, 50))
    for minibatch, other in zip(sample(graph, sampler), others, strict=True):
        for layer in (0, 1):
            for relation in graph.relations:
                own, same = ([edge for edge in drawn_edges(m, layer, relation.key) if edge[0] == 4] for m in (minibatch, other))
                assert own == same


def test_one_time_for_all_seeds_needs_no_trees_of_their_own():
    graph = library("vertices")
    minibatch = sample(graph, made("full", (1, 1), disjoint=False), times=np.full(10, 30), bulk=1)[0]
    assert minibatch.latest.tolist() == [30]
    assert minibatch.rows["paper"].trees is None
    with pytest.raises(UsageError, match=r"mini-batch 0 has seeds of times 25 and 7 in one tree; use disjoint=True"):
        sample(graph, made("sage", disjoint=False))


@pytest.mark.parametrize("times", ["vertices", "edges"])
def test_nothing_later_than_its_seed_is_drawn(times):
    assert draws_checked(times, 40) > 10_000


@pytest.mark.long
@pytest.mark.parametrize("times", ["vertices", "edges"])
def test_nothing_later_than_its_seed_is_drawn_in_a_million_draws(times):
    assert draws_checked(times, 80, 500) > 1_000_000


def draws_checked(times, bulks, b=10):
    """Draw with random seeds and times, by every law and rule in turn; every edge is looked up in the graph."""
    rng, count = np.random.default_rng(8), 0
    graphs = {weighted: library(times, weighted=weighted, parallel=False) for weighted in (False, True)}
    adjacencies = {weighted: LocalAdjacency(graph, backends.make("native"), by_type=True) for weighted, graph in graphs.items()}
    for i in range(bulks):
        name = list(LAWS)[i % len(LAWS)]
        graph = graphs["weighted" in name]
        stamps = {r.key: r.times if times == "edges" else graph.type(r.source).times for r in graph.relations}
        weighted, rule = "weighted" in name, {"moving": i % 5 == 0, "strict": i % 3 == 0, "window": [None, 20][i % 2]}
        seeds, when = rng.integers(0, 60, b), rng.integers(-3, 53, b)
        listed = SeedList.of(graph, {"paper": seeds}, when)
        chosen = listed.select([np.arange(b)] * 2, np.array([i, i + 1]))
        sampler = replace(made(name, frontier=("all", "new")[i % 2], **rule), stride=b)
        for minibatch in sampler.sample_bulk(adjacencies[weighted], chosen, Stream(i)):
            assert (minibatch.latest <= when - rule["strict"]).all()
            for of_layer, entries in zip(minibatch.blocks, minibatch.entries, strict=True):
                for key, block in of_layer.items():
                    if (time := stamps[key]) is None:
                        continue
                    trees = minibatch.rows[key[2]].trees[np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))]
                    drawn = time[entries[key]] if times == "edges" else time[minibatch.rows[key[0]].vertices[block.indices]]
                    assert (drawn <= when[trees] - rule["strict"]).all()
                    assert rule["window"] is None or (drawn >= when[trees] - rule["window"]).all()
                    count += len(drawn)
    return count


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: sample(library(), made("sage")), r"time was asked for, but graph 'library' has no times of edges"),
        (lambda: sample(library("edges"), made("sage", by="vertices")), r"has no times of vertices"),
        (lambda: sample(library("vertices"), made("sage"), times=None), r"the seeds have no times"),
        (
            lambda: sample(both(), made("sage")),
            r"both vertices and edges have times: type\(s\) paper, author and relation paper:cites",
        ),
        (lambda: sample(library("edges"), made("sage", window=3), starts=TIMES), r"got a window, and starts of the seeds besides"),
        (lambda: sample(library("edges"), made("sage"), times=None, starts=TIMES), r"starts were given without times"),
        (lambda: sample(library("edges"), made("sage"), times={"author": TIMES}), r"times: got those of author; give those of paper"),
        (lambda: made("replace", strategy="last"), r"strategy last takes the newest neighbors; use it with sage, without replace"),
        (lambda: made("labor", strategy="last"), r"strategy last"),
        (lambda: made("sage", moving=True, disjoint=False), r"a moving window belongs to a tree"),
        (lambda: TimeRule(strategy="first"), r"strategy was 'first'; use uniform, last"),
        (lambda: TimeRule(strict="no"), r"strict must be true or false; got 'no'"),
        (lambda: TimeRule(moving=1), r"moving must be true or false; got 1"),
        (lambda: TimeRule(window=-1), r"window must be a whole number"),
        (lambda: TimeRule(by="seeds"), r"by was 'seeds'; use auto, vertices, edges"),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises(UsageError, match=says):
        call()


def both():
    vertices, edges = library("vertices"), library("edges")
    return replace(vertices, relations=edges.relations)


def test_times_of_seeds_are_integers_or_dates():
    graph = library("vertices")
    with pytest.raises(UsageError, match=r"^times of seeds of type 'paper': got float64"):
        sample(graph, made("sage"), times=TIMES.astype(float))
    with pytest.raises(
        UsageError, match=r"^times of seeds of type 'paper': got int64 of shape \(3,\); use int64 or datetime64 of shape \(10,\)"
    ):
        sample(graph, made("sage"), times=[1, 2, 3])
    with pytest.raises(UsageError, match=r"^times of seeds of type 'paper': row 1 is NaT"):
        sample(graph, made("sage"), times=np.array(["2020", "NaT"] * 5, "datetime64[Y]"))
