"""Link prediction: examples are edges and no edges, scores are those of plain loops, and every method that hosts it learns."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph, undirected
from launch import run_alone
from sweeps import sweep
from training_runs import run_training, weights_of

from bulksample import DataError, UsageError, backends, samplers
from bulksample.data import store
from bulksample.data.held_out_links import HELD_OUT, HeldOutLinks
from bulksample.data.link_split import hold_out
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.evaluation.by_batches import BatchScoring
from bulksample.evaluation.links import evaluate_links, ranks
from bulksample.methods.options import AVERAGING
from bulksample.nn.decoders import LinkModel
from bulksample.nn.model import Gnn
from bulksample.samplers.full import Full
from bulksample.training.link_batches import EdgeLoader, without_labels
from bulksample.views.plain_view import whole_view

SMALL = {"fanouts": (5, 5), "hidden": 16, "lr": 0.01, "threads": 1, "quiet": True}
LINKS = {"task": "links", "dropout": 0.0, "batch_size": 200, "epochs": 3}


def trained(source, comm=None, **options):
    """Train, and return the report, the recorder and the trainer."""
    return run_training(source, comm, **{**SMALL, **options})


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links") / "g"
    graph = hold_out(community_graph(n=400, degree=12, noise=0.7), "to", 0.1, 0.1, 20, seed=0)
    graph.save(folder)
    return folder


def view_of(graph):
    return whole_view(without_labels(graph), SerialComm(), backends.make("reference"), "", "all")


def edge_loader(graph, **options):
    return EdgeLoader(view_of(graph), samplers.make("sage", (3,)), **{"batch_size": 32, "bulk_size": 4, "seed": 7, **options})


@pytest.mark.parametrize(("metric", "fits"), [("hits@20", True), ("hits@21", False)])
def test_hits_at_more_ranks_than_there_are_negatives_are_refused(stored, metric, fits):
    asked = {**LINKS, "metric": metric, "epochs": 1}
    if fits:
        assert 0 < trained(stored, **asked)[0]["val_hits@20"] <= 1
    else:
        with pytest.raises(UsageError, match="metric: got hits@21, and each held-out edge of val is ranked among 20 negatives"):
            trained(stored, **asked)
        with pytest.raises(UsageError, match="metric: got hits@21"):
            trained(stored, **asked, method="psgd-pa")


def test_the_held_out_edges_of_another_split_are_refused_before_training(stored, tmp_path):
    """They would be trained on."""
    other = hold_out(community_graph(n=400, degree=12, noise=0.7), "to", 0.1, 0.1, 20, seed=1)
    store.save(store.load(stored), tmp_path / "g", beside=other.held_out.save)
    with pytest.raises(DataError, match="held-out edges of val are edges of the graph"):
        trained(tmp_path / "g", **LINKS)


@pytest.mark.parametrize("graph", [undirected(), community_graph(), community_graph(weighted=True)])
def test_examples_are_all_edges_once_and_vertices_that_are_no_neighbours(graph):
    loader, a = edge_loader(graph), graph.adjacency
    epochs = []
    for _ in range(2):
        found = [minibatch.seeds.reshape(3, -1) for minibatch in loader]
        source, destination, other = np.concatenate(found, axis=1)
        edges = sorted(zip(destination.tolist(), source.tolist(), strict=True))
        assert edges == [(row, column) for row, column in zip(a.row_of_entry().tolist(), a.indices.tolist(), strict=True) if row != column]
        assert not {*zip(other.tolist(), source.tolist(), strict=True)} & {*zip(a.row_of_entry().tolist(), a.indices.tolist(), strict=True)}
        assert not (source == other).any()
        epochs.append((source, other))
    assert not np.array_equal(epochs[0][0], epochs[1][0])
    counts = np.bincount(np.concatenate([other for _, other in epochs]), minlength=graph.n)
    assert counts.min() >= 0 < counts.max() < 6 * counts.mean() + 10


def test_examples_depend_on_no_rank_and_no_bulk():
    graph = community_graph()
    whole = [minibatch.seeds for minibatch in edge_loader(graph)]
    assert all(np.array_equal(one.seeds, other) for one, other in zip(edge_loader(graph, bulk_size=1), whole, strict=True))
    for rank in range(3):
        own = [minibatch for minibatch in edge_loader(graph, rank=rank, ranks=3) if minibatch is not None]
        assert all(np.array_equal(one.seeds, other) for one, other in zip(own, whole[rank::3], strict=True))
    wide = np.concatenate([minibatch.seeds.reshape(3, -1) for minibatch in edge_loader(graph, batch_size=100)], axis=1)
    assert np.array_equal(wide, np.concatenate([seeds.reshape(3, -1) for seeds in whole], axis=1))


def sampled(minibatch):
    """The edges of every block, as destination and source in the graph."""
    for block in minibatch.blocks:
        row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
        yield list(zip(minibatch.vertices[row].tolist(), minibatch.vertices[block.indices].tolist(), strict=True)), block


@pytest.mark.parametrize("graph", [undirected(), community_graph(weighted=True)])
@pytest.mark.parametrize(("exclude", "ways"), [("none", []), ("self", [1]), ("both", [1, -1])])
@sweep(("name", "fanouts", "frontier"), [("sage", (4, 4), "all"), ("full", (-1, -1), "new"), ("ladies", (40, 40), "all")])
def test_the_targets_of_a_minibatch_are_not_among_its_messages(graph, exclude, ways, name, fanouts, frontier):
    def minibatches(what):
        sampler = samplers.make(name, fanouts, frontier=frontier)
        return list(EdgeLoader(view_of(graph), sampler, exclude=what, batch_size=32, bulk_size=4, seed=7))

    lost = 0
    for found, whole in zip(minibatches(exclude), minibatches("none"), strict=True):
        source, destination, _ = found.seeds.reshape(3, -1)
        pairs = np.column_stack([destination, source])
        targets = {tuple(pair) for way in ways for pair in pairs[:, ::way].tolist()}
        assert np.array_equal(found.vertices, whole.vertices)
        for (edges, block), (all_edges, all_of_it) in zip(sampled(found), sampled(whole), strict=True):
            keep = [edge not in targets for edge in all_edges]
            assert edges == [edge for edge, kept in zip(all_edges, keep, strict=True) if kept]
            assert block.weights is None or np.array_equal(block.weights, all_of_it.weights[keep])
            lost += len(all_edges) - len(edges)
    assert (lost > 0) == bool(ways)


@pytest.mark.parametrize("method", ["sync", *AVERAGING])
def test_every_method_of_links_leaves_targets_out_where_asked(stored, method):
    asked = {**LINKS, "method": method, "epochs": 1, "sampler": "full"}
    with_targets, without = (weights_of(trained(stored, **asked, exclude_targets=what)[2]) for what in ("none", "both"))
    assert torch.equal(with_targets, weights_of(trained(stored, **asked)[2]))
    assert not torch.equal(with_targets, without)


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_ranks_are_those_of_a_plain_loop(decoder):
    rng = np.random.default_rng(0)
    model = LinkModel(Gnn("sage", [4, 6, 6]), decoder, 6)
    z = torch.from_numpy(rng.integers(-1, 2, (30, 6)).astype(np.float32))  # many ties
    pairs, negatives = rng.integers(0, 30, (50, 2)), rng.integers(0, 30, (50, 9))
    found = ranks(model, z, pairs, negatives)
    with torch.no_grad():
        for rank, (u, v), others in zip(found, pairs, negatives, strict=True):
            true = float(model.score(z[u], z[v]))
            false = [float(model.score(z[u], z[w])) for w in others]
            close = sum(abs(one - true) < 1e-6 for one in false)
            assert rank == pytest.approx(1 + sum(one > true + 1e-6 for one in false) + close / 2, abs=close / 2 if decoder == "mlp" else 0)
    assert ranks(model, torch.zeros(30, 6), pairs, negatives).tolist() == [5.5] * 50  # all alike: the middle


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_ranks_do_not_depend_on_how_pairs_are_chunked(decoder, monkeypatch):
    """All numbers are eighths, so no sum is rounded."""
    rng = np.random.default_rng(3)
    model = LinkModel(Gnn("sage", [4, 6, 6]), decoder, 6)
    for parameter in model.parameters():
        parameter.data = (8 * parameter.data).round() / 8
    z = torch.from_numpy(rng.integers(-3, 4, (30, 6)).astype(np.float32))
    pairs, negatives = rng.integers(0, 30, (50, 2)), rng.integers(0, 30, (50, 9))
    whole = ranks(model, z, pairs, negatives)
    for chunk in (1, 7 * 9 * 6, 50 * 9 * 6):
        monkeypatch.setattr("bulksample.evaluation.links._CHUNK_NUMBERS", chunk)
        assert np.array_equal(ranks(model, z, pairs, negatives), whole)


@pytest.mark.parametrize("width", [1, 6, 300])
@pytest.mark.parametrize("count", [0, 1, 5000])
@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_scores_of_pairs_and_their_gradient_are_those_of_gathered_rows(decoder, width, count):
    rng = torch.Generator().manual_seed(width)
    model = LinkModel(Gnn("sage", [4, 6, width]), decoder, width).double()
    z, outer = (torch.randn(shape, generator=rng, dtype=torch.float64) for shape in ((40, width), (2, count)))
    rows = torch.randint(0, 40, (3 * count,), generator=rng)  # pairs again, and vertices with themselves
    source, destination, other = rows.chunk(3) if count else (rows, rows, rows)

    def plain(z):
        return model.score(z[source], z[destination]), model.score(z[source], z[other])

    def found(scores, dtype, outer):
        leaf = z.to(dtype, copy=True).requires_grad_()
        made = scores(leaf)
        sum((one * weight).sum() for one, weight in zip(made, outer.to(dtype), strict=True)).backward()
        return *(one.detach() for one in made), leaf.grad

    spread = torch.ones(2, dtype=torch.float64)  # what reaches the scores is one number, for all of them
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        model.to(dtype)
        for reaching in (outer, spread):
            ours, theirs = (found(scores, dtype, reaching) for scores in (lambda z: model.scores(z, rows), plain))
            assert all(map(torch.equal, ours[:2], theirs[:2]))
            assert torch.allclose(ours[2], theirs[2], rtol=tolerance, atol=tolerance * width)


def test_scores_are_means_over_pairs_and_do_not_depend_on_ranks(stored):
    graph, held = store.load(stored), HeldOutLinks.load(stored)
    model = LinkModel(Gnn("gcn", [8, 16, 16], seed=1), "dot", 16)

    def rank(comm):
        view = whole_view(without_labels(graph), comm, backends.make("reference"), "", "all")
        return evaluate_links(model, view, held, comm, [1, 10], BatchScoring(Full((-1, -1)), 64))

    alone = rank(SerialComm())
    for one in on_threads(3, rank):
        assert one.keys() == alone.keys()
        assert all(one[key] == pytest.approx(alone[key], abs=0.01) for key in one)  # near ties fall either way
    assert alone["val_hits@1"] <= alone["val_mrr"] <= 1
    assert alone["val_hits@1"] <= alone["val_hits@10"]


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_the_loss_is_binary_cross_entropy(stored, decoder):
    _, recorder, trainer = trained(stored, **{**LINKS, "decoder": decoder, "batch_size": 10**6, "epochs": 1, "sampler": "full"})
    again = trained(stored, **{**LINKS, "decoder": decoder, "batch_size": 10**6, "epochs": 0, "sampler": "full"})[2]
    minibatch = next(iter(again.context.batches.loader))
    x, degrees = again.context.view.features.fetch(minibatch.vertices), again.context.view.degrees(minibatch.vertices)
    z = again.model(minibatch.blocks, x, degrees)
    place = {int(v): i for i, v in enumerate(minibatch.vertices)}
    rows = torch.tensor([place[int(v)] for v in minibatch.seeds])
    source, destination, other = z[rows].chunk(3)
    scores = torch.cat([again.model.score(source, destination), again.model.score(source, other)])
    truth = torch.cat([torch.ones(len(source)), torch.zeros(len(source))])
    assert recorder.losses[0] == pytest.approx(F.binary_cross_entropy_with_logits(scores, truth).item(), rel=1e-5)
    assert trainer.context.progress.steps == 1


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"decoder": "mlp", "model": "gcn"}, {"method": "super-tma", "clusters": 20}])
@sweep("p", [1, 3])
def test_it_learns(stored, options, p):
    before = trained(stored, **{**LINKS, "epochs": 0, **options})[2]
    untrained = before.method.scores(before.model, before.context.view, SerialComm())
    asked = {**LINKS, "epochs": 12, "metric": "hits@3", **options}
    report = on_threads(p, lambda comm: trained(stored, comm, **asked)[0])[0]
    assert report["test_mrr"] > 1.3 * untrained["test_mrr"]
    assert report["test_mrr"] > 0.3  # a decoder that knows nothing has 0.17
    assert {"val_hits@3", "val_hits@10", "test_hits@3"} <= report.keys()


@pytest.mark.long
@pytest.mark.parametrize("method", AVERAGING)
def test_averaging_alone_and_with_one_trainer_is_plain_training_to_the_bit(stored, method):
    more = {"server_steps": 0} if method == "llcg" else {}
    expected = trained(stored, **LINKS)[2]
    for p in (1, 2):
        found = on_threads(p, lambda comm: trained(stored, comm, method=method, **LINKS, **more)[2])[0]
        assert torch.equal(weights_of(found), weights_of(expected))


def test_llcg_corrects_on_all_edges(stored):
    report, _, trainer = on_threads(3, lambda comm: trained(stored, comm, method="llcg", server_steps=2, interval="2", **LINKS))[0]
    assert {int(state["step"]) for state in trainer.method._adam.state.values()} == {2 * report["averages"]}


@pytest.mark.parametrize(("options", "message"), [
    ({"method": "full"}, "with the methods sync"), ({"metric": "accuracy"}, "use mrr, hits@10"),
    ({"sampler": "saint"}, "saint adds seeds of its own"),
    ({"cache_by": "frequency", "cache_bytes": 9, "graph": "partitioned"}, "cache_by frequency counts mini-batches of seeds"),
    ({"task": "nodes", "exclude_targets": "self"}, "an option of edges as examples"),
    ({"task": "nodes", "metric": "mrr"}, "accuracy, f1"), ({"task": "nodes", "decoder": "mlp"}, "an option of link prediction"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    with pytest.raises(UsageError, match=message):
        trained(stored, **{**LINKS, **options})


@pytest.mark.parametrize("placed", [{}, {"graph": "partitioned"}, {"features": "machine"}, {"method": "random-tma"}])
def test_graphs_without_held_out_edges_are_refused(tmp_path, placed):
    """By the name of the graph that the user gave, also where it would be written to a folder first."""
    store.save(community_graph(), tmp_path / "g")
    for source, named in ((community_graph(), "graph 'communities' in memory"), (tmp_path / "g", str(tmp_path / "g"))):
        with pytest.raises(UsageError, match=f"^{named} has no held-out edges; use .*split-edges"):
            trained(source, **LINKS, **placed)


@pytest.mark.parametrize("placed", [{"graph": "partitioned"}, {"features": "partitioned"}, {"features": "machine"}])
def test_a_graph_in_memory_keeps_its_held_out_edges_where_ranks_read_a_store(stored, placed):
    graph = hold_out(community_graph(n=400, degree=12, noise=0.7), "to", 0.1, 0.1, 20, seed=0)
    asked = {**LINKS, **placed, "epochs": 1}
    found, expected = (on_threads(2, lambda comm, source=source: trained(source, comm, **asked)[0])[0] for source in (graph, stored))
    for key in ("train_loss", "val_mrr", "test_mrr"):
        assert found[key] == expected[key]


@pytest.mark.parametrize(("p", "options"), [
    (2, {"graph": "partitioned", "exclude_targets": "both"}), (4, {"graph": "partitioned", "replication": 2, "partition": "random"}),
    (4, {"graph": "partitioned", "exchange": "rows", "model": "gcn", "partition": "random", "grid_order": "columns", "replication": 2}),
    (2, {"features": "partitioned", "cache_bytes": 900}), (2, {"topology": "partitioned", "features": "host"}),
])  # fmt: skip
def test_where_the_graph_lies_changes_no_run(stored, p, options):
    """The replicated run is the oracle: its losses to the bit, and its scores but for ties that rounding breaks."""
    asked = {"fanouts": (3, 3), "hidden": 8, **LINKS, "epochs": 2, "batch_size": 150, **options}
    whole = {key: asked[key] for key in asked if key in ("fanouts", "hidden", *LINKS, "exclude_targets", "model")}
    found, expected = (on_threads(p, lambda comm, given=given: trained(stored, comm, **given)[:2])[0] for given in (asked, whole))
    assert found[1].losses == expected[1].losses
    for key in ("val_mrr", "test_mrr", "test_hits@10"):
        assert found[0][key] == pytest.approx(expected[0][key], abs=0.01)


def test_parts_and_a_graph_in_memory_are_trained_on_alike(stored, tmp_path):
    graph = hold_out(community_graph(n=400, degree=12, noise=0.7), "to", 0.1, 0.1, 20, seed=0)
    write_parts(stored, tmp_path / "parts", np.arange(400) * 7 % 2, 2, "random", 0)
    losses = [
        on_threads(2, lambda comm, source=source: trained(source, comm, **LINKS)[1].losses)[0]
        for source in (stored, graph, tmp_path / "parts")
    ]
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.long
def test_the_command_line(tmp_path):
    store.save(community_graph(), tmp_path / "g")
    split = ["data", "split-edges", tmp_path / "g", "-o", tmp_path / "l", "--val", 0.1, "--negatives", 10, "--json", tmp_path / "s"]
    train = ["train", tmp_path / "l", "--task", "links", "--decoder", "mlp", "--epochs", 1, "--fanouts", "3,3", "--hidden", 8, "--quiet"]
    for words in (split, [*train, "--json", tmp_path / "r"]):
        done = run_alone(["-m", "bulksample", *words])
        assert done.returncode == 0, done.stderr
    sampled, report = (json.loads((tmp_path / name).read_text()) for name in ("s", "r"))
    held = HeldOutLinks.load(tmp_path / "l")
    assert all(sampled[f"{split}_edges"] == len(held.pairs[split]) > 0 for split in HELD_OUT)
    assert 0 < report["test_mrr"] < 1
