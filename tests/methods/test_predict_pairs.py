"""`predict(pairs=…)`: labels of edges and scores of links, of pairs that a run never saw, by dense formulas; and what does not match."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from communities import community_graph, dense_adjacency, dense_features
from planted_relations import all_sage_rows, shop, until
from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score

import bulksample as bs
from bulksample.data.link_split import hold_out
from bulksample.methods.config import TrainConfig
from bulksample.methods.predict import predict
from bulksample.methods.prediction_file import columns_of
from bulksample.methods.run import make_trainer
from bulksample.training import checkpoint

QUICK = {"fanouts": (5, 4), "hidden": 8, "epochs": 3, "lr": 0.02, "batch_size": 32, "threads": 1, "quiet": True}
IN_TABLE = "(in memory)"


def trained(graph, kept, table=None, **options):
    """Train, on a table of labelled edges if one is given; return the model, which has the best weights, and the report."""
    given = {} if table is None else {"task": "edges", "edge_labels": IN_TABLE}
    config = TrainConfig.of(**{**QUICK, **given, **options, "checkpoint": str(kept)})
    made = make_trainer(config, graph, edge_labels=table)
    report = made.run()
    return made.model, report


def some_pairs(sources, destinations, m=150, seed=0, features=3, target="class"):
    """Pairs at random, some of them twice, with features that tell their labels in part."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(m, max(2, features))).astype(np.float32)
    labels = {
        "class": (x[:, 0] > 0) + 1 * (x[:, 1] > 0),
        "multilabel": (x[:, :2] > 0).astype(np.int8),
        "regression": (x[:, 0] * 2 - x[:, 1]).astype(np.float32),
    }[target]
    ends = rng.integers(0, sources, m), rng.integers(0, destinations, m)
    table = {
        "source": ends[0],
        "destination": ends[1],
        "label": labels,
        "split": np.array(["train", "val", "test"])[rng.permutation(m) % 3],
    }
    return table | ({"features": x} if features else {})


def dense_embeddings(graph, encoder, name="sage", weighted=False):
    """The embeddings of all vertices by dense products with the weights of an encoder of two layers."""
    h, a = dense_features(graph), dense_adjacency(graph, weighted)
    if name == "sage":
        mix = a / np.where(a.any(1, keepdims=True), a.sum(1, keepdims=True), 1)
    else:
        scale = 1 / np.sqrt(a.sum(1) + 1)
        mix = scale[:, None] * (a + np.eye(graph.n)) * scale
    for i in range(2):
        w = {key: value.detach().double().numpy() for key, value in encoder.layers[i].named_parameters()}
        h = h @ w["own"] + mix @ h @ w["mean"] + w["bias"] if name == "sage" else mix @ h @ w["weight"] + w["bias"]
        h = h if i else np.maximum(h, 0)
    return h


def perceptron(model, rows):
    """The decoder on rows of pairs: a layer, PReLU, and a layer."""
    w = {name: value.detach().double().numpy() for name, value in model.decoder.named_parameters()}
    inner = rows @ w["0.weight"].T + w["0.bias"]
    return np.where(inner > 0, inner, model.slope.item() * inner) @ w["1.weight"].T + w["1.bias"]


def ends_and_features(z, other, table):
    parts = [z[table["source"]], other[table["destination"]]]
    return np.concatenate([*parts, table["features"]] if "features" in table else parts, axis=1)


@pytest.mark.parametrize(("model", "features"), [("sage", 3), ("sage", 0), ("gcn", 0)])
def test_pairs_of_another_graph_have_the_logits_of_the_formula(tmp_path, model, features):
    graph, other = community_graph(), community_graph(n=170, degree=5, seed=7)
    made, _ = trained(graph, tmp_path / "kept", some_pairs(graph.n, graph.n, features=features), model=model)
    asked = some_pairs(other.n, other.n, 90, 5, features)
    z = dense_embeddings(other, made.encoder, model)
    found = bs.predict(other, tmp_path / "kept", pairs=asked)
    expected = perceptron(made, ends_and_features(z, z, asked))
    assert (found.logits.dtype, found.logits.shape) == (np.float32, (90, 3))
    np.testing.assert_allclose(found.logits, expected, rtol=1e-4, atol=1e-4)
    turned = bs.predict(other, tmp_path / "kept", pairs=asked | {"source": asked["destination"], "destination": asked["source"]})
    assert not np.allclose(turned.logits, found.logits, atol=1e-3)
    assert (found.embeddings, found.scores, found.warnings) == (None, {}, [])
    assert set(found.more) == {"source", "destination"}


