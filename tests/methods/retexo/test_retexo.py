"""RETEXO: the same on any ranks, `full` where there is one layer, bytes as predicted, and nothing of a row in any round."""

import hashlib
import itertools
import json

import numpy as np
import pytest
import torch
from communities import community_graph
from launch import run_ranks
from recorder import Crash, CrashesAt
from sweeps import sweep, thinned
from training_runs import run_training, weights_of

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.evaluation.inference import infer
from bulksample.methods.config import TrainConfig
from bulksample.methods.retexo.method import RETEXO
from bulksample.methods.run import make_trainer
from bulksample.nn import layers
from bulksample.nn.aggregate import SparseRows, aggregate
from bulksample.nn.dropout import PassKey
from bulksample.nn.model import Gnn

STILL = {"method": "retexo", "layers": 3, "hidden": 12, "epochs": 6, "lr": 0.01, "dropout": 0.0, "threads": 1}
MODELS = ["gcn", "sage", "sage-pool", "gat"]


def trained(source, comm=None, **options):
    """Train, and return the losses of all rounds, the trainer and the report."""
    report, recorder, trainer = run_training(source, comm, **{**STILL, **options})
    return recorder.losses, trainer, report


@torch.no_grad()
def last_logits(trainer):
    """Return the vertices of this rank and their logits in the last stage."""
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
@sweep("model", MODELS)
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


@sweep(("graph", "model"), [
    ("plain", "gcn"), ("sparse", "sage"), ("plain", "sage-pool"), ("sparse", "gcn"), ("plain", "sage"), ("sparse", "sage-pool"),
], quick=3)  # fmt: skip
def test_one_layer_is_full_graph_training_to_the_bit(stored, model, graph):
    asked = {"layers": 1, "model": model, "epochs": 12, "weight_decay": 1e-3}
    losses, trainer, report = trained(stored / graph, None, **asked)
    expected, full, whole = trained(stored / graph, None, **asked, method="full")
    assert losses == expected
    assert torch.equal(weights_of(trainer), weights_of(full))
    assert report["test_accuracy"] == whole["test_accuracy"]


def test_an_attention_layer_alone_is_that_of_full_graph_training_too(stored):
    losses, trainer, _ = trained(stored / "plain", None, layers=1, model="gat", heads=1)
    expected, full, _ = trained(stored / "plain", None, layers=1, model="gat", heads=1, method="full")
    assert losses == expected
    assert torch.equal(weights_of(trainer), weights_of(full))


# ---- R5, R6, R7


def digest(frozen):
    x = frozen.x
    arrays = [x.indptr, x.indices, x.weights] if isinstance(x, SparseRows) else [x.numpy()]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@sweep(("model", "method"), [
    *zip(MODELS, ["retexo", "retexo-federated"] * 2, strict=True), *zip(MODELS, ["retexo-federated", "retexo"] * 2, strict=True),
], quick=4)  # fmt: skip
def test_the_input_of_a_stage_is_frozen(stored, monkeypatch, model, method):
    seen = []
    began, ended = RETEXO.begin_stage, RETEXO.end_stage

    def begin(self, context, stage):
        began(self, context, stage)
        seen.append((stage, digest(self.input)))

    def end(self, context, stage):
        ended(self, context, stage)
        seen.append((stage, digest(self.input)))

    monkeypatch.setattr(RETEXO, "begin_stage", begin)
    monkeypatch.setattr(RETEXO, "end_stage", end)
    _, trainer, _ = trained(stored / "plain", None, model=model, method=method, dropout=0.5, input_dropout=0.2)
    stages = len(trainer.method.stages())
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


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_no_edge_is_touched_in_a_round_of_a_linear_layer(stored, monkeypatch, model):
    """Dense inputs are aggregated once a stage, and once more to export the rows of the next stage."""
    aggregated = []

    def counted(*given):
        aggregated.append(None)
        return aggregate(*given)

    monkeypatch.setattr(layers, "aggregate", counted)
    trained(stored / "plain", None, model=model, dropout=0.5, input_dropout=0.5, eval_every=3)
    assert len(aggregated) == STILL["layers"]


