"""Rows of many neighbors, whose slices many warps draw, beside short ones: the draws are those of the reference."""

from functools import cache

import numpy as np
import pytest
from bulks import assert_same_hops
from emulation.host import compiler, emulated
from oracles import assert_identical

from bulksample import CSR, Selection, Stream
from bulksample.backends.cuda.draws import FEW, HUB, HUBS
from bulksample.backends.cuda.node_wise import expand
from bulksample.rng import Law

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
DEGREES = (0, 3, HUB, HUB + 1, 2, 9000)
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


@pytest.mark.parametrize("law", LAWS)
def test_a_recorded_bulk_draws_hubs_too(reference, law):
    """One more launch a hop, so that three hops are at most 24, and no more fills."""
    a, seeds, draws = graph(), bulk(3), [Stream(4).draw(law, layer=h) for h in range(2)]
    engine = emulated()
    assert_same_hops(engine.expand(a, seeds, (5, 4), draws, False), reference.expand(a, seeds, (5, 4), draws, False))
    (recording,) = engine.device.recordings.values()
    assert len({"race_hubs", "pick_in_hubs"} & set(recording.names)) == 1
    assert recording.names.count(None) == 2
    assert len(recording.names) - 2 == 3 + 2 * 7


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
    assert_identical(emulated(2).sample_rows(a, q, 4, draw), reference.sample_rows(a, q, 4, draw))
