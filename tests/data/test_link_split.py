"""Held-out edges of a graph: every edge is in one place, by time where there is one, its reverse goes too, and the file keeps them."""

import re
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph, undirected
from planted_relations import shop
from typer.testing import CliRunner

import bulksample as bs
from bulksample import DataError, Graph, UsageError, VertexType, relation_from_edges
from bulksample.cli.data import app
from bulksample.data import held_out_links
from bulksample.data.held_out_links import FILE, HELD_OUT, HeldOutLinks
from bulksample.data.link_split import hold_out, load_links, reverses_left, reverses_of
from bulksample.data.npy import sealed
from bulksample.data.parts_writer import write_parts

BUYS = ("user", "buys", "item")


def pairs_of(graph, name, turned=False):
    a = graph.relation(name).adjacency
    ends = (a.row_of_entry().tolist(), a.indices.tolist())
    return Counter(zip(*(ends if turned else ends[::-1]), strict=True))


@pytest.mark.parametrize("graph", [undirected(), community_graph(), community_graph(weighted=True)])
def test_every_edge_of_a_plain_graph_is_trained_on_or_held_out_once(graph):
    kept = hold_out(graph, "to", 0.1, 0.2, 5, seed=3)
    whole, symmetric = set(pairs_of(graph, "to")), pairs_of(graph, "to") == pairs_of(graph, "to", turned=True)
    held = [[tuple(pair) for pair in kept.held_out.pairs[split].tolist()] for split in HELD_OUT]
    out = {*held[0], *held[1]} | ({(v, u) for u, v in held[0] + held[1]} if symmetric else set())
    assert len(out) == (1 + symmetric) * (len(held[0]) + len(held[1]))
    assert set(pairs_of(kept, "to")) == whole - out
    assert kept.plain
    examples = (len(whole) - sum(u == v for u, v in whole)) // (1 + symmetric)
    assert [len(pairs) for pairs in held] == [round(0.1 * examples), round(0.2 * examples)]
    if symmetric:
        assert 0.3 < np.mean([u > v for u, v in held[0] + held[1]]) < 0.7
    if graph.adjacency.values is not None:
        weights = [dict(zip(pairs_of(one, "to"), one.adjacency.values.tolist(), strict=True)) for one in (graph, kept)]
        assert weights[1].items() <= weights[0].items()


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("dated", [False, True])
def test_reverses_in_nearly_undirected_relations_are_counted_and_may_be_taken_out(both, dated):
    """Within a type, and between two where a relation under another name has most of the reverses; a third one has few."""
    rng = np.random.default_rng(1)
    ends = {"knows": rng.integers(0, 90, (2, 900)), "has": np.stack([rng.integers(0, 90, 600), rng.integers(0, 60, 600)])}
    ends["knows"] = np.concatenate([ends["knows"], ends["knows"][::-1, :400]], axis=1)
    ends["of"], ends["seldom"] = ends["has"][::-1, :500], ends["has"][::-1, :20]
    a, b = VertexType("a", 90), VertexType("b", 60)
    kinds = {"knows": (a, a), "has": (a, b), "of": (b, a), "seldom": (b, a)}

    def made(name):
        times = rng.integers(0, 50, ends[name].shape[1]) if dated else None
        return relation_from_edges(kinds[name][0], name, kinds[name][1], *ends[name], times=times)

    graph = Graph.of((a, b), tuple(map(made, ends)))
    for name, near in (("knows", "knows"), ("has", "of")):
        split = hold_out(graph, name, 0.1, 0.1, 3, seed=0, both=both)
        pairs = [tuple(pair) for part in HELD_OUT for pair in split.held_out.pairs[part].tolist()]
        remaining = pairs_of(split, near)
        share = np.mean([pair[::-1] in remaining for pair in pairs])
        assert {key[1]: value for key, value in reverses_left(split).items()} == ({} if both else {near: pytest.approx(share)})
        shares = [np.mean([(v, u) in remaining for u, v in split.held_out.pairs[part].tolist()]) for part in HELD_OUT]
        assert [sum(reverses_left(split, [part]).values()) for part in HELD_OUT] == pytest.approx(shares)
        assert (share == 0) if both else (share > 0.3)
        assert pairs_of(split, "seldom") == pairs_of(graph, "seldom")
        if both and near != name:
            assert remaining == Counter({pair: n for pair, n in pairs_of(graph, near).items() if pair[::-1] not in pairs})


