"""`sampling_weights`: a file with a number for each vertex decides how often a seed is drawn, on any ranks, parts and placements."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import planted
from recorder import Crash, CrashesAt, Recorder, losses_of_processes
from scipy.stats import chisquare
from training_runs import weights_of

import bulksample as bs
from bulksample import DataError, UsageError
from bulksample.data import store
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.partition import random
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 20, "epochs": 3, "lr": 0.02, "threads": 1}
GRAPH = community_graph()
SEEDS = np.flatnonzero(GRAPH.masks["train"])
WEIGHTS = np.random.default_rng(5).integers(0, 6, GRAPH.n).astype(np.float64)  # some are 0
HETERO = {"model": "hetero-sage", "fanouts": (3, 3)}


@pytest.fixture
def file(tmp_path):
    """The path of a file with these weights."""

    def written(weights=WEIGHTS, name="weights.npy"):
        np.save(tmp_path / name, weights)
        return str(tmp_path / name)

    return written


def trainer(source, comm=None, callbacks=(), **options):
    return make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, callbacks)


def trained(source, comm=None, **options):
    made = trainer(source, comm, [recorder := Recorder()], **options)
    return made.run(), recorder.losses, weights_of(made)


def drawn(made, epochs):
    """The seeds of so many epochs of this rank, by their ids in the whole graph."""
    found = [batch.minibatch.seeds for _ in range(epochs) for batch in made.context.batches if batch.minibatch is not None]
    rows = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
    return ids_of(made.context.view, rows)


def ids_of(view, rows):
    """Ids in the whole graph of rows of a view; papers are the first type."""
    if view.origin is None:
        return rows
    return view.origin["paper" if "paper" in view.origin else "node"][rows]


def check_frequencies(seen, weights, seeds):
    """Each seed comes in proportion to its weight (chi-square), one of weight 0 never, and nothing but seeds."""
    counts, chance = np.bincount(seen, minlength=len(weights)), np.where(np.isin(np.arange(len(weights)), seeds), weights, 0)
    assert len(seen) > 5 * np.count_nonzero(chance)
    assert not counts[chance == 0].any()
    assert chisquare(counts[chance > 0], len(seen) * chance[chance > 0] / chance.sum()).pvalue > 1e-4


@pytest.mark.parametrize("seeds", ["train", "val", "all"])
def test_seeds_come_in_proportion_to_their_weights(file, seeds):
    """The same file serves every split."""
    chosen = np.arange(GRAPH.n) if seeds == "all" else np.flatnonzero(GRAPH.masks[seeds])
    made = trainer(GRAPH, sampling_weights=file(), seeds=seeds)
    assert made.context.batches.steps == -(-len(chosen) // 20)
    check_frequencies(drawn(made, 60), WEIGHTS, chosen)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1", "<i8", "<f2"])
def test_numbers_of_any_type_weigh_alike(file, dtype):
    assert trained(GRAPH, sampling_weights=file(WEIGHTS.astype(dtype)))[1] == trained(GRAPH, sampling_weights=file())[1]


def test_weights_of_vertices_that_are_no_seeds_do_not_count(file):
    other = np.where(GRAPH.masks["train"], WEIGHTS, 1000.0)
    assert trained(GRAPH, sampling_weights=file(other))[1] == trained(GRAPH, sampling_weights=file())[1]


@pytest.mark.parametrize("kind", ["plain", pytest.param("hetero", marks=pytest.mark.long)])
def test_weights_of_one_over_the_class_count_are_balance_classes(file, kind):
    source, options = (GRAPH, {}) if kind == "plain" else (planted(), HETERO)
    table = source if kind == "plain" else source.type("paper")
    counts = np.bincount(table.labels[table.masks["train"]])
    by_file = trained(source, **options, sampling_weights=file(1 / counts[table.labels]))
    by_class = trained(source, **options, balance_classes=True)
    assert by_file[1] == by_class[1]
    assert torch.equal(by_file[2], by_class[2])


def test_the_file_holds_the_vertices_of_the_type_that_is_trained(file):
    graph = planted()
    paper = graph.type("paper")
    weights = np.arange(paper.count) % 4
    made = trainer(graph, **HETERO, sampling_weights=file(weights))
    seen = (
        np.concatenate([batch.minibatch.seeds for _ in range(60) for batch in made.context.batches]) - graph.offsets[graph.place("paper")]
    )
    check_frequencies(seen, weights, np.flatnonzero(paper.masks["train"]))
    with pytest.raises(DataError, match=rf"got the shape \({graph.n},\); use one weight for each of the {paper.count} vertices"):
        trainer(graph, **HETERO, sampling_weights=file(np.ones(graph.n)))


@pytest.mark.parametrize("p", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_with_rows_in_any_order_draw_as_one(file, tmp_path, p):
    """Rows lie in the order of a random partition, in a folder of parts too; weights are by the ids of the graph."""
    asked = {"virtual_ranks": 4, "steps_per_epoch": 3, "sampling_weights": file()}
    one = trained(GRAPH, **asked)
    store.save(GRAPH, tmp_path / "whole")
    write_parts(tmp_path / "whole", tmp_path / "parts", random(GRAPH.n, p, seed=3).assignment, p, "random")
    placed = {"graph": "partitioned", "partition": "random"}
    cases = [(GRAPH, {}), (tmp_path / "whole", placed)]
    cases += [(tmp_path / "parts", {"graph": where}) for where in ("partitioned", "replicated")]
    for source, options in cases:
        runs = on_threads(p, lambda comm, source=source, options=options: trained(source, comm, **asked, **options))
        assert runs[0][1] == pytest.approx(one[1], rel=1e-5)
    plain = trained(GRAPH, **{**asked, "sampling_weights": None})
    assert one[1] != pytest.approx(plain[1], rel=1e-3)


def test_processes_draw_as_one_rank(file, tmp_path):
    store.save(GRAPH, tmp_path / "g")
    asked = {**RUN, "virtual_ranks": 2, "sampling_weights": file()}
    losses = losses_of_processes(2, tmp_path / "g", **asked, graph="partitioned", partition="random")
    assert losses == pytest.approx(trained(GRAPH, **asked)[1], rel=1e-5)


@pytest.mark.parametrize("kind", ["plain", "hetero"])
@pytest.mark.parametrize(("method", "ranks"), [("random-tma", 3), ("grappa", 2)])
def test_trainers_weigh_the_seeds_of_their_parts(file, kind, method, ranks):
    """Rows of a part are no ids of the graph."""
    source, options = (GRAPH, {}) if kind == "plain" else (planted(), {**HETERO, "featureless": "constant"})
    table = source if kind == "plain" else source.type("paper")
    weights = WEIGHTS[: len(table.labels)]
    path = file(weights)
    if method == "grappa":
        options = {**options, "partition": "random", "view": "base"}

    def on_rank(comm):
        made = trainer(source, comm, method=method, sampling_weights=path, **options)
        view = made.context.view
        return None if view.origin is None else (drawn(made, 60), ids_of(view, view.seeds))

    found = [one for one in on_threads(ranks, on_rank) if one is not None]
    assert sorted(np.concatenate([own for _, own in found]).tolist()) == np.flatnonzero(table.masks["train"]).tolist()
    for seen, own in found:
        check_frequencies(seen, weights, own)


@pytest.mark.parametrize("method", ["grappa", "random-tma"])
def test_a_part_whose_seeds_weigh_0_trains_along(file, method):
    ranks = 2 + (method == "random-tma")
    split = {}

    def parts(comm):
        made = trainer(GRAPH, comm, method=method)
        split[comm.rank] = made.context.view.original_seeds

    on_threads(ranks, parts)
    weights = np.ones(GRAPH.n)
    weights[split[ranks - 1]] = 0
    path = file(weights)

    def on_rank(comm):
        made = trainer(GRAPH, comm, [recorder := Recorder()], method=method, sampling_weights=path)
        seen = drawn(made, 1)
        return seen, made.context.view.original_seeds, recorder

    last = on_threads(ranks, on_rank)[-1]
    assert np.array_equal(last[1], split[ranks - 1])
    assert not len(last[0])
    losses = on_threads(ranks, lambda comm: trained(GRAPH, comm, method=method, sampling_weights=path))[0][1]
    assert np.isfinite(losses).all()


def test_corrections_of_the_server_never_draw_weight_0(file, monkeypatch):
    from bulksample.training.method import Method

    seen, loss = [], Method.loss

    def noted(self, context, batch):
        if batch.minibatch is not None:
            origin, seeds = context.view.origin, batch.minibatch.seeds
            seen.extend((seeds if origin is None else origin["node"][seeds]).tolist())
        return loss(self, context, batch)

    monkeypatch.setattr(Method, "loss", noted)
    trained(GRAPH, method="llcg", server_steps=3, sampling_weights=file(), epochs=4)
    assert len(seen) > 300
    assert WEIGHTS[seen].all()


@pytest.mark.parametrize("method", ["sync", "grappa"])
def test_a_run_goes_on_with_the_numbers_it_began_with(file, tmp_path, method):
    """The file may have moved; another one, or none, is refused."""
    kept = {"checkpoint": str(tmp_path / "run"), "checkpoint_every": 1, "method": method}
    whole = trained(GRAPH, method=method, sampling_weights=file())
    with pytest.raises(Crash, match="as asked"):
        trainer(GRAPH, None, [CrashesAt(4)], **kept, sampling_weights=file()).run()
    moved, other = file(name="moved.npy"), np.where(np.arange(GRAPH.n) == SEEDS[3], WEIGHTS + 1, WEIGHTS)
    for options, told in (
        ({"sampling_weights": file(other, "other.npy")}, "draws seeds by sampling_weights .*other.npy, and the .* by others; use those"),
        ({}, "draws seeds without sampling_weights, and the checkpoint's were drawn by some; use those of the run that saved it"),
    ):
        with pytest.raises(UsageError, match=told):
            trained(GRAPH, **kept, **options, resume="auto")
    again = trained(GRAPH, **kept, resume="auto", sampling_weights=moved)
    assert again[1] == whole[1][-len(again[1]) :]
    assert torch.equal(again[2], whole[2])


def test_a_run_without_weights_does_not_go_on_with_some(file, tmp_path):
    kept = {"checkpoint": str(tmp_path / "run")}
    trained(GRAPH, **kept)
    with pytest.raises(UsageError, match=r"by sampling_weights .*, and the checkpoint's were drawn without any; leave them out"):
        trained(GRAPH, **kept, resume="auto", sampling_weights=file(), epochs=5)


N = GRAPH.n
BAD = {
    "short": (np.ones(N - 1), rf"got the shape \({N - 1},\); use one weight for each of the {N} vertices"),
    "of seeds alone": (np.ones(len(SEEDS)), "use one weight for each of"), "column": (np.ones((N, 1)), r"got the shape \(300, 1\)"),
    "negative": (np.where(np.arange(N) == 7, -1.0, 1.0), "must be finite, and 0 or larger; got -1.0 for vertex number 7"),
    "nan": (np.where(np.arange(N) == 9, np.nan, 1.0), "got nan for vertex number 9"),
    "inf": (np.full(N, np.inf), "got inf for vertex number 0"),
    "zeros": (np.zeros(N), "add up to 0.0; use weights with a positive"), "overflow": (np.full(N, 1e308), "add up to inf"),
    "switches": (np.ones(N, bool), "got bool; use numbers, one for each vertex"), "words": (np.full(N, "a"), "got <U1; use numbers"),
    "objects": (np.ones(N, object), "pickled objects are never read"), "complex": (np.ones(N, complex), "use numbers, booleans or text"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("options", [{}, {"graph": "partitioned"}])
def test_bad_files_are_refused_before_anything_is_opened(file, monkeypatch, fault, options):
    weights, told = BAD[fault]
    monkeypatch.setattr("bulksample.training.method.open_view", None)  # whatever opens the graph fails otherwise
    with pytest.raises(DataError, match=r"^sampling_weights .*weights\.npy") as found:
        trainer(GRAPH, sampling_weights=file(weights), **options)
    found.match(told)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "text.npy").write_text("0.5\n0.5\n")
    np.savez(tmp_path / "several.npz", WEIGHTS)
    for name, told in (
        ("none.npy", "No such file"),
        ("text.npy", "not a .npy array"),
        ("several.npz", "not a .npy array"),
        ("", "regular file"),
    ):
        with pytest.raises(DataError, match=rf"^sampling_weights .*{name}: .*{told}"):
            trainer(GRAPH, sampling_weights=str(tmp_path / name))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("options", [{}, {"graph": "partitioned"}, {"method": "grappa"}, {"method": "random-tma"}])
def test_seeds_that_all_weigh_0_are_refused_on_every_rank(file, p, options):
    path = file(np.where(GRAPH.masks["train"], 0.0, 1.0))

    def refused(comm):
        with pytest.raises(
            UsageError, match=r"^sampling_weights .*weights\.npy: all seeds of graph .* weigh 0; use weights with a positive"
        ):
            trainer(GRAPH, comm, **options, sampling_weights=path)

    on_threads(p, refused)


def test_ranks_with_different_files_are_refused(file, tmp_path, monkeypatch):
    """One path, two machines."""
    from bulksample.training import sampling_weights

    path, read = file(), sampling_weights.open_npy
    turns = iter([WEIGHTS, WEIGHTS + 1])
    monkeypatch.setattr(sampling_weights, "open_npy", lambda path, what: read(path, what) - WEIGHTS + next(turns))

    def refused(comm):
        with pytest.raises(
            UsageError, match=r"the ranks do not agree on sampling_weights .*weights\.npy: another on rank 1 than on rank 0"
        ):
            trainer(GRAPH, comm, sampling_weights=path)

    on_threads(2, refused)


@pytest.mark.parametrize(("options", "told"), [
    ({"task": "links"}, "^sampling_weights is for mini-batches of vertices.* got sampling_weights w.npy with .*'sync' and task links"),
    ({"method": "full"}, "^sampling_weights is for mini-batches of vertices.* got sampling_weights w.npy with .*'full' and task nodes"),
    ({"seed_locality": 2}, "^sampling_weights draws seeds among all; got seed_locality 2: leave one out$"),
    ({"balance_classes": True}, r"^balance_classes weighs seeds by their class; got sampling_weights w\.npy: leave one out$"),
    ({"method": "llcg", "tolerate_failures": True}, "^sampling_weights is a file of the ranks of a job.*; got .* w.npy: leave it out$"),
    ({"method": "llcg", "join": "127.0.0.1:1"}, "^sampling_weights is a file of the ranks of a job.*; got .* w.npy: leave it out$"),
    ({"sampling_weights": "class"}, "^sampling_weights: got 'class'; use balance_classes, or a file$"),
    ({"sampling_weights": WEIGHTS}, r"^sampling_weights: got a ndarray; write the numbers to a file with numpy\.save, and name it$"),
    ({"sampling_weights": [1.0]}, "^sampling_weights: got a list; write the numbers"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(options, told):
    with pytest.raises(UsageError, match=told):
        bs.train(GRAPH, **{**RUN, "sampling_weights": "w.npy", **options})


def test_a_sampler_that_adds_seeds_is_refused(file):
    with pytest.raises(UsageError, match="seeds are drawn by weight, and saint adds seeds of its own, which are not; use another sampler"):
        trainer(GRAPH, sampling_weights=file(), sampler="saint")


@pytest.mark.parametrize("target", ["multilabel", "regression"])
def test_any_target_takes_weights(file, target):
    labels = np.eye(3, dtype=np.int8)[GRAPH.labels] if target == "multilabel" else GRAPH.labels[:, None].astype(np.float32)
    source = replace(GRAPH, labels=labels, num_classes=labels.shape[1])
    check_frequencies(drawn(trainer(source, sampling_weights=file()), 60), WEIGHTS, SEEDS)
