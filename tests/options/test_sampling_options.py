"""The options of sampling: the mini-batches of a run, held against the neighbors that the graph lists."""

import numpy as np
from drawn_edges import edges_of, heavy_ring, labelled, neighbors, ring
from plain import graph, minibatches, trainer
from rank_traffic import epoch

from bulksample.samplers import Sampler


def test_seed_names_the_order_and_the_draws_of_the_epoch():
    """Two seeds agree on the seeds of an epoch, but neither on their order nor on the neighbors drawn."""
    zero, one = (minibatches(trainer(graph(), seed=seed, fanouts=(1,), batch_size=64))[0] for seed in (0, 5))
    assert sorted(zero.seeds) == sorted(one.seeds)
    assert zero.seeds.tolist() != one.seeds.tolist()
    assert set(edges_of(zero.blocks[0], zero.vertices)) != set(edges_of(one.blocks[0], one.vertices))


def test_drop_last_leaves_out_what_is_not_full():
    seeds = int(graph().masks["train"].sum())
    b = next(size for size in range(5, seeds) if seeds % size)
    made = trainer(graph(), batch_size=b, drop_last=True)
    assert [len(one.seeds) for one in minibatches(made)] == [b] * (seeds // b)


def test_steps_per_epoch_go_on_in_the_order_of_the_seeds():
    """Six mini-batches are two passes of those of an ordinary run, whose epochs are a pass each."""
    seeds = int(graph().masks["train"].sum())
    plain, made = trainer(graph(), batch_size=-(-seeds // 4)), trainer(graph(), batch_size=-(-seeds // 4), steps_per_epoch=6)
    in_passes = [one.seeds.tolist() for _ in range(3) for one in minibatches(plain)]
    assert [one.seeds.tolist() for _ in range(2) for one in minibatches(made)] == in_passes


def test_sampler_full_takes_every_neighbor():
    listed = neighbors(graph())
    for minibatch in minibatches(trainer(graph(), sampler="full", fanouts=(1, 1))):
        for block in minibatch.blocks:
            expected = [(v, u) for v in minibatch.vertices[: block.num_destinations].tolist() for u in listed[v]]
            assert sorted(edges_of(block, minibatch.vertices)) == sorted(expected)


def test_fanouts_are_the_most_draws_of_a_row_in_each_hop():
    degrees, fanouts = graph().adjacency.degrees, (1, 3, 2)
    assert degrees.max() > max(fanouts)
    for minibatch in minibatches(trainer(graph(), fanouts=fanouts)):
        for block, fanout in zip(reversed(minibatch.blocks), fanouts, strict=True):
            rows = minibatch.vertices[: block.num_destinations]
            assert np.diff(block.indptr).tolist() == np.minimum(degrees[rows], fanout).tolist()


def test_sampler_options_reach_the_sampler():
    """By weight, a row whose other edges weigh nothing has one neighbor to draw."""
    source, only = heavy_ring(40)
    (minibatch,) = minibatches(trainer(source, fanouts=(1,), batch_size=40, sampler_options="weighted=true"))
    assert set(edges_of(minibatch.blocks[0], minibatch.vertices)) == set(only.items())


def test_frontier_new_expands_each_vertex_once():
    """On a ring where everyone has one neighbor, hop h adds the vertices h ahead; expanding anew would repeat the edges before."""
    n = 30
    for minibatch in minibatches(trainer(labelled(ring(n, 1)), frontier="new", fanouts=(1, 1, 1), batch_size=1)):
        (seed,) = minibatch.seeds.tolist()
        assert edges_of(minibatch.blocks[0], minibatch.vertices) == [((seed + h) % n, (seed + h + 1) % n) for h in range(3)]
        assert minibatch.num_edges == 3  # 1 + 2 + 3 if every hop drew for all vertices


def test_batch_size_is_the_seeds_of_a_minibatch():
    seeds = int(graph().masks["train"].sum())
    sizes = [len(minibatch.seeds) for minibatch in minibatches(trainer(graph(), batch_size=7))]
    assert sizes == [7] * (seeds // 7) + [seeds % 7] * (seeds % 7 > 0)


def bulks(monkeypatch, **options):
    """The sizes of the calls that sample an epoch."""
    sizes, original = [], Sampler.sample_bulk
    made = trainer(graph(), **options)

    def counted(self, adjacency, seeds, *more):
        sizes.append(len(seeds))
        return original(self, adjacency, seeds, *more)

    monkeypatch.setattr(Sampler, "sample_bulk", counted)
    count = len(minibatches(made))
    return count, sizes


def test_bulk_size_is_the_minibatches_of_a_call(monkeypatch):
    count, sizes = bulks(monkeypatch, batch_size=4, bulk_size=3)
    assert count > 3
    assert sizes == [3] * (count // 3) + [count % 3] * (count % 3 > 0)


def test_memory_budget_bounds_the_bulk(monkeypatch):
    """A budget of one byte leaves room for single mini-batches; the free memory has room for the whole epoch."""
    count, sizes = bulks(monkeypatch, batch_size=4, memory_budget=1)
    assert sizes == [1] * count
    assert bulks(monkeypatch, batch_size=4)[1] == [count]


def test_seeds_are_those_of_the_split():
    for split in ("val", "test", "all"):
        seeds = np.concatenate([minibatch.seeds for minibatch in minibatches(trainer(graph(), seeds=split))])
        assert sorted(seeds) == (list(range(60)) if split == "all" else np.flatnonzero(graph().masks[split]).tolist())


def test_seed_locality_draws_each_minibatch_from_the_rows_of_its_rank(folder):
    """Two ranks hold 30 vertices each, and all are seeds; four groups are the ids in fifteens, two for each rank."""
    drawn = epoch(folder, 2, seed_locality=4, batch_size=7)
    for rank, own in enumerate(drawn.minibatches):
        assert [set(m.seeds // 15) for m in own] == [{2 * rank}, {2 * rank + 1}] * 3
        assert sorted(v for m in own for v in m.seeds) == list(range(30 * rank, 30 * rank + 30))
