"""Scores of every split by exact inference."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np
import torch

from ..config.metrics import METRICS
from ..distributed.comm.base import Comm
from ..errors import UsageError
from ..graph.labels import as_numbers
from ..nn.model import Gnn
from ..views.inference_share import InferenceShare
from .inference import exact_rows, gathered_rows
from .metrics import ogb_score, score, score_columns

_NO_CLASS = -1  # stands for the class of a vertex whose logits are not finite


def evaluate(
    model: Gnn, name: str, share: InferenceShare, comm: Comm, metric: str, splits: Collection[str] = (), memory: int | None = None
) -> dict[str, float]:
    """Score splits of a graph by exact inference, on every rank; collective.

    Parameters
    ----------
    name : str
        The name of the graph.
    share : InferenceShare
        This rank's rows with their labels and masks; the shares of all ranks are the whole graph.
    splits : collection of str
        The splits to score; by default all that the graph has.
    memory : int, optional
        Bytes of this rank for inference; see `exact_rows`.

    Returns
    -------
    dict
        For each of train, val and test that is scored: ``{split}_{metric}``; also ``{split}_accuracy`` of classes, and
        ``{split}_mae`` and ``{split}_r2`` of numbers; and ``{split}_ogb`` for graphs named ogbn-* if OGB's evaluator is installed.

    Notes
    -----
    All ranks gather a label, a class and a margin, 24 bytes, for every vertex of a split (kind "activations"); of labels of t columns
    they gather labels and logits, 8 t bytes.
    """
    assert share.labels is not None
    masks = scored_masks(share.masks, splits)
    wanted = np.any([np.zeros(share.rows, bool), *masks.values()], axis=0)
    logits = exact_rows(model, share, memory, wanted)[1][torch.from_numpy(np.flatnonzero(wanted))]
    return score_logits(logits, share.labels[wanted], {split: mask[wanted] for split, mask in masks.items()}, name, comm, metric)


def scored_masks(masks: dict[str, np.ndarray], splits: Collection[str]) -> dict[str, np.ndarray]:
    """Return the masks of the splits to score: those named, or all if none is."""
    return {split: mask for split, mask in masks.items() if not splits or split in splits}


def score_logits(
    logits: torch.Tensor, labels: np.ndarray, masks: dict[str, np.ndarray], name: str, comm: Comm, metric: str, what: str = "vertices"
) -> dict[str, float]:
    """Score the logits of this rank's rows, shape (rows, outputs), together with those of the other ranks; see `evaluate`.

    `what` names the rows in messages.
    """
    logits, several = logits.cpu(), labels.ndim == 2
    if several:  # columns: float32, NaN where one is missing
        columns = np.stack([as_numbers(labels), logits.numpy()], axis=1)
    else:
        predicted = torch.where(torch.isfinite(logits).all(1), logits.argmax(1), _NO_CLASS).numpy()
        margin = (logits[:, 1] - logits[:, 0]).numpy() if metric == "rocauc" else np.zeros(len(predicted))
        columns = np.stack([labels, predicted, margin], axis=1).astype(np.float64)
    wanted = METRICS["regression"] if metric in METRICS["regression"] else (metric,) if several else dict.fromkeys(("accuracy", metric))
    scores: dict[str, float] = {}
    for split, mask in masks.items():
        rows = gathered_rows(columns[mask], comm)
        truth, estimates = (rows[:, 0], rows[:, 1]) if several else rows[:, :2].T.astype(np.int64)
        if not len(rows) or (several and np.isnan(truth).all()):
            continue
        if failed := int(np.count_nonzero(~np.isfinite(estimates).all(1) if several else estimates == _NO_CLASS)):  # the same on every rank
            fits = "use a lower lr, or mend eval mode of the model"
            raise UsageError(f"the logits of {failed} {what} of the {split} split are not finite; {fits}")
        for one in wanted:
            scores[f"{split}_{one}"] = score_columns(one, truth, estimates) if several else score(one, truth, estimates, rows[:, 2])
        by_ogb = ogb_score(name, truth, estimates)
        if by_ogb is not None:
            scores[f"{split}_ogb"] = by_ogb
    return scores


def accuracies(logits: torch.Tensor, labels: np.ndarray, masks: dict[str, np.ndarray], comm: Comm) -> dict[str, float]:
    """Compute only the accuracy of every split: ranks add two counts for each (kind "control") and gather nothing."""
    right = logits.argmax(1).cpu().numpy() == labels
    counts = np.array([[np.count_nonzero(right[mask]), np.count_nonzero(mask)] for mask in masks.values()], np.int64).reshape(-1, 2)
    comm.allreduce(counts, "control")
    return {f"{split}_accuracy": int(hits) / int(rows) for split, (hits, rows) in zip(masks, counts, strict=True) if rows}


def undefined_warnings(scores: dict[str, float]) -> list[str]:
    """Return a warning that names the scores that the labels of their split do not define, if there are any."""
    named = [name for name, value in scores.items() if math.isnan(value)]
    why = f"{', '.join(named)} cannot be computed from the labels of the split, such as labels of one class alone for rocauc"
    return [f"{why}: null in the report, and not counted in the choice of the best weights"] if named else []


def overlap_warnings(scores: Iterable[str], seeds: str | None, what: str = "vertices") -> list[str]:
    """Return a warning for each scored split, other than that for training, whose vertices, or edges, were seeds of the training.

    Parameters
    ----------
    scores : names of scores, such as ``test_accuracy``
    seeds : str, optional
        The split that the user named for the seeds.
    """
    scored = {name.partition("_")[0] for name in scores}
    seen = [split for split in ("val", "test") if split in scored and seeds in (split, "all")]
    return [
        f"the {split} scores are of {what} that the model was trained on: the seeds were {seeds}, the {split} split among them; "
        f"use seeds train for scores of unseen {what}"
        for split in seen
    ]