def test_parallel_edges_without_times_go_together_and_their_reverse_with_them():
    graph = shop()
    split = hold_out(graph, "buys", 0.1, 0.2, 5, seed=3)
    whole, kept = pairs_of(graph, "buys"), pairs_of(split, "buys")
    held = {part: [tuple(pair) for pair in split.held_out.pairs[part].tolist()] for part in HELD_OUT}
    assert [len(held[part]) for part in HELD_OUT] == [round(0.1 * len(whole)), round(0.2 * len(whole))]
    out = {*held["val"], *held["test"]}
    assert len(out) == len(held["val"]) + len(held["test"])
    assert kept == Counter({pair: times for pair, times in whole.items() if pair not in out})
    assert pairs_of(split, "rev_buys", turned=True) == kept
    assert pairs_of(split, "knows") == pairs_of(graph, "knows")
    assert (split.held_out.relation, split.held_out.reverses) == (BUYS, (("item", "rev_buys", "user"),))
    other = hold_out(graph, "buys", 0.1, 0.2, 5, seed=4)
    assert not np.array_equal(other.held_out.pairs["val"], split.held_out.pairs["val"])


@pytest.mark.parametrize("kind", ["times", "edge_times"])
def test_the_latest_edges_are_held_out_and_those_of_one_time_go_together(kind):
    graph = shop(**{kind: True})
    split = hold_out(graph, BUYS, 0.2, 0.2, 4, seed=0)
    held, relation = split.held_out, graph.relation(BUYS)
    users, items = graph.types
    a = relation.adjacency
    when = relation.times if relation.times is not None else np.maximum(users.times[a.indices], items.times[a.row_of_entry()])
    kept = np.isin(relation.ids_of(np.arange(relation.edges)), split.relation(BUYS).edge_ids)
    assert kept.sum() == split.relation(BUYS).edges
    latest = when[kept].max()
    assert latest < held.times["val"].min() <= held.times["val"].max() < held.times["test"].min()
    gone = Counter(zip(a.indices[~kept].tolist(), a.row_of_entry()[~kept].tolist(), when[~kept].tolist(), strict=True))
    listed = [(*pair, t) for part in HELD_OUT for pair, t in zip(held.pairs[part].tolist(), held.times[part].tolist(), strict=True)]
    assert set(listed) == set(gone)
    assert len(listed) == len(set(listed))
    assert pairs_of(split, "rev_buys", turned=True) == pairs_of(split, "buys")
    if relation.times is not None:
        assert split.relation("rev_buys").times.max() == latest
        assert any(times > 1 for times in pairs_of(split, "buys").values()), "earlier purchases of the same item stay"


@pytest.mark.parametrize(("graph", "name"), [(shop(), "buys"), (shop(times=True), "buys"), (undirected(n=40), "to")])
def test_negatives_are_uniform_among_those_that_exist_and_have_no_edge(graph, name):
    held = hold_out(graph, name, 0.1, 0.1, 400, seed=1).held_out
    whole, born, plain = pairs_of(graph, name), graph.type(held.relation[2]).times, graph.plain
    for part in HELD_OUT:
        for i, (source, _) in enumerate(held.pairs[part].tolist()):
            fit = [w for w in range(40) if (source, w) not in whole and (born is None or born[w] <= held.times[part][i])]
            fit = [w for w in fit if w != source or not plain]
            counts = np.bincount(held.negatives[part][i], minlength=40)
            assert counts.sum() == counts[fit].sum()
            assert ((counts[fit] - 400 / len(fit)) ** 2 / (400 / len(fit))).sum() < 2.2 * len(fit) + 20


def test_an_undirected_relation_is_its_own_reverse():
    one = VertexType("a", 30)
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 30, (2, 80))
    graph = Graph.of((one,), (relation_from_edges(one, "to", one, np.concatenate([u, v]), np.concatenate([v, u])),))
    assert reverses_of(graph, graph.relations[0]) == (("a", "to", "a"),)
    split = hold_out(graph, "to", 0.1, 0.2, 3, seed=0)
    kept = pairs_of(split, "to")
    assert kept == pairs_of(split, "to", turned=True)
    out = [tuple(pair) for part in HELD_OUT for pair in split.held_out.pairs[part].tolist()]
    assert all(a != b and (a, b) not in kept and (b, a) not in kept for a, b in out)
    edges = len({frozenset(pair) for pair in zip(u.tolist(), v.tolist(), strict=True) if pair[0] != pair[1]})
    assert len({frozenset(pair) for pair in out}) == len(out) == round(0.1 * edges) + round(0.2 * edges)
    assert 0 < sum(a > b for a, b in out) < len(out)


