"""All hops in one call are the hops one by one, whatever structure numbers the vertices."""

import itertools

import numpy as np
import pytest
from bulks import assert_same_hops, mixed_seeds
from engines import engine
from oracles import assert_identical
from sweeps import thinned
from zoo import random_matrix

from bulksample import CSR, LocalAdjacency, Selection, Stream, samplers
from bulksample.adjacency import Adjacency
from bulksample.backends.hops import Hop, hop_by_hop
from bulksample.rng import Law

FANOUTS = [(4, 3, 2), (15, 10, 5), (1,), (0, 2), (-1, 2), (64, 3), (65, 2), (300, 1), (2,) * 6]


def stepwise(backend, matrix, seeds, fanouts, draws, only_new):
    def draw_hop(frontier, h):
        return Hop(*backend.sample_rows(matrix, frontier, fanouts[h], draws[h]), None)

    return hop_by_hop(backend.relabel, seeds, draw_hop, len(fanouts), only_new)


def assert_located(backend, matrix, parts):
    """Every hop says where `locate` finds its edges."""
    for part in parts:
        for hop in part.hops:
            rows = part.vertices[: len(hop.pointers) - 1]
            np.testing.assert_array_equal(hop.entries, backend.locate(matrix, rows, hop.pointers, part.vertices[hop.columns]))


@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("law", Law)
def test_one_call_is_hop_by_hop(fast, reference, matrix, law, only_new):
    seeds = mixed_seeds(matrix.shape[0])
    for fanouts in thinned(FANOUTS, 3, 2 * law + only_new):
        draws = [Stream(2**64 - 3).draw(law, layer=h, epoch=5) for h in range(len(fanouts))]
        got = fast.expand(matrix, seeds, fanouts, draws, only_new)
        assert_same_hops(got, stepwise(fast, matrix, seeds, fanouts, draws, only_new))
        if max(fanouts) < 100:
            assert_same_hops(got, reference.expand(matrix, seeds, fanouts, draws, only_new))


@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("law", Law)
def test_a_last_hop_may_stay_in_vertices(fast, matrix, law, only_new):
    """Its columns are the vertices that their numbers stand for, those that `relabel` is given; earlier hops have their numbers."""
    seeds = mixed_seeds(matrix.shape[0])
    for fanouts in thinned(FANOUTS, 3, law + only_new):
        draws = [Stream(11).draw(law, layer=h, epoch=2) for h in range(len(fanouts))]
        for late, part in zip(*(fast.expand(matrix, seeds, fanouts, draws, only_new, numbered=way) for way in (False, True)), strict=True):
            assert list(late.held) == list(part.held)[:-1]
            assert_identical((late.seed_rows, late.vertices), (part.seed_rows, part.vertices[: part.held[-2]]))
            for hop, expected in zip(late.hops[:-1], part.hops[:-1], strict=True):
                assert_identical(hop[:2], expected[:2])
            last, numbered = late.hops[-1], part.hops[-1]
            before = int(numbered.pointers[part.held[-3]]) if only_new and len(fanouts) > 1 else 0
            assert_identical((last.pointers, last.columns[:before]), (numbered.pointers, numbered.columns[:before]))
            np.testing.assert_array_equal(last.columns[before:], part.vertices[numbered.columns[before:]])


@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("law", Law)
def test_hops_say_where_their_edges_stand(reference, matrix, law, only_new):
    fast, seeds = engine("native"), mixed_seeds(matrix.shape[0])
    for fanouts in FANOUTS:
        draws = [Stream(7).draw(law, layer=h, epoch=5) for h in range(len(fanouts))]
        got = fast.expand(matrix, seeds, fanouts, draws, only_new, entries=True)
        assert_same_hops(got, fast.expand(matrix, seeds, fanouts, draws, only_new))
        assert_located(reference, matrix, got)


