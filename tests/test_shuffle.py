"""The order of an epoch: against a network of plain Python, a bijection of any size, and as good as an order drawn at random.

The audit takes the orders of fixed epochs and seeds, and its bound was set before they were drawn, so it fails by no chance. Networks of
fewer rounds, and halves that give even permutations alone, turn it red.
"""

from itertools import permutations
from math import factorial, isqrt, sqrt

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bulksample import Stream
from bulksample import shuffle as shuffle_module
from bulksample.rng import Purpose, philox, tag
from bulksample.shuffle import SORTED, Shuffle, halves

LARGE = 2**20 + 7
LEVEL = 0.01


def words(seed, epoch, group, block, x):
    counter = np.array([[x, block, group, tag(Purpose.SEEDS, 1, epoch)]], np.uint32)
    return philox(counter, seed)[0].tolist()


class ByHand:
    """The network and its inverse, a value at a time."""

    def __init__(self, seed, n, epoch=0, group=0):
        root = isqrt(n)
        self.left = next(even for even in range(root, root + 3) if even % 2 == 0 and even * even >= n)
        self.right, self.n, self.name = -(-n // self.left), n, (seed, epoch, group)

    def shift(self, j, x):
        size = self.right if j % 2 else self.left
        return words(*self.name, j // 4, x)[j % 4] * size >> 32

    def forward(self, place):
        while True:
            left, right = place // self.right, place % self.right
            for j in range(8):
                if j % 2 == 0:
                    left = (left + self.shift(j, right)) % self.left
                else:
                    right = (right + self.shift(j, left)) % self.right
            place = left * self.right + right
            if place < self.n:
                return place

    def backward(self, found):
        while True:
            left, right = found // self.right, found % self.right
            for j in reversed(range(8)):
                if j % 2 == 0:
                    left = (left - self.shift(j, right)) % self.left
                else:
                    right = (right - self.shift(j, left)) % self.right
            found = left * self.right + right
            if found < self.n:
                return found


@pytest.mark.parametrize("n", [1025, 1089, 5000, LARGE, 160_000_000, 2**31 - 1, 2**33 + 1])
def test_a_network_is_that_of_plain_python_and_has_its_inverse(n):
    for seed, epoch, group in ((0, 0, 0), (2**64 - 1, 2**20 - 1, 2**32 - 1)):
        places = np.unique(np.concatenate([[0, 1, n - 2, n - 1], np.random.default_rng(n).integers(0, n, 20)]))
        found, own = Shuffle(Stream(seed), n, epoch, group).at(places), ByHand(seed, n, epoch, group)
        assert found.dtype == np.int64
        assert found.tolist() == [own.forward(int(place)) for place in places]
        assert places.tolist() == [own.backward(int(one)) for one in found]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 64, 1000, SORTED])
def test_few_examples_are_sorted_by_keys(n):
    for epoch, group in ((0, 0), (3, 0), (3, 2)):
        assert Shuffle(Stream(7), n, epoch, group).at(np.arange(n)).tolist() == Stream(7).permutation(n, epoch, group).tolist()


def test_an_order_is_a_bijection_for_every_number_of_examples():
    for n in [*range(1, 3000), 10_007, 65_536, LARGE, 3_000_017]:
        assert (np.bincount(Shuffle(Stream(n), n, 1).at(np.arange(n)), minlength=n) == 1).all(), n


@pytest.mark.parametrize("n", [20_000_000, 160_000_000, 2**31 - 1])
def test_distinct_places_of_a_large_order_hold_distinct_examples(n):
    places = np.unique(np.random.default_rng(1).integers(0, n, 300_000))
    found = Shuffle(Stream(3), n).at(places)
    assert 0 <= found.min() <= found.max() < n
    assert len(np.unique(found)) == len(places)


def test_an_order_takes_the_root_of_n_and_few_places_go_through_it_again(monkeypatch):
    for n in [*range(SORTED + 1, 9000), LARGE, 2**31 - 1, 10**12]:
        left, right = halves(n)
        assert left % 2 == 0
        assert n <= left * right <= n + sqrt(n) + 1
        assert max(left, right) <= sqrt(n) + 2
    passed, once = [], Shuffle._once
    monkeypatch.setattr(Shuffle, "_once", lambda self, places: passed.append(len(places)) or once(self, places))
    for n in (SORTED + 1, 5000, LARGE):
        passed.clear()
        Shuffle(Stream(1), n).at(np.arange(n))
        assert n < sum(passed) < n + 3 * sqrt(n)


def test_any_part_of_an_order_is_that_of_the_whole():
    whole, order = Shuffle(Stream(1), 5000, 2).at(np.arange(5000)), Shuffle(Stream(1), 5000, 2)
    for first, last in ((0, 1), (17, 81), (4990, 5000), (5, 5)):
        places = np.arange(first, last)
        assert order.at(places).tolist() == whole[first:last].tolist()
        assert places.tolist() == list(range(first, last))  # not changed


@pytest.mark.parametrize("n", [50, 5000])
def test_seeds_epochs_and_groups_have_orders_of_their_own(n):
    names = [(seed, epoch, group) for seed in (0, 1, 2**32) for epoch in (0, 1, 2) for group in (0, 1)]
    orders = np.stack([Shuffle(Stream(seed), n, epoch, group).at(np.arange(n)) for seed, epoch, group in names])
    agree = (orders[:, None] == orders[None]).sum(axis=2)[~np.eye(len(names), dtype=bool)]
    assert agree.max() < 12  # 1 is expected of unrelated orders; 12 have a probability of 1e-9


