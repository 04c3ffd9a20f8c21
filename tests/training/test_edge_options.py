"""Options of a run on labelled pairs: examples left out of the graph, which pairs are drawn and scored, tables, resuming, and refusals."""

import json

import numpy as np
import pytest
import torch
from communities import community_graph, undirected
from labelled_edges import pairs_table, trained
from launch import run_alone
from recorder import Crash, CrashesAt
from sweeps import sweep
from training_runs import weights_of

import bulksample as bs
from bulksample import CSR, DataError, Graph, UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

GRAPH = community_graph(n=200)
TABLE = pairs_table(GRAPH.labels, features=2)
SMALL = {"fanouts": (3, 3), "hidden": 8, "batch_size": 30, "epochs": 2, "lr": 0.02, "dropout": 0.0, "threads": 1, "quiet": True}
TRAIN, VAL = (np.flatnonzero(TABLE["split"] == split) for split in ("train", "val"))


def run(table=TABLE, comm=None, source=GRAPH, **options):
    return trained(source, table, comm, **{**SMALL, **options})


def minibatches(table=TABLE, source=GRAPH, **options):
    return list(run(table, None, source, **{"epochs": 0, **options})[2].context.batches.loader)


def rows_of(batches):
    return np.concatenate([one.examples for one in batches])


# ---- examples that are edges of the graph


def edges_as_pairs(graph):
    """A table of the edges of a graph, with random classes; in every fourth row the edge is turned around."""
    a, rng = graph.adjacency, np.random.default_rng(1)
    ends = np.stack([a.indices, a.row_of_entry()]).astype(np.int64)
    ends[:, ::4] = ends[::-1, ::4]
    return {"source": ends[0], "destination": ends[1], "label": rng.integers(0, 2, a.nnz), "split": np.full(a.nnz, "train")}


def sampled(minibatch):
    """The edges of every block, as source and destination in the graph, and their weights."""
    for block in minibatch.blocks:
        row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
        pairs = zip(minibatch.vertices[block.indices].tolist(), minibatch.vertices[row].tolist(), strict=True)
        yield list(pairs), None if block.weights is None else block.weights.tolist()


@pytest.mark.parametrize(("exclude", "ways"), [("none", []), ("self", [1]), ("both", [1, -1])])
@pytest.mark.parametrize("graph", [undirected(), community_graph(weighted=True)])
@sweep(("name", "fanouts"), [("sage", (4, 4)), ("full", (-1, -1)), ("ladies", (40, 40))])
def test_the_examples_of_a_minibatch_are_not_among_its_edges(graph, exclude, ways, name, fanouts):
    table, lost = edges_as_pairs(graph), 0
    asked = {"sampler": name, "fanouts": fanouts}
    for found, whole in zip(*(minibatches(table, graph, exclude_targets=what, **asked) for what in (exclude, "none")), strict=True):
        assert found.examples.tolist() == whole.examples.tolist()
        assert np.array_equal(found.vertices, whole.vertices)
        ends = np.stack([table["source"], table["destination"]])[:, found.examples].tolist()
        targets = {pair for way in ways for pair in zip(*ends[::way], strict=True)}
        for (edges, weights), (all_edges, all_weights) in zip(sampled(found), sampled(whole), strict=True):
            keep = [edge not in targets for edge in all_edges]
            assert edges == [edge for edge, kept in zip(all_edges, keep, strict=True) if kept]
            assert weights is None or weights == [weight for weight, kept in zip(all_weights, keep, strict=True) if kept]
            lost += len(all_edges) - len(edges)
    assert (lost > 0) == bool(ways)


# ---- which pairs are drawn, how often, and scored


def test_balanced_classes_are_drawn_equally_often():
    label = np.where(np.arange(400) % 10, TABLE["label"], 2)
    table = {**TABLE, "label": np.where(np.arange(400) % 50 == 1, 3, label)}
    made = run(table, epochs=0, balance_classes=True)[2]
    drawn = np.concatenate([rows_of(made.context.batches.loader) for _ in range(40)])
    assert set(drawn) <= set(TRAIN.tolist())
    counts = np.bincount(table["label"][drawn], minlength=4)
    assert counts.sum() == 40 * len(TRAIN)
    assert np.abs(counts - counts.sum() / 4).max() < 5 * np.sqrt(counts.sum() / 4)
    assert np.bincount(table["label"][TRAIN]).min() < len(TRAIN) / 20
    with pytest.raises(UsageError, match="balance_classes weighs seeds by their class; got target regression"):
        run({**table, "label": np.random.default_rng(0).random(400)}, balance_classes=True)


