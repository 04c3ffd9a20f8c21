"""A bulk that is replayed is the bulk that launches would have made: with other seeds, ids and epochs; and what cannot be replayed."""

import numpy as np
import pytest
from emulation.fake_cupy import installed
from emulation.host import HostLauncher, compiler, emulated
from test_expand import assert_same, seeds_of
from zoo import ZOO, random_matrix

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.backends.cuda import bulk
from bulksample.backends.cuda.graphs import Graphs, Recorder, Recording
from bulksample.backends.cuda.tables import STRUCTURES
from bulksample.rng import Law

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


def replaying(schedule=0, numbering=None):
    engine = emulated(schedule)
    engine.device.graphs, engine.device.numbering = Graphs(engine.device), numbering
    return engine


def others(n, seeds, turn):
    """As many seeds of as many minibatches, otherwise dealt and named."""
    rng = np.random.default_rng(turn)
    cuts = np.sort(rng.integers(0, len(seeds.vertices) + 1, len(seeds) - 1))
    pointers = np.concatenate([[0], cuts, [len(seeds.vertices)]])
    return Selection(rng.permutation(2**32 - 1 - np.arange(len(seeds))), pointers, rng.integers(0, n, len(seeds.vertices)), n)


@pytest.mark.parametrize("only_new", [False, True])
@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("graph", ["weighted", "star", "isolated", "pair"])
def test_a_replay_is_what_launches_make(reference, graph, law, only_new):
    matrix, engine, seeds = ZOO[graph], replaying(3), seeds_of(ZOO[graph].shape[0])
    for turn in range(4):
        draws = [Stream(2**64 - 3).draw(law, layer=h, epoch=2**20 - 1 - turn) for h in range(3)]
        got, expected = (one.expand(matrix, seeds, (4, 0, 2), draws, only_new) for one in (engine, reference))
        assert_same(got, expected)
        seeds = others(matrix.shape[0], seeds, turn)
    assert (engine.device.graphs.recorded, engine.device.graphs.replayed) == (1, 3)


@pytest.mark.parametrize("numbering", STRUCTURES)
@pytest.mark.parametrize(("setting", "fanouts"), [("sage", (9, 40, 2)), ("labor", (32, 5))])
def test_minibatches_have_their_digests_whatever_numbers_them(reference, numbering, setting, fanouts):
    matrix, engine = random_matrix(400, 9000, 3, weighted=True), replaying(numbering=numbering)
    for turn, rule in enumerate(("all", "all", "new", "new")):
        seeds, sampler = others(400, seeds_of(400, b=20), turn), samplers.make(setting, fanouts, frontier=rule)
        one, other = (sampler.sample_bulk(LocalAdjacency(matrix, engine), seeds, Stream(1), turn) for engine in (engine, reference))
        assert [m.digest() for m in one] == [m.digest() for m in other]
    assert engine.device.graphs.recorded == 2