def test_tables_of_every_kind_are_read_and_stores_too(tmp_path):
    graph, table = community_graph(), some_pairs(300, 300, features=2)
    graph.save(tmp_path / "g")
    trained(graph, tmp_path / "kept", table)
    bare = {"source": table["source"], "destination": table["destination"], "features": table["features"]}
    flat = {name: column for name, column in table.items() if name != "features"} | {
        "feature_0": table["features"][:, 0], "feature_1": table["features"][:, 1], "note": ["x"] * 150,
    }  # fmt: skip
    np.savez(tmp_path / "t.npz", **bare)
    pd.DataFrame(flat).to_csv(tmp_path / "t.csv", index=False)
    first = predict(graph, tmp_path / "kept", pairs=bare).logits
    for form in (table, pd.DataFrame(flat), pyarrow.table(flat), tmp_path / "t.npz", str(tmp_path / "t.csv")):
        np.testing.assert_array_equal(predict(tmp_path / "g", tmp_path / "kept", pairs=form).logits, first)
    one = predict(graph, tmp_path / "kept", pairs={name: column[4:5] for name, column in bare.items()})
    np.testing.assert_allclose(one.logits, first[4:5], atol=1e-6)
    none = predict(graph, tmp_path / "kept", pairs={name: column[:0] for name, column in bare.items()})
    assert none.logits.shape == (0, 3)
    assert [len(column) for column in columns_of(none).values()] == [0, 0, 0, 0]
    np.testing.assert_allclose(predict(graph, tmp_path / "kept", pairs=bare, memory=1).logits, first, rtol=1e-5, atol=1e-5)


def test_features_are_those_of_the_names_of_the_run(tmp_path):
    graph, table = community_graph(), some_pairs(300, 300, features=2)
    x = table.pop("features")
    trained(graph, tmp_path / "kept", table | {"feature_b": x[:, 0], "feature_a": x[:, 1]})
    bare = {"source": table["source"], "destination": table["destination"]}
    first = predict(graph, tmp_path / "kept", pairs=bare | {"features": x}).logits  # a matrix has no names
    others = {"feature_a": x[:, 1], "feature_more": x[:, 0] + 1, "feature_b": x[:, 0]}
    np.testing.assert_array_equal(predict(graph, tmp_path / "kept", pairs=bare | others).logits, first)
    wrong = bare | {"feature_a": x[:, 1], "feature_c": x[:, 0]}
    with pytest.raises(bs.UsageError, match="pairs: has no column feature_b, a feature of the run"):
        predict(graph, tmp_path / "kept", pairs=wrong)


def score(target, truth, logits):
    if target == "class":
        return {"accuracy": accuracy_score(truth, logits.argmax(1))}
    if target == "regression":
        return {"mae": mean_absolute_error(truth, logits[:, 0])}
    return {"rocauc": roc_auc_score(truth, logits)}


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("class", {"model": "sage"}), ("multilabel", {"model": "sage"}), ("regression", {"model": "gat"}),
        ("class", {"model": "gcn", "batch_norm": True}), ("class", {"model": "hetero-gat"}), ("regression", {"model": "hetero-sage"}),
    ],
)  # fmt: skip
def test_scores_are_those_of_the_best_epoch_of_the_run(tmp_path, target, options):
    graph, table = community_graph(), some_pairs(300, 300, target=target)
    table["y"] = table.pop("label")
    _, report = trained(graph, tmp_path / "kept", table, label="y", **options)
    found = predict(graph, tmp_path / "kept", pairs=table)
    for split in ("val", "test"):
        mask = table["split"] == split
        for name, value in score(target, table["y"][mask], found.logits[mask]).items():
            assert report[f"{split}_{name}"] == pytest.approx(value, abs=1e-6)
    written = columns_of(found)
    assert list(written)[:2] == ["source", "destination"]
    np.testing.assert_array_equal(written["destination"], table["destination"])
    if target == "class":
        assert list(written)[2:] == ["class", "probability"]
        np.testing.assert_array_equal(written["class"], found.logits.argmax(1))
    elif target == "multilabel":
        np.testing.assert_allclose(written["probability_1"], 1 / (1 + np.exp(-found.logits[:, 1].astype(float))))
    else:
        np.testing.assert_array_equal(written["prediction"], found.logits[:, 0])


