"""RETEXO: the same on any ranks, `full` where there is one layer, bytes as predicted, and nothing of a row in any round."""

import hashlib
import json

import numpy as np
import pytest
import torch
from communities import community_graph
from launch import run_ranks
from test_full import Losses

from bulksample import UsageError
from bulksample.config import TrainConfig
from bulksample.data import store
from bulksample.dist.base import Comm
from bulksample.dist.threads import SerialComm, on_threads
from bulksample.gnn.aggregate import SparseRows
from bulksample.gnn.inference import infer
from bulksample.gnn.model import Gnn
from bulksample.methods.retexo import Retexo
from bulksample.train.loop import Trainer

STILL = {"method": "retexo", "layers": 3, "hidden": 12, "epochs": 6, "lr": 0.01, "dropout": 0.0, "threads": 1}
MODELS = ["gcn", "sage", "sage-pool", "gat"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    for name, kind in {"plain": {}, "sparse": {"sparse": True}, "wide": {"width": 40}}.items():
        store.save(community_graph(**kind), folder / name)
    return folder


def trained(source, comm=None, **options):
    """The losses of all rounds, the trainer and the report."""
    watched = Losses()
    trainer = Trainer(TrainConfig.of(**{**STILL, **options}), source, comm, [watched])
    report = trainer.run()
    return watched.losses, trainer, report


def weights(trainer):
    return torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()])


@torch.no_grad()
def last_logits(trainer):
    """Of the last stage, by vertex, of this rank: ids and rows."""
    method = trainer.method
    part = method.parts[-1].eval()
    return method.rows.vertices, part(method.input).numpy()


def gathered(ranks, n):
    """Rows by vertex from what each rank holds."""
    everyone = np.full((n, ranks[0][1].shape[1]), np.nan)
    for vertices, rows in ranks:
        everyone[vertices] = rows
    return everyone


# ---- R1: any ranks, any partition


@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
@pytest.mark.parametrize("model", MODELS)
def test_ranks_and_partition_do_not_change_what_is_learnt(stored, method, model):
    asked = {"method": method, "model": model, "eval_every": 100}  # the newest weights go on: no tie decides
    losses, trainer, _ = trained(stored / "plain", None, **asked)
    alone = gathered([last_logits(trainer)], 300)
    for p, partition in ((2, "block"), (4, "random"), (8, "metis")):
        options = {**asked, "partition": partition}

        def rank(comm, options=options):
            losses, trainer, _ = trained(stored / "plain", comm, **options)
            return losses, last_logits(trainer)

        ranks = on_threads(p, rank)
        np.testing.assert_allclose(ranks[0][0], losses, rtol=1e-4)
        found = gathered([own for _, own in ranks], 300)
        np.testing.assert_allclose(found, alone, rtol=1e-4, atol=1e-4 * np.abs(alone).max())
    assert losses[-1] < losses[0]


def test_ranks_do_not_change_what_is_learnt_from_sparse_features_with_selection_and_refinement(stored):
    options = {"refine": 4, "model": "gcn", "lr": 0.05, "partition": "random"}
    losses, _, report = trained(stored / "sparse", None, **options)
    again, found = on_threads(4, lambda comm: trained(stored / "sparse", comm, **options)[::2])[0]
    np.testing.assert_allclose(again, losses, rtol=1e-4, atol=1e-5)
    assert len(losses) == 3 * 6 + 4
    assert found["test_accuracy"] == pytest.approx(report["test_accuracy"], abs=0.011)


# ---- R2: one layer


@pytest.mark.parametrize("model", ["gcn", "sage", "sage-pool"])
@pytest.mark.parametrize("graph", ["plain", "sparse"])
def test_one_layer_is_full_graph_training_to_the_bit(stored, model, graph):
    asked = {"layers": 1, "model": model, "epochs": 12, "weight_decay": 1e-3}
    losses, trainer, report = trained(stored / graph, None, **asked)
    expected, full, whole = trained(stored / graph, None, **asked, method="full")
    assert losses == expected
    assert torch.equal(weights(trainer), weights(full))
    assert report["test_accuracy"] == whole["test_accuracy"]