# ---- the audit: p-values of what orders show, against the law of an order drawn at random


def chi_square(counts):
    counts = np.ravel(counts)
    return stats.chi2.sf(((counts - counts.mean()) ** 2).sum() / counts.mean(), len(counts) - 1)


def uniform(values, n):
    """Test values 0 .. n - 1 for being uniform over at most 1024 cells of nearly one size."""
    cells = min(n, 1024, len(values) // 10)
    counts = np.bincount(values * cells // n, minlength=cells)
    expected = np.diff(-(-np.arange(cells + 1) * n // cells)) * (len(values) / n)
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), cells - 1)


def normal(values, mean, variance):
    return 2 * stats.norm.sf(abs(np.mean(values) - mean) / sqrt(variance / len(values)))


def cycles_of(order):
    n = len(order)
    return connected_components(csr_array((np.ones(n, bool), (np.arange(n), order)), shape=(n, n)), directed=False)[0]


def audit(orders):
    """P-values of a set of orders, one a row: of the places of single seeds, pairs, runs, fixed points, cycles and signs."""
    (count, n), found = orders.shape, {}
    for place in (0, n // 3, n - 1):
        found[f"example at {place}"] = uniform(orders[:, place], n) if count > 50 else 1.0
    for apart in sorted({1, 2, halves(n)[1], halves(n)[1] + 1, n // 2}):
        steps = (orders[:, apart:] - orders[:, :-apart]) % n
        found[f"difference over {apart}"] = uniform(steps.ravel() - 1, n - 1)
        high = np.stack([orders[:, apart:] * 8 // n, orders[:, :-apart] * 8 // n]).reshape(2, -1)
        share = np.bincount(np.arange(n) * 8 // n) / n
        expected = np.outer(share, share) * n / (n - 1) - np.diag(share) / (n - 1)
        pairs = np.bincount(high[0] * 8 + high[1], minlength=64).reshape(8, 8)
        found[f"pairs over {apart}"] = stats.chi2.sf(((pairs / pairs.sum() - expected) ** 2 / expected).sum() * pairs.sum(), 63)
    descents = (orders[:, 1:] < orders[:, :-1]).sum(axis=1)
    found["runs"] = normal(descents, (n - 1) / 2, (n + 1) / 12)
    fixed = (orders == np.arange(n)).sum(axis=1)
    found["fixed points"] = 2 * min(stats.poisson.cdf(fixed.sum(), count), stats.poisson.sf(fixed.sum() - 1, count))
    cycles = np.array([cycles_of(order) for order in orders])
    harmonic = 1 / np.arange(1, n + 1)
    found["cycles"] = normal(cycles, harmonic.sum(), (harmonic - harmonic**2).sum())
    found["signs"] = stats.binomtest(int(((n - cycles) % 2).sum()), count, 0.5).pvalue
    return found


def orders_of(n, count):
    """Orders of many epochs of one seed, and of the first epoch of many seeds."""
    names = [(20, epoch) for epoch in range(count // 2)] + [(1000 + seed, 0) for seed in range(count - count // 2)]
    return np.stack([Shuffle(Stream(seed), n, epoch).at(np.arange(n)) for seed, epoch in names])


AUDITED = {64: 3000, 1000: 1500, SORTED + 1: 1500, 33 * 33: 1500, 5000: 200, LARGE: 2}
TESTS = 20  # at most, of each size
BOUND = LEVEL / (TESTS * len(AUDITED) + 10)  # Bonferroni, with single places and the smallest sizes


@pytest.mark.parametrize(("n", "count"), AUDITED.items())
def test_orders_are_as_good_as_random(n, count):
    found = audit(orders_of(n, count))
    assert len(found) <= TESTS
    assert min(found.values()) > BOUND, found


@pytest.mark.parametrize("n", [LARGE, 160_000_000])
def test_every_example_comes_to_a_place_of_a_large_order_equally_often(n):
    places = np.array([0, n // 2, n - 1])
    found = np.stack([Shuffle(Stream(30), n, epoch).at(places) for epoch in range(400)])
    assert min(uniform(column, n) for column in found.T) > BOUND


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_every_order_of_few_examples_comes_equally_often(n):
    number = {order: i for i, order in enumerate(permutations(range(n)))}
    counts = np.bincount([number[tuple(order)] for order in orders_of(n, 60 * factorial(n)).tolist()], minlength=len(number))
    assert len(counts) == factorial(n)
    assert n == 1 or chi_square(counts) > BOUND


@pytest.mark.parametrize("rounds", [2, 4, 5])
def test_the_audit_finds_networks_of_fewer_rounds(rounds, monkeypatch):
    monkeypatch.setattr(shuffle_module, "ROUNDS", rounds)
    assert min(audit(orders_of(SORTED + 1, 400)).values()) < BOUND


def test_the_audit_finds_that_odd_halves_give_even_permutations_alone(monkeypatch):
    monkeypatch.setattr(shuffle_module, "halves", lambda n: (33, 33))
    found = audit(orders_of(33 * 33, 100))
    assert found["signs"] < BOUND


@pytest.mark.parametrize("kept", [1, 30])
def test_the_audit_finds_epochs_that_share_an_order(kept):
    """A key without the epoch: the same few orders come again and again."""
    found = audit(np.tile(orders_of(1000, kept), (1500 // kept, 1)))
    assert min(found.values()) < BOUND
