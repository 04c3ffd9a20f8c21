"""Monte Carlo: tree weights are unbiased, self-normalised ones nearly so, and the same harness finds other weights biased.

The gradient that is looked at is that of the output bias, softmax minus truth of each seed: a nonlinear function of its tree.
A graph of many copies of a small one gives many independent draws in one call.
"""

from itertools import combinations, product

import numpy as np
import pytest
import scipy.sparse
import torch
from communities import community_graph

from bulksample import CSR, backends
from bulksample.graph import EDGE, NODE
from bulksample.graph.selection import Selection
from bulksample.local_adjacency import LocalAdjacency
from bulksample.methods.grappa.method import fresh_chunks
from bulksample.methods.grappa.seed_weights import row_ratio, tree_weights, walk_coverage
from bulksample.nn.model import Gnn
from bulksample.rng import Stream
from bulksample.samplers import Sage
from bulksample.views.local import PartRelation, local_graph


def one(matrix, degrees):
    """The only relation of a plain graph."""
    return [PartRelation((NODE, EDGE, NODE), matrix, degrees)]


class World:
    """Copies of a graph with features, classes and a model of fixed weights."""

    def __init__(self, matrix, x, classes, seeds, fanouts, replace, copies, hidden=6):
        self.n, self.copies, self.degrees = matrix.shape[0], copies, np.tile(matrix.degrees, copies)
        self.matrix = CSR.from_scipy(scipy.sparse.kron(scipy.sparse.eye_array(copies), matrix.to_scipy())).with_values(None)
        self.x, self.classes, self.is_seed = x, classes, np.tile(seeds, copies)
        self.sampler, self.backend = Sage(fanouts=fanouts, replace=replace), backends.make()
        widths = [x.shape[1], *[hidden] * (len(fanouts) - 1), int(classes.max()) + 1]
        self.model = Gnn("sage", widths, seed=5)
        for parameter in self.model.parameters():
            parameter.data *= 2.5

    def drawn(self, inside, time, halo=False):
        """Return for the seeds in the view: gradients, mini-batch, edges within the view, degrees in the graph, and vertices."""
        seen = np.flatnonzero(inside).astype(np.int32)
        vertices, matrix = local_graph(seen, self.matrix.take(seen), None if halo else 0)
        seeds = np.flatnonzero(self.is_seed[seen])
        selection = Selection.of([seeds], len(vertices))
        minibatch = self.sampler.sample_bulk(LocalAdjacency(matrix, self.backend), selection, Stream(11), time)[0]
        rows = torch.from_numpy(self.x[vertices[minibatch.vertices] % self.n])
        with torch.no_grad():
            logits = self.model(minibatch.blocks, rows, torch.zeros(len(rows)))
        truth = self.classes[vertices[minibatch.seeds] % self.n]
        gradient = torch.softmax(logits[torch.from_numpy(minibatch.seed_rows.astype(np.int64))], 1).numpy() - np.eye(logits.shape[1])[truth]
        return gradient, minibatch, matrix, self.degrees[vertices], vertices

    def target(self, calls):
        """Means over calls on the whole graph."""
        return np.array([self.drawn(np.ones(len(self.degrees), bool), 10_000 + t)[0].mean(0) for t in range(calls)])


def small_world(fanouts, replace, copies=60):
    """Fifty vertices of few neighbours, some of which have none."""
    graph = community_graph(n=50, degree=4, noise=0.7, seed=3)
    return World(graph.adjacency, 2 * graph.features, np.maximum(graph.labels, 0), np.ones(50, bool), fanouts, replace, copies)


def star_world(copies):
    """A centre with six neighbours, two of which are drawn; the centre alone is a seed."""
    rng = np.random.default_rng(113)  # a model whose gradient depends on how many leaves were drawn
    matrix = CSR.from_edges(np.zeros(6, int), np.arange(1, 7), (7, 7))
    x = (3 * rng.standard_normal((7, 4))).astype(np.float32)
    return World(matrix, x, np.array([1, 0, 0, 0, 0, 0, 0]), np.arange(7) == 0, (2,), True, copies)


