"""Bit widths without a solver are as good as those of scipy's mixed-integer one; and the corners of the problem."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from bulksample.methods.adaqp.widths import CLASSES, LinkSpeeds, Problem


def random_problem(p, seed, trade, width=64, most=12, header=4, even=False):
    """Pairs of up to `most` messages, some without any; heavy-tailed noise, links of different speeds."""
    rng = np.random.default_rng([p, seed])
    counts = {(i, j): int(rng.integers(0, most + 1)) for i in range(p) for j in range(p) if i != j}
    betas = {pair: np.exp(1.5 * rng.standard_normal(count)) for pair, count in counts.items()}
    links = LinkSpeeds.even(p) if even else LinkSpeeds(np.exp(rng.standard_normal((p, p))), 1e-3 * rng.random((p, p)))
    return Problem(betas, tuple(-(-width * bits // 8) + header for bits in CLASSES), links, trade)


def milp_optimum(problem):
    """The objective of the best widths: one binary for each message and width, one time for each round."""
    messages = [(pair, k) for pair, beta in problem.betas.items() for k in range(len(beta))]
    p, m = len(problem.links.theta), len(messages)
    noise, wait = problem._scales
    cost = np.zeros(3 * m + p)
    cost[3 * m + 1 :] = 1  # times are counted in units of the objective
    pairs = sorted({pair for pair, _ in messages})
    one, longest = scipy.sparse.lil_array((m, 3 * m + p)), scipy.sparse.lil_array((len(pairs), 3 * m + p))
    for at, (pair, k) in enumerate(messages):
        for c, bits in enumerate(CLASSES):
            cost[3 * at + c] = noise * problem.betas[pair][k] / (2**bits - 1) ** 2
            one[at, 3 * at + c] = 1
            longest[pairs.index(pair), 3 * at + c] = wait * problem.links.theta[pair] * problem.sizes[c] / 2**20
    for row, pair in enumerate(pairs):
        longest[row, 3 * m + (pair[1] - pair[0]) % p] = -1
    limits = [
        scipy.optimize.LinearConstraint(one.tocsr(), 1, 1),
        scipy.optimize.LinearConstraint(longest.tocsr(), -np.inf, [-wait * problem.links.gamma[pair] for pair in pairs]),
    ]
    bounds = scipy.optimize.Bounds(0, np.r_[np.ones(3 * m), np.full(p, np.inf)])
    found = scipy.optimize.milp(
        cost, constraints=limits, bounds=bounds, integrality=np.r_[np.ones(3 * m), np.zeros(p)],
        options={"mip_rel_gap": 1e-5, "time_limit": 30},
    )  # fmt: skip
    chosen = found.x[: 3 * m].reshape(m, 3).argmax(1)
    widths = {pair: np.full(len(problem.betas[pair]), 2, np.uint8) for pair in pairs}
    for (pair, k), c in zip(messages, chosen, strict=True):
        widths[pair][k] = CLASSES[c]
    offset = noise * problem.variance(problem.uniform(8)) + wait * problem.time(problem.uniform(2))
    assert problem.objective(widths) == pytest.approx(found.fun - offset, abs=1e-5)
    return found.mip_dual_bound - offset  # never above the optimum, also where time ran out


@pytest.mark.parametrize("trade", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("p", "most"), [(2, 60), (3, 40), (4, 40)])
def test_it_is_within_a_thousandth_of_the_optimum(p, most, trade):
    for seed in range(2):
        problem = random_problem(p, seed, trade, most=most)
        assert problem.objective(problem.solve()) <= milp_optimum(problem) + 1e-3


def total(widths):
    return sum(int(bits.sum()) for bits in widths.values())


@pytest.mark.parametrize("p", [2, 4])
def test_the_ends_of_the_trade(p):
    for seed in range(5):
        nothing, everything = (random_problem(p, seed, trade) for trade in (0.0, 1.0))
        assert all((bits == 2).all() for bits in nothing.solve().values())
        assert all((bits == 8).all() for bits in everything.solve().values())
        assert nothing.objective(nothing.uniform(2)) == 0
        assert everything.objective(everything.uniform(8)) == 0


def test_more_weight_on_noise_never_lowers_the_bits():
    for seed in range(5):
        totals = [total(random_problem(4, seed, trade).solve()) for trade in np.linspace(0, 1, 21)]
        assert totals == sorted(totals)
        assert totals[0] < totals[10] < totals[-1]


def test_equal_messages_get_equal_widths():
    betas = {(i, j): np.full(30, 0.7) for i in range(4) for j in range(4) if i != j}
    for trade in (0.05, 0.3, 0.5, 0.9, 0.99):
        widths = Problem(betas, (20, 36, 68), LinkSpeeds.even(4), trade).solve()
        assert len({int(bits) for part in widths.values() for bits in part}) == 1


def test_noisier_messages_of_a_pair_get_no_fewer_bits():
    problem = random_problem(4, 3, 0.5, most=200, even=True)
    for pair, bits in problem.solve().items():
        ordered = bits[np.argsort(problem.betas[pair])].astype(int)
        assert np.count_nonzero(np.diff(ordered) < 0) <= 1  # one may fill what is left of the time


def test_the_best_uniform_width_is_the_best_of_three():
    for seed in range(6):
        problem = random_problem(3, seed, 0.5)
        best = problem.best_uniform()
        assert problem.objective(best) == min(problem.objective(problem.uniform(bits)) for bits in CLASSES)
        assert problem.objective(problem.solve()) <= problem.objective(best) + 1e-12


def test_corners():
    even = LinkSpeeds.even(3)
    assert Problem({}, (1, 2, 3), even).solve() == {}
    assert Problem({(0, 1): np.empty(0)}, (1, 2, 3), even).solve() == {}
    silent = Problem({(0, 1): np.zeros(4), (1, 0): np.zeros(2)}, (20, 36, 68), even)
    assert all((bits == 2).all() for bits in silent.solve().values())
    narrow = Problem({(0, 1): np.ones(4)}, (5, 5, 5), even)  # one number fills a byte at any width
    assert all((bits == 8).all() for bits in narrow.solve().values())


def test_a_slow_link_gets_fewer_bits():
    rng = np.random.default_rng(0)
    betas = {(i, j): np.exp(rng.standard_normal(50)) for i in range(3) for j in range(3) if i != j}
    theta = np.ones((3, 3))
    theta[0, 1] = 10
    widths = Problem(betas, (20, 36, 68), LinkSpeeds(theta, np.zeros((3, 3)))).solve()
    assert all(widths[0, 1].mean() < widths[pair].mean() for pair in ((1, 2), (2, 0)))
