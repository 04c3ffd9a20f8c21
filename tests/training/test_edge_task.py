"""Labels of pairs of vertices: mini-batches, losses, steps and scores against plain torch and loops, on any ranks and placements."""

import numpy as np
import pytest
import torch
from communities import community_graph
from labelled_edges import KINDS, METRICS, SPLITS, decoded, mean_loss, pairs_table, trained
from options.plain import sage
from recorder import losses_of_processes
from training_runs import weights_of

from bulksample.data import store
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import on_threads

GRAPH = community_graph(n=200)
SMALL = {"fanouts": (3, 3), "hidden": 8, "batch_size": 30, "epochs": 2, "lr": 0.02, "dropout": 0.0, "threads": 1, "quiet": True}
WHOLE = {**SMALL, "sampler": "full", "fanouts": (-1, -1)}


def made_of(kind="class", features=2, **more):
    return pairs_table(GRAPH.labels, kind, features=features, **more)


def run(table, comm=None, source=GRAPH, **options):
    return trained(source, table, comm, **{**SMALL, **options})


def minibatches(table, comm=None, **options):
    """The mini-batches of one epoch, and of the next."""
    loader = run(table, comm, **{"epochs": 0, **options})[2].context.batches.loader
    return list(loader), list(loader)


def outputs(model, table, rows, encoder=None, parameters=None):
    """The outputs of rows of a table: GraphSAGE by dense products, then the perceptron."""
    z = sage(GRAPH, list(model.encoder.parameters()) if encoder is None else encoder)
    x = table["features"][rows] if "features" in table else None
    return decoded(model, z[table["source"][rows]], z[table["destination"][rows]], x, parameters)


# ---- mini-batches


def test_the_seeds_of_a_minibatch_are_the_sources_then_the_destinations_of_its_rows():
    table = made_of()
    pairs = list(zip(table["source"].tolist(), table["destination"].tolist(), strict=True))
    assert len(set(pairs)) < len(pairs)
    assert any(u == v for u, v in pairs)
    edges = set(zip(GRAPH.adjacency.indices.tolist(), GRAPH.adjacency.row_of_entry().tolist(), strict=True))
    assert set(pairs) - edges
    epochs = minibatches(table)
    for epoch in epochs:
        for one in epoch:
            assert one.seeds.tolist() == [*table["source"][one.examples], *table["destination"][one.examples]]
            assert one.vertices[one.seed_rows].tolist() == one.seeds.tolist()
        rows = np.concatenate([one.examples for one in epoch])
        assert sorted(rows.tolist()) == np.flatnonzero(table["split"] == "train").tolist()
        assert [len(one.examples) for one in epoch] == [30] * (len(rows) // 30) + [len(rows) % 30] * (len(rows) % 30 > 0)
    first, second = (np.concatenate([one.examples for one in epoch]).tolist() for epoch in epochs)
    assert first != second


def test_minibatches_depend_on_no_rank_and_no_bulk():
    table = made_of()
    whole = minibatches(table)[0]
    for bulk in (1, 5):
        again = minibatches(table, bulk_size=bulk)[0]
        assert [one.digest() for one in again] == [one.digest() for one in whole]
        assert all(np.array_equal(one.examples, other.examples) for one, other in zip(again, whole, strict=True))
    shares = on_threads(2, lambda comm: minibatches(table, comm)[0])
    both = [one for pair in zip(*shares, strict=True) for one in pair if one is not None]
    assert [(one.digest(), one.examples.tolist()) for one in both] == [(one.digest(), one.examples.tolist()) for one in whole]


# ---- losses and steps


def copies(model):
    """The parameters of a model as leaves of their own, and by name."""
    named = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    return [value for name, value in named.items() if name.startswith("encoder.")], named


@pytest.mark.parametrize(("features", "frontier"), [(0, "all"), (2, "all"), (2, "new")])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_a_step_and_its_gradient_are_those_of_plain_torch(kind, features, frontier):
    table = made_of(kind, features)
    made = run(table, epochs=0, frontier=frontier, **{name: WHOLE[name] for name in ("sampler", "fanouts")})[2]
    for batch in made.context.batches:
        loss, count = made.method.loss(made.context, batch)
        made.model.zero_grad()
        (loss / count).backward()
        encoder, named = copies(made.model)
        rows = batch.minibatch.examples
        expected = mean_loss(kind, outputs(made.model, table, rows, encoder, named), table["label"][rows])
        expected.backward()
        assert (loss / count).item() == pytest.approx(expected.item(), rel=1e-5)
        for name, parameter in made.model.named_parameters():
            torch.testing.assert_close(parameter.grad, named[name].grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "p"), [("class", 1), ("multilabel", 1), ("regression", 2)])
