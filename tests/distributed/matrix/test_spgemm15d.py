"""A graph in block rows: every grid, policy and bulk size gives the mini-batches and products of one process, bit for bit."""

import numpy as np
import pytest
from battery import SETTINGS, make, needs_weights
from engines import engine
from grids import ALL_GRIDS, POLICIES, block_row, distributed, epoch, seeds_of
from launch import run_ranks
from oracles import assert_identical
from sweeps import cases, thinned
from zoo import ZOO, random_matrix

from bulksample import LocalAdjacency, Selection, Stream, UsageError, backends
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix import partition
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.owner import OwnerAdjacency

ENTRIES = ("ones", "weights", "squares")


def assert_spread_is_alone(setting, policy, name, grids):
    """Compare the mini-batches drawn on grids with those of one process; each of `grids` is p, c and a layout or None."""
    matrix, sampler = ZOO[name], make(setting)
    if needs_weights(setting) and matrix.values is None:
        return
    lists = seeds_of(matrix.shape[0])
    alone = dict(epoch(sampler, LocalAdjacency(matrix, backends.make("auto", 1)), lists))
    for p, c, layout in grids:

        def rank(comm, p=p, c=c, layout=layout):
            return epoch(sampler, distributed(comm, c, policy, matrix, layout), lists, comm.rank, p, bulk=1 + p % 3)

        spread = dict(pair for part in on_threads(p, rank) for pair in part)
        assert spread == alone, f"{name}, p = {p}, c = {c}: minibatches {[i for i in alone if spread.get(i) != alone[i]]}"