@pytest.mark.parametrize("n", [2_000, 3_000_000])
def test_tables_and_arrays_number_alike(fast, reference, n):
    """Few vertices of many are numbered in a hash table, which grows; many of few in an array."""
    hubs = random_matrix(2_000, 60_000, 4, skew=2.0)
    indptr = np.concatenate([hubs.indptr, np.full(n - 2_000, hubs.nnz)])
    spread = CSR(indptr, hubs.indices * (n // 2_000), None, (n, n))
    seeds, draws = mixed_seeds(2_000, b=60), [Stream(1).draw(Law.UNIFORM, layer=h) for h in range(2)]
    seeds = Selection(seeds.minibatches, seeds.pointers, seeds.vertices, n)
    assert_same_hops(fast.expand(spread, seeds, (40, 3), draws, False), reference.expand(spread, seeds, (40, 3), draws, False))


@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("n", [4_000, 4_000_000])
def test_threads_that_share_a_minibatch_number_as_one_does(law, only_new, n):
    """Rows of several blocks, hubs among them, for fewer minibatches than threads."""
    dense = random_matrix(4_000, 50_000, 5, weighted=True, skew=2.0)
    indptr = np.concatenate([dense.indptr, np.full(n - 4_000, dense.nnz)])
    matrix = CSR(indptr, dense.indices, dense.values, (n, n))
    draws = [Stream(3).draw(law, layer=h, epoch=1) for h in range(3)]
    for k, threads, fanouts in ((1, 2, (5, 4, 3)), (1, 7, (-1, 2)), (2, 4, (70, 3)), (3, 8, (6, 6))):
        lists = [np.random.default_rng(j).permutation(4_000)[:900] for j in range(k)]
        seeds = Selection.of(lists, n, np.arange(k) + 9)
        alone = engine("native 1").expand(matrix, seeds, fanouts, draws, only_new)
        assert alone[0].held[-1] > 2_000
        if law == Law.UNIFORM:
            shared = engine(f"native {threads}").expand(matrix, seeds, fanouts, draws, only_new, entries=True)
            assert_located(engine("reference"), matrix, shared)
        for _ in range(3):
            assert_same_hops(engine(f"native {threads}").expand(matrix, seeds, fanouts, draws, only_new), alone)


def test_tables_take_four_bytes_a_vertex_and_thread_or_what_is_met_asks_for():
    one, four = engine("native 1"), engine("native 4")
    assert one.expand_tables(2**20, 8, 1024, (15, 10, 5), 2**17) == 2**22
    assert four.expand_tables(2**20, 8, 1024, (15, 10, 5), 2**17) == 4 * 2**22
    assert four.expand_tables(2**20, 3, 1024, (15, 10, 5), 2**17) == 3 * 2**22
    few = [one.expand_tables(2**28, 1, 16, (4,), vertices) for vertices in (80, 1_000, 10_000)]
    assert few == sorted(few)
    assert 8 * 10_000 < few[-1] < 64 * 10_000
    assert engine("reference").expand_tables(2**20, 8, 1024, (15, 10, 5), 2**17) == 0


def test_many_minibatches_share_a_table_without_a_trace(fast):
    matrix = random_matrix(300, 9_000, 6)
    lists = [np.random.default_rng(i).integers(0, 300, 40) for i in range(400)]
    draws = [Stream(5).draw(Law.UNIFORM, layer=h) for h in range(2)]
    together = fast.expand(matrix, Selection.of(lists, 300), (5, 5), draws, False)
    for j in range(0, 400, 57):
        alone = fast.expand(matrix, Selection.of([lists[j]], 300, np.array([j])), (5, 5), draws, False)
        assert_same_hops([together[j]], alone)


def test_words_that_are_rejected_are_drawn_again(fast, reference):
    """In a row of 786,433 one word in 5,461 might be rejected: about eight of these 45,000."""
    degree = 3 * 2**18 + 1
    row = np.arange(degree, dtype=np.int32)
    hub = CSR(np.array([0, degree]), row, None, (1, degree))
    seeds = Selection(np.arange(3000), np.arange(3001), np.zeros(3000), degree)
    for law in (Law.UNIFORM, Law.REPLACEMENT):
        draw = Stream(8).draw(law)
        assert_identical(fast.sample_rows(hub, seeds, 15, draw), reference.sample_rows(hub, seeds, 15, draw), law.name)


def test_the_default_goes_hop_by_hop_to_the_same_minibatches(backend):
    matrix = random_matrix(200, 3_000, 1)
    adjacency, seeds = LocalAdjacency(matrix, backend), mixed_seeds(200)

    class HopByHop(Adjacency):
        """The same graph behind the three methods that every adjacency has; the others are the defaults."""

        def __init__(self):
            self.n, self.weighted, self.backend = adjacency.n, adjacency.weighted, backend

        def left_multiply(self, *arguments):
            return adjacency.left_multiply(*arguments)

        def sample_rows(self, *arguments):
            return adjacency.sample_rows(*arguments)

        def restrict(self, *arguments):
            return adjacency.restrict(*arguments)

    assert (HopByHop().collective, HopByHop().whole_matrix) == (False, None)
    for rule, name in itertools.product(("all", "new"), ("sage", "ladies", "fastgcn")):
        sampler = samplers.make(name, (4, 3, 2), frontier=rule)
        one = [m.digest() for m in sampler.sample_bulk(adjacency, seeds, Stream(1))]
        assert one == [m.digest() for m in sampler.sample_bulk(HopByHop(), seeds, Stream(1))]


@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("name", ["ladies", "fastgcn"])
@pytest.mark.parametrize("n", [8_000, 400_000])
def test_few_drawn_vertices_are_found_in_long_rows_and_short_ones(fast, reference, name, only_new, n):
    """Hubs are searched, other rows read; sums are listed in one graph and read whole in the other."""
    few = random_matrix(8_000, 40_000, 8)
    rows = [np.arange(0, n, n // 8_000)] * 2 + [few.indices[a:b] for a, b in zip(few.indptr[2:-1], few.indptr[3:], strict=True)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows]), np.full(n - len(rows), sum(map(len, rows)))])
    hubs = CSR(indptr, np.concatenate(rows).astype(np.int32), None, (n, n))
    seeds = Selection.of([np.arange(12), np.array([1]), np.arange(5, 900)], n)
    sampler = samplers.make(name, (3, 40, 2), frontier="new" if only_new else "all")
    got, expected = (sampler.sample_bulk(LocalAdjacency(hubs, backend), seeds, Stream(2)) for backend in (fast, reference))
    assert [minibatch.digest() for minibatch in got] == [minibatch.digest() for minibatch in expected]
