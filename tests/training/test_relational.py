"""Training on heterogeneous graphs: against dense products, by ranks, resumed, in time, and what is refused."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from planted_relations import all_sage_logits, planted
from training_runs import weights_of

import bulksample as bs
from bulksample import UsageError
from bulksample.data.store_files import Sums
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.source import relational_fingerprint

QUICK = {"model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 2, "batch_size": 16, "dropout": 0.0, "threads": 1}


def trainer_of(source, comm=None, **options):
    return make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm)


def trained(source, comm=None, **options):
    made = trainer_of(source, comm, **options)
    return SimpleNamespace(trainer=made, report=made.run())


@pytest.mark.parametrize("evaluate", ["exact", "sampled"])
def test_scores_are_those_of_dense_products(evaluate):
    graph = planted()
    fanouts = {"eval_fanouts": (500, 500)} if evaluate == "sampled" else {}
    run = trained(graph, evaluate=evaluate, epochs=1, **fanouts)
    predicted = all_sage_logits(graph, run.trainer.model).argmax(1).numpy()
    paper = graph.type("paper")
    for split, mask in paper.masks.items():
        assert run.report[f"{split}_accuracy"] == pytest.approx((predicted == paper.labels)[mask].mean())


def test_the_first_loss_is_that_of_dense_products():
    graph = planted()
    run = trained(graph, sampler="full", fanouts=(-1, -1), batch_size=1000, epochs=1, evaluate="none")
    train = graph.type("paper").masks["train"]
    fresh = trainer_of(graph, sampler="full", fanouts=(-1, -1), batch_size=1000).model
    logits = all_sage_logits(graph, fresh)[torch.from_numpy(train)]
    labels = torch.from_numpy(graph.type("paper").labels[train])
    assert run.report["train_loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "target", "score", "least"),
    [
        ("hetero-sage", "class", "test_accuracy", 0.9),
        pytest.param("hetero-gat", "class", "test_accuracy", 0.9, marks=pytest.mark.long),
        pytest.param("hetero-sage", "multilabel", "test_rocauc", 0.95, marks=pytest.mark.long),
        pytest.param("hetero-sage", "regression", "test_r2", 0.7, marks=pytest.mark.long),
    ],
)
def test_labels_are_learned_through_a_relation(model, target, score, least):
    """Papers alone are noise: without the authors' relation the score is that of chance."""
    options = {"model": model, "fanouts": (3,), "epochs": 20, "lr": 0.03, "eval_every": 20}
    assert trained(planted(target), **options).report[score] > least
    graph = planted(target)
    rest = replace(graph, relations=tuple(relation for relation in graph.relations if relation.name != "writes"))
    assert trained(rest, **options).report[score] < least - 0.2


def test_the_report_names_the_bytes_of_embeddings():
    report = trained(planted(), epochs=0).report
    assert report["embedding_bytes"] == 6 * 8 * 4  # venues, hidden 8
    constant = trained(planted(), epochs=0, featureless="constant").report
    assert constant["embedding_bytes"] == constant["held_bytes"]["embeddings"] == 8 * 4
    alone = trained(planted(), epochs=0, fanouts=(3,)).report
    assert alone["embedding_bytes"] == 6 * 8 * 4
    assert alone["data"]["edges"] == sum(relation.edges for relation in planted().relations)


def digests(made):
    return {batch.minibatch.id: batch.minibatch.digest() for batch in made.context.batches if batch.minibatch is not None}


@pytest.mark.parametrize("times", [False, True])
def test_two_ranks_train_on_the_minibatches_of_one_and_make_its_steps(times):
    graph = planted(times=times)
    whole = digests(trainer_of(graph, virtual_ranks=2))
    shared = on_threads(2, lambda comm: digests(trainer_of(graph, comm)))
    assert shared[0] | shared[1] == whole
    assert not shared[0].keys() & shared[1].keys()
    one = trained(graph, virtual_ranks=2)
    two = on_threads(2, lambda comm: trained(graph, comm))
    first, second = (weights_of(run.trainer) for run in two)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, weights_of(one.trainer), rtol=1e-4, atol=1e-5)
    assert two[0].report["val_accuracy"] == one.report["val_accuracy"]


