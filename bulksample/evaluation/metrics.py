"""Scores of predictions: accuracy, F1, ROC AUC, and OGB's own evaluator if it is installed.

F1_c = 2 TP_c / (2 TP_c + FP_c + FN_c)        AUC = P(score of a positive > score of a negative), ties count half
"""

from __future__ import annotations

import importlib.util

import numpy as np

from ..errors import UsageError

METRICS = ("accuracy", "f1", "f1_macro", "f1_micro", "rocauc")


def accuracy(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of equal entries; 0 for empty arrays."""
    return float(np.mean(truth == predicted)) if len(truth) else 0.0


def f1(truth: np.ndarray, predicted: np.ndarray, average: str = "macro") -> float:
    """Compute F1 over the classes in either array: the mean over classes (macro), or F1 of the summed counts (micro)."""
    classes, codes = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    t, p = codes[: len(truth)], codes[len(truth) :]
    hit = np.bincount(t[t == p], minlength=len(classes))
    support = np.bincount(t, minlength=len(classes)) + np.bincount(p, minlength=len(classes))
    if not len(classes):
        return 0.0
    return float(2 * hit.sum() / support.sum()) if average == "micro" else float(np.mean(2 * hit / support))


def roc_auc(positive: np.ndarray, scores: np.ndarray) -> float:
    """Compute the area under the ROC curve by the rank sum (Mann and Whitney); 0.5 if a class is missing.

    Parameters
    ----------
    positive : bool, shape (m,)
    scores : float, shape (m,)
    """
    n_pos, n_neg = int(positive.sum()), int((~positive).sum())
    if not n_pos or not n_neg:
        return 0.5
    _, group, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[group]  # tied scores share the mean of their ranks
    return float((rank[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def check_metric(metric: str, num_classes: int) -> None:
    """Raise `UsageError` if the metric is unknown, or not defined for this number of classes."""
    if metric not in METRICS:
        raise UsageError(f"there is no metric {metric!r}; use one of {', '.join(METRICS)}")
    if metric == "rocauc" and num_classes != 2:
        raise UsageError(f"rocauc compares two classes; the graph has {num_classes}: use accuracy or f1")


def score(metric: str, truth: np.ndarray, predicted: np.ndarray, margin: np.ndarray) -> float:
    """Compute one number in 0 .. 1 for labelled vertices.

    Parameters
    ----------
    metric : one of METRICS; "f1" is "f1_macro"
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
    """Return the score of OGB's evaluator for a graph named ``ogbn-*``; None if it does not apply or is not installed."""
    if not name.startswith("ogbn-") or not len(truth) or importlib.util.find_spec("ogb") is None:
        return None
    from ogb.nodeproppred import Evaluator

    evaluator = Evaluator(name)
    if evaluator.eval_metric != "acc":
        return None
    return float(evaluator.eval({"y_true": truth[:, None], "y_pred": predicted[:, None]})["acc"])
