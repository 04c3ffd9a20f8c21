"""CoFree-GNN: one part is full-graph training, every edge lies once, copies add up to their vertex, and gradients alone travel."""

import json

import numpy as np
import pytest
import torch
from communities import community_graph, dense_adjacency
from launch import run_ranks
from training_runs import weights_and_report, weights_of

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.cofree import CoFree, part_of_edges, thinned
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

SMALL = {"layers": 2, "hidden": 6, "epochs": 5, "lr": 0.01, "threads": 1, "eval_every": 5, "partition": "random"}
COFREE = {**SMALL, "method": "cofree"}
CUTS = ("random", "degree")


def made(directory, comm, **options):
    return make_trainer(TrainConfig.of(**{**COFREE, **options}), directory, comm)


def trained(directory, comm, **options):
    return weights_and_report(directory, comm, **{**COFREE, **options})


@pytest.mark.parametrize(
    ("name", "model"), [("plain", "sage"), ("plain", "gcn"), ("plain", "gat"), ("sparse", "sage"), ("weighted", "sage")]
)
@pytest.mark.parametrize("form", ["strong", "naive"])
@pytest.mark.parametrize("cut", CUTS)
def test_one_part_is_full_graph_training_to_the_bit(stored, name, model, form, cut):
    asked = {"model": model, "form": form, **({"heads": 2} if model == "gat" else {})}
    found, report = trained(stored / name, None, **asked, vertex_cut=cut)
    expected, expected_report = trained(stored / name, None, **asked, method="full")
    assert torch.equal(found, expected)
    assert report["test_accuracy"] == expected_report["test_accuracy"]
    assert (report["replication_factor"], report["edge_balance"]) == (1.0, 1.0)


