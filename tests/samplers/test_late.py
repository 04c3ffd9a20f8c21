"""Mini-batches whose last hop is numbered late are those that are numbered at once, and nothing is numbered before it is asked for."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph

from bulksample import backends, samplers
from bulksample.graph.late import LateMiniBatch
from bulksample.loading.loader import BulkLoader
from bulksample.local_adjacency import LocalAdjacency

GRAPH = community_graph(n=300, degree=6)
NUMBERS = ("vertices", "blocks", "rows", "layers", "num_vertices", "num_edges")


def pairs(sampler, backend="native", **options):
    """Mini-batches numbered at once, and the same ones numbered late."""
    if backend not in backends.available():
        pytest.skip(f"{backend}: {backends.why_not(backend)}")
    adjacency = LocalAdjacency(GRAPH, backends.make(backend))
    asked = {"batch_size": 20, "bulk_size": 3, "seed": 3, "prefetch": False, **options}
    made = [BulkLoader(adjacency, one, np.arange(100), **asked) for one in (sampler, replace(sampler, numbered=False))]
    return list(zip(*made, strict=True))


def is_numbered(minibatch):
    return "numbered" in vars(minibatch)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("name", "fanouts"), [("sage", (4, 3, 2)), ("labor", (4, 3)), ("full", (-1, -1)), ("sage", (5,))])
def test_late_numbers_are_those_of_other_minibatches(name, fanouts, frontier, backend):
    for early, late in pairs(samplers.make(name, fanouts, frontier=frontier), backend):
        assert isinstance(late, LateMiniBatch)
        np.testing.assert_array_equal(early.input_hop.vertices, early.vertices[early.blocks[0].indices])
        np.testing.assert_array_equal(late.input_hop.vertices, early.input_hop.vertices)
        np.testing.assert_array_equal(late.input_hop.pointers, early.blocks[0].indptr)
        assert late.inner.digest() == early.inner.digest()
        assert [late.id, late.epoch, late.seed, late.num_seeds] == [early.id, early.epoch, early.seed, early.num_seeds]
        np.testing.assert_array_equal(late.seeds, early.seeds)
        np.testing.assert_array_equal(late.seed_rows, early.seed_rows)
        assert not is_numbered(late)
        assert late.digest() == early.digest()
        assert is_numbered(late)
        assert late.entries is early.entries is None
        assert (late.nbytes(), late.num_edges, late.num_vertices) == (early.nbytes(), early.num_edges, early.num_vertices)


def test_the_inner_minibatch_is_that_of_one_hop_less():
    """Hops draw from the seeds outwards, so the first hops of a longer mini-batch are those of a shorter one."""
    for (shorter, _), (longer, _) in zip(pairs(samplers.make("sage", (4, 3))), pairs(samplers.make("sage", (4, 3, 2))), strict=True):
        assert longer.inner.digest() == shorter.digest()


@pytest.mark.parametrize("name", NUMBERS)
def test_each_number_may_be_read_first(name):
    for early, late in pairs(samplers.make("sage", (4, 3))):
        getattr(late, name)
        assert is_numbered(late)
        assert late.digest() == early.digest()


def test_pickles_and_copies_are_numbered():
    for early, late in pairs(samplers.make("sage", (4, 3))):
        for made in (pickle.loads(pickle.dumps(late)), copy.deepcopy(late), copy.copy(late)):
            assert made.digest() == early.digest()
            assert made.seed == early.seed == 3


def test_fields_may_be_replaced():
    ((early, late), *_) = pairs(samplers.make("sage", (4, 3)))
    made, expected = replace(late, epoch=5), replace(early, epoch=5)
    assert not isinstance(made, LateMiniBatch)
    assert made.digest() == expected.digest() != early.digest()


def test_names_of_late_minibatches_change_no_state():
    """A loader's state says nothing of numbers: it goes on from one to the other."""
    early, late = (samplers.make("sage", (4, 3)), replace(samplers.make("sage", (4, 3)), numbered=False))
    assert early.identity == late.identity
    assert early.identity_by_type == late.identity_by_type


def test_relations_and_entries_are_numbered_at_once():
    adjacency = LocalAdjacency(GRAPH, backends.make(), by_type=True)
    told = LocalAdjacency(GRAPH, backends.make(), entries=True)
    late = replace(samplers.make("sage", (4, 3)), numbered=False)
    for other, sampler in ((adjacency, late), (told, late), (LocalAdjacency(GRAPH, backends.make()), replace(late, disjoint=False))):
        (made,) = BulkLoader(other, sampler, np.arange(20), batch_size=20, bulk_size=1)
        assert not isinstance(made, LateMiniBatch)