def test_minibatches_are_those_of_the_loader():
    """The same draws as `Loader` with the same seed, whatever the back end."""
    graph = planted(times=True)
    paper = graph.type("paper")
    seeds = np.flatnonzero(paper.masks["train"])
    loader = bs.Loader(graph, "sage", (4, 3), seeds=("paper", seeds), times=paper.times[seeds], batch_size=16, threads=1)
    expected = {batch.minibatch.id: batch.digest() for batch in loader}
    for backend in ("native", "reference"):
        assert digests(trainer_of(graph, backend=backend)) == expected


def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(tmp_path):
    graph = planted(times=True)
    whole = trained(graph, epochs=3, dropout=0.5)
    trained(graph, epochs=1, dropout=0.5, checkpoint=str(tmp_path / "kept"))
    rest = trained(graph, epochs=3, dropout=0.5, checkpoint=str(tmp_path / "kept"), resume="auto")
    assert rest.report["resumed"]
    assert torch.equal(weights_of(rest.trainer), weights_of(whole.trainer))
    other = replace(graph, types=(replace(graph.types[0], features=graph.types[0].features + 1), *graph.types[1:]))
    with pytest.raises(UsageError, match="the checkpoint does not fit this run: it is of a training on another graph"):
        trained(other, epochs=3, dropout=0.5, checkpoint=str(tmp_path / "kept"), resume="auto")


def latest_of(made):
    """Return pairs (time of the seed, time of a vertex of its tree) of all papers of all mini-batches, without the seeds."""
    pairs = []
    for batch in made.context.batches:
        rows = batch.minibatch.rows["paper"]
        stamps = made.context.view.targets.kind.times[rows.vertices]
        found = np.arange(len(rows.vertices)) >= rows.sizes[0]
        pairs.append(np.stack([rows.seed_times[rows.trees[found]], stamps[found]]))
    return np.concatenate(pairs, axis=1)


def test_nothing_later_than_a_seed_is_drawn():
    seed, drawn = latest_of(trainer_of(planted(times=True), fanouts=(5, 5, 5)))
    assert len(seed) > 500
    assert (drawn <= seed).all()
    assert (drawn == seed).any()


def test_the_future_does_not_reach_a_score():
    """Features of papers and edges from them that come after the latest training and test seed change nothing before it."""
    graph = planted(times=True)
    paper, cut = graph.type("paper"), 40
    masks = {split: mask & (paper.times <= cut) for split, mask in paper.masks.items()}
    paper = replace(paper, masks=masks)
    later = np.where(paper.times[:, None] > cut, np.float32(1e3), paper.features)
    reports = []
    for kind in (paper, replace(paper, features=later)):
        report = trained(replace(graph, types=(kind, *graph.types[1:])), fanouts=(4, 3), evaluate="exact").report
        reports.append({key: report[key] for key in ("train_loss", "val_accuracy", "test_accuracy")})
    assert reports[0] == reports[1]
    untimed = replace(graph, types=tuple(replace(kind, times=None) for kind in (replace(paper, features=later), *graph.types[1:])))
    assert trained(untimed).report["train_loss"] != reports[0]["train_loss"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "full"},
            "method full exchanges the rows .* got model hetero-sage, of several types: use sync or grappa",
        ),
        (
            {"sampler": "saint"},
            "sampler saint estimates .* got model hetero-sage, of several types: use sage or ladies",
        ),
        ({"graph": "replicated", "exchange": "rows"}, "exchange is for a topology in block rows; got rows"),
        ({"form": "naive"}, "got form naive with method 'sync'"),
        ({"partition": "metis"}, "partition metis divides relations and features; use graph partitioned, or features partitioned"),
        ({"sampler_options": {"weighted": True}}, "weighted sampling was asked for, but no relation has edge weights"),
        ({"strategy": "last", "sampler": "labor"}, "use it with sampler sage"),
        ({"strategy": "last"}, "strategy: graph 'planted' has no times"),
        ({"strict": True}, "strict: graph 'planted' has no times"),
        ({"target_type": "book"}, "no type 'book'; use paper, author, venue"),
        ({"target_type": "venue"}, "target_type: type 'venue' has no labels; use paper"),
        ({"label": "nothing"}, "no type of graph 'planted' has a column 'nothing'"),
        ({"model": "hetero-gat", "hidden": 10}, "multiples of the number of heads: got 10 with 4 heads; use hidden 12"),
        ({"model": "sage"}, "graph 'planted' is heterogeneous; got model sage: use model hetero-sage or hetero-gat"),
        ({"model": "sage", "strict": True}, "strict is an option of the models hetero-sage, hetero-gat; got model sage"),
    ],
)
def test_what_does_not_work_is_refused_by_name(options, message):
    with pytest.raises(UsageError, match=message):
        trainer_of(planted(), **options)


