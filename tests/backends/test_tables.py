"""Two structures number alike: each by itself against the reference and against numpy; and which is chosen at which size."""

import numpy as np
import pytest
from bulks import assert_same_hops, mixed_seeds
from emulation.host import compiler, emulated
from oracles import assert_identical
from zoo import ZOO, random_matrix

from bulksample import LocalAdjacency, Selection, Stream, samplers
from bulksample.backends.cuda import tables
from bulksample.backends.cuda.tables import STRUCTURES, Numbering, chosen
from bulksample.rng import Law

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
QUICK = ("weighted", "star", "single")
GRAPHS = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in ZOO]
GIB = 2**30


@pytest.fixture(params=STRUCTURES)
def numbering(request):
    return request.param


def numbered_by(numbering, schedule=0, **options):
    engine = emulated(schedule, **options)
    engine.device.numbering = numbering
    return engine


@pytest.mark.parametrize("schedule", [0, 3])
@pytest.mark.parametrize("graph", GRAPHS)
def test_each_gives_the_hops_of_the_reference(reference, numbering, graph, schedule):
    matrix, engine = ZOO[graph], numbered_by(numbering, schedule)
    seeds = mixed_seeds(matrix.shape[0])
    for only_new in (False, True):
        for fanouts in ((4, 3, 2), (-1, 2)):
            draws = [Stream(2**64 - 3).draw(Law.UNIFORM, layer=h, epoch=5) for h in range(len(fanouts))]
            got, expected = (one.expand(matrix, seeds, fanouts, draws, only_new) for one in (engine, reference))
            assert_same_hops(got, expected)


@pytest.mark.parametrize("setting", ["sage", "labor", "ladies", "fastgcn"])
def test_each_gives_the_minibatches_of_the_reference(reference, numbering, setting):
    matrix = random_matrix(500, 9000, 3, weighted=True)
    for frontier in ("all", "new"):
        sampler = samplers.make(setting, (9, 5), frontier=frontier)
        bulks = [
            sampler.sample_bulk(LocalAdjacency(matrix, engine), mixed_seeds(500, b=40), Stream(1), 3)
            for engine in (numbered_by(numbering), reference)
        ]
        assert [m.digest() for m in bulks[0]] == [m.digest() for m in bulks[1]]


@pytest.mark.parametrize(("numbering", "n"), [*((name, n) for name in STRUCTURES for n in (60, 5000)), ("hash", 2**31 - 1)])
def test_each_keeps_what_is_known(reference, numbering, n):
    """Known vertices that are found again, found ones that repeat, minibatches without either; columns up to the last vertex."""
    rng = np.random.default_rng(n)
    known = Selection.of([rng.choice(50, 20, replace=False), [], [n - 1], rng.integers(n - 30, n, 1)], n)
    columns = np.concatenate([rng.integers(0, 50, 300), [n - 1, 0, n - 1], rng.integers(n - 40, n, 97)]).astype(np.int32)
    for pointers in ([0, 300, 303, 303, 400], [0, 0, 0, 0, 400], [0, 0, 0, 0, 0]):
        got, expected = (one.relabel(known, np.array(pointers), columns[: pointers[-1]]) for one in (numbered_by(numbering), reference))
        assert_identical((got[0].pointers, got[0].vertices, got[1]), (expected[0].pointers, expected[0].vertices, expected[1]))


@pytest.mark.parametrize(("n", "k", "expected", "free", "name"), [
    (1000, 4, 1000, GIB, "direct"),  # 4 n k is 16 bytes for each vertex that is found
    (1000, 4, 999, GIB, "hash"),
    (1000, 4, 1000, 8 * 16_000, "direct"),  # and an eighth of what is free
    (1000, 4, 1000, 8 * 16_000 - 1, "hash"),
    (2**31 - 1, 2**10, 2**23, 0, "hash"),
    (1, 1, 1, 0, "hash"),
])  # fmt: skip
def test_the_structure_is_chosen_by_size(n, k, expected, free, name):
    assert chosen(n, k, expected, free) == name


def test_a_numbering_takes_what_was_chosen():
    for free, name in ((8 << 30, "direct"), (0, "hash")):
        assert Numbering(emulated(free_bytes=free).device, np.full(9, 300), 20_000).name == name


def test_a_table_that_would_be_too_large_is_refused():
    device = emulated(free_bytes=0).device
    with pytest.raises(OverflowError, match="use a smaller bulk"):
        tables._tables(device, 1, device.put(np.array([0, 2**30])), 2**30, 2**31 - 1)


def test_the_slots_of_tables_do_not_depend_on_how_a_library_rounds_logarithms(monkeypatch):
    """Twice the vertices, up to a power of two: by the digits of whole numbers, with logarithms that are off by the last bit."""
    most = np.array([0, *(2**i + by for i in range(1, 29) for by in (-1, 0, 1))])
    for name in ("log2", "exp2"):
        real = getattr(np, name)
        monkeypatch.setattr(np, name, lambda x, real=real: np.nextafter(real(x), np.inf))
    assert tables._slots_for(most).tolist() == [1 << (2 * m - 1).bit_length() if m else 0 for m in most.tolist()]