def standard_errors(estimates, target):
    """Return the distance of a mean of estimates from the truth in standard errors, over all coordinates."""
    error = estimates.var(0, ddof=1) / len(estimates) + target.var(0, ddof=1) / len(target)
    return np.linalg.norm(estimates.mean(0) - target.mean(0)) / np.sqrt(error.sum())


def seen_afresh(world, t, chunks=2, of=1):
    return fresh_chunks(7, t, len(world.degrees), chunks) < of


def uniform(minibatch, matrix, degrees):
    return np.ones(len(minibatch.seeds))


def inverse(minibatch, matrix, degrees):
    return 1 / np.maximum(walk_coverage(one(matrix, degrees), 1)[NODE][minibatch.seeds], 1 / np.maximum(degrees[minibatch.seeds], 1))


def estimates(world, kinds, calls, halo=False):
    """For each kind of weights and each call, the weighted mean of gradients, and their weighted sum over the seeds expected."""
    means, sums = {name: [] for name in kinds}, {name: [] for name in kinds}
    for t in range(calls):
        gradient, minibatch, matrix, degrees, _ = world.drawn(seen_afresh(world, t), t, halo)
        for name, weights_of in kinds.items():
            weights = weights_of(minibatch, matrix, degrees)
            means[name].append(weights @ gradient / weights.sum())
            sums[name].append(weights @ gradient / (world.is_seed.sum() / 2))
    return {name: np.array(found) for name, found in means.items()}, {name: np.array(found) for name, found in sums.items()}