def test_an_attention_layer_alone_is_that_of_full_graph_training_too(stored):
    losses, trainer, _ = trained(stored / "plain", None, layers=1, model="gat", heads=1)
    expected, full, _ = trained(stored / "plain", None, layers=1, model="gat", heads=1, method="full")
    assert losses == expected
    assert torch.equal(weights(trainer), weights(full))


# ---- R3: bytes


class Spying(Retexo):
    """Notes what is sent in every round, by kind, and every all-to-all."""

    def view(self, view, comm):
        self.per_round, self.exchanges, self._comm = [], [], comm
        started = comm.start_alltoall

        def start(parts, kind):
            self.exchanges.append(kind)
            return started(parts, kind)

        comm.start_alltoall = start
        return super().view(view, comm)

    def begin_round(self, trainer):
        self._before = {kind: sent.bytes for kind, sent in self._comm.tally.items()} | {"exchanges": len(self.exchanges)}

    def end_round(self, trainer):
        self._note()

    def evaluate(self, trainer):
        self._before = {kind: sent.bytes for kind, sent in self._comm.tally.items()} | {"exchanges": len(self.exchanges)}
        scores = super().evaluate(trainer)
        self._note()
        return scores

    def _note(self):
        now = {kind: sent.bytes for kind, sent in self._comm.tally.items()} | {"exchanges": len(self.exchanges)}
        self.per_round.append({kind: now[kind] - before for kind, before in self._before.items()})


@pytest.mark.parametrize(("model", "width", "sizes"), [
    ("gcn", 12, [8 * 12 + 12 + 24 + 39, 12 * 12 + 12 + 24 + 39, 12 * 3 + 3]),
    ("sage", 12, [2 * 8 * 12 + 12 + 24 + 39, 2 * 12 * 12 + 12 + 24 + 39, 2 * 12 * 3 + 3]),
    ("gat", 3, [8 * 12 + 24 + 3 + 6 + 12, 3 * 12 + 24 + 3 + 6 + 12, 3 * 3 + 6 + 3]),
])  # fmt: skip
@pytest.mark.parametrize(("p", "partition"), [(4, "random"), (3, "block")])
def test_bytes_are_those_of_the_formula_and_rounds_send_gradients_alone(stored, monkeypatch, model, width, sizes, p, partition):
    """A network 8-12-12-3 (with 4 averaged heads: 8-3-3-3); |theta_l| is the layer, its norm and its head of 3 classes."""
    monkeypatch.setitem(__import__("bulksample.methods").methods.METHODS, "retexo", Spying)
    rounds = 5

    def rank(comm):
        _, trainer, report = trained(stored / "plain", comm, model=model, epochs=rounds, partition=partition)
        return {kind: sent.bytes for kind, sent in comm.tally.items()}, trainer.method, report, len(trainer.method.rows.halo.vertices)

    tallies, methods, reports, halo = zip(*on_threads(p, rank), strict=True)
    sent = {kind: sum(tally[kind] for tally in tallies) for kind in tallies[0]}
    expected = {
        "features": 4 * sum(halo) * 8,
        "activations": 4 * sum(halo) * 2 * width,
        "gradients": 4 * 2 * (p - 1) * rounds * sum(size + 3 for size in sizes),
        "model": 4 * 2 * (p - 1) * sum(sizes),
    }
    assert {kind: sent[kind] for kind in expected} == expected
    assert reports[0]["predicted_bytes"] == expected
    assert all(method.exchanges.count("activations") == 2 for method in methods)  # and one of the features: L = 3
    trained_in, judged_in = methods[0].per_round[0::2], methods[0].per_round[1::2]
    assert len(trained_in) == len(judged_in) == 3 * rounds
    for counts in zip(*(method.per_round[0::2] for method in methods), strict=True):
        assert all(count[kind] == 0 for count in counts for kind in ("activations", "features", "model", "topology", "exchanges"))
    assert [sum(c["gradients"] for c in counts) for counts in zip(*(method.per_round[0::2] for method in methods), strict=True)] == [
        4 * 2 * (p - 1) * (size + 3) for size in sizes for _ in range(rounds)
    ]
    for count in judged_in:  # six counts, reduced
        assert all(count[kind] == 0 for kind in count if kind != "control")
    assert sum(c["control"] for c in (method.per_round[1] for method in methods)) == 2 * (p - 1) * 8 * 6