def test_the_steps_of_a_run_are_those_of_a_plain_loop(kind, p):
    """A step of p ranks is one over the pairs of p mini-batches."""
    table = made_of(kind)
    report, recorder, trainer = on_threads(p, lambda comm: run(table, comm, **{**WHOLE, "evaluate": "none"}))[0]
    fresh = run(table, **{**WHOLE, "epochs": 0})[2]
    encoder, named = copies(fresh.model)
    optimizer, losses = torch.optim.Adam(named.values(), lr=SMALL["lr"]), []
    for epoch in minibatches(table, **WHOLE | {"epochs": 0}):
        for first in range(0, len(epoch), p):
            rows = np.concatenate([one.examples for one in epoch[first : first + p]])
            optimizer.zero_grad()
            loss = mean_loss(kind, outputs(fresh.model, table, rows, encoder, named), table["label"][rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert recorder.losses == pytest.approx(losses, rel=1e-3)
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), named[name].detach(), rtol=1e-2, atol=1e-3)
    assert report["steps"] == len(losses)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind == "multilabel" else pytest.mark.long) for kind in KINDS])
def test_ranks_share_the_minibatches_of_virtual_ranks_to_the_bit(kind):
    table, asked = made_of(kind), {"virtual_ranks": 4, "dropout": 0.3}
    one = run(table, **asked)
    for p in (2, 4):
        ranks = on_threads(p, lambda comm: run(table, comm, **asked))
        assert all(torch.equal(weights_of(trainer), weights_of(one[2])) for _, _, trainer in ranks)
        assert ranks[0][1].losses == pytest.approx(one[1].losses, rel=1e-5)


def saved(folder, table):
    """The graph and the table as files."""
    store.save(GRAPH, folder / "g")
    np.savez(folder / "pairs.npz", **table)
    return folder / "g", str(folder / "pairs.npz")


@pytest.mark.long
def test_processes_train_as_one_rank(tmp_path):
    table = made_of()
    folder, path = saved(tmp_path, table)
    asked = {**SMALL, "virtual_ranks": 2, "task": "edges"}
    losses = losses_of_processes(2, folder, **asked, edge_labels=path, graph="partitioned")
    assert losses == pytest.approx(run(table, virtual_ranks=2)[1].losses, rel=1e-5)


# ---- scores


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize(("kind", "metrics"), [
    ("class", {"f1": "f1", "accuracy": "accuracy"}), ("class", {"rocauc": "margin", "accuracy": "accuracy"}),
    ("multilabel", {"rocauc": "rocauc"}), ("regression", {"r2": "r2", "mae": "mae"}),
])  # fmt: skip
def test_scores_are_those_of_a_loop_over_the_pairs(kind, metrics, p):
    table = made_of(kind)
    report, _, trainer = on_threads(p, lambda comm: run(table, comm, metric=next(iter(metrics)), epochs=6))[0]
    assert report["metric"] == next(iter(metrics))
    for split in SPLITS:
        rows = np.flatnonzero(table["split"] == split)
        logits = outputs(trainer.model, table, rows).detach()
        for name, formula in metrics.items():
            assert report[f"{split}_{name}"] == pytest.approx(METRICS[formula](table["label"][rows], logits), abs=1e-4), (split, name)
    assert trainer.data["classes"] == logits.shape[1]
    assert trainer.data["seeds"] == np.count_nonzero(table["split"] == "train")


