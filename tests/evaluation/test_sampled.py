"""Sampled scores are exact ones where every neighbor is drawn, and a run without evaluation sends no byte for it."""

import threading
from collections import Counter

import numpy as np
import pytest
import torch
from communities import community_graph
from recorder import Recorder

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.evaluation.by_batches import BatchScoring, evaluate_by_batches, logits_by_batches
from bulksample.evaluation.evaluate import evaluate
from bulksample.loading.bulk_sizes import scoring_bulk
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.samplers import Sage
from bulksample.training.method import Method
from bulksample.training.setup import sampled_scoring

OPTIONS = {"fanouts": (4, 3), "hidden": 8, "batch_size": 30, "epochs": 2, "threads": 1}


def run(source, comm=None, **options):
    recorder = Recorder()
    trainer = make_trainer(TrainConfig.of(**{**OPTIONS, **options}), source, comm, [recorder])
    return trainer.run(), recorder, trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sampled") / "graph"
    store.save(community_graph(), place)
    return place


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("placement", ["replicated", "partitioned"])
def test_with_all_neighbors_sampled_scores_are_exact(folder, model, placement):
    """Two ranks, and a fanout that no vertex reaches."""

    def both(comm):
        _, _, trainer = run(folder, comm, model=model, graph=placement, epochs=1)
        view, scoring = trainer.context.view, BatchScoring(Sage((10_000, 10_000)), 17, seed=3)
        return (
            evaluate(trainer.model, view.name, view.share, comm, "f1"), evaluate_by_batches(trainer.model, view, comm, "f1", scoring),
        )  # fmt: skip

    exact, sampled = on_threads(2, both)[0]
    assert len(exact) == 6
    assert sampled == pytest.approx(exact)