@pytest.mark.parametrize("name", ["plain", "weighted"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("p", [2, 5])
def test_every_edge_lies_in_one_part_and_the_weights_of_copies_add_up_to_one(stored, name, cut, p):
    graph = store.load(stored / name)
    seeds = graph.default_seeds()

    def rank(comm):
        method = made(stored / name, comm, vertex_cut=cut).method
        return method.local, method._cut.weights

    edges, weight = np.zeros((graph.n, graph.n)), np.zeros(graph.n)
    for local, weights in on_threads(p, rank):
        unit = graph.weight_unit if (matrix := local.relations[0].matrix).values is not None else 1
        edges[np.ix_(local.vertices, local.vertices)] += matrix.validate().to_scipy().toarray() * unit
        np.add.at(weight, local.vertices[local.view.seeds], weights)
        np.testing.assert_array_equal(local.view.features.fetch(np.arange(len(local.vertices))).numpy(), graph.features[local.vertices])
        np.testing.assert_array_equal(local.view.labels, graph.labels[local.vertices[local.view.seeds]])
    np.testing.assert_allclose(edges, dense_adjacency(graph, weighted=True), rtol=1e-12)
    np.testing.assert_allclose(weight[seeds], 1.0, rtol=1e-12)
    assert not np.delete(weight, seeds).any()


@pytest.mark.parametrize("model", ["sage", "gcn"])
@pytest.mark.parametrize("cut", CUTS)
def test_one_linear_layer_has_the_outputs_of_the_whole_graph_on_average_over_copies(stored, model, cut):
    graph = store.load(stored / "plain")
    asked = {"model": model, "layers": 1, "seeds": "all", "vertex_cut": cut}

    def rank(comm):
        trainer = made(stored / "plain", comm, **asked)
        method = trainer.method
        return method.local.vertices[method._at], method._shares.numpy(), method._passes[0](trainer.model)[method._at].detach().numpy()

    total = np.zeros((graph.n, graph.num_classes))
    for vertices, weights, logits in on_threads(4, rank):
        np.add.at(total, vertices, weights[:, None] * logits)
    alone = made(stored / "plain", None, **asked)
    at = alone.method._at
    np.testing.assert_allclose(total[at], alone.method._passes[0](alone.model)[at].detach().numpy(), rtol=1e-5, atol=1e-5)


class Watched(CoFree):
    """Writes down which collectives are called between the beginning and the end of an epoch's steps."""

    def begin_round(self, context):
        self.inside = []
        self.before = {kind: sent.bytes for kind, sent in context.comm.tally.items()}
        context.comm._note = self.inside.append

    def end_step(self, context, sums):
        del context.comm._note  # a round is one step
        now = {kind: sent.bytes for kind, sent in context.comm.tally.items()}
        self.sent = {kind: count - self.before[kind] for kind, count in now.items() if count > self.before[kind]}
        return super().end_step(context, sums)


@pytest.mark.parametrize("options", [{}, {"vertex_cut": "random"}, {"model": "gat", "heads": 2}, {"drop_edge": 0.5, "partition": "block"}])
def test_an_epoch_sends_gradients_and_nothing_else(stored, options, monkeypatch):
    """2 (p - 1) 4 (|theta| + 3) bytes, whatever is cut."""
    monkeypatch.setattr("bulksample.methods.run.load", lambda name: Watched)
    p = 4

    def rank(comm):
        trainer = made(stored / "plain", comm, **options)
        trainer.run()
        return trainer.method.inside, trainer.method.sent, weights_of(trainer).numel()

    found = on_threads(p, rank)
    for inside, sent, _ in found:
        assert inside
        assert all(note.startswith("allreduce gradients") for note in inside)
        assert sent.keys() == {"gradients"}
    assert sum(sent["gradients"] for _, sent, _ in found) == 2 * (p - 1) * 4 * (found[0][2] + 3)


@pytest.mark.parametrize(("name", "edge_bytes"), [("plain", 8), ("weighted", 16)])
def test_bytes_before_the_first_epoch_are_those_of_the_formula(stored, name, edge_bytes):
    graph, p = store.load(stored / name), 4
    a = graph.adjacency

    def rank(comm):
        opened = made(stored / name, comm, method="full", epochs=0)  # what opening a graph costs
        before = {kind: comm.tally[kind].bytes for kind in ("topology", "features")}
        layout, halo = opened.method.rows.halo.counts.sum(), len(opened.method.rows.halo.vertices)
        opened_bytes = {"topology": before["topology"] - 4 * halo * 2, "features": 0}
        assert layout == halo
        trainer = made(stored / name, comm)
        sent = {kind: comm.tally[kind].bytes - before[kind] for kind in before}
        return sent, opened_bytes, trainer.method.local

    found = on_threads(p, rank)
    owner = found[0][2].view.whole.own_rows().layout.blocks_of(np.arange(graph.n))
    rows = a.row_of_entry()
    part = part_of_edges("degree", 0, rows.astype(np.int32), a.indices, a.degrees, p)
    away = int((part != owner[rows]).sum())
    copies = sum(int((owner[local.vertices] != r).sum()) for r, (_, _, local) in enumerate(found))
    features = 4 * graph.num_features * copies
    topology = 4 * graph.n * (p - 1) + edge_bytes * away + 4 * copies
    assert sum(sent["features"] for sent, _, _ in found) == features
    assert sum(sent["topology"] - opened["topology"] for sent, opened, _ in found) == topology


def star(n=400, hubs=4, seed=0):
    """A few hubs that everybody is joined to, both ways, and as many edges besides."""
    rng = np.random.default_rng(seed)
    u = np.concatenate([np.repeat(np.arange(hubs), n), rng.integers(0, n, hubs * n)])
    v = np.concatenate([np.tile(np.arange(n), hubs), rng.integers(0, n, hubs * n)])
    keep = u != v
    a = dense = np.zeros((n, n), bool)
    dense[u[keep], v[keep]] = dense[v[keep], u[keep]] = True
    return np.nonzero(a), a.sum(1)


def replication(rows, columns, part, n, p):
    held = np.zeros((n, p), bool)
    held[rows, part] = held[columns, part] = True
    return held.sum() / n


def test_both_ways_of_a_pair_lie_together_and_the_cut_by_degree_copies_less():
    (rows, columns), degrees = star()
    n, p = len(degrees), 8
    parts = {how: part_of_edges(how, 3, rows, columns, degrees, p) for how in CUTS}
    for part in parts.values():
        assert (part == part_of_edges("random", 3, columns, rows, degrees, p)).all() or (part is parts["degree"])
        by_pair = {}
        for u, v, q in zip(rows.tolist(), columns.tolist(), part.tolist(), strict=True):
            assert by_pair.setdefault((min(u, v), max(u, v)), q) == q
        assert abs(np.bincount(part, minlength=p) / len(part) * p - 1).max() < 0.25
    random, degree = (replication(rows, columns, parts[how], n, p) for how in CUTS)
    expected = np.mean([p * (1 - (1 - 1 / p) ** d) for d in degrees])
    assert random == pytest.approx(expected, rel=0.03)
    assert degree < 0.9 * random


def test_masks_drop_their_share_of_pairs_both_ways_and_differ():
    graph = community_graph(n=400)
    both = graph.adjacency.to_scipy() + graph.adjacency.to_scipy().T
    matrix = type(graph.adjacency).from_scipy(both).with_values(None)
    ids = np.arange(400, dtype=np.int32)
    first, other = (thinned(matrix, ids, 0.3, 1, mask) for mask in (0, 1))
    kept = first.validate().to_scipy().toarray()
    assert (kept == kept.T).all()
    assert abs(first.nnz / matrix.nnz - 0.7) < 0.03
    assert abs(np.mean(kept[kept + other.to_scipy().toarray() > 0]) - 0.7 / 0.91) < 0.04
    assert thinned(matrix, ids, 0.0, 1, 0).nnz == matrix.nnz
    again = thinned(matrix, ids, 0.3, 1, 0)
    assert (again.indices == first.indices).all()


def test_masks_are_used_in_turn(stored):
    def run(**options):
        return on_threads(3, lambda comm: trained(stored / "plain", comm, **options)[0])[0]

    one, three = run(drop_edge=0.5, edge_masks=1), run(drop_edge=0.5, edge_masks=3)
    assert not torch.equal(one, three)
    assert not torch.equal(one, run())
    assert torch.equal(run(drop_edge=0.5, edge_masks=1, epochs=1), run(drop_edge=0.5, edge_masks=3, epochs=1))


@pytest.mark.parametrize("options", [{}, {"drop_edge": 0.3, "edge_masks": 2}])
def test_a_resumed_run_goes_on_to_the_bit(stored, tmp_path, options):
    whole = on_threads(3, lambda comm: trained(stored / "plain", comm, **options)[0])[0]
    kept = {**options, "checkpoint": str(tmp_path / "c")}
    on_threads(3, lambda comm: trained(stored / "plain", comm, **kept, epochs=2))
    weights, report = on_threads(3, lambda comm: trained(stored / "plain", comm, **kept, resume="auto"))[0]
    assert report["resumed"]
    assert torch.equal(weights, whole)


@pytest.mark.long
def test_ranks_without_seeds_edges_or_vertices_take_part(tmp_path):
    store.save(community_graph(n=5, classes=2), tmp_path / "s")
    for cut in CUTS:
        on_threads(8, lambda comm, cut=cut: trained(tmp_path / "s", comm, seeds="all", vertex_cut=cut))


@pytest.mark.parametrize(("options", "message"), [
    ({"graph": "replicated"}, "needs a partitioned graph"),
    ({"replication": 2}, "use 1"),
    ({"sampler_options": {"weighted": True}}, "plain means"), ({"sampler": "ladies", "fanouts": (9, 9)}, "plain means"),
    ({"method": "full", "drop_edge": 0.5}, "drop_edge is an option of the method 'cofree'"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    def rank(comm):
        with pytest.raises(UsageError, match=message):
            trained(stored / "weighted", comm, **options)

    on_threads(2, rank)


@pytest.mark.long
def test_the_command_line(stored, tmp_path):
    flags = {"method": "cofree", "layers": 2, "epochs": 4, "hidden": 8, "vertex-cut": "random", "drop-edge": 0.2, "edge-masks": 3}
    words = ["--quiet", *[word for key, value in flags.items() for word in (f"--{key}", value)]]
    ended = run_ranks(2, ["-m", "bulksample", "train", *map(str, [stored / "plain", *words, "--json", tmp_path / "r"])])
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r").read_text())
    assert (report["method"], report["vertex_cut"], report["steps"]) == ("cofree", "random", 4)
    assert 1 < report["replication_factor"] < 2