def test_sparse_features_are_counted_as_they_travel(stored):
    def rank(comm):
        return trained(stored / "sparse", comm, layers=2)[2], comm.tally["features"].bytes

    reports, sent = zip(*on_threads(4, rank), strict=True)
    assert reports[0]["predicted_bytes"]["features"] == sum(sent) > 0


@pytest.mark.parametrize("codec", ["fp32", "bf16", "int8", "int2"])
def test_dense_features_are_counted_as_the_codec_sends_them(stored, codec):
    def rank(comm):
        return trained(stored / "plain", comm, layers=2, feature_codec=codec)[2], comm.tally["features"].bytes

    reports, sent = zip(*on_threads(4, rank), strict=True)
    assert reports[0]["predicted_bytes"]["features"] == sum(sent) > 0


def test_no_gradient_of_a_row_comes_back(stored, monkeypatch):
    def refused(*_):
        raise AssertionError("a gradient of rows travels")

    monkeypatch.setattr("bulksample.dist.halo.Halo.start_back", refused)
    on_threads(3, lambda comm: trained(stored / "plain", comm, model="gat"))
    with pytest.raises(AssertionError, match="travels"):
        on_threads(3, lambda comm: trained(stored / "plain", comm, method="full"))


@pytest.mark.parametrize("codec", ["bf16", "fp16"])
def test_gradients_may_travel_in_half_the_bytes(stored, codec):
    def rank(comm):
        losses, trainer, report = trained(stored / "plain", comm, gradient_codec=codec, epochs=30, model="gcn")
        return losses, comm.tally["gradients"].bytes, report, weights(trainer)

    exact = on_threads(4, lambda comm: trained(stored / "plain", comm, epochs=30, model="gcn")[0])[0]
    losses, sent, reports, held = zip(*on_threads(4, rank), strict=True)
    assert sum(sent) == reports[0]["predicted_bytes"]["gradients"]
    assert all(torch.equal(own, held[0]) for own in held)
    assert losses[0] != exact
    np.testing.assert_allclose(losses[0], exact, rtol=0.02)


# ---- R5, R6, R7


def digest(frozen):
    x = frozen.x
    arrays = [x.indptr, x.indices, x.weights] if isinstance(x, SparseRows) else [x.numpy()]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
def test_the_input_of_a_stage_is_frozen(stored, monkeypatch, model, method):
    seen = []
    began, ended = Retexo.begin_stage, Retexo.end_stage

    def begin(self, trainer, stage):
        began(self, trainer, stage)
        seen.append((stage, digest(self.input)))

    def end(self, trainer, stage):
        ended(self, trainer, stage)
        seen.append((stage, digest(self.input)))

    monkeypatch.setattr(Retexo, "begin_stage", begin)
    monkeypatch.setattr(Retexo, "end_stage", end)
    _, trainer, _ = trained(stored / "plain", None, model=model, method=method, dropout=0.5, input_dropout=0.2)
    stages = trainer.method.stages()
    assert seen[0::2] == seen[1::2]
    assert len(dict(seen)) == len(set(dict(seen).values())) == stages


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_the_cached_aggregate_is_the_one_made_anew(stored, model):
    _, trainer, _ = trained(stored / "plain", None, model=model)
    method, own = trainer.method, slice(0, trainer.method.rows.rows)
    part, rows = method.parts[-1].eval(), method.rows
    with torch.no_grad():
        cached = part.rows(method.input)
        anew = part.layer.receive(
            rows.block, part.layer.send(method.input.x, rows.degrees, False), method.input.x[own], own, rows.degrees, False
        )
    np.testing.assert_allclose(cached, anew, rtol=1e-6, atol=1e-6)


def test_dropout_follows_the_aggregate_and_differs_from_round_to_round(stored):
    _, trainer, _ = trained(stored / "plain", None, model="gcn", layers=2, dropout=0.5)
    part, frozen = trainer.method.parts[-1].train(), trainer.method.input
    with torch.no_grad():
        clean = part.eval().rows(frozen)
        first, second = (part.train().rows(frozen) for _ in range(2))
        many = torch.stack([part.rows(frozen) for _ in range(3000)]).mean(0)
    assert not torch.equal(first, second)
    assert float((many - clean).abs().max()) < 0.15 * float(clean.abs().max())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("graph", "p"), [("plain", 1), ("plain", 4), ("sparse", 3)])
