"""Scores against scikit-learn."""

import importlib.util

import numpy as np
import pytest

from bulksample import UsageError
from bulksample.config.metrics import check_exists, check_suits, goodness, is_better
from bulksample.evaluation.metrics import (
    accuracy,
    average_precision,
    check_two_classes,
    f1,
    ogb_score,
    roc_auc,
    score,
    score_columns,
)


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
    undefined = [accuracy(nothing, nothing), f1(nothing, nothing), roc_auc(np.ones(4, bool), np.arange(4))]
    undefined += [score_columns(metric, np.full((3, 2), np.nan), np.ones((3, 2))) for metric in ("f1", "mae", "r2")]
    assert np.isnan(undefined).all()
    assert score("rocauc", np.array([0, 1]), np.array([0, 0]), np.array([0.1, 0.2])) == 1
    with pytest.raises(UsageError, match="compares two classes"):
        check_two_classes(3)


def test_ogb_scores_only_its_own_graphs():
    assert ogb_score("communities", np.zeros(3, int), np.zeros(3, int)) is None
    if importlib.util.find_spec("ogb") is None:
        assert ogb_score("ogbn-arxiv", np.zeros(3, int), np.zeros(3, int)) is None
    else:
        assert ogb_score("ogbn-arxiv", np.array([0, 1]), np.array([0, 0])) == 0.5


@pytest.mark.parametrize("ties", [1, 7, 1000])
def test_average_precision_agrees_with_scikit_learn(sklearn_metrics, ties):
    rng = np.random.default_rng(ties)
    positive = rng.random(300) < 0.3
    scores = np.floor((rng.random(300) + 0.4 * positive) * ties)
    assert average_precision(positive, scores) == pytest.approx(sklearn_metrics.average_precision_score(positive, scores))
    assert np.isnan(average_precision(np.zeros(3, bool), np.arange(3)))


def columns_of_labels():
    """Labels of five classes, some missing; class 3 has no positive, class 4 none at all; and logits."""
    rng = np.random.default_rng(3)
    truth = (rng.random((200, 5)) < 0.4).astype(np.float32)
    logits = (rng.standard_normal((200, 5)) + truth).astype(np.float32)
    truth[rng.random((200, 5)) < 0.2] = np.nan
    truth[:, 3], truth[:, 4] = np.where(np.isnan(truth[:, 3]), np.nan, 0), np.nan
    return truth, logits


@pytest.mark.parametrize(("metric", "function", "columns"), [("rocauc", "roc_auc_score", 3), ("ap", "average_precision_score", 3)])
def test_ranking_scores_of_several_classes_are_means_over_the_known_ones(sklearn_metrics, metric, function, columns):
    truth, logits = columns_of_labels()
    known = ~np.isnan(truth)
    expected = [getattr(sklearn_metrics, function)(truth[known[:, c], c], logits[known[:, c], c]) for c in range(columns)]
    assert score_columns(metric, truth, logits) == pytest.approx(np.mean(expected), rel=1e-6)
    assert np.isnan(score_columns(metric, truth[:, 3:], logits[:, 3:])), "no class has a positive"


def test_f1_of_several_classes_agrees_with_scikit_learn(sklearn_metrics):
    truth, logits = columns_of_labels()
    whole = np.nan_to_num(truth[:, :4])
    for metric, average in (("f1", "macro"), ("f1_macro", "macro"), ("f1_micro", "micro")):
        expected = sklearn_metrics.f1_score(whole, logits[:, :4] > 0, average=average, zero_division=0)
        assert score_columns(metric, whole, logits[:, :4]) == pytest.approx(expected)
    known = ~np.isnan(truth)
    assert score_columns("f1_micro", truth, logits) == pytest.approx(sklearn_metrics.f1_score(truth[known], logits[known] > 0))


def test_scores_of_numbers_agree_with_scikit_learn(sklearn_metrics):
    rng = np.random.default_rng(0)
    truth = (rng.standard_normal((100, 2)) * [1, 50] + [0, 1000]).astype(np.float32)
    found = (truth + rng.standard_normal((100, 2))).astype(np.float32)
    assert score_columns("mae", truth, found) == pytest.approx(sklearn_metrics.mean_absolute_error(truth, found))
    assert score_columns("r2", truth, found) == pytest.approx(sklearn_metrics.r2_score(truth, found))
    truth[::3, 0] = np.nan
    known = ~np.isnan(truth)
    assert score_columns("mae", truth, found) == pytest.approx(np.abs(truth - found, dtype=np.float64)[known].mean())
    columns = [sklearn_metrics.r2_score(truth[known[:, c], c], found[known[:, c], c]) for c in range(2)]
    assert score_columns("r2", truth, found) == pytest.approx(np.mean(columns))
    same = np.full((4, 1), 2.0, np.float32)
    assert (score_columns("r2", same, same), score_columns("r2", same, same + 1)) == (1.0, 0.0), "of a constant, as scikit-learn has it"


def test_a_metric_is_known_and_suits_its_target():
    with pytest.raises(UsageError, match="no metric 'accurracy'; did you mean 'accuracy'"):
        check_exists("accurracy")
    with pytest.raises(UsageError, match="'accuracy' does not suit the target 'multilabel'; use rocauc, ap"):
        check_suits("accuracy", "multilabel")
    with pytest.raises(UsageError, match="'ap' does not suit the task 'links'; use mrr"):
        check_suits("ap", "links")
    check_exists("hits@3")
    check_suits("hits@3", "links")
    assert goodness("mae", 1.0) > goodness("mae", 2.0)
    assert goodness("r2", 1.0) < goodness("r2", 2.0)


def test_a_score_that_is_not_defined_is_worse_than_any_other():
    nan = float("nan")
    assert is_better("r2", -5.0, nan)
    assert is_better("mae", 1.0, 2.0)
    assert not any(is_better("rocauc", *pair) for pair in ((nan, 0.0), (nan, nan), (0.4, 0.4)))