def test_drop_last_and_steps_per_epoch():
    b = len(TRAIN) // 3 - 1
    assert [len(one.examples) for one in minibatches(batch_size=b, drop_last=True)] == [b] * 3
    assert [len(one.examples) for one in minibatches(batch_size=b)] == [b] * 3 + [len(TRAIN) - 3 * b]
    assert len(minibatches(steps_per_epoch=2)) == 2
    assert run(steps_per_epoch=3)[0]["steps"] == 6
    with pytest.raises(UsageError, match=f"drop_last leaves no step: {len(TRAIN)} examples fill 0 of 999"):
        run(batch_size=999, drop_last=True)


@pytest.mark.parametrize(("seeds", "overlaps"), [("train", []), ("val", ["val"]), ("all", ["val", "test"])])
def test_seeds_name_the_pairs_to_train_on(seeds, overlaps):
    report, _, made = run(seeds=seeds)
    expected = np.arange(400) if seeds == "all" else np.flatnonzero(TABLE["split"] == seeds)
    assert made.data["seeds"] == len(expected)
    assert sorted(rows_of(minibatches(seeds=seeds)).tolist()) == expected.tolist()
    assert [warning.split()[1] for warning in report["warnings"]] == overlaps
    assert all("scores are of edges that the model was trained on" in warning for warning in report["warnings"])


def test_pairs_without_a_label_are_drawn_by_no_seeds():
    bare = np.arange(400) % 7 == 3
    table = {**TABLE, "label": np.where(bare, -1, TABLE["label"]), "split": np.where(bare, "", TABLE["split"])}
    assert sorted(rows_of(minibatches(table, seeds="all")).tolist()) == np.flatnonzero(~bare).tolist()


def test_another_column_is_the_label_and_never_a_feature():
    other = TABLE["label"] + 2 * (TABLE["features"][:, 0] > 0)
    table = {**TABLE, "kind": other}
    assert torch.equal(weights_of(run(table, label="kind")[2]), weights_of(run({**TABLE, "label": other})[2]))
    columns = {name: column for name, column in TABLE.items() if name != "features"}
    columns |= {"feature_0": TABLE["features"][:, 0], "feature_1": TABLE["features"][:, 1]}
    assert torch.equal(weights_of(run(columns)[2]), weights_of(run()[2]))
    columns |= {"score_0": TABLE["features"][:, 0] > 0, "score_1": TABLE["label"] == 1}
    assert run(columns, label="score")[0]["target"] == "multilabel"


def test_the_target_and_the_metric_are_those_of_the_labels_unless_named():
    reals = {**TABLE, "label": TABLE["features"][:, 0].astype(np.float64)}
    assert [run(table)[0][key] for table in (TABLE, reals) for key in ("target", "metric")] == ["class", "accuracy", "regression", "mae"]
    report = run(target="regression", metric="r2")[0]
    assert (report["target"], report["metric"]) == ("regression", "r2")
    assert {"test_mae", "test_r2"} <= report.keys()


def test_eval_splits_are_the_splits_that_are_scored():
    report = run(eval_splits=("val",))[0]
    assert [name for name in report if name.endswith("_accuracy") and report[name] is not None] == ["val_accuracy"]
    held = {**TABLE, "split": np.where(TABLE["split"] == "train", "train", "")}
    assert not [name for name, value in run(held, eval_splits=("train",))[0].items() if name.startswith("test_") and value is not None]
    with pytest.raises(UsageError, match=r"eval_splits: edge_labels pairs has no test split; it has train"):
        run(held, eval_splits=("test",))
    with pytest.raises(UsageError, match="patience 2 counts scores of val, and edge_labels pairs has no val split"):
        run(held, patience=2)


def test_scores_of_drawn_pairs_have_their_standard_error():
    line = run(model="hetero-sage", evaluate="sampled", eval_seeds=7)[1].lines[-1]
    for split in ("train", "val", "test"):
        right = round(7 * line[f"{split}_accuracy"])
        assert line[f"{split}_accuracy"] == pytest.approx(right / 7)
        assert line[f"{split}_accuracy_standard_error"] == pytest.approx(np.std([1] * right + [0] * (7 - right)) / np.sqrt(7))