@pytest.mark.parametrize(("fanouts", "k"), [((4, 3), 3), ((-1, -1), 1)])
def test_mini_batches_are_scored_in_bulks(folder, fanouts, k):
    """Three mini-batches of each of two ranks: (3 L + 2) / k + 1 collectives a mini-batch; all neighbors are taken one by one."""

    def both(comm):
        _, _, trainer = run(folder, comm, graph="partitioned", epochs=0)
        trainer.model.eval()
        view, scoring = trainer.context.view, BatchScoring(Sage(fanouts), 10, seed=3)
        vertices = np.arange(60)
        logits_by_batches(trainer.model, view, comm, vertices, scoring)  # opens the rows
        comms, kinds = [comm, view.sampling], ("topology", "features")
        before = [dict(one.collectives) for one in comms]
        found = logits_by_batches(trainer.model, view, comm, vertices, scoring)
        grown = [{kind: one.collectives[kind] - old[kind] for kind in kinds} for one, old in zip(comms, before, strict=True)]
        return found, grown

    for found, (fetched, sampled) in on_threads(2, both):
        assert len(found) == 3
        assert fetched == {"topology": 3 // k, "features": 3}
        assert sampled["topology"] == 3 // k * 4  # a request and an answer a hop, lengths apart


def test_a_bulk_of_scores_holds_what_fits():
    assert scoring_bulk(1, (2, 2)) == scoring_bulk(1024, (5, 5)) == 32
    assert scoring_bulk(1024, (20, 20, 20)) == 2**28 // (12 * 1024 * (20 + 21 * 20 + 21**2 * 20)) == 2
    assert scoring_bulk(10**6, (20, 20, 20)) == 1
    assert scoring_bulk(1024, (4, 4, 4), relations=5) == 2 < scoring_bulk(1024, (4, 4, 4))
    assert scoring_bulk(30, (4, -1)) == 1


def test_a_share_of_the_seeds_estimates_the_score_of_all():
    """Over many drawings the mean is the score of all, and the spread is at most the standard error."""
    _, _, trainer = run(community_graph(n=400), epochs=1, lr=0.02)
    view = trainer.context.view
    exact = evaluate(trainer.model, view.name, view.share, SerialComm(), "accuracy", ("test",))
    found = [
        evaluate_by_batches(trainer.model, view, SerialComm(), "accuracy", BatchScoring(Sage((999, 999)), 64, seed, 20), ("test",))
        for seed in range(40)
    ]  # fmt: skip
    assert exact.keys() == {"test_accuracy"}
    accuracies, errors = (np.array([one[name] for one in found]) for name in ("test_accuracy", "test_accuracy_standard_error"))
    assert accuracies.mean() == pytest.approx(exact["test_accuracy"], abs=3 * errors.mean() / np.sqrt(40))
    assert 0.3 * errors.mean() < accuracies.std() < 1.2 * errors.mean()


def test_sampled_scores_repeat_and_do_not_depend_on_the_ranks(folder):
    asked = {"evaluate": "sampled", "eval_fanouts": (2, 1), "eval_seeds": 9, "lr": 1e-12}
    alone = run(folder, **asked)[1].lines
    assert [line["test_accuracy"] for line in alone] == [alone[0]["test_accuracy"]] * 2
    spread = on_threads(3, lambda comm: run(folder, comm, graph="partitioned", **asked)[1].lines)[0]
    assert spread[0]["test_accuracy"] == pytest.approx(alone[0]["test_accuracy"])


def test_every_seed_of_a_run_scores_other_samples_than_it_trains_on():
    _, _, trainer = run(community_graph(n=60), epochs=0)
    seeds = [0, 1, 2, 2**63, 2**64 - 1]
    found = [sampled_scoring(TrainConfig.of(**OPTIONS, seed=seed), trainer.context.view).seed for seed in seeds]
    assert len({*seeds, *found}) == 10
    assert all(0 <= seed < 2**64 for seed in found)


@pytest.mark.parametrize("placement", ["replicated", "partitioned"])
def test_without_evaluation_no_byte_is_sent_for_it(folder, placement, monkeypatch):
    """A run that evaluates sends what one without evaluation sends, and what its evaluations send, to the byte; control holds texts."""
    evaluated, original, lock = Counter(), Method.evaluate, threading.Lock()

    def measured(self, context):
        before = {kind: count.bytes for kind, count in context.comm.tally.items()}
        scores = original(self, context)
        with lock:
            for kind, count in context.comm.tally.items():
                evaluated[kind] += count.bytes - before.get(kind, 0)
        return scores

    def sent(**options):
        return on_threads(3, lambda comm: run(folder, comm, graph=placement, **options)[0]["bytes_sent"])[0]

    monkeypatch.setattr(Method, "evaluate", measured)
    none = sent(evaluate="none")
    assert not evaluated
    exact = sent(evaluate="exact")
    assert exact["activations"] == evaluated["activations"] > none["activations"] == 0
    assert {kind: exact[kind] - evaluated[kind] for kind in none if kind not in ("total", "control")} == {
        kind: size for kind, size in none.items() if kind not in ("total", "control")
    }


def test_full_graph_methods_and_averages_are_scored_by_samples(folder):
    for method in ("full", "adaqp", "random-tma"):
        report = on_threads(
            2, lambda comm, method=method: run(folder, comm, method=method, layers=2, evaluate="sampled", eval_seeds=12)[0]
        )[0]  # fmt: skip
        assert report["evaluation"] == {"kind": "sampled", "fanouts": [20, 20], "seeds": 12}
        assert 12 * report["val_accuracy"] == pytest.approx(round(12 * report["val_accuracy"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eval_seeds": 5}, "eval_seeds is an option of sampled scores; got exact ones"),
        ({"evaluate": "sampled", "eval_fanouts": (5,)}, "2 layers need as many eval_fanouts; got 5"),
        ({"evaluate": "sampled", "eval_every": 0, "eval_fanouts": (5, 5)}, "got none ones"),
        ({"evaluate": "none", "patience": 2}, "patience 2 counts scores of val, which is not evaluated"),
        ({"eval_splits": "test", "patience": 2}, "or score val"),
        ({"eval_splits": "valid"}, "eval_splits: got 'valid'; did you mean 'val'"),
        ({"evaluate": "none", "eval_splits": "val"}, "nothing is evaluated"),
        ({"evaluate": "sampled", "method": "retexo"}, "retexo scores the rows of its layers"),
        ({"evaluate": "sampled", "task": "links"}, "task links scores edges by exact embeddings"),
    ],
)
def test_options_that_decide_nothing_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        TrainConfig.of(**{**OPTIONS, **options})


def test_a_split_that_the_graph_lacks_is_refused():
    graph = community_graph()
    bare = graph.replace(masks={"train": graph.masks["train"]})
    with pytest.raises(UsageError, match="has no val split; it has train"):
        run(bare, eval_splits=("val", "test"))


def test_a_resumed_run_without_evaluation_ends_with_its_newest_weights(tmp_path):
    whole = run(community_graph(), epochs=4, eval_every=0, lr=0.2)[2]
    run(community_graph(), epochs=2, eval_every=0, lr=0.2, checkpoint=str(tmp_path))
    again = run(community_graph(), epochs=4, eval_every=0, lr=0.2, checkpoint=str(tmp_path), resume="auto")[2]
    assert all(torch.equal(one, other) for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True))