def test_dropout_follows_the_aggregate_and_differs_from_round_to_round(stored):
    _, trainer, _ = trained(stored / "plain", None, model="gcn", layers=2, dropout=0.5)
    part, frozen = trainer.method.parts[-1].train(), trainer.method.input
    with torch.no_grad():
        clean = part.eval().rows(frozen)
        rounds = [trainer.method.rows.names(PassKey(seed=1, epoch=epoch)) for epoch in range(3000)]
        first, second = (part.train().rows(frozen, names) for names in rounds[:2])
        many = torch.stack([part.rows(frozen, names) for names in rounds]).mean(0)
    assert not torch.equal(first, second)
    assert float((many - clean).abs().max()) < 0.15 * float(clean.abs().max())


@pytest.mark.parametrize("model", MODELS)
@sweep(("graph", "p"), [("plain", 1), ("plain", 4), ("sparse", 3)])
def test_the_layers_together_are_an_ordinary_network(stored, model, graph, p):
    def rank(comm):
        _, trainer, _ = trained(stored / graph, comm, model=model, dropout=0.3)
        assert type(trainer.model) is Gnn
        share = trainer.context.view.share
        return last_logits(trainer), (trainer.context.view.own_rows().block.vertices, infer(trainer.model, share).numpy())

    stages, whole = zip(*on_threads(p, rank), strict=True)
    last, stacked = gathered(stages, 300), gathered(whole, 300)
    np.testing.assert_allclose(stacked, last, rtol=1e-5, atol=1e-5 * np.abs(last).max())
    assert np.isfinite(stacked).all()


@sweep(("model", "method"), [
    ("gcn", "retexo"), ("gcn", "retexo-federated"), ("sage", "retexo-federated"), ("sage-pool", "retexo"), ("gat", "retexo-federated"),
], quick=2)  # fmt: skip
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


# ---- stages of a run


@pytest.mark.long
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


RESUMED = [
    {"method": "retexo", "model": "sage", "refine": 4}, {"method": "retexo-federated", "model": "gcn", "layers": 2},
    {"method": "retexo", "model": "gat", "refine": 4}, {"method": "retexo-federated", "model": "sage-pool", "layers": 2},
]  # fmt: skip
CRASHES = [*itertools.product(RESUMED, [3]), *thinned(itertools.product(RESUMED, [6, 8, 15]), 2)]  # of six rounds a stage


@sweep(("asked", "crashed_at"), CRASHES, quick=len(RESUMED))
def test_going_on_in_any_stage_gives_the_same_bits(stored, tmp_path, asked, crashed_at):
    options = {**STILL, **asked, "dropout": 0.4, "input_dropout": 0.1}
    losses, whole, expected = trained(stored / "plain", None, **options)
    kept = {"checkpoint": str(tmp_path / "c"), "checkpoint_every": 1}
    with pytest.raises(Crash, match="as asked"):
        make_trainer(TrainConfig.of(**options, **kept), stored / "plain", None, [CrashesAt(crashed_at)]).run()
    again, trainer, report = trained(stored / "plain", None, **options, **kept, resume="auto")
    assert report["resumed"]
    assert 0 < len(again) < len(losses)
    assert again == losses[len(losses) - len(again) :]
    assert torch.equal(weights_of(trainer), weights_of(whole))
    for key in ("stages", "test_accuracy", "val_accuracy", "best_epoch", "steps", "predicted_bytes"):
        assert report[key] == expected[key], key


def test_ranks_go_on_together(stored, tmp_path):
    options = {"dropout": 0.4, "partition": "random", "checkpoint": str(tmp_path / "c"), "checkpoint_every": 1}
    losses = on_threads(3, lambda comm: trained(stored / "plain", comm, dropout=0.4, partition="random")[0])[0]

    def interrupted(comm):
        watched = [CrashesAt(9)] if comm.rank == 0 else []
        make_trainer(TrainConfig.of(**{**STILL, **options}), stored / "plain", comm, watched).run()

    with pytest.raises(Crash, match="as asked"):
        on_threads(3, interrupted)
    again = on_threads(3, lambda comm: trained(stored / "plain", comm, **options, resume="auto"))
    assert again[0][0] == losses[len(losses) - len(again[0][0]) :]
    assert all(torch.equal(weights_of(trainer), weights_of(again[0][1])) for _, trainer, _ in again)


