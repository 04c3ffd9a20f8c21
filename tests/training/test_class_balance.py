"""`balance_classes`: seeds come with replacement, all classes equally often, on any ranks, for every method that trains on mini-batches."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import planted
from recorder import Crash, CrashesAt, Recorder, losses_of_processes
from training_runs import weights_of

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.method import Method

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 20, "epochs": 3, "lr": 0.02, "threads": 1, "balance_classes": True}
WHOLE = community_graph()


def uneven():
    """Six training vertices of class 0, many of the others."""
    train = WHOLE.masks["train"].copy()
    train[np.flatnonzero(train & (WHOLE.labels == 0))[6:]] = False
    return replace(WHOLE, masks={**WHOLE.masks, "train": train})


GRAPH = uneven()


def trained(source, comm=None, **options):
    recorder = Recorder()
    made = make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, [recorder])
    report = made.run()
    return report, recorder.losses, weights_of(made)


@pytest.fixture
def seeds_seen(monkeypatch):
    """The seeds that any rank trained on."""
    seen, lock, loss = [], threading.Lock(), Method.loss

    def noted(self, context, batch):
        if batch.minibatch is not None:
            view = context.view
            with lock:
                seen.extend(view.truth(batch.minibatch.seeds).tolist())
        return loss(self, context, batch)

    monkeypatch.setattr(Method, "loss", noted)
    return seen


def check_even(classes, known=3):
    counts = np.bincount(classes, minlength=known)
    assert np.abs(counts - counts.sum() / known).max() < 5 * np.sqrt(counts.sum() / known)


def test_classes_come_equally_often(seeds_seen):
    seeds = GRAPH.labels[GRAPH.masks["train"]]
    report = trained(GRAPH, epochs=20)[0]
    assert report["steps"] == 20 * -(-len(seeds) // 20)
    assert min(seeds_seen) == 0
    check_even(seeds_seen)
    plain = np.bincount(seeds)
    assert plain[0] == 6 < plain[1:].min() / 4


@pytest.mark.parametrize("p", [1, 2, 4])
def test_ranks_draw_the_same(p, tmp_path):
    one = trained(GRAPH, virtual_ranks=4, steps_per_epoch=3)
    store.save(GRAPH, tmp_path / "g")
    for source, placed in ((GRAPH, {}), (tmp_path / "g", {"graph": "partitioned"})):
        asked = {**placed, "virtual_ranks": 4, "steps_per_epoch": 3}
        runs = on_threads(p, lambda comm, source=source, asked=asked: trained(source, comm, **asked))
        assert runs[0][1] == pytest.approx(one[1], rel=1e-5)
        if not placed:
            assert all(torch.equal(run[2], one[2]) for run in runs)


@pytest.mark.parametrize(("model", "placed"), [
    ("sage", {"graph": "partitioned"}),
    ("sage", {"features": "partitioned"}),
    pytest.param("hetero-sage", {"graph": "partitioned"}, marks=pytest.mark.long),
    pytest.param("hetero-sage", {"features": "partitioned"}, marks=pytest.mark.long),
])  # fmt: skip
def test_processes_with_rows_of_their_own_draw_as_one_rank(tmp_path, model, placed):
    """The class of each seed is one over its count on all ranks, also where a rank reads the labels of its own rows alone."""
    source = GRAPH if model == "sage" else planted()
    store.save(source, tmp_path / "g")
    asked = {**RUN, "virtual_ranks": 2, "model": model, "batch_size": 10, "steps_per_epoch": 4}
    losses = losses_of_processes(2, tmp_path / "g", **asked, **placed)
    assert losses == pytest.approx(trained(source, **asked)[1], rel=1e-5)
    assert losses != pytest.approx(trained(source, **{**asked, "balance_classes": False})[1], rel=1e-2)


@pytest.mark.parametrize("crashed_at", [2, 5])
def test_a_run_that_goes_on_has_the_same_bits(tmp_path, crashed_at):
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
    whole = trained(GRAPH)
    with pytest.raises(Crash, match="as asked"):
        make_trainer(TrainConfig.of(**RUN, **kept), GRAPH, None, [CrashesAt(crashed_at)]).run()
    again = trained(GRAPH, **kept, resume="auto", bulk_size=2)
    assert again[1] == whole[1][-len(again[1]) :]
    assert torch.equal(again[2], whole[2])
    with pytest.raises(UsageError, match="balance_classes was True and is False now"):
        trained(GRAPH, **kept, resume="auto", balance_classes=False)


def test_vertices_without_a_label_are_never_drawn():
    labels = np.where(np.arange(WHOLE.n) % 3 > 0, WHOLE.labels, -1)
    source = replace(WHOLE, labels=labels, masks={})
    made = make_trainer(TrainConfig.of(**RUN, seeds="all"), source)
    drawn = np.concatenate([batch.minibatch.seeds for _ in range(20) for batch in made.context.batches])
    assert len(drawn) == 20 * WHOLE.n
    check_even(labels[drawn])


@pytest.mark.parametrize(("method", "ranks"), [("random-tma", 3), ("grappa", 2)])
def test_trainers_balance_the_classes_of_their_parts(method, ranks):
    def drawn(comm):
        partition = {"partition": "random"} if method == "grappa" else {}
        made = make_trainer(TrainConfig.of(**{**RUN, **partition, "method": method}), GRAPH, comm)
        batches = [batch.minibatch for _ in range(30) for batch in made.context.batches]
        seeds = [one.seeds for one in batches if one is not None]
        return made.context.view.truth(np.concatenate(seeds)) if seeds else None

    found = [classes for classes in on_threads(ranks, drawn) if classes is not None]
    assert len(found) == 2
    for classes in found:
        assert min(classes) == 0
        check_even(classes)


@pytest.mark.parametrize("method", ["grappa", "random-tma"])
def test_a_part_without_seeds_trains_along(method):
    """All training vertices are in one of two parts."""
    train = WHOLE.masks["train"] & (np.arange(WHOLE.n) < WHOLE.n // 2)
    source, asked = replace(WHOLE, masks={"train": train}), {"method": method, "epochs": 1}
    losses = on_threads(2 + (method == "random-tma"), lambda comm: trained(source, comm, **asked))[0][1]
    assert np.isfinite(losses).all()


def test_types_of_vertices_are_balanced(seeds_seen):
    graph = planted()
    trained(graph, model="hetero-sage", fanouts=(3, 3), epochs=20)
    check_even(seeds_seen, int(graph.type("paper").labels.max()) + 1)


@pytest.mark.parametrize("options", [{}, {"graph": "partitioned"}, {"method": "grappa"}, {"method": "llcg"}, {"model": "hetero-sage"}])
def test_a_graph_without_labels_is_refused(options):
    """Not trained on seeds of one chance each."""
    unknown = replace(WHOLE, labels=np.full(WHOLE.n, -1), masks={})
    for source, told in ((unknown, "none of the 300 seeds of graph .* has a label"), (replace(unknown, labels=None), "has (no )?labels")):
        with pytest.raises(UsageError, match=told):
            make_trainer(TrainConfig.of(**RUN, seeds="all", **options), source)


@pytest.mark.parametrize(("options", "told"), [
    ({"task": "links"}, "^balance_classes is for mini-batches of classes.*; got balance_classes True with method 'sync' and task links"),
    ({"method": "full"}, "^balance_classes is for mini-batches of classes.*; got balance_classes True with method 'full' and task nodes"),
    ({"seed_locality": 2}, "^balance_classes draws seeds among all; got seed_locality 2: leave one out$"),
    ({"target": "regression", "label": "number"}, "^balance_classes weighs seeds by their class; got target regression: leave it out$"),
    ({"sampler": "saint"}, "seeds are drawn by weight, and saint adds seeds of its own, which are not; use another sampler"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(options, told):
    source = replace(GRAPH, extra={"number": np.zeros(GRAPH.n, np.float32)})
    with pytest.raises(UsageError, match=told):
        make_trainer(TrainConfig.of(**{**RUN, **options}), source)
