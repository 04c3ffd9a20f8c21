"""Scores of every split by exact inference."""

from __future__ import annotations

import numpy as np

from ..dist.base import Comm
from .inference import Share, infer
from .metrics import ogb_score, score
from .model import Gnn


def evaluate(model: Gnn, name: str, share: Share, comm: Comm, metric: str) -> dict[str, float]:
    """Scores of every split of a graph, on every rank; collective.

    Parameters
    ----------
    name : str
        Of the graph.
    share : Share
        Labels and masks of its rows are looked at; the shares of all ranks are the graph.

    Returns
    -------
    dict
        ``{split}_accuracy`` for train, val and test where the graph has them, ``{split}_{metric}`` where the metric is
        another, and ``{split}_ogb`` for graphs named ogbn-* where OGB's evaluator is installed.

    Notes
    -----
    All ranks gather a label, a class and a margin, 24 bytes, for every vertex of a split (kind "activations").
    """
    logits = infer(model, share)
    predicted = logits.argmax(1).numpy()
    margin = (logits[:, 1] - logits[:, 0]).numpy() if metric == "rocauc" else np.zeros(len(predicted))
    assert share.labels is not None
    scores: dict[str, float] = {}
    for split, mask in share.masks.items():
        own = np.stack([share.labels[mask], predicted[mask], margin[mask]], axis=1).astype(np.float64)
        counts = comm.allgather(np.array([len(own)]), "control")[:, 0]
        labels, classes, margins = comm.allgather_rows(own, counts, "activations").T
        labels, classes = labels.astype(np.int64), classes.astype(np.int64)
        if not len(labels):
            continue
        for wanted in dict.fromkeys(("accuracy", metric)):
            scores[f"{split}_{wanted}"] = score(wanted, labels, classes, margins)
        by_ogb = ogb_score(name, labels, classes)
        if by_ogb is not None:
            scores[f"{split}_ogb"] = by_ogb
    return scores