@pytest.mark.parametrize(("graph", "name"), [(shop(edge_times=True), "buys"), (undirected(), "to")])
def test_the_file_keeps_them(graph, name, tmp_path):
    split = hold_out(graph, name, 0.1, 0.1, 3, seed=0)
    split.save(tmp_path / "g")
    found, held = load_links(split, tmp_path / "g").held_out, split.held_out
    assert (found.relation, found.reverses) == (held.relation, held.reverses)
    for name in ("pairs", "negatives", "times") if held.times else ("pairs", "negatives"):
        assert all(np.array_equal(getattr(found, name)[part], getattr(held, name)[part]) for part in HELD_OUT)
    if graph.plain:
        write_parts(tmp_path / "g", tmp_path / "parts", np.arange(graph.n) % 2, 2, "random", 0)
        assert np.array_equal(HeldOutLinks.load(tmp_path / "parts").pairs["val"], held.pairs["val"])
    with pytest.raises(UsageError, match="use a store that `bulksample data split-edges` wrote"):
        HeldOutLinks.load(tmp_path)


@pytest.mark.parametrize(("change", "message"), [
    ({"val_pairs": np.zeros((3, 3), np.int32)}, r"use \(e, 2\) and \(e, K\)"), ({"test_negatives": np.full((5, 2), 3)}, r"use \(e, 2\)"),
    ({"test_negatives": np.full((2, 2), 10)}, "from 0 to 9"), ({"val_pairs": np.full((2, 2), -1)}, "vertices from 0 to 9"),
    ({"val_pairs": np.zeros((2, 2))}, "vertices from 0 to 9"), ({"schema": np.frombuffer(b"[]", np.uint8)}, "its schema names no relation"),
    ({"schema": np.frombuffer(b'{"relation": ["a", "b", "c"], "reverses": [], "timed": false}', np.uint8)}, "no relation a:b:c"),
])  # fmt: skip
def test_files_that_are_wrong(tmp_path, change, message):
    """The files have the form of earlier versions, which names no relation, unless the change gives one."""
    fine = {f"{split}_{what}": np.zeros((2, 2), np.int32) for split in HELD_OUT for what in ("pairs", "negatives")} | {"n": np.array(10)}
    undirected(n=10).save(tmp_path / "g")
    np.savez(tmp_path / "g" / FILE, **sealed(fine))
    assert HeldOutLinks.load(tmp_path / "g").relation == ("node", "to", "node")
    if "schema" in change:
        fine = {f"{split}_times": np.empty(0, np.int64) for split in HELD_OUT} | {key: fine[key] for key in fine if key != "n"}
    np.savez(tmp_path / "g" / FILE, **sealed(fine | change))
    with pytest.raises(DataError, match=message):
        HeldOutLinks.load(tmp_path / "g")
    (tmp_path / "g" / FILE).write_bytes(b"PK")
    with pytest.raises(DataError, match=r"not an \.npz"):
        HeldOutLinks.load(tmp_path / "g")


@pytest.mark.parametrize("kind", [{}, {"times": True}, {"edge_times": True}])
def test_a_file_of_another_split_is_refused(kind, tmp_path):
    """Its edges, at their times, are counted by hand among those of the graph."""
    graph, own = shop(**kind), hold_out(shop(**kind), BUYS, 0.1, 0.1, 3, seed=0)
    other = hold_out(graph, BUYS, 0.2, 0.2, 3, seed=1)
    own.save(tmp_path / "g")
    assert load_links(own, tmp_path / "g").held_out is not None
    if "edge_times" in kind:
        known = set(pairs_of(own, "buys"))
        assert any(tuple(pair) in known for pair in own.held_out.pairs["test"].tolist()), "an earlier purchase is no held-out edge"
    other.held_out.save(tmp_path / "g")
    there = set(events_of(own, "buys"))
    held = other.held_out
    times = [None] * len(held.pairs["val"]) if held.times is None or "times" in kind else held.times["val"].tolist()
    count = sum((u, v, t) in there for (u, v), t in zip(held.pairs["val"].tolist(), times, strict=True))
    assert count
    said = rf"links.npz: {count} of the {len(times)} held-out edges of val are edges of relation user:buys:item"
    with pytest.raises(DataError, match=said):
        load_links(own, tmp_path / "g")
    own.held_out.save(tmp_path / "g")
    forward = replace(graph, relations=(own.relation(BUYS), *graph.relations[1:]))
    with pytest.raises(DataError, match=rf"links.npz: \d+ of the {len(own.held_out.pairs['val'])} .* of relation item:rev_buys:user"):
        load_links(forward, tmp_path / "g")


