"""The metrics that evaluate a model, and the targets that each one suits."""

from __future__ import annotations

import math

from ..errors import UsageError, instead_of

METRICS = {
    "class": ("accuracy", "f1", "f1_macro", "f1_micro", "rocauc"),
    "multilabel": ("rocauc", "ap", "f1", "f1_macro", "f1_micro"),
    "regression": ("mae", "r2"),
    "links": ("mrr", "hits@10"),
}  # the first of each is its default
_NO_SHARES = ("mae", "r2")
_LOWER_IS_BETTER = ("mae",)


def is_ranking(metric: str) -> bool:
    """Return True for the scores of link prediction, ``mrr`` and ``hits@k``."""
    return metric == "mrr" or (metric.startswith("hits@") and metric[5:].isdigit() and int(metric[5:]) > 0)


def check_exists(metric: str) -> None:
    """Raise `UsageError` if there is no such metric."""
    names = list(dict.fromkeys(name for group in METRICS.values() for name in group))
    if metric not in names and not is_ranking(metric):
        raise UsageError(f"there is no metric {metric!r}; {instead_of(metric, names)}")


def check_suits(metric: str, target: str) -> None:
    """Raise `UsageError` if a metric does not suit a target, or the task ``links``."""
    if is_ranking(metric) if target == "links" else metric in METRICS[target]:
        return
    purpose = "the task 'links'" if target == "links" else f"the target {target!r}"
    raise UsageError(f"the metric {metric!r} does not suit {purpose}; use {', '.join(METRICS[target])}")


def goodness(metric: str, score: float) -> float:
    """Return the score with its sign changed if lower is better, so that larger is always better."""
    return -score if metric in _LOWER_IS_BETTER else score


def is_better(metric: str, score: float, kept: float) -> bool:
    """Return True if a score is better than the one that is kept; one that is not defined (NaN) is worse than all others."""
    return not math.isnan(score) and (math.isnan(kept) or goodness(metric, score) > goodness(metric, kept))


def percent(metric: str) -> float:
    """Return the factor of a score in tables and plots: 100 for metrics in 0 .. 1, which are shown in percent, else 1."""
    return 1.0 if metric in _NO_SHARES else 100.0


def titled(name: str, metric: str) -> str:
    """Return the title of scores as tables and plots show them, such as "test accuracy, %"."""
    return f"{name}, %" if percent(metric) == 100 else name
