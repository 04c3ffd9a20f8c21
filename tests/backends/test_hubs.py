"""Rows of many neighbors, whose slices many warps draw, beside short ones: the draws are those of the reference."""

from functools import cache

import numpy as np
import pytest
from bulks import assert_same_hops
from emulation.host import compiler, emulated
from oracles import assert_identical

from bulksample import CSR, Selection, Stream
from bulksample.backends.cuda.bulk import expand
from bulksample.backends.cuda.draws import FEW, HUB, HUBS
from bulksample.rng import Law

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
DEGREES = (0, 3, HUB, HUB + 1, 2, 9000)
KEYED = (Law.RACE, Law.LABOR)
LAWS = (Law.RACE, Law.LABOR, Law.WEIGHTED)


@cache
def graph(weighted=True):
    rng = np.random.default_rng(5)
    columns = np.concatenate([np.sort(rng.choice(9000, d, replace=False)) for d in DEGREES]).astype(np.int32)
    values = rng.integers(0, 2**20, len(columns)) * (rng.random(len(columns)) < 0.7)
    indptr = np.append(np.cumsum((0, *DEGREES)), np.full(9000 - len(DEGREES), len(columns)))  # the other rows are empty
    return CSR(indptr, columns, values if weighted else None, (9000, 9000))


def bulk(k):
    """Each row in most mini-batches."""
    rng = np.random.default_rng(k)
    return Selection.of([rng.permutation(6)[: rng.integers(2, 7)] for _ in range(k)], 9000)


@pytest.mark.parametrize("schedule", [0, 3, 4 | 2 | 7 << 4])
@pytest.mark.parametrize("law", LAWS)
def test_slices_of_hubs_draw_what_one_warp_would(reference, law, schedule):
    for weighted, s in ((True, 1), (True, 10), (False, 10), (False, FEW), *([(True, 100)] if law is Law.WEIGHTED else [])):
        a, q, draw, engine = graph(weighted), bulk(4), Stream(8).draw(law), emulated(schedule)
        launched, launch = [], engine.device._launch
        engine.device._launch = lambda name, *more, launch=launch, launched=launched: launched.append(name) or launch(name, *more)
        assert_identical(engine.sample_rows(a, q, s, draw), reference.sample_rows(a, q, s, draw), f"s = {s}")
        assert {"race_hubs", "pick_in_hubs"} & set(launched)


@pytest.mark.parametrize("schedule", [0, 3, 4 | 2 | 7 << 4])
@pytest.mark.parametrize("law", KEYED)
def test_blocks_that_share_a_hub_draw_many_picks_as_one_would(reference, law, schedule):
    """Also where weights differ by 2^47, some are 0, and where a row has no more positive ones than are drawn."""
    a, rng = graph(), np.random.default_rng(1)
    spread = a.with_values((a.values > 0) << rng.integers(0, 48, a.nnz))
    few = a.with_values(a.values * (rng.random(a.nnz) < 0.01))
    for matrix, s in ((a, FEW + 1), (graph(False), 700), (spread, 100), (spread, 5000), (few, 60), (few.with_values(0 * a.values), 40)):
        q, draw, engine = bulk(3), Stream(8).draw(law), emulated(schedule)
        assert_identical(engine.sample_rows(matrix, q, s, draw), reference.sample_rows(matrix, q, s, draw), f"s = {s}")


@pytest.mark.parametrize("schedule", [pytest.param(0, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long), 4 | 8 | 2 | 1 << 4])
def test_blocks_that_share_a_hub_have_no_race(reference, schedule):
    a, q, draw = graph(), Selection.of([[3, 1], [5]], 9000), Stream(8).draw(Law.RACE)
    assert_identical(emulated(schedule, recorded=True).sample_rows(a, q, 90, draw), reference.sample_rows(a, q, 90, draw))


@pytest.mark.parametrize("law", KEYED)
def test_many_picks_take_no_more_launches_and_fills_where_there_are_hubs(reference, law):
    """Seven a hop and two for the seeds, so that three hops are 23."""
    seeds, draws, asked = bulk(3), [Stream(4).draw(law, layer=h) for h in range(2)], []
    cut = CSR(np.minimum(graph().indptr, HUB), graph().indices[:HUB], graph().values[:HUB], graph().shape)
    for a in (graph(), cut):
        engine, names = emulated(), []
        launch, full = engine.device._launch, engine.device.full
        engine.device._launch = lambda name, *more, launch=launch, names=names: names.append(name) or launch(name, *more)
        engine.device.full = lambda *given, full=full, names=names: names.append("fill") or full(*given)
        assert_same_hops(engine.expand(a, seeds, (50, 40), draws, False), reference.expand(a, seeds, (50, 40), draws, False))
        asked.append((len(names) - names.count("fill"), names.count("fill")))
    assert asked == [(2 + 2 * 7, 3)] * 2


@pytest.mark.parametrize("law", LAWS)
def test_a_recorded_bulk_draws_hubs_too(reference, law):
    """One more launch a hop, so that three hops are 20, and no more fills."""
    a, seeds, draws = graph(), bulk(3), [Stream(4).draw(law, layer=h) for h in range(2)]
    engine = emulated()
    assert_same_hops(engine.expand(a, seeds, (5, 4), draws, False), reference.expand(a, seeds, (5, 4), draws, False))
    (recording,) = engine.device.recordings.values()
    assert len({"race_hubs", "pick_in_hubs"} & set(recording.names)) == 1
    assert recording.names.count(None) == 2
    assert len(recording.names) - 2 == 2 + 2 * 6


@pytest.mark.parametrize("law", LAWS)
def test_a_graph_without_hubs_needs_no_list(law):
    engine = emulated()
    a = CSR(np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32), np.ones(4, np.int64), (2, 2))
    expand(engine.device, engine.device.matrix(a), Selection.of([[0, 1]], 2), (1,), [Stream(4).draw(law)], False)
    (recording,) = engine.device.recordings.values()
    assert not {"race_hubs", "pick_in_hubs"} & set(recording.names)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_more_hubs_than_are_listed_are_drawn_all_the_same(reference, law):
    a, draw = graph(), Stream(8).draw(law)
    q = Selection.of([[1, 3, 2]] * (HUBS + 40), 9000)
    for s in (4, 40):
        assert_identical(emulated(2).sample_rows(a, q, s, draw), reference.sample_rows(a, q, s, draw), f"s = {s}")
