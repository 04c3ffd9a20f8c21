"""Grappa: one rank is standard training, nothing but gradients travels in an epoch, and every vertex is a seed once."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from communities import community_graph
from launch import run_ranks
from recorder import Recorder
from sweeps import sweep
from training_runs import weights_and_report, weights_of

from bulksample import CSR, Graph, UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.grappa.method import Grappa
from bulksample.methods.grappa.seed_weights import batch_scalar
from bulksample.methods.run import make_trainer

SMALL = {"layers": 2, "fanouts": (4, 3), "hidden": 6, "batch_size": 20, "epochs": 4, "lr": 0.01, "threads": 1, "eval_every": 4}
GRAPPA = {**SMALL, "method": "grappa", "partition": "random", "swap_every": 2}


@pytest.fixture(scope="module")
def islands(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart") / "islands"
    store.save(apart(4), folder)
    return folder


def apart(count, n=60):
    """Graphs without an edge between them, one block row each."""
    parts = [community_graph(n=n, seed=seed) for seed in range(count)]
    rows = np.concatenate([i * n + part.adjacency.row_of_entry() for i, part in enumerate(parts)])
    columns = np.concatenate([i * n + part.adjacency.indices for i, part in enumerate(parts)])
    masks = {split: np.concatenate([part.masks[split] for part in parts]) for split in ("train", "val", "test")}
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("features", "labels"))
    return Graph(CSR.from_edges(rows, columns, (count * n,) * 2), 1.0, x, y, 3, masks, {}, "islands").validate()


# ---- what it is equal to


@sweep("options", [
    {}, {"seed_weights": "batch"}, {"seed_weights": "none"}, {"view": "strict"}, {"view": "base", "swap_every": 10}, {"chunking": "fresh"},
    {"chunking": "fresh", "seed_weights": "tree"}, {"weight_cap": 0.9, "shrink": 0.5}, {"model": "gcn"}, {"model": "gat", "heads": 2},
    {"sampler": "ladies", "fanouts": (30, 30)},
], quick=4)  # fmt: skip
def test_one_rank_is_standard_training_to_the_bit(stored, options):
    standard = {key: value for key, value in options.items() if key in ("model", "heads", "sampler", "fanouts")}
    found, report = weights_and_report(stored / "plain", None, **{**GRAPPA, **options})
    sync = {**SMALL, "method": "sync", "graph": "partitioned", "partition": "random"}
    expected, expected_report = weights_and_report(stored / "plain", None, **{**sync, **standard})
    assert torch.equal(found, expected)
    assert report["test_accuracy"] == expected_report["test_accuracy"]


@pytest.mark.parametrize(("name", "model"), [("plain", "sage"), ("plain", "gcn"), ("plain", "gat"), ("sparse", "sage")])
@pytest.mark.parametrize("form", ["strong", "naive"])
def test_one_rank_on_its_whole_view_is_full_graph_training_to_the_bit(stored, name, model, form):
    asked = {"model": model, "form": form, "partition": "random", **({"heads": 2} if model == "gat" else {})}
    found, _ = weights_and_report(stored / name, None, **{**GRAPPA, **asked, "full_graph": True})
    expected, _ = weights_and_report(stored / name, None, **{**SMALL, **asked, "method": "full"})
    assert torch.equal(found, expected)


def losses(directory, comm, **options):
    watched = Recorder()
    trainer = make_trainer(TrainConfig.of(**options), directory, comm, [watched])
    trainer.run()
    return watched.losses, weights_of(trainer)


@sweep(
    "options",
    [{"view": "strict"}, {"view": "halo"}, {"view": "base", "swap_every": 10}, {"view": "strict", "seed_weights": "batch"}],
    quick=2,
)
@pytest.mark.parametrize("whole", [True, False])
def test_without_an_edge_between_chunks_it_is_synchronous_training(islands, options, whole):
    """On all rows at once `full`, on minibatches `sync`: one step an epoch with all neighbours, whoever has which seed."""
    still = {**SMALL, "dropout": 0.0, "partition": "block", "epochs": 8, "batch_size": 1000, "sampler": "full", "fanouts": (-1, -1)}
    standard = {**still, "method": "full"} if whole else {**still, "method": "sync", "graph": "partitioned"}
    expected, weights = on_threads(4, lambda comm: losses(islands, comm, **standard))[0]
    run = {**still, "method": "grappa", "full_graph": whole, "swap_every": 1, **options}
    found, others = on_threads(4, lambda comm: losses(islands, comm, **run))[0]
    assert len(found) == 8
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    torch.testing.assert_close(others, weights, rtol=1e-4, atol=1e-5)


def test_prefetch_does_not_change_a_bit(stored):
    def run(overlap):
        return on_threads(3, lambda comm: weights_and_report(stored / "plain", comm, **GRAPPA, overlap=overlap, chunking="fresh")[0])

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))


@pytest.mark.parametrize("overlap", [True, False])
def test_the_next_view_is_sent_for_in_the_last_epoch_on_a_view(stored, overlap, monkeypatch):
    class Flying(Grappa):
        def begin_round(self, context):
            self.at = context.epoch
            super().begin_round(context)

        def _start_view(self, turn):
            self.sent_for = [*getattr(self, "sent_for", []), (getattr(self, "at", -1), turn)]
            return super()._start_view(turn)

    monkeypatch.setattr("bulksample.methods.run.load", lambda name: Flying)

    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**{**GRAPPA, "epochs": 6, "overlap": overlap}), stored / "plain", comm)
        trainer.run()
        return trainer.method.sent_for

    expected = [(-1, 0), (1, 1), (3, 2)] if overlap else [(-1, 0), (2, 1), (4, 2)]
    assert on_threads(3, rank) == [expected] * 3


def test_no_shrinkage_at_all_is_uniform_to_the_bit(stored):
    def run(**options):
        return on_threads(3, lambda comm: weights_and_report(stored / "plain", comm, **GRAPPA, **options)[0])[0]

    uniform = run(seed_weights="none")
    assert torch.equal(run(shrink=0.0), uniform)
    assert torch.equal(run(shrink=0.0, seed_weights="batch"), uniform)
    assert not torch.equal(run(shrink=1.0), uniform)


# ---- weights in the loss


def test_a_scalar_on_the_loss_is_a_scalar_on_the_gradient(stored):
    """With one weight for a batch, scaling its loss and scaling its gradient are the same step."""

    def rank(comm):
        trainer = make_trainer(
            TrainConfig.of(**GRAPPA, view="strict", seed_weights="batch", shrink=1.0, dropout=0.0), stored / "plain", comm
        )
        step = next(iter(trainer.context.batches))
        method = trainer.method
        rows = np.searchsorted(method.local.view.seeds, step.minibatch.seeds)
        scalar = batch_scalar(method._raw[rows])[0]
        gradients = []
        for scaled in (True, False):
            trainer.context.optimizer.zero_grad()
            loss, total = method.loss(trainer.context, step) if scaled else super(Grappa, method).loss(trainer.context, step)
            loss.backward()
            gradient = torch.cat([parameter.grad.reshape(-1) for parameter in trainer.model.parameters()])
            gradients.append(gradient if scaled else gradient * scalar)
            assert total == pytest.approx(scalar * len(rows) if scaled else len(rows))
        trainer.context.batches.drop()
        return gradients

    for one, other in on_threads(3, rank):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_weights_average_one_and_the_report_says_how_uneven_they_are(stored):
    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**GRAPPA, view="strict", shrink=1.0, full_graph=True), stored / "plain", comm)
        raw = trainer.method._raw
        total = comm.allreduce(np.array([len(raw), raw.sum()]), "control")
        return total, trainer.run()

    (n, total), report = on_threads(4, rank)[0]
    assert total == pytest.approx(n)
    assert 0 < report["effective_share"] < 1
    assert report["weight_cv"] == pytest.approx((1 / report["effective_share"] - 1) ** 0.5)
    assert report["capped_mass"] == 0.0
    capped = on_threads(4, lambda comm: weights_and_report(stored / "plain", comm, **GRAPPA, view="strict", weight_cap=0.5)[1])[0]
    assert 0 < capped["capped_mass"] < 1
    assert capped["weight_cv"] < report["weight_cv"]


def test_lambda_is_the_effective_share_unless_given(stored):
    def share(**options):
        asked = {**GRAPPA, "view": "strict", "epochs": 1, **options}
        return on_threads(4, lambda comm: weights_and_report(stored / "plain", comm, **asked)[1])[0]

    assert 0 < share()["shrinkage"] < 1
    assert share(shrink="ess")["shrinkage"] == share()["shrinkage"]
    assert share(shrink=0.25)["shrinkage"] == 0.25
    assert share(seed_weights="none")["shrinkage"] == 1.0


# ---- a run


@pytest.mark.parametrize("options", [{}, {"full_graph": True}, {"chunking": "fresh", "view": "strict", "swap_every": 1}])
def test_a_resumed_run_goes_on_to_the_bit(stored, tmp_path, options):
    whole = on_threads(3, lambda comm: weights_and_report(stored / "plain", comm, **{**GRAPPA, **options}))[0]
    asked = {**GRAPPA, **options, "checkpoint": str(tmp_path / "c"), "checkpoint_every": 2}

    def stopped(comm):
        trainer = make_trainer(TrainConfig.of(**asked), stored / "plain", comm)
        step, made = trainer._stepper.step, []

        def counted(*given):
            made.append(1)
            return step(*given[:-1], len(made) == 3)

        trainer._stepper.step = counted
        return trainer.run()["steps"]

    assert on_threads(3, stopped)[0] == 3
    weights, report = on_threads(3, lambda comm: weights_and_report(stored / "plain", comm, **{**asked, "resume": "auto"}))[0]
    assert report["resumed"]
    assert torch.equal(weights, whole[0])
    assert report["effective_share"] == pytest.approx(whole[1]["effective_share"])


def test_other_chunks_are_not_resumed(stored, tmp_path):
    asked = {**GRAPPA, "checkpoint": str(tmp_path / "c")}
    on_threads(2, lambda comm: weights_and_report(stored / "plain", comm, **asked))

    def rank(comm):
        with pytest.raises(UsageError, match="its ranks trained on other vertices; use the partition of the run that saved it"):
            weights_and_report(stored / "plain", comm, **{**asked, "partition": "block", "resume": "auto"})

    on_threads(2, rank)


@pytest.mark.parametrize(("options", "message"), [
    ({"graph": "replicated"}, "needs a partitioned graph"),
    ({"replication": 2}, "got replication 2"),
    ({"seed_weights": "tree"}, "chunking static: use fresh"),
    ({"seed_weights": "tree", "chunking": "fresh", "full_graph": True}, "full_graph True"),
    ({"seed_weights": "tree", "chunking": "fresh", "sampler": "labor"}, "sampler labor: use sage"),
    ({"seed_weights": "tree", "chunking": "fresh", "shrink": "ess"}, "use a number"),
    ({"seed_weights": "tree", "chunking": "fresh", "halo_rows": 3}, "halo_rows 3"),
    ({"view": "strict", "halo_rows": 3}, "use view halo"),
    ({"shrink": 1.5}, "shrink"),
    ({"method": "sync", "swap_every": 3}, "swap_every is an option of the method 'grappa'"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    def rank(comm):
        base = SMALL if options.get("method") else GRAPPA
        with pytest.raises(UsageError, match=message):
            weights_and_report(stored / "plain", comm, **{**base, **options})

    on_threads(2, rank)


def test_defaults_are_those_of_the_page():
    page, config = (Path(__file__).parents[3] / "docs/methods/grappa.md").read_text(), TrainConfig.of(method="grappa")
    given = dict(re.findall(r"`--([a-z-]+) (\d+)`", page))
    assert {"view-chunks": str(config.view_chunks), "swap-every": str(config.swap_every)}.items() <= given.items()


@pytest.mark.long
def test_the_command_line(stored, tmp_path):
    flags = {
        "method": "grappa", "layers": 2, "epochs": 4, "hidden": 8, "fanouts": "4,3", "partition": "metis", "swap-every": 2, "view": "halo",
        "view-chunks": 2, "chunking": "static", "seed-weights": "node", "shrink": 0.5, "halo-rows": 50, "checkpoint": tmp_path / "c",
    }  # fmt: skip
    words = ["--quiet", *[word for key, value in flags.items() for word in (f"--{key}", value)]]
    ended = run_ranks(3, ["-m", "bulksample", "train", *map(str, [stored / "plain", *words, "--json", tmp_path / "r"])])
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r").read_text())
    assert (report["method"], report["graph"], report["super_epochs"], report["shrinkage"]) == ("grappa", "partitioned", 2, 0.5)
    assert report["repartition_bytes"] > 0
    more = [*words, "--epochs", "6", "--resume", "auto", "--json", tmp_path / "more"]
    ended = run_ranks(3, ["-m", "bulksample", "train", *map(str, [stored / "plain", *more])])
    assert ended.code == 0, ended
    assert json.loads((tmp_path / "more").read_text())["epochs"] == 6