def test_a_file_belongs_to_its_store(tmp_path):
    """The other store holds the same edges, and a type more."""
    own = hold_out(shop(), BUYS, 0.1, 0.1, 3, seed=0)
    own.save(tmp_path / "own")
    other = replace(own, types=(*own.types, VertexType("shop", 3)), held_out=None)
    other.save(tmp_path / "other")
    shutil.copy(tmp_path / "own" / "links.npz", tmp_path / "other")
    with pytest.raises(DataError, match=r"^links.npz: belongs to another store than the one beside it; write both with `bulksample data"):
        load_links(other, tmp_path / "other")
    own.held_out.save(tmp_path / "other")  # as earlier versions wrote it: names no store
    assert load_links(other, tmp_path / "other").held_out is not None


def events_of(graph, name):
    relation = graph.relation(name)
    a = relation.adjacency
    times = [None] * a.nnz if relation.times is None else relation.times.tolist()
    return zip(a.indices.tolist(), a.row_of_entry().tolist(), times, strict=True)


@pytest.mark.parametrize("kind", ["homogeneous", "relation", "graph"])
def test_a_store_and_its_held_out_edges_appear_together(kind, tmp_path, monkeypatch):
    """Interrupted while the links are written: no store is there without them, and an older one stays whole."""
    whole = shop()
    (whole if kind != "homogeneous" else bs.from_edges(*np.arange(200).reshape(2, 100))).save(tmp_path / "g")
    options = ["--relation", "buys"] if kind == "relation" else []

    def write(*more):
        if kind == "graph":
            hold_out(whole, "buys", 0.1, 0.1, 3, seed=0).save(tmp_path / "s", overwrite=bool(more))
        else:
            command = [*options, "--val", "0.1", "--negatives", "3", "-o", str(tmp_path / "s"), *more]
            result = CliRunner().invoke(app, ["split-edges", str(tmp_path / "g"), *command])
            if result.exception is not None:
                raise result.exception

    def interrupted(path, arrays, store):
        raise Interrupted("killed")

    monkeypatch.setattr(held_out_links, "save_sealed", interrupted)
    with pytest.raises(Interrupted, match="killed"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    monkeypatch.undo()
    write()
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    assert "links.npz" in before
    monkeypatch.setattr(held_out_links, "save_sealed", interrupted)
    with pytest.raises(Interrupted, match="killed"):
        write("--overwrite")
    assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before


class Interrupted(Exception):
    """In the place of a kill."""


@pytest.mark.parametrize(("arguments", "message"), [
    (("buys", 0.5, 0.5, 3), "add up to less than 1"), (("buys", 0.1, 0.1, 0), "negatives: got 0 for each held-out edge; use a whole"),
    (("buys", 0.1, 0.1, 2.5), r"negatives: got 2\.5"), (("buys", 0.0, 0.0, 3), "hold nothing out"),
    (("buys", -0.1, 0.1, 3), r"got shares -0\.1"), (("buys", 0.1, 0.1, True), "negatives: got True for each"),
    (("knows", 0.1, 0.1, 2**31 - 1), r"negatives for each of \d+ held-out edges take \d+ bytes of memory, and \d+ are free; use fewer"),
    (("sells", 0.1, 0.1, 3), r"has no relation\(s\) 'sells'"), (("buys", 0.495, 0.5, 3), "go together, and those leave none"),
])  # fmt: skip
def test_what_cannot_be_held_out_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        hold_out(shop(edge_times=True), *arguments, seed=0)


def dated(counts):
    """So many edges at the times 0, 1, 2, ... from 40 vertices to 40."""
    one, other = VertexType("a", 40), VertexType("b", 40)
    when = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(when))
    ends = place % 40, place // 40  # no pair twice, so that events are edges
    return Graph.of((one, other), (relation_from_edges(one, "r", other, *ends, times=when),))