def at_random(name, p, c):
    return Layout.of(partition.random(ZOO[name].shape[0], p // c, seed=p))


QUICK = ("sage", "labor", "ladies")


@pytest.mark.parametrize("setting", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in SETTINGS])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_grid_does_not_change_a_minibatch(setting, policy):
    """Two grids, vertices in order and at random, on a weighted graph; the larger grid on two others as well."""
    assert_spread_is_alone(setting, policy, "weighted", [(4, 2, None), (4, 2, at_random("weighted", 4, 2))])
    for name in ("weighted", "random", "single"):
        assert_spread_is_alone(setting, policy, name, [(6, 3, None), (6, 3, at_random(name, 6, 3))])


@pytest.mark.long
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_grid_changes_a_minibatch(setting, policy):
    """A third of all grids: each setting meets every grid under one policy, each policy meets every grid with four settings."""
    turn = list(SETTINGS).index(setting) + list(POLICIES).index(policy)
    grids = [(p, c, at_random("weighted", p, c) if (i + turn) % 2 else None) for i, (p, c) in enumerate(thinned(ALL_GRIDS, 3, turn))]
    assert_spread_is_alone(setting, policy, "weighted", grids)


@pytest.mark.parametrize("name", ["emulated", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize(
    "setting", ["sage", "ladies", *(pytest.param(name, marks=pytest.mark.long) for name in ("sage weighted", "labor"))]
)
def test_ranks_that_share_a_device_draw_alike(setting, name):
    matrix, sampler = ZOO["weighted"], make(setting)
    lists, engines = seeds_of(200), [engine(name) for _ in range(4)]
    alone = dict(epoch(sampler, LocalAdjacency(matrix, backends.make("reference")), lists))
    for p, c, policy in ((2, 1, "owner"), (4, 2, "owner"), (4, 1, "rows")):

        def rank(comm, p=p, c=c, policy=policy):
            adjacency = distributed(comm, c, policy, matrix, backend=engines[comm.rank])
            return epoch(sampler, adjacency, lists, comm.rank, p, bulk=2)

        assert dict(pair for part in on_threads(p, rank) for pair in part) == alone, f"{policy}, p = {p}, c = {c}"


def some_lists(n, seed):
    rng = np.random.default_rng(seed)
    return [rng.permutation(n)[: rng.integers(0, n + 1)] for _ in range(16)]


def multiplied(comm, c, policy, entries, matrix, lists, layout=None):
    """Return the arrays of this rank's product on the grid, and of the product with the whole matrix."""
    q = Selection.of(lists[comm.rank :: comm.size], matrix.shape[0])
    products = (
        distributed(comm, c, policy, matrix, layout).left_multiply(q, entries),
        LocalAdjacency(matrix, backends.make("reference")).left_multiply(q, entries),
    )
    return [(product.validate("product").indptr, product.indices, product.entries()) for product in products]


def assert_products_agree(seeds, grids_of):
    """Compare each grid of `grids_of(seed)` with one process; policy, entries and layout vary with both."""
    for seed in seeds:
        n = int(np.random.default_rng(seed).integers(1, 40))
        matrix, lists = random_matrix(n, 3 * n, seed, weighted=seed % 2 == 1), some_lists(n, seed + 1)
        for turn, (p, c) in enumerate(grids_of(seed)):
            policy, entries = list(POLICIES)[(seed + turn) % 3], ENTRIES[(seed + turn) // 3 % 3]
            layout = Layout.of(partition.random(n, p // c, seed)) if seed % 4 > 1 else None

            def rank(comm, c=c, policy=policy, entries=entries, layout=layout, matrix=matrix, lists=lists):
                return multiplied(comm, c, policy, entries, matrix, lists, layout)

            for product, expected in on_threads(p, rank):
                assert_identical(product, expected, f"seed {seed}, {policy}, p {p}, c {c}, {entries}")


def test_products_equal_those_of_one_process():
    assert_products_agree(range(40), lambda seed: [ALL_GRIDS[seed % len(ALL_GRIDS)]])


@pytest.mark.long
@pytest.mark.parametrize("turn", cases(7))
def test_products_equal_those_of_one_process_on_every_grid(turn):
    """Four grids for each of 18 seeds; in seven turns grids, policies, entries, layouts and weights have all met one another."""
    assert_products_agree(range(18 * turn, 18 * (turn + 1)), lambda seed: thinned(ALL_GRIDS, 7, seed))


def test_uneven_blocks_and_empty_ranks_are_legal():
    matrix, lists = ZOO["random"], seeds_of(200)
    sampler = make("ladies")
    alone = dict(epoch(sampler, LocalAdjacency(matrix, backends.make()), lists))
    for policy in POLICIES:
        for bounds in ([0, 0, 150, 150, 200], [0, 200, 200, 200, 200]):

            def rank(comm, policy=policy, bounds=bounds):
                busy = lists if comm.rank == 2 else []
                return epoch(sampler, distributed(comm, 1, policy, matrix, Layout(np.array(bounds))), busy or [[]] * 10)

            assert dict(on_threads(4, rank)[2]) == alone


def test_rows_sends_no_more_than_rows_oblivious_and_owner_far_less():
    matrix = random_matrix(2000, 80_000, 4)
    sent = {}
    for policy in POLICIES:

        def rank(comm, policy=policy):
            adjacency = distributed(comm, 2, policy, matrix)
            before = comm.tally["topology"].bytes
            rng = np.random.default_rng(comm.rank)
            make("sage", fanouts=(4, 3)).sample_bulk(adjacency, Selection.of([rng.integers(0, 2000, 16)] * 2, 2000), Stream(1))
            return comm.tally["topology"].bytes - before

        sent[policy] = sum(on_threads(8, rank))
    assert sent["owner"] * 4 < sent["rows"] < sent["rows-oblivious"]


@pytest.mark.parametrize(("p", "c"), [(4, 3), (6, 4), (3, 0), (2, 5)])
def test_replication_must_divide_the_ranks(p, c):
    with pytest.raises(UsageError, match="replication must divide the number of ranks"):
        on_threads(p, lambda comm: ProcessGrid(comm, c))


def test_a_block_of_the_wrong_size_is_refused():
    whole, half = ZOO["random"], block_row(ZOO["random"], Layout.even(200, 2), 0)
    with pytest.raises(UsageError, match="block row 1 must have 100 rows; it has 200"):
        on_threads(2, lambda comm: OwnerAdjacency(ProcessGrid(comm), whole if comm.rank else half, backends.make()))


def test_block_columns_are_assigned_once_each():
    for p in range(1, 17):
        for c in (c for c in range(1, p + 1) if p % c == 0):

            def shares(comm, c=c):
                grid = ProcessGrid(comm, c)
                return [list(grid.block_columns(j)) for j in range(c)]

            (shared, *_) = on_threads(p, shares)
            assert [k for share in shared for k in share] == list(range(p // c))


@pytest.mark.long
@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_processes_do_what_threads_do(p):
    """Processes give the products and mini-batches of one process, for every policy and every c that divides p."""
    program = """
from test_spgemm15d import *
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
with world(PATIENCE) as comm:
    matrix, lists = ZOO["weighted"], seeds_of(200)
    for c in (c for c in range(1, comm.size + 1) if comm.size % c == 0):
        for policy in POLICIES:
            for entries in ENTRIES:
                assert_identical(*multiplied(comm, c, policy, entries, matrix, some_lists(200, 1)), f"{policy}, c {c}, {entries}")
            for sampler in ("sage", "ladies"):
                mine = epoch(make(sampler), distributed(comm, c, policy, matrix), lists, comm.rank, comm.size, bulk=2)
                drawn = comm.gather_control(mine)
                if comm.rank == 0:
                    print(c, policy, sampler, sorted(pair for part in drawn for pair in map(tuple, part)))
"""
    ended = run_ranks(p, program)
    assert ended.code == 0, ended
    whole = LocalAdjacency(ZOO["weighted"], backends.make())
    alone = {sampler: sorted(epoch(make(sampler), whole, seeds_of(200))) for sampler in ("sage", "ladies")}
    expected = [f"{c} {policy} {name} {alone[name]}" for c in (1, 2, 4, 8) if p % c == 0 for policy in POLICIES for name in alone]
    assert ended.out.splitlines() == expected