def test_the_layers_together_are_an_ordinary_network(stored, model, graph, p):
    def rank(comm):
        _, trainer, _ = trained(stored / graph, comm, model=model, dropout=0.3)
        assert type(trainer.model) is Gnn
        share = trainer.view.share
        return last_logits(trainer), (trainer.view.block.vertices, infer(trainer.model, share).numpy())

    stages, whole = zip(*on_threads(p, rank), strict=True)
    last, stacked = gathered(stages, 300), gathered(whole, 300)
    np.testing.assert_allclose(stacked, last, rtol=1e-5, atol=1e-5 * np.abs(last).max())
    assert np.isfinite(stacked).all()


@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
@pytest.mark.parametrize("model", MODELS)
def test_vertices_without_neighbours_are_trained_on_and_predicted(tmp_path, method, model):
    graph = community_graph()
    alone = np.flatnonzero(np.diff(graph.adjacency.indptr) == 0)
    only = np.isin(np.arange(graph.n), alone)
    for split in graph.masks:
        graph.masks[split] &= only
    store.save(graph, tmp_path / "g")
    losses, _, report = on_threads(2, lambda comm: trained(tmp_path / "g", comm, method=method, model=model, epochs=40, layers=2))[0]
    assert losses[39] < 0.9 * losses[0]
    assert 0 < report["test_accuracy"] <= 1
    assert round(report["test_accuracy"] * graph.masks["test"].sum(), 6) % 1 == 0  # each of them is counted


# ---- R8: federated mode


class Payloads:
    """Every array that any rank brings to a collective."""

    def __init__(self, monkeypatch):
        self.brought = []
        for name in ("allreduce", "allgather_rows", "broadcast", "start_alltoall"):
            monkeypatch.setattr(Comm, name, self._wrapped(getattr(Comm, name)))

    def _wrapped(self, collective):
        def call(comm, first, *args, **kwargs):
            kind = args[-1] if isinstance(args[-1], str) else args[0]
            for array in first if isinstance(first, list) else [first]:
                self.brought.append((kind, np.array(array)))
            return collective(comm, first, *args, **kwargs)

        return call


def kinds_with(brought, marks):
    return {kind for kind, array in brought if array.dtype.kind == "f" and np.isin(array.astype(np.float32), marks).any()}


@pytest.mark.parametrize("model", MODELS)
def test_no_feature_leaves_a_client(tmp_path, monkeypatch, model):
    """Features are numbers that nothing else is; one step of no length leaves the weights, and logits, without them."""
    graph = community_graph()
    graph.features[:] = 1000.25 + np.arange(graph.features.size, dtype=np.float32).reshape(graph.features.shape)
    store.save(graph, tmp_path / "g")
    asked = {"layers": 2, "epochs": 1, "model": model}
    federated = Payloads(monkeypatch)
    tallies = on_threads(3, lambda comm: (trained(tmp_path / "g", comm, **asked, method="retexo-federated"), comm.tally)[1])
    assert not kinds_with(federated.brought, graph.features)
    assert sum(tally["features"].bytes for tally in tallies) == 0
    rows = [array for kind, array in federated.brought if kind == "activations" and array.ndim == 2]
    assert rows
    assert {array.shape[1] for array in rows} == {graph.num_classes}
    federated.brought.clear()
    on_threads(3, lambda comm: trained(tmp_path / "g", comm, **asked))
    assert "features" in kinds_with(federated.brought, graph.features)  # partition mode does send them


@pytest.mark.parametrize("vertices", [1, 4])
def test_what_clients_send_is_counted(stored, vertices):
    graph = store.load(stored / "plain")
    rounds, hidden, classes = 5, 12, 3
    asked = {"method": "retexo-federated", "layers": 2, "model": "gcn", "client_vertices": vertices, "epochs": rounds}
    report = trained(stored / "plain", None, **asked)[2]
    client = np.arange(graph.n) // vertices
    row = np.repeat(np.arange(graph.n), np.diff(graph.adjacency.indptr))
    pairs = {(u, client[v]) for v, u in zip(row, graph.adjacency.indices, strict=True) if client[u] != client[v]}
    sizes = [8 * hidden + hidden * classes] + 2 * [2 * classes * hidden + hidden + hidden * classes]
    asked = sum(len(set(client[graph.masks[split]])) for split in ("train", "val"))
    assert report["client_bytes"] == {
        "parameters": 4 * 2 * rounds * asked * sum(sizes),
        "final": 4 * len(set(client)) * sum(sizes),
        "logits": 4 * 2 * len(pairs) * classes,
    }
    spread = on_threads(3, lambda comm: trained(stored / "plain", comm, **{**STILL, **{
        "method": "retexo-federated", "layers": 2, "model": "gcn", "epochs": rounds, "partition": "random",
    }})[2])[0]  # fmt: skip
    if vertices == 1:  # clients of one vertex are the same on any ranks
        assert spread["client_bytes"] == report["client_bytes"]


