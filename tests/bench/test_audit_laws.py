"""The audit of the laws: its enumerations add up, its correction is Holm's, it sees a wrong law, and what is kept holds."""

import itertools

import audit_laws
import audit_outcomes as outcomes
import keep
import numpy as np
import pytest

from bulksample import samplers
from bulksample.rng import Law

KEPT = keep.read("laws", "audit")
ROWS = audit_laws.ROWS


@pytest.mark.parametrize(
    "found",
    [
        outcomes.sequential([1, 2, 0, 4], 2), outcomes.multisets([1, 2, 0], 3), outcomes.uniform_pairs(ROWS[:2], 2),
        outcomes.labor_rows(ROWS[:2], 2), outcomes.saint_sets(ROWS, [0, 3], 2), outcomes.shadow_sets(ROWS, 0, (2, 1)),
    ],
)  # fmt: skip
def test_probabilities_add_up(found):
    assert sum(found.values()) == pytest.approx(1)
    assert min(found.values()) > 0


def test_enumerations_agree_with_counts_by_hand():
    assert outcomes.sequential([1, 3], 1) == {(0,): 0.25, (1,): 0.75}
    assert outcomes.sequential([1, 1, 2], 2)[0, 2] == pytest.approx(1 / 4 * 2 / 3 + 2 / 4 * 1 / 2)
    assert outcomes.multisets([1, 1], 2) == {(0, 0): 0.25, (0, 1): 0.5, (1, 1): 0.25}
    shared = outcomes.labor_rows([[0, 1], [0, 1]], 1)
    assert shared == pytest.approx({(0, 0): 0.5, (1, 1): 0.5})
    assert outcomes.saint_sets([[1], [0, 2], [2]], [0], 2) == {frozenset({0, 1}): 0.5, frozenset({0, 1, 2}): 0.5}
    assert outcomes.shadow_sets([[1, 2], [0], [0, 3]], 0, (1, 1)) == {
        frozenset({0, 1}): 0.5, frozenset({0, 2}): 0.25, frozenset({0, 2, 3}): 0.25,
    }  # fmt: skip


def test_layer_dependent_labor_is_biased_and_labor_is_not():
    """The mean over both hops' keys, drawn apart, is the full aggregation; with one set of keys it is not."""
    full = outcomes.aggregated(ROWS, outcomes.aggregated(ROWS, audit_laws.X))
    keys = [list(outcomes.orders(range(4))) for _ in range(2)]
    small = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [1]]
    apart = [
        np.mean([np.mean(audit_laws.X[list(outcomes.first(small[t], below, 2))]) for t in outcomes.first(small[0], above, 2)])
        for above, below in itertools.product(*keys)
    ]
    assert np.mean(apart) == pytest.approx(outcomes.aggregated(small, outcomes.aggregated(small, audit_laws.X))[0])
    assert abs(outcomes.labor_two_hops(ROWS, 0, 2, audit_laws.X) - full[0]) > 0.001


def test_holm_multiplies_by_the_tests_that_are_left():
    assert audit_laws.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert audit_laws.holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize("name", [name for name in audit_laws.CHECKS if "," in name or name == "ShaDow"][:14])
def test_few_draws_follow_their_law(name):
    if "coefficients" not in name:
        assert min(audit_laws.CHECKS[name](4000, 7).values()) > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in audit_laws.CHECKS if "two hops" in name or "coefficients" in name])
def test_few_mini_batches_are_unbiased(name):
    assert min(audit_laws.CHECKS[name](4000, 7).values()) > 1e-4


def test_a_wrong_law_is_seen(monkeypatch):
    """Independent rows are not LABOR's; the draws of one weight are not those of another; biased weights have another mean."""
    wrong = audit_laws.two_rows("labor")
    monkeypatch.setattr(audit_laws, "Law", type("Swapped", (), {"LABOR": Law.UNIFORM, "UNIFORM": Law.UNIFORM}))
    assert wrong(20_000, 1)["pairs of subsets"] < 1e-6
    monkeypatch.undo()
    counts = audit_laws.counted(np.sort(np.random.default_rng(0).random((20_000, 5)).argsort(axis=1)[:, :2], axis=1))
    assert audit_laws.chi_square(counts, outcomes.sequential(np.ones(5), 2)) > 1e-4
    assert audit_laws.chi_square(counts, outcomes.sequential([1, 1, 1, 1, 1.2], 2)) < 1e-6
    assert audit_laws.chi_square({(0, 9): 1}, outcomes.sequential(np.ones(5), 2)) == 0
    plain = audit_laws.unbiased("ladies", 4, debias=False, renormalise=False)
    assert min(plain(4000, 1).values()) < 1e-6


def test_what_is_kept_has_every_check_and_all_hold():
    assert {row["check"] for row in KEPT["rows"]} == set(audit_laws.CHECKS)
    assert KEPT["draws"] >= 100_000
    corrected = audit_laws.holm([row["p"] for row in KEPT["rows"]])
    assert corrected == pytest.approx([row["corrected"] for row in KEPT["rows"]])
    assert min(corrected) >= KEPT["level"]
    assert KEPT["failed"] == []
    named = {name for check in audit_laws.CHECKS for name in samplers.SAMPLERS if name in check.lower() or f"graph{name}" in check.lower()}
    assert named >= {"sage", "labor", "ladies", "fastgcn", "saint", "shadow"}