def scores_of(report):
    return {name: value for name, value in report.items() if name.startswith(SPLITS) and isinstance(value, float)}


PLACED = [
    (2, {"graph": "partitioned"}), (4, {"graph": "partitioned", "replication": 2, "partition": "random"}),
    (4, {"graph": "partitioned", "exchange": "rows", "partition": "random", "grid_order": "columns", "replication": 2, "model": "gcn"}),
    (2, {"features": "partitioned", "cache_bytes": 900}), (2, {"topology": "partitioned", "features": "host"}),
    (2, {"features": "machine"}),
]  # fmt: skip


@pytest.mark.parametrize(("p", "options"), PLACED)
def test_where_the_graph_lies_changes_no_run(p, options, tmp_path):
    """The replicated run is the oracle: its losses to the bit, and its scores but for near ties that rounding breaks."""
    table = made_of("class" if p == 2 else "regression")
    model = {"model": options.get("model", "sage")}
    expected = on_threads(p, lambda comm: run(table, comm, **model)[:2])[0]
    for source in (GRAPH, saved(tmp_path, table)[0]):
        found = on_threads(p, lambda comm, source=source: run(table, comm, source, **options)[:2])[0]
        assert found[1].losses == expected[1].losses
        assert scores_of(found[0]) == pytest.approx(scores_of(expected[0]), abs=0.01)


def test_parts_and_a_store_are_trained_on_alike(tmp_path):
    table = made_of()
    folder, path = saved(tmp_path, table)
    write_parts(folder, tmp_path / "parts", np.arange(GRAPH.n) * 7 % 2, 2, "random", 0)
    found = [
        on_threads(2, lambda comm, source=source: run(None, comm, source, edge_labels=path)[1].losses)[0]
        for source in (GRAPH, folder, tmp_path / "parts")
    ]
    assert found[0] == found[1] == found[2]


# ---- learning


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_a_function_of_the_communities_of_both_ends(kind):
    table = pairs_table(GRAPH.labels, kind, m=1200)
    report = run(table, **{**WHOLE, "epochs": 12, "hidden": 16, "eval_every": 4})[0]
    rows = table["split"] == "test"
    if kind == "class":
        assert report["test_accuracy"] > 0.8 > 0.15 + max(np.bincount(table["label"][rows])) / rows.sum() - 0.05
    elif kind == "multilabel":
        assert report["test_rocauc"] > 0.85
    else:
        assert report["test_r2"] > 0.5


def test_it_learns_the_direction_of_a_pair():
    """Each pair is there both ways with opposite labels: who does not tell the ends apart is right in half of all."""
    rng = np.random.default_rng(3)
    one = pairs_table(GRAPH.labels, m=1000)
    apart = np.flatnonzero(GRAPH.labels[one["source"]] != GRAPH.labels[one["destination"]])
    u, v = one["source"][apart], one["destination"][apart]
    low = (GRAPH.labels[u] < GRAPH.labels[v]).astype(np.int64)
    split = np.array(["train", "train", "val", "test"])[rng.integers(0, 4, len(apart))]
    table = {"source": np.append(u, v), "destination": np.append(v, u), "label": np.append(low, 1 - low)}
    report = run(table | {"split": np.tile(split, 2)}, **{**WHOLE, "epochs": 12, "hidden": 16, "eval_every": 4})[0]
    assert report["test_accuracy"] > 0.8


def test_it_learns_from_the_features_of_a_pair_alone():
    table = made_of("class", features=3)
    table["label"] = (table["features"][:, 1] > 0).astype(np.int64)
    assert run(table, epochs=15, eval_every=15)[0]["test_accuracy"] > 0.85
    assert run({**table, "features": table["features"][:, ::2]}, epochs=15, eval_every=15)[0]["test_accuracy"] < 0.7