@pytest.mark.parametrize("column", ["features", "labels", "masks"])
def test_a_column_without_a_row_for_each_vertex_is_refused_on_all_ranks(column):
    """Kernels read features of a vertex without a row from whatever lies behind them."""
    graph = planted()
    paper = graph.type("paper")
    short = {"features": paper.features[:60], "labels": paper.labels[:60], "masks": {name: mask[:60] for name, mask in paper.masks.items()}}
    malformed = replace(graph, types=(replace(paper, **{column: short[column]}), *graph.types[1:]))
    names = "train mask" if column == "masks" else column

    def refused(comm):
        with pytest.raises(bs.DataError, match=f"rank 1: type 'paper': {names} must have 120 rows; got shape"):
            trainer_of(malformed if comm.rank == 1 else graph, comm)

    on_threads(2, refused)


def test_labels_of_one_class_are_refused():
    graph = planted()
    alone = replace(graph.type("paper"), labels=np.zeros(120, np.int64), num_classes=1)
    with pytest.raises(UsageError, match="it needs at least two classes"):
        trainer_of(replace(graph, types=(alone, *graph.types[1:])))


def test_times_without_times_of_the_seeds_are_refused():
    with pytest.raises(UsageError, match=r"use seed_times with a column of the type \(asked, other\)"):
        trainer_of(planted(edge_times=True))
    both = planted(edge_times=True)
    both = replace(both, types=(replace(both.types[0], times=np.arange(120)), *both.types[1:]))
    with pytest.raises(UsageError, match=r"time_by: both vertices and edges have times.*; use 'vertices' or 'edges'"):
        trainer_of(both)
    with pytest.raises(UsageError, match="seed_times: type 'paper' has no column 'when'; use asked, other"):
        trainer_of(planted(times=True), seed_times="when")


def test_ranks_hash_each_file_of_a_store_once(tmp_path, monkeypatch):
    """All ranks together hash what one rank would; a damaged file is named on all of them."""
    graph = planted(times=True)
    graph.save(tmp_path / "store")
    hashed = []
    compare = Sums.compare

    def counted(self, entries):
        entries = list(entries)
        hashed.extend(entry.file for entry in entries)
        return compare(self, entries)

    monkeypatch.setattr(Sums, "compare", counted)
    files = sorted(path.name for path in (tmp_path / "store").glob("*.npy"))
    one = trainer_of(tmp_path / "store", check="full", virtual_ranks=3)
    assert sorted(hashed) == files
    hashed.clear()
    marks = on_threads(3, lambda comm: trainer_of(tmp_path / "store", comm, check="full").context.view.fingerprint)
    assert sorted(hashed) == files
    assert set(marks) == {one.context.view.fingerprint}
    target = tmp_path / "store" / files[0]
    content = bytearray(target.read_bytes())
    content[-1] ^= 1
    target.write_bytes(content)

    def refused(comm):
        with pytest.raises(bs.DataError, match=files[0]):
            trainer_of(tmp_path / "store", comm)

    on_threads(3, refused)


def test_units_of_weights_belong_to_the_fingerprint():
    graph = planted()
    weights = graph.relations[0].adjacency
    marks = []
    for unit in (0.5, 0.25):
        weighted = replace(graph.relations[0], adjacency=weights.with_values(np.ones(weights.nnz, np.int64)), weight_unit=unit)
        marks.append(relational_fingerprint(replace(graph, relations=(weighted, *graph.relations[1:]))))
    assert marks[0] != marks[1]


def test_a_store_trains_as_its_graph(tmp_path):
    graph = planted(times=True)
    graph.save(tmp_path / "store")
    run = trained(tmp_path / "store", checkpoint=str(tmp_path / "kept"), epochs=1)
    held = trained(graph, epochs=1)
    assert run.report["train_loss"] == held.report["train_loss"]
    assert run.trainer.context.view.fingerprint == held.trainer.context.view.fingerprint
    with pytest.raises(UsageError, match="is heterogeneous; got model gcn"):
        trainer_of(tmp_path / "store", model="gcn")