def test_patience_ends_a_run_and_the_best_weights_are_kept():
    report, recorder, trainer = run(epochs=30, patience=2, lr=0.1)
    found = [line["val_accuracy"] for line in recorder.lines]
    best = int(np.argmax(found))
    assert report["epochs"] == len(found) == best + 3 < 30
    assert (report["best_epoch"], report["val_accuracy"]) == (best, found[best])
    assert trainer.context.progress.best_epoch == best


# ---- tables


def test_a_table_is_a_path_or_in_memory(tmp_path):
    np.savez(tmp_path / "pairs.npz", **TABLE)
    asked = {**SMALL, "task": "edges", "comm": SerialComm()}
    tables = [TABLE, str(tmp_path / "pairs.npz"), tmp_path / "pairs.npz", {name: torch.as_tensor(TABLE[name]) if name != "split" else
              TABLE[name].tolist() for name in TABLE}]  # fmt: skip
    reports = [bs.train(GRAPH, edge_labels=table, **asked) for table in tables]
    for report in reports[1:]:
        assert report["train_loss"] == reports[0]["train_loss"]
        assert report["test_accuracy"] == reports[0]["test_accuracy"]
    config = [report["config"]["edge_labels"] for report in reports[:3]]
    assert config == ["(in memory)", str(tmp_path / "pairs.npz"), str(tmp_path / "pairs.npz")]


@pytest.mark.parametrize("placed", [{}, {"graph": "partitioned"}, {"model": "hetero-sage"}])
def test_the_table_is_among_the_bytes_that_a_rank_holds(placed):
    bare = {name: column for name, column in TABLE.items() if name != "features"}
    held = [run(table, epochs=0, **placed)[2].context.view.held_bytes()["replicated"] for table in (TABLE, bare)]
    assert held[0] - held[1] == TABLE["features"].nbytes == 400 * 2 * 4
    assert held[1] > 400 * 3 * 8


def test_ranks_with_other_tables_are_refused_on_all():
    def said(comm):
        table = {**TABLE, "label": np.roll(TABLE["label"], comm.rank)}
        with pytest.raises(UsageError, match="edge_labels pairs") as caught:
            run(table, comm)
        return str(caught.value)

    first, other = on_threads(2, said)
    assert first == other


def test_a_malformed_table_of_one_rank_is_refused_on_all():
    def said(comm):
        table = TABLE if comm.rank else {**TABLE, "source": TABLE["source"] + 200}
        with pytest.raises(DataError, match=r"edge_labels pairs: row 0 has source \d+, and type 'node' has 200 vertices: use 0 to 199"):
            run(table, comm)
        return True

    assert all(on_threads(2, said))


def test_classes_without_a_pair_warn(capsys):
    report = run({**TABLE, "label": 3 * TABLE["label"]})[0]
    assert report["warnings"][0].startswith("2 of the 4 classes have no edge, because the class numbers have gaps")
    assert "2 of the 4 classes" in capsys.readouterr().err


@pytest.mark.long
def test_the_command_line(tmp_path):
    columns = {name: column for name, column in TABLE.items() if name != "features"}
    columns |= {"feature_a": TABLE["features"][:, 0], "feature_b": TABLE["features"][:, 1], "other": 1 - TABLE["label"]}
    lines = [",".join(columns), *(",".join(str(value) for value in row) for row in zip(*columns.values(), strict=True))]
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n")
    store.save(GRAPH, tmp_path / "g")
    train = ["-m", "bulksample", "train", tmp_path / "g", "--task", "edges", "--fanouts", "3,3", "--hidden", 8, "--batch-size", 30]
    train += ["--epochs", 2, "--lr", 0.02, "--dropout", 0, "--threads", 1, "--quiet", "--json", tmp_path / "r", "--overwrite"]
    train += ["--edge-labels"]
    done = run_alone([*train, tmp_path / "pairs.csv"])
    assert done.returncode == 0, done.stderr
    report, expected = json.loads((tmp_path / "r").read_text()), run()[0]
    for name in ("train_loss", "val_accuracy", "test_accuracy"):
        assert report[name] == expected[name]
    done = run_alone([*train, tmp_path / "pairs.csv", "--label", "other", "--seeds", "val"])
    assert done.returncode == 0, done.stderr
    assert (
        json.loads((tmp_path / "r").read_text())["train_loss"] == run({**TABLE, "label": 1 - TABLE["label"]}, seeds="val")[0]["train_loss"]
    )
    for wrong, code, told in (("no.csv", 65, "no.csv: cannot be read"), ("pairs.xlsx", 2, "pairs.xlsx: is no table by its ending")):
        done = run_alone([*train, tmp_path / wrong])
        assert done.returncode == code, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr


# ---- resuming


def crash_and_resume(folder, table=TABLE, again=TABLE, crash_at=5, **more):
    """Stop a run after some steps, and go on with the second table; return the losses of the second run and its weights."""
    kept = {"checkpoint": str(folder), "checkpoint_every": 1, "dropout": 0.4, "epochs": 3}
    config = TrainConfig.of(**{**SMALL, **kept, "task": "edges", "edge_labels": "pairs"})
    with pytest.raises(Crash, match="as asked"):
        make_trainer(config, GRAPH, None, [CrashesAt(crash_at)], edge_labels=table).run()
    _, recorder, made = run(again, **{**kept, "resume": "auto", **more})
    return recorder.losses, weights_of(made)


@pytest.mark.parametrize("crash_at", [3, 9])
def test_a_run_that_goes_on_has_the_same_bits(tmp_path, crash_at):
    _, recorder, made = run(dropout=0.4, epochs=3)
    losses, weights = crash_and_resume(tmp_path, crash_at=crash_at, bulk_size=2)
    assert len(losses) == 22 - crash_at  # the step at which it crashed is made again
    assert losses == recorder.losses[crash_at - 1 :]
    assert torch.equal(weights, weights_of(made))


@pytest.mark.parametrize("other", [
    {"label": 1 - TABLE["label"]}, {"source": np.roll(TABLE["source"], 1)}, {"features": -TABLE["features"]},
    {"split": np.where(np.arange(400) == TRAIN[0], "val", TABLE["split"])},
    {"label": np.where(np.arange(400) == VAL[0], 2, TABLE["label"])},
], ids=["labels", "sources", "features", "split", "classes"])  # fmt: skip
def test_another_table_is_refused_when_a_run_goes_on(tmp_path, other):
    with pytest.raises(UsageError, match="saved with another table edge_labels; use that of the run that saved it, or start a new one"):
        crash_and_resume(tmp_path, again={**TABLE, **other})


@pytest.mark.parametrize("placed", [{}, pytest.param({"graph": "partitioned"}, marks=pytest.mark.long)])
def test_a_run_goes_on_with_other_ranks(tmp_path, placed):
    asked = {"dropout": 0.4, "batch_size": 9, **placed}
    whole = on_threads(4, lambda comm: run(TABLE, comm, epochs=3, **asked))[0]
    kept = {**asked, "checkpoint": str(tmp_path)}
    on_threads(4, lambda comm: run(TABLE, comm, epochs=1, **kept))
    on_threads(2, lambda comm: run(TABLE, comm, epochs=2, resume="auto", **kept))
    report, recorder, made = run(epochs=3, resume="auto", **kept)
    assert recorder.losses == pytest.approx(whole[1].losses[-len(recorder.losses) :], rel=1e-6)
    assert torch.equal(weights_of(made), weights_of(whole[2])) or placed
    assert report["test_accuracy"] == pytest.approx(whole[0]["test_accuracy"], abs=0.02)


def test_a_table_may_have_moved_when_a_run_goes_on(tmp_path):
    np.savez(tmp_path / "a.npz", **TABLE)
    np.savez(tmp_path / "b.npz", **TABLE)
    asked = {"checkpoint": str(tmp_path / "kept"), "edge_labels": str(tmp_path / "a.npz")}
    run(None, **asked)
    report, recorder, _ = run(None, **{**asked, "edge_labels": str(tmp_path / "b.npz"), "resume": "auto", "epochs": 3})
    assert report["resumed"]
    assert recorder.losses == run(epochs=3)[1].losses[14:]


# ---- refusals

FILE = {"task": "edges", "edge_labels": "pairs.csv"}