@pytest.mark.parametrize(("fanouts", "replace", "halo", "calls"), [
    ((2, 2), True, False, 80), ((2, 1), False, False, 80), ((2, 2), True, True, 80), ((-1,), False, False, 80),
    pytest.param((2, 2), True, False, 700, marks=pytest.mark.long),  # a million trees
])  # fmt: skip
def test_tree_weights_are_unbiased_and_uniform_and_inverse_ones_are_not(fanouts, replace, halo, calls):
    world = small_world(fanouts, replace)
    target = world.target(calls // 2)

    def trees(minibatch, matrix, degrees):
        return tree_weights(minibatch, NODE, one(matrix, degrees), fanouts, replace, 0.5, halo)

    means, sums = estimates(world, {"tree": trees, "uniform": uniform, "inverse": inverse}, calls, halo)
    assert standard_errors(sums["tree"], target) < 4
    assert standard_errors(means["uniform"], target) > 5
    assert standard_errors(means["inverse"], target) > 5


def star_target(world):
    """The exact mean over the 36 pairs of leaves that the centre may draw."""
    layer, x = world.model.layers[0], torch.from_numpy(world.x)
    means = (x[1:, None] + x[None, 1:]).reshape(36, -1) / 2
    with torch.no_grad():
        logits = x[:1] @ layer.own + means @ layer.mean + layer.bias
    return (torch.softmax(logits, 1).numpy() - np.eye(2)[1]).mean(0)


def test_the_bias_of_self_normalised_weights_falls_like_one_over_the_seeds_of_a_step():
    """Each copy has one seed, so draws are independent; the same draws make batches of every size.

    The mean of w (g - target) over a batch is zero in expectation, so it is taken away, and most of the noise with it.
    """
    world, calls, sizes = star_world(4000), 60, np.array([4, 8, 16, 32, 64])
    target, drawn = star_target(world), []
    for t in range(calls):
        gradient, minibatch, matrix, degrees, _ = world.drawn(seen_afresh(world, t), t)
        drawn.append(np.column_stack([tree_weights(minibatch, NODE, one(matrix, degrees), (2,), True, 0.5, False), gradient]))
    weights, gradients = np.split(np.concatenate(drawn), [1], axis=1)
    assert abs(weights.mean() - 1) < 0.02
    bias = []
    for size in sizes:
        batches = len(weights) // size
        w, g = (array[: batches * size].reshape(batches, size, -1) for array in (weights, gradients - target))
        found = (w * g).sum(1) / np.maximum(w.sum(1), 1e-9) - (w * g).mean(1)
        bias.append((np.linalg.norm(found.mean(0)), np.linalg.norm(found.std(0)) / np.sqrt(batches)))
    off, error = np.array(bias).T
    assert (off > 4 * error).all()
    slope = np.polyfit(np.log(sizes), np.log(off), 1, w=off / error)[0]
    assert abs(slope + 1) < 0.25


def test_static_chunks_in_strict_views_are_biased_whatever_the_weights():
    """Four chunks for good, seen in pairs: a centre whose leaves lie in two other chunks never draws both."""
    world, chunks, calls = star_world(1500), 4, 5
    part = fresh_chunks(3, 0, len(world.degrees), chunks)  # once
    estimated, kept = [], []
    for t in range(calls):
        total, mass = np.zeros(2), 0.0
        for own in range(chunks):
            for other in (c for c in range(chunks) if c != own):
                gradient, minibatch, matrix, degrees, vertices = world.drawn((part == own) | (part == other), 100 * t + 10 * own + other)
                block = minibatch.blocks[0]
                seeds = vertices[minibatch.seeds]
                mine = part[seeds] == own
                picked = part[vertices[minibatch.vertices[block.indices]]] != own
                away = np.bincount(np.repeat(np.arange(len(seeds)), np.diff(block.indptr)), picked, minlength=len(seeds)) > 0
                # a tree that stays in the own chunk is in all three views of the sweep, another in one
                weights = tree_weights(minibatch, NODE, one(matrix, degrees), (2,), True, 1.0, False) * np.where(away, 3, 1) / 3 * mine
                total, mass = total + weights @ gradient, mass + weights.sum()
        estimated.append(total / world.copies)
        kept.append(mass / world.copies)
    target = np.array([star_target(world)] * 2)
    assert standard_errors(np.array(estimated), target) > 10
    assert 0.6 < np.mean(kept) < 0.9  # of the trees, by their probability


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("fanout", [1, 3, -1])
def test_the_ratio_of_a_row_is_that_of_counted_draws(replace, fanout):
    """The ratio counts the draws inside the view among all draws of a row, for rows that can draw so in the whole graph."""
    for d in range(6):
        for inside in range(d + 1):
            k = d if fanout == -1 else min(fanout, d)
            with_replacement = replace and fanout != -1 and d > 0
            draws = list(product(range(d), repeat=fanout) if with_replacement else combinations(range(d), k))
            share = np.mean([all(u < inside for u in draw) for draw in draws])
            assert row_ratio(np.array([inside]), np.array([d]), fanout, replace)[0] == pytest.approx(share)


def test_a_row_that_two_parents_share_counts_once():
    """0 draws 1 and 2, both of which draw 3: of the tree 0 1 2 3, with a quarter of 3's neighbours in view."""
    matrix = CSR.from_edges([0, 0, 1, 2, 3], [1, 2, 3, 3, 0], (4, 4))
    seeds = Selection.of([np.array([0])], 4)
    minibatch = Sage(fanouts=(-1, -1, -1)).sample_bulk(LocalAdjacency(matrix, backends.make()), seeds, Stream(0))[0]
    degrees = np.array([2, 1, 1, 1])
    assert tree_weights(minibatch, NODE, one(matrix, degrees), (-1,) * 3, False, 0.5, False) == pytest.approx([8.0])
    sampled = Sage(fanouts=(2, 2, 2), replace=True).sample_bulk(LocalAdjacency(matrix, backends.make()), seeds, Stream(1))[0]
    counts = np.array([2, 1, 1, 4])
    drew_3 = 3 in sampled.vertices[: sampled.blocks[0].num_destinations]
    needs = len(sampled.vertices) - 1
    found = tree_weights(sampled, NODE, one(matrix, counts), (2, 2, 2), True, 0.5, False)
    assert found == pytest.approx([2.0**needs * (1 / 16 if drew_3 else 1)])