def test_means_by_weight_are_those_of_a_weighted_run(tmp_path):
    graph, table = community_graph(weighted=True), some_pairs(300, 300, features=0)
    made, _ = trained(graph, tmp_path / "kept", table, model="sage", sampler="ladies", fanouts=(64, 64))
    z = dense_embeddings(graph, made.encoder, weighted=True)
    expected = perceptron(made, ends_and_features(z, z, table))
    np.testing.assert_allclose(predict(graph, tmp_path / "kept", pairs=table).logits, expected, rtol=1e-4, atol=1e-4)
    plain = dense_embeddings(graph, made.encoder)
    assert not np.allclose(plain, z, atol=1e-2)


def in_time(graph, encoder, times, asked, decode):
    """Return what a decoder makes of the pairs of a table, each with the embeddings at its time; `times` is None without time."""
    stamps = np.zeros(len(asked["source"])) if times is None else times
    made = None
    for t in np.unique(stamps):
        rows = all_sage_rows(until(graph, None if times is None else int(t)), encoder)
        here = {name: column[stamps == t] for name, column in asked.items()}
        part = decode(rows["user"].double().numpy(), rows["item"].double().numpy(), here)
        made = np.zeros((len(stamps), part.shape[1])) if made is None else made
        made[stamps == t] = part
    return made


@pytest.mark.parametrize("kind", [{}, {"edge_times": True}, {"times": True}])
def test_pairs_of_a_relation_see_their_past(tmp_path, kind):
    graph = shop(**kind)
    rng = np.random.default_rng(3)
    table = some_pairs(60, 40, features=2) | ({"time": rng.integers(0, 12, 150) * 4} if kind else {})
    options = {"model": "hetero-sage", "target_relation": "user:buys:item", "epochs": 1}
    made, report = trained(graph, tmp_path / "kept", table, **options)
    found = predict(graph, tmp_path / "kept", pairs=table)
    mask = table["split"] == "test"
    assert report["test_accuracy"] == accuracy_score(table["label"][mask], found.logits[mask].argmax(1))
    asked = some_pairs(60, 40, 40, 9, 2) | ({"time": np.arange(40) % 5 * 10} if kind else {})

    def decode(users, items, table):
        return perceptron(made, ends_and_features(users, items, table))

    expected = in_time(graph, made.encoder, asked.get("time"), asked, decode)
    found = predict(graph, tmp_path / "kept", pairs=asked)
    np.testing.assert_allclose(found.logits, expected, rtol=1e-4, atol=1e-4)
    if not kind:
        assert "times" not in found.more
        return
    np.testing.assert_array_equal(found.more["times"], asked["time"])
    assert list(columns_of(found))[:3] == ["source", "destination", "time"]
    timeless = {name: column for name, column in asked.items() if name != "time"}
    at_once = predict(graph, tmp_path / "kept", pairs=timeless, at=20)
    expected = in_time(graph, made.encoder, np.full(40, 20), asked, decode)
    np.testing.assert_allclose(at_once.logits, expected, rtol=1e-4, atol=1e-4)
    assert not np.allclose(at_once.logits, found.logits, atol=1e-3)
    np.testing.assert_array_equal(at_once.more["times"], np.full(40, 20))
    with pytest.raises(bs.UsageError, match="at: pairs has a column 'time'; leave one of them out"):
        predict(graph, tmp_path / "kept", pairs=asked, at=20)
    with pytest.raises(bs.UsageError, match="graph 'shop' has times, but pairs has no column 'time'; give it, or at for all pairs"):
        predict(graph, tmp_path / "kept", pairs=timeless)
    with pytest.raises(bs.UsageError, match="use a time that fits int64"):
        predict(graph, tmp_path / "kept", pairs=timeless, at=2**63)


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_links_have_the_scores_of_their_decoder(tmp_path, decoder):
    graph = hold_out(replace(community_graph(), labels=None, masks={}, extra={}), "to", 0.1, 0.1, 10, seed=0)
    made, _ = trained(graph, tmp_path / "kept", task="links", decoder=decoder)
    asked = {name: column for name, column in some_pairs(300, 300, features=0).items() if name in ("source", "destination")}
    found = predict(graph, tmp_path / "kept", pairs=asked)
    z = dense_embeddings(graph, made.encoder)
    product = z[asked["source"]] * z[asked["destination"]]
    expected = product.sum(1, keepdims=True) if decoder == "dot" else perceptron(made, product)
    np.testing.assert_allclose(found.logits, expected, rtol=1e-4, atol=1e-4)
    written = columns_of(found)
    assert list(written) == ["source", "destination", "score", "probability"]
    np.testing.assert_allclose(written["probability"], torch.from_numpy(written["score"]).sigmoid().numpy())
    assert predict(graph, tmp_path / "kept").logits is None
    with pytest.raises(bs.UsageError, match="takes 0 features of a pair; pairs has 3: use a table with no features"):
        predict(graph, tmp_path / "kept", pairs=asked | {"features": np.ones((150, 3), np.float32)})


