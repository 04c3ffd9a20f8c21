"""Work in which every kernel is launched: all samplers on some graphs, and what no sampler uses."""

from itertools import cycle

import battery
import bulks
import numpy as np
import relation_bulks
import relations_zoo
from oracles import assert_identical
from zoo import ZOO

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends
from bulksample.backends.cuda.device import kernels
from bulksample.backends.cuda.products import Cache, FloatCSR, aggregate, gather, transposed
from bulksample.backends.cuda.tables import STRUCTURES
from bulksample.backends.dropout import Mask
from bulksample.rng import Law

FANOUTS = ((4, 3, 2), (40, -1), (300, 9, 17))


def run_all(make, graphs, fanouts=FANOUTS):
    """Run it on back ends that `make` makes, compare the samples with those of the reference; return the kernels that were not launched."""
    launched, structures, rules = set(), cycle([None, *STRUCTURES]), cycle(["all", "new"])

    def watched():
        engine = make()
        engine.device.numbering = next(structures)
        launch = engine.device.launch
        engine.device.launch, engine.device.prepares = _Noted(launch, launched), False
        return engine

    for graph in graphs:
        for setting in battery.SETTINGS:
            if battery.needs_weights(setting) and ZOO[graph].values is None:
                continue
            for drawn in fanouts:
                seeds, rule = bulks.bulk_of_seeds(ZOO[graph].shape[0]), next(rules)
                sampler, engines = battery.make(setting, drawn, frontier=rule), (watched(), backends.make("reference"))
                one, other = (sampler.sample_bulk(LocalAdjacency(ZOO[graph], engine), seeds, Stream(3)) for engine in engines)
                assert [m.digest() for m in one] == [m.digest() for m in other], (graph, setting, drawn, rule)
    _features(watched())
    engine = watched()
    engine.random_words(1, 2, 3, 100)
    engine.first_arrivals(np.cumsum(np.arange(1, 200)), 40, np.arange(9), Stream(3).layer_draw())
    engine.extract_rows(ZOO["weighted"], np.arange(49, -1, -1, dtype=np.int32))
    engine.spgemm(ZOO["weighted"], ZOO["random"])
    _hub(engine, backends.make("reference"))
    _dropout(engine, backends.make("reference"))
    _relations(watched)
    return sorted(set(kernels()) - launched)


def _relations(make):
    """Draw on relations and in windows of time: by every law, by threads, warps and blocks, and where trees are disjoint."""
    for rule, name in (("window", "weighted, replace"), ("static", "weighted, replace"), ("vertices", "weighted"), ("trees", "sage")):
        graph = relations_zoo.library(relation_bulks.kind_of_times(rule), weighted="weighted" in name)
        seeds = relation_bulks.bulk(graph, rule not in ("static", "trees"), 3)
        for fanouts in ((7, -1), (12, 40), (20, 3)):
            sampler = relation_bulks.sampler_of(rule, name, fanouts)
            one, other = (relation_bulks.drawn(graph, sampler, seeds, engine) for engine in (make(), backends.make("reference")))
            assert one == other, (rule, name, fanouts)


def _hub(engine, reference):
    """Draw from a row that many warps share, beside short ones, by every law of keys and weights."""
    values = np.arange(2703, dtype=np.int64) % 5  # without zeros still a hub
    hub = CSR(np.array([0, 3, 2703]), np.r_[0:3, 0:2700].astype(np.int32), values, (2, 2700))
    device, ends = engine.device, engine.device.empty(2, np.int64)
    device.start("pick_pointers", 2, device.put(hub.indptr), device.put(np.array([0, 2])), 2, ends)
    assert device.get(ends).tolist() == [0, 2703]
    q = Selection(np.arange(2), np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), 2)
    for law in (Law.RACE, Law.LABOR, Law.WEIGHTED):
        for s in (5, 40):
            draw = Stream(3).draw(law)
            assert_identical(engine.sample_rows(hub, q, s, draw), reference.sample_rows(hub, q, s, draw), law.name)


def _features(engine):
    """Quantise, gather, convert and aggregate rows."""
    rows, asked = np.random.default_rng(1).standard_normal((50, 33)).astype(np.float32), np.arange(49, -1, -1, dtype=np.int32)
    for bits in (2, 4, 8):
        engine.dequantise(engine.quantise(rows, bits, np.arange(50, dtype=np.int32)), 33, bits)
    device, x = engine.device, rows.astype(np.float16)
    slots = np.where(asked % 3, -1, asked // 3).astype(np.int32)
    block = FloatCSR(device.put(np.arange(0, 51, 2)), device.put(asked), None, 25, 50)
    for width in (33, 8):
        held = x[:, :width].copy()
        for wanted in ("float16", "float32"):
            cache = Cache(device.put(held[np.argsort(slots)[-17:]]), device.put(slots))
            gather(device, device.put(held), width, device.put(asked), "float16", wanted, cache)
        both = np.concatenate([held[:1, :1].reshape(-1), held.reshape(-1)])  # from its second number on, four are not read at once
        for place in (device.put(both[1:]), device.put(both)[1:]):
            aggregate(device, block, place, width, True, "float16", device.put(rows[:, 0]), cache)
    aggregate(device, transposed(device, block, False), device.put(rows[:25]), 33, False)


def _dropout(engine, reference):
    """Mask rows made of 16 bytes and others, over several blocks of rows, forwards and backwards, and sparse entries."""
    rng = np.random.default_rng(1)
    for width in (7, 47, 64, 300):
        x, b = rng.standard_normal((300, width)).astype(np.float32), rng.standard_normal(width).astype(np.float32)
        mask = Mask(7, 3, rng.integers(0, 2**31, 300).astype(np.int32), rng.integers(0, 9, 300).astype(np.int32), 40_000)
        y, expected = np.empty_like(x), np.empty_like(x)
        for relu in (True, False):
            for one, out in ((engine, y), (reference, expected)):
                one.epilogue(x, b, relu, mask, out)
            of = y.copy() if relu else None
            sums = [one.epilogue_gradient(x, of, mask, True, out) for one, out in ((engine, y), (reference, expected))]
            assert_identical([y, sums[0]], [expected, sums[1]], f"width {width}")
    entries = (np.arange(0, 901, 3), rng.integers(0, 2**31, 900).astype(np.int32), rng.standard_normal(900).astype(np.float32), mask)
    assert_identical([engine.drop_entries(*entries)], [reference.drop_entries(*entries)], "entries")


class _Noted:
    """A launcher that notes the names of kernels."""

    def __init__(self, launch, names):
        self._launch, self._names = launch, names
        self.most_blocks, self.phase, self.address = launch.most_blocks, launch.phase, launch.address

    def __call__(self, name, *more):
        self._names.add(name)
        self._launch(name, *more)
