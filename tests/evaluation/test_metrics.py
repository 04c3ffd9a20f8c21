"""Scores against scikit-learn."""

import importlib.util

import numpy as np
import pytest

from bulksample import UsageError
from bulksample.evaluation.metrics import accuracy, check_metric, f1, ogb_score, roc_auc, score


@pytest.fixture(scope="module")
def sklearn_metrics():
    return pytest.importorskip("sklearn.metrics")  # seconds of import, which only these tests are to wait for


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("seed", range(3))
def test_accuracy_and_f1_agree_with_scikit_learn(sklearn_metrics, classes, seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, 200)
    predicted = np.where(rng.random(200) < 0.6, truth, rng.integers(0, classes, 200))
    predicted[truth == 0] = 1  # a class that is never predicted
    assert accuracy(truth, predicted) == pytest.approx(sklearn_metrics.accuracy_score(truth, predicted))
    for average in ("macro", "micro"):
        expected = sklearn_metrics.f1_score(truth, predicted, average=average)
        assert f1(truth, predicted, average) == pytest.approx(expected)


@pytest.mark.parametrize("ties", [1, 5, 1000])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_roc_auc_agrees_with_scikit_learn(sklearn_metrics, ties, share):
    rng = np.random.default_rng(ties)
    positive = rng.random(400) < share
    scores = np.round(rng.random(400) + 0.3 * positive, 3) * ties // 1
    assert roc_auc(positive, scores) == pytest.approx(sklearn_metrics.roc_auc_score(positive, scores))


def test_empty_and_unknown_inputs():
    nothing = np.empty(0, np.int64)
    assert accuracy(nothing, nothing) == f1(nothing, nothing) == 0
    assert roc_auc(np.ones(4, bool), np.arange(4)) == 0.5
    assert score("rocauc", np.array([0, 1]), np.array([0, 0]), np.array([0.1, 0.2])) == 1
    with pytest.raises(UsageError, match="compares two classes"):
        check_metric("rocauc", 3)
    with pytest.raises(UsageError, match="no metric 'auc'"):
        check_metric("auc", 2)


def test_ogb_scores_only_its_own_graphs():
    assert ogb_score("communities", np.zeros(3, int), np.zeros(3, int)) is None
    if importlib.util.find_spec("ogb") is None:
        assert ogb_score("ogbn-arxiv", np.zeros(3, int), np.zeros(3, int)) is None
    else:
        assert ogb_score("ogbn-arxiv", np.array([0, 1]), np.array([0, 0])) == 0.5
