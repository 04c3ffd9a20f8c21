"""The emulation finds races, and no kernel has one: neither by what it reads and writes, nor by its results in random orders."""

import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from oracles import assert_identical
from zoo import random_matrix

from bulksample import CSR, Selection, Stream, backends

from .every_kernel import run_all
from .host import HostLauncher, arrays, compiler, emulated
from .races import Race
from .test_emulation import FAULTY

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
RANDOM = [4 | 8 | 2 | seed << 4 for seed in range(4)]  # blocks and threads in random order, others at atomics and other accesses
FOUND = {
    "warp_for_block": r"shared memory: (?=.*written by thread \d+ of block 0)(?=.*read by thread \d+ of block 0)",
    "torn_sum": r"byte 0 of argument 0: .* by thread 0 of block \d .* by thread 0 of block \d",
    "read_too_early": r"shared memory: (?=.*changed by an atomic by thread)(?=.*read by thread)",
    "forgotten_barrier": r"shared memory: (?=.*written by thread 5 of block 0)(?=.*read by thread)",
}


def run(name, schedule):
    out = arrays.full(128, 0, np.int32)
    HostLauncher(schedule, directory=FAULTY, recorded=True)(name, 3 if name in ("torn_sum", "sound") else 1, out)
    return out


@pytest.mark.parametrize("schedule", [0, 3, RANDOM[0]])
@pytest.mark.parametrize("kernel", FOUND)
def test_a_race_is_found_in_any_order_and_told_with_threads_and_lines(kernel, schedule):
    with pytest.raises(Race, match=rf"kernel {kernel} has \d races?\n(.|\n)*{FOUND[kernel]}") as told:
        run(kernel, schedule)
    if shutil.which("addr2line"):
        assert str(told.value).count("(faulty.cu:") >= 2


@pytest.mark.parametrize("schedule", [0, 1, 3, *RANDOM])
def test_a_sound_kernel_has_none(schedule):
    assert (run("sound", schedule) == np.arange(128)[::-1] + 128 * 127 // 2).all()


WAITING = [0, *RANDOM]  # orders in which a block that waits is not the first


@pytest.mark.parametrize("schedule", WAITING)
@pytest.mark.parametrize("kernel", ["word_without_a_fence", "told_too_early"])
def test_a_word_orders_nothing_without_a_fence_on_either_side(kernel, schedule):
    found = rf"kernel {kernel} has (.|\n)*byte 0 of argument 0: (?=.*written by thread 0 of block 0).*read by thread 0"
    with pytest.raises(Race, match=found):
        HostLauncher(schedule, directory=FAULTY, recorded=True)(kernel, 2, arrays.full(2, 0, np.int32), arrays.full(1, 0, np.uint64))


@pytest.mark.parametrize("schedule", WAITING)
def test_a_word_that_is_published_orders_what_blocks_did_before(schedule):
    out = arrays.full(7, 0, np.int32)
    HostLauncher(schedule, directory=FAULTY, recorded=True)("told_in_a_chain", 7, out, arrays.full(7, 0, np.uint64))
    assert out.tolist() == [1, 1, 2, 3, 5, 8, 13]


def test_a_random_order_is_one_that_its_seed_repeats():
    """Blocks come in an order of their own for every seed."""

    def last(seed):
        out = arrays.full(128, 0, np.int32)
        HostLauncher(4 | seed << 4, directory=FAULTY)("last_block", 7, out)
        return out[0]

    orders = [last(seed) for seed in range(12)]
    assert orders == [last(seed) for seed in range(12)]
    assert len(set(orders)) > 2


@pytest.mark.long
@pytest.mark.parametrize("schedule", [0, 3, *RANDOM[:2]])
def test_no_kernel_has_a_race(schedule):
    assert run_all(lambda: emulated(schedule, recorded=True), ["weighted", "single"], ((40, -1), (4, 12, 20))) == []


@pytest.mark.long
@pytest.mark.parametrize("schedule", [0, 3, *RANDOM[:2]])
def test_tables_of_products_are_opened_without_a_race(schedule):
    """By several blocks: 3 tiles of entries, and 20 of slots that wait for their number."""
    n, rng = 9000, np.random.default_rng(1)
    columns = [np.sort(rng.choice(n, width, replace=False)) for width in (1000, 4000)]
    q = CSR(np.array([0, 1000, 1000, 5000]), np.concatenate(columns).astype(np.int32), None, (3, n))
    b = random_matrix(n, 2 * n, 1)
    got = emulated(schedule, recorded=True).spgemm(q, b)
    one, other = (sp.csr_array((np.ones(m.nnz, np.int64), m.indices, m.indptr), m.shape) for m in (q, b))
    expected = one @ other
    expected.sort_indices()
    assert_identical(
        (got.indptr, got.indices, got.values), (expected.indptr.astype(np.int64), expected.indices.astype(np.int32), expected.data), "A B"
    )


@pytest.mark.long
@pytest.mark.parametrize("schedule", [0, 3, *RANDOM[:2]])
def test_layers_race_and_vertices_are_numbered_over_many_tiles_without_a_race(schedule):
    """Blocks wait for rows of several tiles, with bins of few keys and of many, and for numbers of earlier tiles."""
    rng, ends = np.random.default_rng(1), np.array([0, 5000, 5007, 9000])
    engine, reference = emulated(schedule, recorded=True), backends.make("reference")
    columns = np.concatenate([np.sort(rng.choice(20_000, width, replace=False)) for width in np.diff(ends)]).astype(np.int32)
    for weights in (rng.exponential(size=9000), np.ones(9000), 10.0 ** rng.uniform(-120, -100, 9000)):
        for s in (3, 2500):
            asked = (ends, columns, weights, s, np.arange(3), Stream(3).layer_draw())
            assert_identical(engine.smallest_keys(*asked), reference.smallest_keys(*asked), f"s = {s}")
    known, found = Selection.of([[5, 7], [], [1]], 3000), rng.integers(0, 3000, 9000).astype(np.int32)
    got, expected = (one.relabel(known, ends, found) for one in (engine, reference))
    assert_identical((got[0].pointers, got[0].vertices, got[1]), (expected[0].pointers, expected[0].vertices, expected[1]))


@pytest.mark.long
@pytest.mark.parametrize(("graph", "seed"), [("random", 0), ("star", 1), ("isolated", 2), ("random", 3)])
def test_results_do_not_depend_on_the_order_of_blocks(graph, seed):
    assert "draw_8" not in run_all(lambda: emulated(4 | 2 | seed << 4), [graph])