def test_links_of_a_relation_have_the_scores_of_their_time(tmp_path):
    graph = hold_out(shop(edge_times=True), "buys", 0.1, 0.1, 5, seed=0)
    made, _ = trained(graph, tmp_path / "kept", task="links", model="hetero-sage", epochs=1)
    asked = {"source": np.arange(40), "destination": np.arange(40)[::-1], "time": np.arange(40) % 5 * 10}
    expected = in_time(
        graph, made.encoder, asked["time"], asked,
        lambda users, items, table: (users[table["source"]] * items[table["destination"]]).sum(1, keepdims=True),
    )  # fmt: skip
    np.testing.assert_allclose(predict(graph, tmp_path / "kept", pairs=asked).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The checkpoints of runs that predict labels of edges, with three features, and of vertices."""
    folder = tmp_path_factory.mktemp("kept")
    graph = community_graph()
    trained(graph, folder / "edges", some_pairs(graph.n, graph.n), epochs=1)
    trained(graph, folder / "nodes", epochs=1)
    return folder


ASKED = {"source": [0, 1], "destination": [2, 3], "features": np.zeros((2, 3), np.float32)}
REFUSED = {
    "no pairs": ("edges", None, {}, "predicts labels of edges; give pairs=TABLE, with source and destination"),
    "nodes": ("nodes", ASKED, {}, "predicts labels of vertices; leave it out"),
    "features": (
        "edges",
        ASKED | {"features": np.zeros((2, 5))},
        {},
        "takes 3 features of a pair; pairs has 5: use a table with 3 features",
    ),
    "no features": ("edges", {"source": [0], "destination": [1]}, {}, "takes 3 features of a pair; pairs has 0"),
    "times": ("edges", ASKED | {"time": [1, 2]}, {}, "pairs: has a column 'time', and graph 'communities' has no times that count"),
    "at": ("edges", ASKED, {"at": 3}, "at is for heterogeneous graphs with times; leave it out"),
    "model": ("edges", ASKED, {"model": "a.b:c"}, "holds a model of ours, sage; leave model out"),
    "a number": ("edges", 5, {}, "pairs: got a int; use a pandas.DataFrame"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_requests_are_refused(kept, name):
    task, pairs, options, message = REFUSED[name]
    with pytest.raises(bs.UsageError, match=re.escape(message)):
        predict(community_graph(), kept / task, pairs=pairs, **options)


def test_malformed_tables_and_graphs_that_do_not_match_are_told(kept, tmp_path):
    cases = [
        (ASKED | {"destination": [2, 300]}, "pairs: row 1 has destination 300, and type 'node' has 300 vertices: use 0 to 299"),
        ({"source": [0], "features": np.zeros((1, 3))}, "pairs: there is no column 'destination'"),
        (tmp_path / "none.csv", "none.csv"),
    ]
    for pairs, message in cases:
        with pytest.raises(bs.DataError, match=re.escape(message)):
            predict(community_graph(), kept / "edges", pairs=pairs)
    with pytest.raises(bs.UsageError, match="takes 8 features of a vertex; graph 'communities' has 5"):
        predict(community_graph(width=5), kept / "edges", pairs=ASKED)


DAMAGED = {
    "no first layer": {"decoder.0.weight": None},
    "no last layer": {"decoder.1.weight": None},
    "less than two ends": {"decoder.0.weight": torch.zeros(8, 15)},
    "another width inside": {"decoder.0.weight": torch.zeros(7, 19)},
    "no matrix": {"decoder.0.weight": torch.zeros(8)},
    "another width at the end": {"decoder.1.weight": torch.zeros(3, 7)},
    "no outputs": {"decoder.1.weight": torch.zeros(0, 8), "decoder.1.bias": torch.zeros(0)},
    "other outputs": {"decoder.1.bias": torch.zeros(4)},
    "no slope": {"slope": None},
    "no layer": {"encoder.layers.1.bias": None},
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_checkpoint_without_its_decoder_is_damaged(kept, tmp_path, fault):
    _, (tensors, state) = checkpoint.read(kept / "edges")
    assert "best.slope" in tensors
    changed = tensors | {f"best.{name}": made for name, made in DAMAGED[fault].items()}
    changed = {name: tensor for name, tensor in changed.items() if tensor is not None}
    rest = {key: value for key, value in state.items() if key not in ("format", "sha256")}
    checkpoint.save(tmp_path / "bad", 1, changed, rest | {"tensors": sorted(changed)})
    with pytest.raises(bs.DataError, match="does not hold"):
        predict(community_graph(), tmp_path / "bad", pairs=ASKED)


def test_a_checkpoint_with_malformed_names_of_features_is_damaged(kept, tmp_path):
    _, (tensors, state) = checkpoint.read(kept / "edges")
    rest = {key: value for key, value in state.items() if key not in ("format", "sha256")}
    checkpoint.save(tmp_path / "bad", 1, tensors, rest | {"pair_features": 3})
    with pytest.raises(bs.DataError, match="does not say which features pairs had"):
        predict(community_graph(), tmp_path / "bad", pairs=ASKED)


def test_relations_of_another_graph_are_told(tmp_path):
    graph = shop()
    trained(graph, tmp_path / "kept", some_pairs(60, 40, features=0), model="hetero-sage", target_relation="user:buys:item", epochs=1)
    asked = {"source": [59], "destination": [39]}
    assert predict(graph, tmp_path / "kept", pairs=asked).logits.shape == (1, 3)
    with pytest.raises(bs.DataError, match="pairs: row 0 has destination 40, and type 'item' has 40 vertices"):
        predict(graph, tmp_path / "kept", pairs={"source": [59], "destination": [40]})
    with pytest.raises(bs.UsageError, match="3 relations, and graph 'shop' has 2"):
        predict(replace(graph, relations=graph.relations[:2]), tmp_path / "kept", pairs=asked)
    with pytest.raises(bs.UsageError, match="at: graph 'shop' has no times; leave it out"):
        predict(graph, tmp_path / "kept", pairs=asked, at=3)
    with pytest.raises(bs.UsageError, match="pairs: has a column 'time', and graph 'shop' has no times"):
        predict(graph, tmp_path / "kept", pairs=asked | {"time": [3]})
    _, (tensors, state) = checkpoint.read(tmp_path / "kept")
    odd = state["schema"] | {"target": "item", "link_target": "item"}
    checkpoint.save(tmp_path / "odd", 1, tensors, state | {"schema": odd})
    with pytest.raises(bs.DataError, match="does not say which pairs its model takes"):
        predict(graph, tmp_path / "odd", pairs=asked)
