"""Labels of every form that users have them in become the labels of a target, or are refused in a sentence."""

import numpy as np
import pytest

from bulksample import DataError
from bulksample.graph.labels import as_labels, as_numbers, check_labels, gap_warning, has_label, outputs_of, target_of, without_label

NAN = np.nan
TAKEN = {
    "classes": ([0, 2, -1], None, np.array([0, 2, -1])),
    "one column of classes": ([[0], [2], [-1]], None, np.array([0, 2, -1])),
    "truth": ([True, False], None, np.array([1, 0])),
    "whole floats as classes": ([0.0, 2.0, NAN], "class", np.array([0, 2, -1])),
    "several classes": ([[1, 0], [0, -1]], None, np.array([[1, 0], [0, -1]], np.int8)),
    "several classes in floats": ([[1.0, 0.0], [0.0, NAN]], None, np.array([[1, 0], [0, -1]], np.int8)),
    "several classes in booleans": ([[True, False]], None, np.array([[1, 0]], np.int8)),
    "one of two classes": ([1, 0, -1], "multilabel", np.array([[1], [0], [-1]], np.int8)),
    "numbers": ([0.5, NAN, -1.0], None, np.array([[0.5], [NAN], [-1.0]], np.float32)),
    "columns of numbers": ([[0.5, 2.0], [NAN, -1.0]], None, np.array([[0.5, 2.0], [NAN, -1.0]], np.float32)),
    "integers as numbers": ([2010, -2], "regression", np.array([[2010.0], [-2.0]], np.float32)),
}
REFUSED = {
    "whole floats": ([0.0, 1.0, 2.0], None, "y: got float64 of whole numbers, which may be classes or numbers; use integers, or target"),
    "columns of classes": ([[0, 2]], None, r"y: row 0 holds 2; use 0, 1, or nothing"),
    "half a class": ([0.5], "class", "y: row 0 holds 0.5; use a whole number"),
    "several as one": ([[1, 0]], "class", r"y: got int64 of shape \(1, 2\); a class is one number of a vertex: use target multilabel"),
    "no number": ([1.5, np.inf], None, "y: row 1 holds inf; use finite numbers"),
    "a number or none": ([2010, -1], "regression", "y: row 1 holds -1; that may be a number or no label: use floats, and NaN"),
    "a cube": (np.zeros((1, 1, 1)), None, r"y: got float64 of shape \(1, 1, 1\); use numbers of shape"),
    "text": (np.array(["a"]), None, "y: got <U1"),
    "another word": ([1], "classes", "there is no target 'classes'; use class, multilabel, regression"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_labels_become_those_of_a_target(name):
    given, target, expected = TAKEN[name]
    found = as_labels(np.asarray(given), target)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    check_labels(found, len(found), outputs_of(found))
    assert target in (None, target_of(found.dtype, found.ndim))
    np.testing.assert_array_equal(as_labels(found, target_of(found.dtype, found.ndim)), found)


@pytest.mark.parametrize("name", REFUSED)
def test_other_labels_are_refused(name):
    given, target, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        as_labels(np.asarray(given), target)


def test_a_missing_class_is_a_missing_number():
    found = as_labels(np.array([3, -1]), "regression", missing=True)
    np.testing.assert_array_equal(found, np.array([[3.0], [NAN]], np.float32))


def test_missing_labels():
    several = np.array([[1, -1], [-1, -1]], np.int8)
    assert has_label(several).tolist() == [True, False]
    np.testing.assert_array_equal(as_numbers(several), np.array([[1, NAN], [NAN, NAN]], np.float32))
    assert has_label(np.array([[NAN, 1.0], [NAN, NAN]], np.float32)).tolist() == [True, False]
    assert without_label(np.array([3, 4]), np.array([True, False])).tolist() == [-1, 4]
    assert has_label(without_label(several, slice(None))).tolist() == [False, False]


def test_gaps_are_counted():
    assert gap_warning(np.array([0, 2, -1, 2]), 3).startswith("1 of the 3 classes have no vertex")
    assert gap_warning(np.array([0, 1, -1]), 2) is None
    assert gap_warning(np.zeros((2, 3), np.int8), 3) is None
    assert gap_warning(None, 0) is None


def test_a_million_classes_are_refused_and_so_is_a_number_that_is_too_small():
    with pytest.raises(DataError, match="y: entry 1 is 1000000; use classes from 0 to 65535, or give num_classes"):
        outputs_of(np.array([0, 10**6]))
    assert outputs_of(np.array([0, 10**6]), 10**6 + 1) == 10**6 + 1
    with pytest.raises(DataError, match="num_classes: got 2, and entry 0 of y is class 2; use a whole number, 3 or more"):
        outputs_of(np.array([2, 0]), 2)
    with pytest.raises(DataError, match="num_classes: got 1000000000000, and a model has an output for each; use at most 16777216"):
        outputs_of(np.array([2, 0]), 10**12)
    with pytest.raises(DataError, match="num_classes: got 3, and y has 2 columns, not classes; leave it out"):
        outputs_of(np.zeros((4, 2), np.int8), 3)
