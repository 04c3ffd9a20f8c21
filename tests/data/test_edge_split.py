"""Held-out edges: every edge is in one place, negatives are none and uniform, and the file keeps them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph, undirected
from zoo import complete

from bulksample import CSR, DataError, Graph, UsageError
from bulksample.data import edge_split as module
from bulksample.data import store
from bulksample.data.edge_split import FILE, HELD_OUT, HeldOutEdges, joined, reverses_left, split_edges
from bulksample.data.parts_writer import write_parts
from bulksample.data.sealed import sealed


def edges_of(a):
    return set(zip(a.indices.tolist(), a.row_of_entry().tolist(), strict=True))


@pytest.mark.parametrize("graph", [undirected(), community_graph(), community_graph(weighted=True)])
def test_every_edge_is_trained_on_or_held_out_once(graph):
    kept, held = split_edges(graph, 0.1, 0.2, 5, seed=3)
    whole, symmetric = edges_of(graph.adjacency), edges_of(graph.adjacency.transpose()) == edges_of(graph.adjacency)
    out = {}
    for split in HELD_OUT:
        pairs = [tuple(pair) for pair in held.pairs[split].tolist()]
        assert len(set(pairs)) == len(pairs)
        out[split] = set(pairs) | ({(v, u) for u, v in pairs} if symmetric else set())
        assert out[split] <= whole
    assert not out["val"] & out["test"]
    assert edges_of(kept.adjacency) == whole - out["val"] - out["test"]
    loops = sum(u == v for u, v in whole)
    examples = (len(whole) - loops) // (2 if symmetric else 1)
    assert [len(held.pairs[split]) for split in HELD_OUT] == [round(0.1 * examples), round(0.2 * examples)]
    if symmetric:
        turned = np.mean(np.concatenate([held.pairs[split][:, 0] > held.pairs[split][:, 1] for split in HELD_OUT]))
        assert 0.3 < turned < 0.7
    if graph.adjacency.values is not None:
        weight = dict(zip(zip(graph.adjacency.indices, graph.adjacency.row_of_entry(), strict=True), graph.adjacency.values, strict=True))
        rest = zip(kept.adjacency.indices, kept.adjacency.row_of_entry(), kept.adjacency.values, strict=True)
        assert all(weight[u, v] == w for u, v, w in rest)


@pytest.mark.long
@pytest.mark.parametrize("attempts", [module._ATTEMPTS, 0])
def test_negatives_are_uniform_and_no_edges(attempts, monkeypatch):
    """Also where all of them are chosen from a list."""
    monkeypatch.setattr(module, "_ATTEMPTS", attempts)
    graph = undirected(n=30)
    _, held = split_edges(graph, 0.1, 0.1, 600, seed=1)
    for split in HELD_OUT:
        for (source, _), negatives in zip(held.pairs[split], held.negatives[split], strict=True):
            assert not joined(graph.adjacency, np.full(600, source), negatives).any()
            assert source not in negatives
            neighbours = graph.adjacency.transpose().to_scipy()[[source]].indices
            fit = np.setdiff1d(np.arange(graph.n), np.append(neighbours, source))
            counts = np.bincount(negatives, minlength=graph.n)[fit]
            expected = 600 / len(fit)
            assert ((counts - expected) ** 2 / expected).sum() < 2.2 * len(fit) + 20


@pytest.mark.parametrize("both", [False, True])
def test_reverses_of_held_out_edges_are_counted_and_may_be_taken_out(both):
    """In a graph of which two thirds of the edges go both ways; the held-out edges are the same either way."""
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 200, (2, 2000))
    some = rng.random(2000) < 0.66
    graph = Graph(CSR.from_edges(np.concatenate([u, v[some]]), np.concatenate([v, u[some]]), (200, 200)))
    kept, held = split_edges(graph, 0.1, 0.2, 5, seed=3, both=both)
    _, plain = split_edges(graph, 0.1, 0.2, 5, seed=3)
    out = {split: {tuple(pair) for pair in held.pairs[split].tolist()} for split in HELD_OUT}
    turned = {(v, u) for pairs in out.values() for u, v in pairs}
    whole, remaining = edges_of(graph.adjacency), edges_of(kept.adjacency)
    assert remaining == whole - out["val"] - out["test"] - (turned if both else set())
    for split in HELD_OUT:
        share = np.mean([(v, u) in remaining for u, v in out[split]])
        assert reverses_left(kept, held)[split] == pytest.approx(share)
        assert (share == 0) == both
        assert np.array_equal(held.pairs[split], plain.pairs[split])
    assert reverses_left(*split_edges(undirected(), 0.1, 0.0, 5, seed=3)) == {"val": 0.0, "test": 0.0}


def test_the_same_seed_gives_the_same_split_and_another_one_another():
    (_, one), (_, same), (_, other) = (split_edges(undirected(), 0.1, 0.1, 7, seed) for seed in (5, 5, 6))
    for split in HELD_OUT:
        assert np.array_equal(one.pairs[split], same.pairs[split])
        assert np.array_equal(one.negatives[split], same.negatives[split])
        assert not np.array_equal(one.pairs[split], other.pairs[split])


def test_few_negatives_are_listed_and_none_is_an_error():
    leaves = np.arange(1, 40)
    star = CSR.from_edges(np.concatenate([0 * leaves, leaves]), np.concatenate([leaves, 0 * leaves]), (41, 41))  # and vertex 40 alone
    _, held = split_edges(Graph(star), 0.2, 0.0, 3, seed=0)
    assert 0 in held.pairs["val"][:, 0]
    for (source, _), negatives in zip(held.pairs["val"], held.negatives["val"], strict=True):
        assert set(negatives.tolist()) == {40} if source == 0 else not {0, source} & set(negatives.tolist())
    with pytest.raises(UsageError, match="has an edge to every other vertex"):
        split_edges(Graph(complete(12)), 0.2, 0.0, 3, seed=0)


@pytest.mark.parametrize(
    ("val", "test", "negatives", "why"),
    [
        (0.5, 0.5, 1, "add up to less than 1"),
        (-0.1, 0.1, 1, "got shares -0.1"),
        (0.1, 0.1, 0, "negatives: got 0 for each"),
        (0.1, 0.1, True, "negatives: got True for each"),
        (
            0.1,
            0.1,
            2**31 - 1,
            r"negatives for each of \d+ held-out edges take \d+ bytes of memory, and \d+ are free; use fewer",
        ),
        (0.0, 0.0, 1, "which hold nothing out"),
        (0.00001, 0.1, 1, r"val: a share of 1e-05 gives none of \d+ edges; use 0.\d+ or more, or 0"),
        (0.1, 0.00001, 1, "test: a share of 1e-05 gives none"),
        (0.4999, 0.4999, 1, "leave none for training"),
    ],
)
def test_what_has_no_meaning_is_refused(val, test, negatives, why):
    with pytest.raises(UsageError, match=why):
        split_edges(undirected(), val, test, negatives, 0)


def test_the_share_that_is_named_holds_one_edge_out():
    with pytest.raises(UsageError, match="use") as error:
        split_edges(undirected(), 0.00001, 0.1, 1, 0)
    share = float(str(error.value).split("use ")[1].split(" or more")[0])
    assert len(split_edges(undirected(), share, 0.1, 1, 0)[1].pairs["val"]) == 1


def test_the_file_of_another_split_is_refused(tmp_path):
    """Both files hold edges of one graph, held out by two seeds."""
    first, second = (split_edges(undirected(), 0.1, 0.1, 4, seed) for seed in (1, 2))
    for (graph, _), (_, held) in ((first, first), (second, second)):
        held.check_absent(graph.adjacency)
    shared = edges_of(first[0].adjacency) & {(u, v) for u, v in second[1].pairs["val"].tolist()}
    with pytest.raises(DataError, match=rf"{len(shared)} of the \d+ held-out edges of val are edges of the graph.*write both with"):
        second[1].check_absent(first[0].adjacency)
    with pytest.raises(DataError, match="of a graph of 7 vertices"):
        HeldOutEdges(7, {s: np.zeros((0, 2), np.int32) for s in HELD_OUT}, {s: np.zeros((0, 1), np.int32) for s in HELD_OUT}).check_absent(
            first[0].adjacency
        )
    store.save(first[0], tmp_path / "g", beside=second[1].save)
    with pytest.raises(DataError, match="that of another store"):
        store.verify(tmp_path / "g")


def test_the_file_belongs_to_its_store(tmp_path):
    """A store of as many vertices that has none of the held-out edges, but other features."""
    graph, held = split_edges(undirected(), 0.1, 0.1, 4, seed=1)
    store.save(graph, tmp_path / "own", beside=held.save)
    other = replace(graph, features=np.ones((graph.n, 2), np.float32))
    held.check_absent(other.adjacency)
    store.save(other, tmp_path / "other")
    shutil.copy(tmp_path / "own" / FILE, tmp_path / "other")
    with pytest.raises(DataError, match=r"^links.npz: belongs to another store than the one beside it; write both with `bulksample data"):
        store.verify(tmp_path / "other")
    held.save(tmp_path / "other")  # as earlier versions wrote it: names no store
    store.verify(tmp_path / "other")
    store.verify(tmp_path / "own")
    write_parts(tmp_path / "own", tmp_path / "parts", np.arange(graph.n) % 2, 2, "random", 0)
    assert np.array_equal(HeldOutEdges.load(tmp_path / "parts").pairs["val"], held.pairs["val"])


def test_the_file_keeps_them(tmp_path):
    graph, held = split_edges(community_graph(), 0.1, 0.1, 4, seed=2)
    store.save(graph, tmp_path / "g")
    with pytest.raises(UsageError, match="use a store that `bulksample data split-edges` wrote"):
        HeldOutEdges.load(tmp_path / "g")
    held.save(tmp_path / "g")
    found = HeldOutEdges.load(tmp_path / "g")
    store.verify(tmp_path / "g")
    for split in HELD_OUT:
        assert np.array_equal(found.pairs[split], held.pairs[split])
        assert np.array_equal(found.negatives[split], held.negatives[split])


@pytest.mark.parametrize(("change", "message"), [
    ({"val_pairs": np.zeros((3, 3), np.int32)}, r"use \(e, 2\) and \(e, K\)"), ({"n": np.array(1.5)}, "one number"),
    ({"test_negatives": np.full((5, 2), 3, np.int32)}, r"use \(e, 2\)"), ({"test_negatives": np.full((2, 2), 10)}, "from 0 to 9"),
    ({"val_pairs": np.full((2, 2), -1)}, "vertices from 0 to 9"), ({"val_pairs": np.zeros((2, 2))}, "vertices from 0 to 9"),
])  # fmt: skip
def test_files_that_are_wrong(tmp_path, change, message):
    fine = {f"{split}_{what}": np.zeros((2, 2), np.int32) for split in HELD_OUT for what in ("pairs", "negatives")} | {"n": np.array(10)}
    np.savez(tmp_path / FILE, **sealed(fine))
    HeldOutEdges.load(tmp_path)
    np.savez(tmp_path / FILE, **sealed(fine | change))
    with pytest.raises(DataError, match=message):
        HeldOutEdges.load(tmp_path)
    (tmp_path / FILE).write_bytes(b"PK")
    with pytest.raises(DataError, match=r"not an \.npz"):
        HeldOutEdges.load(tmp_path)