def test_the_best_stage_gives_the_scores(stored):
    _, _, report = trained(stored / "plain", None, method="retexo-federated", layers=3, epochs=20, model="sage")
    found = [stage["val_accuracy"] for stage in report["stages"]]
    assert len(found) == 4
    assert report["val_accuracy"] == max(found)
    assert report["test_accuracy"] == report["stages"][report["best_stage"]]["test_accuracy"]


# ---- stages of a run


def test_it_learns_about_what_full_graph_training_learns(tmp_path):
    store.save(community_graph(n=600, degree=12, noise=1.2), tmp_path / "g")
    options = {"layers": 2, "hidden": 32, "epochs": 80, "dropout": 0.3, "weight_decay": 1e-3}
    for model in ("gcn", "sage"):
        whole = trained(tmp_path / "g", None, **options, model=model, method="full")[2]
        greedy = trained(tmp_path / "g", None, **options, model=model)[2]
        assert greedy["test_accuracy"] > whole["test_accuracy"] - 0.06
        assert greedy["stages"][1]["val_accuracy"] > greedy["stages"][0]["val_accuracy"] - 0.02


def test_a_stage_stops_early_on_its_own(stored):
    _, _, report = trained(stored / "plain", None, epochs=60, lr=0.05, patience=3)
    rounds = [stage["rounds"] for stage in report["stages"]]
    assert len(rounds) == 3
    assert max(rounds) < 60
    assert report["steps"] == sum(rounds)


def test_refinement_goes_on_from_the_stages_and_sends_what_full_sends(stored):
    def rank(comm):
        losses, _, report = trained(stored / "wide", comm, layers=2, epochs=30, refine=5, lr=0.02, model="gcn")
        return losses, report

    losses, report = on_threads(4, rank)[0]
    assert len(report["stages"]) == 3
    assert losses[60] == pytest.approx(losses[59], rel=0.15)  # it starts where the last stage ended
    assert losses[64] < losses[60]
    back = 4 * report["halo_rows_of_all"] * 3  # the last layer sends its 3 classes
    assert report["phase_bytes"]["backward"] >= 5 * back
    extra = report["bytes_sent"]["activations"] - report["predicted_bytes"]["activations"]
    assert extra == 5 * 2 * back + 5 * back  # five rounds there and back, five evaluations there


class Crash(Exception):
    pass


class CrashesAt(Losses):
    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def step(self, epoch, step, loss):
        super().step(epoch, step, loss)
        self.left -= 1
        if not self.left:
            raise Crash


@pytest.mark.parametrize("asked", [
    {"method": "retexo", "model": "sage", "refine": 4}, {"method": "retexo-federated", "model": "gcn", "layers": 2},
    {"method": "retexo", "model": "gat", "refine": 4}, {"method": "retexo-federated", "model": "sage-pool", "layers": 2},
])  # fmt: skip
@pytest.mark.parametrize("crashed_at", [3, 6, 8, 15])  # of six rounds a stage
def test_going_on_in_any_stage_gives_the_same_bits(stored, tmp_path, asked, crashed_at):
    options = {**STILL, **asked, "dropout": 0.4, "input_dropout": 0.1}
    told, whole, expected = trained(stored / "plain", None, **options)
    kept = {"checkpoint": str(tmp_path / "c"), "checkpoint_every": 1}
    with pytest.raises(Crash):
        Trainer(TrainConfig.of(**options, **kept), stored / "plain", None, [CrashesAt(crashed_at)]).run()
    again, trainer, report = trained(stored / "plain", None, **options, **kept, resume="auto")
    assert report["resumed"]
    assert 0 < len(again) < len(told)
    assert again == told[len(told) - len(again) :]
    assert torch.equal(weights(trainer), weights(whole))
    for key in ("stages", "test_accuracy", "val_accuracy", "best_epoch", "steps", "predicted_bytes"):
        assert report[key] == expected[key], key


