"""Scores of predictions: of classes, of several classes at once, of numbers, and OGB's own evaluator if it is installed.

F1_c = 2 TP_c / (2 TP_c + FP_c + FN_c)        AUC = P(score of a positive > score of a negative), ties count half
AP = sum over thresholds of (recall - recall at the threshold above) precision
MAE = mean abs(y - z)                         R2 = 1 - sum (y - z)**2 / sum (y - mean y)**2

Scores of several columns are the mean over columns; missing labels (NaN) are left out of each. A score that its labels do not define,
such as AUC where all are positive, is NaN, and a column without a score is left out of the mean.
"""

from __future__ import annotations

import importlib.util
import math

import numpy as np

from ..errors import UsageError


def accuracy(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of equal entries; NaN for empty arrays."""
    return float(np.mean(truth == predicted)) if len(truth) else math.nan


def f1(truth: np.ndarray, predicted: np.ndarray, average: str = "macro") -> float:
    """Compute F1 over the classes in either array: the mean over classes (macro), or F1 of the summed counts (micro); NaN if empty."""
    classes, codes = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    t, p = codes[: len(truth)], codes[len(truth) :]
    hit = np.bincount(t[t == p], minlength=len(classes))
    support = np.bincount(t, minlength=len(classes)) + np.bincount(p, minlength=len(classes))
    if not len(classes):
        return math.nan
    return float(2 * hit.sum() / support.sum()) if average == "micro" else float(np.mean(2 * hit / support))


def roc_auc(positive: np.ndarray, scores: np.ndarray) -> float:
    """Compute the area under the ROC curve by the rank sum (Mann and Whitney); NaN if a class is missing.

    Parameters
    ----------
    positive : bool, shape (m,)
    scores : float, shape (m,)
    """
    n_pos, n_neg = int(positive.sum()), int((~positive).sum())
    if not n_pos or not n_neg:
        return math.nan
    _, group, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[group]  # tied scores share the mean of their ranks
    return float((rank[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def average_precision(positive: np.ndarray, scores: np.ndarray) -> float:
    """Compute the area under the steps of the precision-recall curve, equal scores being one threshold; NaN without a positive.

    Parameters
    ----------
    positive : bool, or 0 and 1, shape (m,)
    scores : float, shape (m,)
    """
    if not positive.any():
        return math.nan
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # the last place of each threshold
    hits = np.cumsum(positive[order])[last]
    return float(np.sum(np.diff(hits, prepend=0) / hits[-1] * hits / (last + 1)))


def mae(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean absolute error over all known numbers; NaN if none is known."""
    known = ~np.isnan(truth)
    return float(np.abs(truth - predicted, dtype=np.float64)[known].mean()) if known.any() else math.nan


def r2(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the coefficient of determination of one column: 0 for a constant one, unless predicted exactly (1); NaN if empty."""
    if not len(truth):
        return math.nan
    errors = np.square(truth - predicted, dtype=np.float64).sum()
    spread = np.square(truth - truth.mean(dtype=np.float64)).sum()
    return float(1 - errors / spread) if spread else float(errors == 0)


def check_two_classes(num_classes: int) -> None:
    """Raise `UsageError` unless there are two classes, which rocauc compares."""
    if num_classes != 2:
        raise UsageError(f"rocauc compares two classes; there are {num_classes}: use accuracy or f1")


def score_columns(metric: str, truth: np.ndarray, logits: np.ndarray) -> float:
    """Compute the score of labels of several columns, the mean over columns (f1_micro and mae: over all known labels at once).

    Parameters
    ----------
    metric : a metric of "multilabel" or "regression" in `config.metrics`
        ``rocauc`` takes the mean over columns that have a 0 and a 1, ``ap`` over those that have a 1, as OGB does.
    truth : float, shape (m, t)
        NaN where a label is missing.
    logits : float, shape (m, t)
    """
    if metric == "mae":
        return mae(truth, logits)
    if metric == "f1_micro":
        known = ~np.isnan(truth)
        return _binary_f1(truth[known], logits[known])
    columns = [(y[~np.isnan(y)], z[~np.isnan(y)]) for y, z in zip(truth.T, logits.T, strict=True)]
    if metric == "rocauc":
        scores = [roc_auc(y == 1, z) for y, z in columns if len(np.unique(y)) == 2]
        return float(np.mean(scores)) if scores else math.nan
    one = {"ap": average_precision, "r2": r2}.get(metric, _binary_f1)
    scores = [value for y, z in columns if len(y) and not math.isnan(value := one(y, z))]
    return float(np.mean(scores)) if scores else math.nan


def _binary_f1(truth: np.ndarray, logits: np.ndarray) -> float:
    """Return F1 of class 1, predicted where the logit is positive; 0 if no label and no prediction is positive."""
    positive, predicted = truth == 1, logits > 0
    support = int(positive.sum() + predicted.sum())
    return float(2 * (positive & predicted).sum() / support) if support else 0.0


def score(metric: str, truth: np.ndarray, predicted: np.ndarray, margin: np.ndarray) -> float:
    """Compute one number in 0 .. 1, or NaN, for vertices that have a class.

    Parameters
    ----------
    metric : a metric of "class" in `config.metrics`; "f1" is "f1_macro"
    truth, predicted : integer, shape (m,)
    margin : float, shape (m,)
        Logit of class 1 minus that of class 0, for "rocauc".
    """
    if metric == "accuracy":
        return accuracy(truth, predicted)
    if metric == "rocauc":
        return roc_auc(truth == 1, margin)
    return f1(truth, predicted, "micro" if metric == "f1_micro" else "macro")


def ogb_score(name: str, truth: np.ndarray, predicted: np.ndarray) -> float | None:
    """Return the score of OGB's evaluator for a graph named ``ogbn-*``; None if it does not apply or is not installed.

    Parameters
    ----------
    truth, predicted : shape (m,), classes; or shape (m, t), labels with NaN where one is missing, and logits
    """
    if not name.startswith("ogbn-") or not len(truth) or importlib.util.find_spec("ogb") is None:
        return None
    from ogb.nodeproppred import Evaluator

    evaluator = Evaluator(name)
    truth, predicted = truth.reshape(len(truth), -1), predicted.reshape(len(truth), -1)
    several, metric = truth.dtype.kind == "f", evaluator.eval_metric
    if metric != ("rocauc" if several else "acc") or truth.shape[1] != evaluator.num_tasks:
        return None
    if several and not ((truth == 0).any(0) & (truth == 1).any(0)).any():
        return None
    return float(evaluator.eval({"y_true": truth, "y_pred": predicted})[metric])