@pytest.mark.parametrize(("options", "message"), [
    ({"task": "edges"}, "task edges needs edge_labels, a table of labelled edges"),
    ({"edge_labels": "pairs.csv"}, "edge_labels is an option of the task edges; got pairs.csv with task nodes"),
    ({"task": "links", "edge_labels": "pairs.csv"}, "edge_labels is an option of the task edges; got pairs.csv with task links"),
    ({"target_relation": "a:b:c", "model": "hetero-sage"}, "target_relation is an option of the task edges; got a:b:c with task nodes"),
    ({**FILE, "target_relation": "a:b:c"}, "target_relation is an option of the models hetero-sage, hetero-gat; got model sage"),
    ({**FILE, "evaluate": "sampled"}, "task edges scores edges by exact embeddings; got evaluate sampled"),
    ({**FILE, "seed_locality": 2}, "task edges draws edges, not seeds; got seed_locality 2"),
    ({**FILE, "decoder": "mlp"}, "decoder is an option of link prediction; got task 'edges'"),
    ({**FILE, "metric": "mrr"}, "the metric 'mrr' does not suit the task 'edges'"),
    ({**FILE, "target": "class", "metric": "mae"}, "the metric 'mae' does not suit the target 'class'"),
    ({**FILE, "sampling_weights": "w.npy"}, "sampling_weights is for mini-batches of vertices"),
    *(({**FILE, "method": name}, f"labelled edges are predicted with method sync; got '{name}': use sync")
      for name in ("psgd-pa", "full", "random-tma", "adaqp", "cofree", "retexo")),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        bs.train(GRAPH, fanouts=(3, 3), epochs=1, comm=SerialComm(), **options)


def without(*names, **columns):
    return {name: column for name, column in TABLE.items() if name not in names} | columns


@pytest.mark.parametrize(("table", "options", "message"), [
    (without("split"), {}, "has no splits; use a column 'split' of train, val and test, or seeds all"),
    (without(split=np.full(400, "val")), {}, "edge_labels pairs has only the masks val; name the seeds, use seeds all, which includes"),
    (without(split=np.full(400, "val")), {"seeds": "train"}, "edge_labels pairs: has no 'train' split; it has val, all"),
    (without(label=0 * TABLE["label"]), {}, "edge_labels pairs: all known labels are class 0; a model needs at least two classes"),
    (without(time=np.arange(400)), {}, "edge_labels pairs: has a column 'time', and graph 'communities' has no times that count"),
    (TABLE, {"label": "other"}, "label: edge_labels pairs: there is no column 'other'"),
    (TABLE, {"metric": "mae"}, "the metric 'mae' does not suit the target 'class'"),
    (without(label=np.arange(400) % 3), {"metric": "rocauc"}, "rocauc compares two classes; there are 3: use accuracy or f1"),
    (TABLE, {"model": "package:Net", "hidden": None, "dropout": None}, "task edges decodes embeddings of our layers; got package:Net"),
    (TABLE, {"model": "hetero-sage", "target_relation": "a:b:c"}, "has no relation.s. 'a:b:c'; use one of node:to:node"),
    (TABLE, {"sampler": "saint", "fanouts": (-1, -1)}, "saint adds seeds of its own"),
    (TABLE, {"cache_by": "frequency", "cache_bytes": 9, "graph": "partitioned"}, "cache_by frequency counts mini-batches of seeds"),
    (TABLE, {"lr": 1e38, "steps_per_epoch": 1}, r"the logits of \d+ edges of the train split are not finite"),
])  # fmt: skip
def test_tables_and_options_that_do_not_fit_are_refused(table, options, message):
    with pytest.raises(UsageError, match=message):
        run(table, **options)


@pytest.mark.parametrize("end", ["source", "destination"])
@pytest.mark.parametrize("wrong", [-1, 200])
def test_ends_that_are_no_vertices_are_refused(end, wrong):
    ids = np.where(np.arange(400) == 17, wrong, TABLE[end])
    with pytest.raises(DataError, match=f"row 17.*{wrong}"):
        run({**TABLE, end: ids})


def test_an_own_module_is_refused():
    with pytest.raises(UsageError, match="task edges decodes embeddings of our layers"):
        bs.train(GRAPH, task="edges", edge_labels=TABLE, model=torch.nn.Identity(), layers=2, comm=SerialComm())


def test_a_graph_without_edges_is_trained_on():
    """The rows of the ends are their own features."""
    graph = Graph(CSR.from_edges(np.empty(0, int), np.empty(0, int), (200, 200)), features=GRAPH.features)
    assert np.isfinite(run(TABLE, None, graph)[0]["train_loss"])
