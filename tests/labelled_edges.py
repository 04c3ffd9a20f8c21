"""Tables of labelled pairs whose labels can be learnt; a perceptron on pairs and its loss in plain torch, and scores by loops."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from recorder import Recorder

from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

SPLITS = ("train", "val", "test")
KINDS = ("class", "multilabel", "regression")


def labels_of(kind, one, other, rng):
    """Labels of pairs that follow from the communities of both ends, and not alike both ways; some of several columns are missing."""
    if kind == "class":
        return (one < other).astype(np.int64)
    if kind == "multilabel":
        whole = np.stack([one < other, one == other, one == 1], axis=1).astype(np.int8)
        return np.where(rng.random(whole.shape) < 0.2, -1, whole).astype(np.int8)
    whole = np.stack([one - 2.0 * other, one * other], axis=1).astype(np.float32)
    return np.where(rng.random(whole.shape) < 0.2, np.nan, whole).astype(np.float32)


def pairs_table(communities, kind="class", m=400, features=0, others=None, seed=0):
    """A table of pairs at random, a tenth of them twice, with loops, in three splits; one pair in ten is in no split.

    `communities` are those of the sources, -1 of vertices that are in no pair, and `others` those of the destinations, by default the same.
    """
    rng = np.random.default_rng(seed)
    others = communities if others is None else others
    u, v = (rng.choice(np.flatnonzero(known >= 0), m) for known in (communities, others))
    u[-m // 10 :], v[-m // 10 :] = u[: m // 10], v[: m // 10]
    if others is communities:
        v[:: m // 8] = u[:: m // 8]
    labels = labels_of(kind, communities[u], others[v], rng)
    known = labels >= 0 if kind == "class" else (labels >= 0 if kind == "multilabel" else ~np.isnan(labels)).any(axis=1)
    part = np.where(known, rng.permutation(m) % 10, 9)
    table = {"source": u, "destination": v, "label": labels, "split": np.array(["train"] * 5 + ["val"] * 2 + ["test"] * 2 + [""])[part]}
    if features:
        table["features"] = rng.standard_normal((m, features)).astype(np.float32)
    return table


def trained(source, table, comm=None, where=None, **options):
    """Train on a table in memory; return the report, the recorder and the trainer."""
    recorder = Recorder()
    config = TrainConfig.of(**{"task": "edges", "edge_labels": "pairs", **options})
    made = make_trainer(config, source, comm, [recorder], where, edge_labels=table)
    return made.run(), recorder, made


def decoded(model, one, other, x=None, parameters=None):
    """The outputs of pairs: V prelu(W [z_u, z_v, x] + b) + c, of the parameters of a model, or of copies by name."""
    own = dict(model.named_parameters()) if parameters is None else parameters
    hidden = torch.cat([one, other] if x is None else [one, other, torch.as_tensor(x)], dim=1) @ own["decoder.0.weight"].T
    hidden = hidden + own["decoder.0.bias"]
    return torch.where(hidden > 0, hidden, own["slope"] * hidden) @ own["decoder.1.weight"].T + own["decoder.1.bias"]


def mean_loss(kind, logits, labels):
    """The mean over all known labels."""
    if kind == "class":
        return F.cross_entropy(logits, torch.as_tensor(labels))
    truth = torch.as_tensor(labels.astype(np.float32))
    known = ~truth.isnan() if kind == "regression" else truth >= 0
    return (F.mse_loss if kind == "regression" else F.binary_cross_entropy_with_logits)(logits[known], truth[known])


def accuracy(labels, logits):
    return sum(int(y) == int(z.argmax()) for y, z in zip(labels, logits, strict=True)) / len(labels)


def macro_f1(labels, logits):
    """The mean over classes of 2 TP / (2 TP + FP + FN)."""
    pairs = [(int(y), int(z.argmax())) for y, z in zip(labels, logits, strict=True)]
    found = []
    for c in {one for pair in pairs for one in pair}:
        hits = sum(y == z == c for y, z in pairs)
        found.append(2 * hits / (sum(y == c for y, _ in pairs) + sum(z == c for _, z in pairs)))
    return sum(found) / len(found)


def auc(truth, scores):
    """The share of pairs of a positive and a negative in the right order; ties count half."""
    pairs = [(p, q) for p, y in zip(scores, truth, strict=True) if y == 1 for q, x in zip(scores, truth, strict=True) if x == 0]
    return sum((p > q) + 0.5 * (p == q) for p, q in pairs) / len(pairs)


def column_aucs(labels, logits):
    return np.mean([auc(y[y >= 0], z[y >= 0]) for y, z in zip(labels.T, np.asarray(logits).T, strict=True)])


def absolute_error(labels, logits):
    errors = [abs(float(z) - float(y)) for y, z in zip(labels.ravel(), np.asarray(logits).ravel(), strict=True) if not np.isnan(y)]
    return sum(errors) / len(errors)


def determination(labels, logits):
    """R2, the mean over columns."""
    found = []
    for y, z in zip(labels.astype(np.float64).T, np.asarray(logits, np.float64).T, strict=True):
        known = ~np.isnan(y)
        found.append(1 - ((y - z)[known] ** 2).sum() / ((y[known] - y[known].mean()) ** 2).sum())
    return np.mean(found)


METRICS = {
    "accuracy": accuracy, "f1": macro_f1, "rocauc": column_aucs, "mae": absolute_error, "r2": determination,
    "margin": lambda labels, logits: auc(labels, np.asarray(logits)[:, 1] - np.asarray(logits)[:, 0]),
}  # fmt: skip