@pytest.mark.long
@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
def test_ranks_without_training_vertices_take_part(tmp_path, method):
    graph = community_graph(n=60)
    graph.masks["train"][10:] = False
    store.save(graph, tmp_path / "g")
    alone = trained(tmp_path / "g", None, method=method, eval_every=100)[0]
    losses = on_threads(7, lambda comm: trained(tmp_path / "g", comm, method=method, eval_every=100)[0])[0]
    np.testing.assert_allclose(losses, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
def test_ranks_without_rows_take_part(tmp_path, method, model):
    store.save(community_graph(n=5, classes=2), tmp_path / "g")
    losses = on_threads(8, lambda comm: trained(tmp_path / "g", comm, method=method, model=model, seeds="all")[0])[0]
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"batch_norm": True}, "no place for batch_norm"), ({"form": "naive"}, "got form naive with method 'retexo'"),
    ({"graph": "replicated"}, "needs a partitioned graph"), ({"model": "gat", "hidden": 10}, "multiples of the number of heads"),
    ({"client_vertices": 2}, "client_vertices is an option of the method 'retexo-federated'"),
    ({"method": "retexo-federated", "client_vertices": 0}, "client_vertices"),
    ({"method": "full", "refine": 2}, "refine is an option of the method 'retexo'"),
    ({"method": "retexo-federated", "refine": 2}, "refine is an option of the method 'retexo'"),
    ({"method": "retexo-federated", "layer_norm": True}, "no use for layer_norm"),
    ({"method": "retexo-federated", "cache_bytes": 100}, "features stay with their clients"),
    ({"method": "retexo-federated", "gradient_codec": "bf16"}, "use fp32"),
    ({"method": "retexo-federated", "feature_codec": "int8"}, "features stay with their clients"),
    ({"batch_norm": True, "layer_norm": True}, "use one of them"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    with pytest.raises(UsageError, match=message):
        trained(stored / "plain", SerialComm(), **options)


@pytest.mark.parametrize(("layer_norm", "norms"), [(None, 2), (True, 2), (False, 0)])
def test_the_layer_norm_is_there_unless_it_is_switched_off(stored, layer_norm, norms):
    _, trainer, _ = trained(stored / "plain", SerialComm(), layer_norm=layer_norm, epochs=1, lr=1e-9)
    z = torch.randn(5, 12)
    expected = torch.relu((z - z.mean(1, keepdim=True)) / torch.sqrt(z.var(1, correction=0, keepdim=True) + 1e-5) if norms else z)
    torch.testing.assert_close(trainer.method.parts[0].hidden(z), expected, rtol=1e-4, atol=1e-5)
    assert len(trainer.model.norms) == norms


def test_scores_are_those_of_the_model_without_dropout(stored):
    asked = {"model": "gcn", "layers": 2, "dropout": 0.5, "input_dropout": 0.5, "eval_every": 100}
    _, trainer, report = trained(stored / "plain", None, **asked)
    (vertices, logits), graph = last_logits(trainer), store.load(stored / "plain")
    right = logits.argmax(1) == graph.labels[vertices]
    assert report["test_accuracy"] == pytest.approx(right[graph.masks["test"][vertices]].mean())


@pytest.mark.long
@pytest.mark.parametrize("metric", ["f1", "f1_micro"])
def test_other_metrics_choose_too(stored, metric):
    report = on_threads(3, lambda comm: trained(stored / "plain", comm, metric=metric, epochs=12)[2])[0]
    assert 0.3 < report[f"test_{metric}"] <= 1
    assert report["test_accuracy"] > 0.3


@pytest.mark.long
@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
def test_the_command_line(stored, tmp_path, method):
    flags = {"method": method, "layers": 2, "epochs": 4, "hidden": 8, "partition": "metis", "model": "gcn", "checkpoint": tmp_path / "c"}
    words = ["--quiet", *[word for key, value in flags.items() for word in (f"--{key}", value)]]
    stages = 2 if method == "retexo" else 3
    if method == "retexo":
        words += ["--refine", 3, "--gradient-codec", "bf16"]
    ended = run_ranks(3, ["-m", "bulksample", "train", *map(str, [stored / "plain", *words, "--json", tmp_path / "r"])])
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r").read_text())
    assert (report["method"], report["graph"]) == (method, "partitioned")
    assert report["steps"] == 4 * stages + (3 if method == "retexo" else 0)
    assert report["predicted_bytes"]["features"] == report["bytes_sent"]["features"]
