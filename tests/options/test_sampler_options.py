"""The options of single samplers, on graphs where the draws are known or their law is."""

import math

import numpy as np
from drawn_edges import edges_of, heavy_ring, labelled, neighbors, ring
from plain import graph, minibatches, trainer

from bulksample import CSR


def test_sage_replace_repeats_neighbors():
    degrees = graph().adjacency.degrees
    for minibatch in minibatches(trainer(graph(), fanouts=(9,), sampler_options="replace=true")):
        assert np.diff(minibatch.blocks[0].indptr).tolist() == np.where(degrees[minibatch.seeds] > 0, 9, 0).tolist()


def assert_weighed_by_the_row(sampler):
    """Each kept edge of row v weighs 1 / d_v: neither divided by a probability nor scaled to a sum of one."""
    degrees, kept = graph().adjacency.degrees, 0
    for minibatch in minibatches(trainer(graph(), sampler=sampler, fanouts=(15,), sampler_options="debias=false,renormalise=false")):
        (block,) = minibatch.blocks
        rows = minibatch.vertices[np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))]
        np.testing.assert_allclose(block.weights, 1 / degrees[rows], rtol=1e-6)
        kept += len(rows)
    assert 0 < kept < degrees[graph().masks["train"]].sum()


def test_ladies_without_corrections_weighs_by_the_row():
    assert_weighed_by_the_row("ladies")


def test_fastgcn_without_corrections_weighs_by_the_row():
    assert_weighed_by_the_row("fastgcn")


def test_ladies_importance_squared_sum_favors_hubs():
    """m rows share a hub, and each has a leaf. The one draw is the hub with chance m^2 / (m^2 + m), instead of 1/2."""
    m, draws = 40, 40
    rows = np.repeat(np.arange(m), 2)
    columns = np.column_stack([np.full(m, m), m + 1 + np.arange(m)]).ravel()
    source = labelled(CSR.from_edges(rows, columns, (2 * m + 1,) * 2))
    source.masks["train"][m:] = False
    made = trainer(source, sampler="ladies", fanouts=(1,), batch_size=m, sampler_options="importance=squared_sum")
    hubs = sum(m in minibatch.vertices.tolist()[m:] for _ in range(draws) for minibatch in minibatches(made))
    chance = m / (m + 1)
    assert abs(hubs - draws * chance) < 5 * math.sqrt(draws * chance * (1 - chance))


def test_labor_layer_dependent_repeats_the_draws_of_a_row():
    for minibatch in minibatches(trainer(graph(), sampler="labor", fanouts=(2, 2), sampler_options="layer_dependent=true")):
        deep, top = (edges_of(block, minibatch.vertices) for block in minibatch.blocks)
        seeds = set(minibatch.seeds.tolist())
        assert [edge for edge in deep if edge[0] in seeds] == top


def shadows(source, **options):
    """Each seed with the vertices of its subgraph."""
    made = trainer(source, sampler="shadow", layers=2, batch_size=1, **options)
    return {int(minibatch.seeds[0]): set(minibatch.vertices.tolist()) for minibatch in minibatches(made)}


def test_shadow_replace_misses_neighbors():
    """Three draws with replacement are three different neighbors with chance 6 / 27."""
    source, n = labelled(ring(40, 3)), 40
    listed = neighbors(source)
    found = shadows(source, fanouts=(3,), sampler_options="replace=true")
    assert all(held <= {seed, *listed[seed]} for seed, held in found.items())
    whole = sum(held == {seed, *listed[seed]} for seed, held in found.items())
    assert abs(whole - n * 6 / 27) < 5 * math.sqrt(n * 6 / 27 * 21 / 27)


def test_shadow_weighted_visits_heavy_neighbors():
    source, only = heavy_ring(40)
    assert shadows(source, fanouts=(1,), sampler_options="weighted=true") == {seed: {seed, other} for seed, other in only.items()}


def test_shadow_layers_are_those_of_the_model():
    options = {"sampler": "shadow", "layers": 2, "fanouts": (3,), "sampler_options": "layers=4"}
    assert {len(minibatch.blocks) for minibatch in minibatches(trainer(graph(), **options))} == {4}


def test_saint_walk_length_is_the_steps_of_a_walk():
    n, steps = 30, 5
    for minibatch in minibatches(trainer(labelled(ring(n, 1)), sampler="saint", batch_size=1, sampler_options=f"walk_length={steps}")):
        walked = set(minibatch.vertices.tolist())
        assert len(walked) == steps + 1
        assert any(walked == {(seed + step) % n for step in range(steps + 1)} for seed in walked)


def test_saint_coverage_weighs_seeds_and_edges():
    """On a ring every vertex is held alike, so seeds weigh about the same; an edge never weighs less than its share."""
    n = 30
    for minibatch in minibatches(
        trainer(labelled(ring(n, 1)), sampler="saint", batch_size=3, sampler_options="walk_length=4,coverage=400")
    ):
        assert minibatch.seed_weights is not None
        np.testing.assert_allclose(minibatch.seed_weights, minibatch.seed_weights.mean(), rtol=0.25)
        assert all(block.weights is not None and (block.weights >= 1).all() for block in minibatch.blocks)