@pytest.mark.parametrize(("counts", "val", "test", "use"), [
    ([20] * 5, 0.05, 0.05, (0.2, 0.2)), ([70, 3, 27], 0.1, 0.1, (0.03, 0.27)), ([301, 41, 7, 150], 0.2, 0.1, (0.014, 0.3)),
])  # fmt: skip
def test_a_share_that_gives_no_edges_is_refused_with_shares_that_do(counts, val, test, use):
    graph = dated(counts)
    said = f"val: a share of {val:g} gives none of {sum(counts)} edges, which have {len(counts)} distinct times"
    with pytest.raises(UsageError, match=said) as caught:
        hold_out(graph, "r", val, test, 3, seed=0)
    found = re.search(r"use val (\S+) and test ([0-9.]+[0-9])", str(caught.value))
    assert [float(one) for one in found.groups()] == pytest.approx(use, abs=1e-3)
    held = hold_out(graph, "r", *map(float, found.groups()), 3, seed=0).held_out
    assert [len(held.pairs[part]) for part in HELD_OUT] == counts[-2:], "the latest two times"


def test_two_times_leave_nothing_to_validate_with():
    with pytest.raises(UsageError, match=r"have 2 distinct times.*use val 0"):
        hold_out(dated([50, 50]), "r", 0.1, 0.1, 3, seed=0)
    assert len(hold_out(dated([50, 50]), "r", 0, 0.4, 3, seed=0).held_out.pairs["test"]) == 50


@pytest.mark.parametrize("part", HELD_OUT)
def test_a_share_of_less_than_one_edge_is_refused(part):
    shares = {"val": 0.2, "test": 0.2, part: 0.004}
    with pytest.raises(UsageError, match=rf"{part}: a share of 0.004 gives none of 100 edges; use 0\.01 or more, or 0"):
        hold_out(shop_of(100), "r", *shares.values(), 3, seed=0)
    assert len(hold_out(shop_of(100), "r", *(shares | {part: 0.01}).values(), 3, seed=0).held_out.pairs[part]) == 1


def shop_of(edges):
    graph = dated([edges])
    return replace(graph, relations=(replace(graph.relations[0], times=None),))


@pytest.mark.parametrize(("counts", "val", "test", "off"), [
    ([50, 10, 10, 15, 15], 0.1, 0.1, []), ([50, 15, 15, 20], 0.15, 0.1, ["test"]), ([50, 20, 10, 20], 0.25, 0.2, []),
    ([30, 49, 1, 20], 0.19, 0.2, ["val"]), ([40, 30, 30], 0.19, 0.19, ["val", "test"]),
])  # fmt: skip
def test_a_share_that_is_far_off_is_told(counts, val, test, off):
    """Off by more than half of what was asked for; counted from the file that is written."""
    graph = hold_out(dated(counts), "r", val, test, 3, seed=0)
    held = graph.held_out
    got = {part: len(held.pairs[part]) / sum(counts) for part in HELD_OUT}
    assert [part for part, asked in (("val", val), ("test", test)) if abs(got[part] - asked) > asked / 2] == off
    assert [warning.partition(":")[0] for warning in graph.warnings] == off
    for warning, part in zip(graph.warnings, off, strict=True):
        assert f"{got[part]:.3g} of the edges" in warning
        assert f"{len(counts)} distinct times" in warning


def test_a_source_with_an_edge_to_every_destination_has_no_negative():
    one, other = VertexType("a", 2), VertexType("b", 2)
    graph = Graph.of((one, other), (relation_from_edges(one, "r", other, [0, 0, 1], [0, 1, 1]),))
    with pytest.raises(UsageError, match="vertex 0 has an edge to every destination, so it has no negative"):
        hold_out(graph, "r", 0.0, 0.6, 3, seed=0)


def test_a_changed_graph_of_links_keeps_them():
    graph = hold_out(shop(), ("user", "buys", "item"), 0.1, 0.1, 4, seed=0)
    again = graph.replace(name="other")
    assert (again.name, again.held_out, again.types) == ("other", graph.held_out, graph.types)