def test_ranks_go_on_together(stored, tmp_path):
    options = {"dropout": 0.4, "partition": "random", "checkpoint": str(tmp_path / "c"), "checkpoint_every": 1}
    told = on_threads(3, lambda comm: trained(stored / "plain", comm, dropout=0.4, partition="random")[0])[0]

    def interrupted(comm):
        watched = [CrashesAt(9)] if comm.rank == 0 else []
        Trainer(TrainConfig.of(**{**STILL, **options}), stored / "plain", comm, watched).run()

    with pytest.raises(Crash):
        on_threads(3, interrupted)
    again = on_threads(3, lambda comm: trained(stored / "plain", comm, **options, resume="auto"))
    assert again[0][0] == told[len(told) - len(again[0][0]) :]
    assert all(torch.equal(weights(trainer), weights(again[0][1])) for _, trainer, _ in again)


@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
def test_ranks_without_rows_or_training_vertices_take_part(tmp_path, method):
    graph = community_graph(n=60)
    graph.masks["train"][10:] = False
    store.save(graph, tmp_path / "g")
    alone = trained(tmp_path / "g", None, method=method, eval_every=100)[0]
    losses = on_threads(7, lambda comm: trained(tmp_path / "g", comm, method=method, eval_every=100)[0])[0]
    np.testing.assert_allclose(losses, alone, rtol=1e-4, atol=1e-5)
    store.save(community_graph(n=5, classes=2), tmp_path / "s")
    for model in MODELS:
        few = on_threads(8, lambda comm, model=model: trained(tmp_path / "s", comm, method=method, model=model, seeds="all")[0])
        assert np.isfinite(few[0]).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"batch_norm": True}, "no place for batch_norm"), ({"form": "naive"}, "form strong would fit"),
    ({"graph": "replicated"}, "needs a graph that is partitioned"), ({"model": "gat", "hidden": 10}, "multiple of the number of heads"),
    ({"client_vertices": 2}, "client_vertices is of the method 'retexo-federated'"),
    ({"method": "full", "refine": 2}, "refine is of the method 'retexo'"),
    ({"method": "retexo-federated", "refine": 2}, "refine is of the method 'retexo'"),
    ({"method": "retexo-federated", "layer_norm": True}, "no use for layer_norm"),
    ({"method": "retexo-federated", "cache_bytes": 100}, "features stay with their clients"),
    ({"method": "retexo-federated", "gradient_codec": "bf16"}, "fp32 would fit"),
    ({"method": "retexo-federated", "feature_codec": "int8"}, "features stay with their clients"),
    ({"batch_norm": True, "layer_norm": True}, "one of them would fit"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    with pytest.raises(UsageError, match=message):
        trained(stored / "plain", SerialComm(), **options)


@pytest.mark.parametrize("metric", ["f1", "f1_micro"])
def test_other_metrics_choose_too(stored, metric):
    report = on_threads(3, lambda comm: trained(stored / "plain", comm, metric=metric, epochs=12)[2])[0]
    assert 0.3 < report[f"test_{metric}"] <= 1
    assert report["test_accuracy"] > 0.3


@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
def test_the_command_line(stored, tmp_path, method):
    flags = {"method": method, "layers": 2, "epochs": 4, "hidden": 8, "partition": "metis", "model": "gcn", "checkpoint": tmp_path / "c"}
    words = ["--quiet", *[word for key, value in flags.items() for word in (f"--{key}", value)]]
    stages = 2 if method == "retexo" else 3
    if method == "retexo":
        words += ["--refine", 3, "--gradient-codec", "bf16"]
    ended = run_ranks(3, ["-m", "bulksample", "train", *map(str, [stored / "plain", *words, "--json", tmp_path / "r"])], timeout=100)
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r").read_text())
    assert (report["method"], report["graph"]) == (method, "partitioned")
    assert report["steps"] == 4 * stages + (3 if method == "retexo" else 0)
    assert report["predicted_bytes"]["features"] == report["bytes_sent"]["features"]