def test_what_was_drawn_stays_when_the_next_bulk_is_replayed():
    matrix, engine, seeds = random_matrix(200, 3000, 1), replaying(), seeds_of(200)
    draws = [Stream(1).draw(Law.UNIFORM)]
    first = [bulk.expand(engine.device, engine.device.matrix(matrix), seeds, (5,), draws, False) for _ in range(2)][1]
    before = [first.held.vertices.copy(), first.hops[0].columns.copy(), first.seed_rows.copy()]
    bulk.expand(engine.device, engine.device.matrix(matrix), others(200, seeds, 1), (5,), draws, False)
    for array, copy in zip((first.held.vertices, first.hops[0].columns, first.seed_rows), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert engine.device.graphs.replayed == 2


def test_another_shape_is_recorded_afresh(reference):
    """Another number of seeds or minibatches, other fanouts, draws of another seed or layer, another matrix."""
    one, two = random_matrix(200, 3000, 1), random_matrix(200, 3000, 2)
    engine, seeds = replaying(), seeds_of(200)
    fewer, joined = seeds.parts(0, 3), Selection.of([seeds.vertices], 200)
    shapes = [(one, seeds, (3, 2), 1), (one, fewer, (3, 2), 1), (one, joined, (3, 2), 1), (one, seeds, (2, 3), 1), (one, seeds, (3, 2), 9),
              (two, seeds, (3, 2), 1)]  # fmt: skip
    for matrix, asked, fanouts, seed in shapes:
        for epoch in (0, 7):
            draws = [Stream(seed).draw(Law.UNIFORM, layer=h, epoch=epoch) for h in range(2)]
            assert_same(*(made.expand(matrix, asked, fanouts, draws, False) for made in (engine, reference)))
    assert engine.device.graphs.recorded == len(shapes)


def test_a_shape_that_comes_once_does_not_push_out_the_one_that_is_kept(reference):
    """The bulks of two epochs of a loader: 1, 2, 4, 4, 4 and then 3 minibatches."""
    matrix, engine = random_matrix(200, 3000, 1), replaying()
    for epoch in range(2):
        draws = [Stream(1).draw(Law.UNIFORM, layer=h, epoch=epoch) for h in range(2)]
        for k in (1, 2, 4, 4, 4, 3):
            seeds = Selection.of([np.arange(j, 200, 29)[:6] for j in range(k)], 200)
            assert_same(*(made.expand(matrix, seeds, (3, 2), draws, True) for made in (engine, reference)))
    assert (engine.device.graphs.recorded, engine.device.graphs.replayed) == (1, 2 + 3)


def test_draws_of_several_epochs_are_a_shape_of_their_own(reference):
    matrix, engine, seeds = random_matrix(200, 3000, 1), replaying(), seeds_of(200)
    for epochs in ((0, 1), (0, 1), (1, 2), (1, 2), (1, 2)):
        draws = [Stream(1).draw(Law.LABOR, epoch=epoch) for epoch in epochs]
        assert_same(*(made.expand(matrix, seeds, (3, 2), draws, True) for made in (engine, reference)))
    assert engine.device.graphs.recorded == 2


@pytest.mark.parametrize(("fanouts", "law"), [((3, -1), Law.UNIFORM), ((33, 2), Law.RACE), ((2, 40), Law.LABOR)])
def test_what_is_sized_by_what_it_finds_is_launched_as_ever_and_refused_by_a_recording(reference, fanouts, law):
    matrix, engine, seeds = random_matrix(200, 3000, 1), replaying(), seeds_of(200)
    draws = [Stream(1).draw(law, layer=h) for h in range(2)]
    assert_same(*(made.expand(matrix, seeds, fanouts, draws, False) for made in (engine, reference)))
    assert engine.device.graphs.recorded == 0
    with pytest.raises(ValueError, match="hops that take all neighbours, or over 32 by key, are sized by what they find and not recorded"):
        engine.device.graphs.expand(engine.device.matrix(matrix), seeds, fanouts, draws, False)


def test_a_wait_cannot_be_recorded():
    """Neither by itself, nor in the middle of a bulk that counts on the host."""
    device, seeds = emulated().device, seeds_of(200)
    recording = Recording(device, Recorder(device.launch))
    with pytest.raises(RuntimeError, match="a copy of 7 numbers on the host, which a replay would not make"):
        recording.get(recording.empty(7, np.int32))
    asked = bulk.Asked(bulk.Found(device.put(seeds.pointers), device.put(seeds.vertices)), device.put(seeds.minibatches))
    with pytest.raises(RuntimeError, match="a copy of 20 numbers on the host"):
        bulk.expand_rows(recording, device.matrix(random_matrix(200, 3000, 1)), asked, (3,), [Stream(1).draw(Law.UNIFORM)], False)


def test_memory_is_filled_by_words():
    device = emulated().device
    device = Recording(device, Recorder(device.launch))
    assert device.full(5, 0xFFFFFFFF, np.uint32).tolist() == [0xFFFFFFFF] * 5
    assert device.full(3, 0, np.uint64).tolist() == [0] * 3
    with pytest.raises(ValueError, match="one word of 32 bits"):
        device.full(3, 1, np.uint64)


def test_a_replay_waits_once(monkeypatch):
    """For the counts, an array for the seeds and one for each hop, of which all but the first are there by then."""
    matrix, engine, seeds = random_matrix(200, 3000, 1), replaying(), seeds_of(200)
    draws, there = [Stream(1).draw(Law.UNIFORM, layer=h) for h in range(3)], engine.device.matrix(matrix)
    for _ in range(2):
        bulk.expand(engine.device, there, seeds, (4, 3, 2), draws, False)
    events, get, launch = [], engine.device.get, HostLauncher.__call__
    engine.device.get = lambda array: events.append("wait") or get(array)
    monkeypatch.setattr(HostLauncher, "__call__", lambda self, *launched: events.append("launch") or launch(self, *launched))
    bulk.expand(engine.device, there, seeds, (4, 3, 2), draws, False)
    assert events[-4:] == 4 * ["wait"]
    assert set(events[:-4]) == {"launch"}


def test_a_device_captures_once_and_starts_the_graph_afterwards(monkeypatch, reference):
    monkeypatch.setenv("BULKSAMPLE_GRAPHS", "1")
    matrix, sampler = random_matrix(200, 3000, 1), samplers.make("sage", (4, 3))
    with installed(monkeypatch) as cupy:
        engine = backends.make("cuda")
        for epoch in range(3):
            bulks = [sampler.sample_bulk(LocalAdjacency(matrix, one), seeds_of(200), Stream(1), epoch) for one in (engine, reference)]
            assert [m.digest() for m in bulks[0]] == [m.digest() for m in bulks[1]]
        told = [event for event in cupy.seen if event in ("begin capture", "end capture", "start graph")]
        assert told == ["begin capture", "end capture"] + 2 * ["start graph"]
